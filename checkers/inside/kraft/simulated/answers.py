"""Whether replicas take nothing for true that came too late, stems from before a restart, or was never answered; and
ask for nothing that stands already.

| property        | statement                                                                    | checked when
| --------------- | ---------------------------------------------------------------------------- | --------------------
| DecidedIsr      | what a replica takes for the ISR of a partition epoch, the controller has    | the replica changes
|                 | decided for that epoch (an answer to AlterPartition may tell it before the   |
|                 | metadata log does)                                                           |
| FollowerSession | the uptime session in which a leader knows a follower never becomes an       | the leader changes
|                 | earlier one, in one leader epoch                                             |
| ProposedIsr     | what a leader proposes is another ISR than the one it has, or that it has    | the leader changes
|                 | recovered from an unclean election; and where the ISR is below MinISR, so    |
|                 | that the high watermark stands still, it adds nobody who lags, and would     |
|                 | leave it again                                                               |

Sources: 000, 2.9 and 2.9.2; KIP-903; KIP-704; KAFKA-19996; Apache Kafka's Partition.needsShrinkIsr and needsExpandIsr.
"""

from __future__ import annotations

from checkers.inside.violation import Violated
from cluster_image.kraft.broker.leadership import IsrProposal, Leadership
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata.image import PartitionRegistration
from cluster_image.kraft.metadata.records import RECOVERING


class AnswersOracle:
    """Of one partition. Methods raise Violated."""

    def __init__(self, where: str, registration: PartitionRegistration) -> None:
        self._where = where
        self._isr: dict[int, frozenset[int]] = {}  # by partition epoch, what was decided
        self._recovering: set[int] = set()  # partition epochs
        self._sessions: dict[tuple[str, int], tuple[int, int]] = {}  # by node and follower: leader epoch, broker epoch
        self._proposals: dict[str, IsrProposal | None] = {}  # by node, as it was seen last
        self.decided(registration)

    def decided(self, registration: PartitionRegistration) -> None:
        """A record of the controller is committed."""
        self._isr[registration.partition_epoch] = frozenset(registration.isr)
        if registration.leader_recovery_state == RECOVERING:
            self._recovering.add(registration.partition_epoch)

    def look(self, node: str, partition: Partition, min_isr: int) -> None:
        """min_isr: as of the partition epoch that is decided; 0: nothing waits for it, as there is no ELR."""
        epoch = partition.partition_epoch
        decided = self._isr.get(epoch)
        if epoch >= 0 and decided != partition.isr:
            what = "nothing yet" if decided is None else f"{sorted(decided)}"
            raise Violated(
                "DecidedIsr",
                f"{node} takes {sorted(partition.isr)} for the ISR as of partition epoch {epoch}; the controller has "
                f"decided {what} for that",
                self._where,
                (node,),
            )
        if partition.leadership is not None:
            self._look_at_sessions(node, partition.leader_epoch, partition.leadership)
            proposal = partition.leadership.proposal
            is_new = proposal is not self._proposals.get(node)
            self._proposals[node] = proposal
            if proposal is not None and proposal.partition_epoch == partition.partition_epoch:
                self._look_at_proposal(node, partition, proposal)
                if is_new and epoch == max(self._isr) and len(partition.isr) < min_isr:
                    self._look_at_added(node, partition, partition.leadership, proposal)

    def _look_at_added(self, node: str, partition: Partition, leadership: Leadership, proposal: IsrProposal) -> None:
        """By a leader that may commit nothing, at a fetch of each."""
        max_lag = partition.config.seconds("replica.lag.time.max.ms")
        added = {broker for broker, _ in proposal.isr} - partition.isr
        for broker, follower in leadership.followers.items():
            if broker not in added:
                continue
            since = follower.last_fetch - follower.last_caught_up
            if since > max_lag and follower.end_offset < follower.leader_end_at_last_fetch:
                raise Violated(
                    "ProposedIsr",
                    f"{node}, leader of epoch {partition.leader_epoch}, proposes broker {broker} for the ISR "
                    f"{sorted(partition.isr)}, which is too small to commit anything; that one has "
                    f"{follower.end_offset} of {follower.leader_end_at_last_fetch}, and has not been caught up within "
                    f"{max_lag:g} s",
                    self._where,
                    (node,),
                )

    def _look_at_proposal(self, node: str, partition: Partition, proposal: IsrProposal) -> None:
        same = {broker for broker, _ in proposal.isr} == partition.isr
        if same and proposal.partition_epoch not in self._recovering:
            raise Violated(
                "ProposedIsr",
                f"{node}, leader of epoch {partition.leader_epoch}, proposes the ISR {sorted(partition.isr)}, which is "
                f"decided already, as of partition epoch {proposal.partition_epoch}",
                self._where,
                (node,),
            )

    def _look_at_sessions(self, node: str, leader_epoch: int, leadership: Leadership) -> None:
        for broker, follower in leadership.followers.items():
            before = self._sessions.get((node, broker), (-1, -1))
            if before[0] == leader_epoch and follower.broker_epoch < before[1]:
                raise Violated(
                    "FollowerSession",
                    f"{node}, leader of epoch {leader_epoch}, has known broker {broker} in its session of broker epoch "
                    f"{before[1]}, and now takes a fetch of session {follower.broker_epoch} for later",
                    self._where,
                    (node,),
                )
            self._sessions[node, broker] = (leader_epoch, follower.broker_epoch)
