"""One partition, with full knowledge of all its replicas: what is committed, who must have it, and who has.

Committed is what any leader has ever moved its high watermark over (the TLA+ model's true high watermark), so the
oracle's committed log is there before any producer or consumer can tell. Replicas count as their disks are, whether
or not their broker runs. But a replica that has lost power in a lossy way is left out until its broker runs again and
acts on the metadata: it has registered by then, which ends its membership in ISR and ELR; before, the controller
cannot know. The model has the same exception in other words (its properties speak of RUNNING brokers).

A replica that a reassignment has removed may lead on without knowing, so it is watched until its broker drops it. It
holds nothing for the partition any more, for its log may go at any time.
"""

from __future__ import annotations

from collections.abc import Iterator

from checkers.inside.violation import Violated
from cluster_image.kraft.broker.leadership import Leadership
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata.image import NO_LEADER, PartitionRegistration
from cluster_image.kraft.metadata.records import RECOVERING
from cluster_image.kraft.node import Node
from cluster_image.replication.replica import PartitionKey

from .answers import AnswersOracle
from .logs import Chain, Registry, Replica
from .producers import ProducerOracle


class PartitionReplica(Replica):
    """partition: while a process acts for it. broker_epoch: of that process, or the last one. term: of its present
    leadership, the epoch (-1: it does not lead), the highest high watermark, log end and log start seen."""

    __slots__ = ("broker_epoch", "partition", "term", "term_end", "term_start", "term_watermark")

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.partition: Partition | None = None
        self.broker_epoch = -1
        self.term = -1
        self.term_end = 0
        self.term_start = 0
        self.term_watermark = 0


class PartitionOracle:
    """min_isr: of the state at hand. best_effort: does unclean recovery promise nothing, even within the contract?
    losses: where to note what was lost outside the contract."""

    def __init__(
        self,
        registration: PartitionRegistration,
        min_isr: int,
        elr_enabled: bool,
        losses: list[str],
        best_effort: bool = False,
    ) -> None:
        self.where = f"{registration.topic}-{registration.index}"
        self.key: PartitionKey = (registration.topic_id, registration.index)
        self.registration = registration
        self.min_isr = min_isr
        self.committed = Chain()
        self.replicas: dict[int, PartitionReplica] = {}
        self.was_writable = len(registration.isr) >= min_isr
        self._elr_enabled = elr_enabled
        self._losses = losses
        self._best_effort = best_effort
        self.best_effort_epochs: dict[int, None] = {}  # whose leaders an operator has had elected
        self._registry = Registry("LogMatching", self.where)
        self._lossy: dict[int, None] = {}  # lost power in a lossy way, and not been found complete since
        self._beyond_contract = False
        self._unclean: int | None = None  # elected without knowing whether it is complete: what it has is what counts
        self._era = 0  # leaders of earlier leader epochs count no more
        self._log_start = 0  # the highest that any leader's log has ever had
        self.producers = ProducerOracle(self.where)
        self._answers = AnswersOracle(self.where, registration)

    # -- what happens -----------------------------------------------------------------------------------------

    def add_replica(self, broker: int, node: str) -> None:
        """As yet it holds nothing; unless it was one before, and is not dropped yet."""
        self.replicas.setdefault(broker, PartitionReplica(node))

    def node_started(self, broker: int, *, damaged: bool) -> None:
        if broker in self.replicas:
            self.replicas[broker].damaged = damaged

    def node_gone(self, broker: int, lossy: bool) -> None:
        replica = self.replicas.get(broker)
        if replica is None:
            return
        if replica.partition is not None and not lossy:
            self._registry.absorb(replica, replica.partition.log, self.committed)
        replica.partition = None
        replica.term = -1
        self.producers.replica_gone(replica.node)
        if lossy:
            replica.known = False
            if broker in self.registration.replicas:
                self._lossy[broker] = None
                self._beyond_contract = self._beyond_contract or len(self._lossy) >= self.min_isr

    def changed(self, before: PartitionRegistration, after: PartitionRegistration, min_isr: int) -> None:
        """The committed state is new."""
        self.registration = after
        self._answers.decided(after)
        enough = len(after.isr) >= min_isr
        self.was_writable = enough or (self.was_writable and min_isr <= self.min_isr)
        self.min_isr = min_isr
        for broker in before.replicas:
            if broker not in after.replicas:
                self._lossy.pop(broker, None)
        best_effort = self._best_effort or after.leader_epoch in self.best_effort_epochs
        if _is_unclean_election(before, after) and (self._beyond_contract or best_effort):
            # Whatever has been lost is lost now. Within the contract nothing may be (002, 5.3.2).
            self._unclean = after.leader
            self._era = after.leader_epoch

    def truncated(self, broker: int, node: Node, end: int) -> None:
        replica = self.replicas.get(broker)
        # Another partition, removed since, may have had this name.
        if replica is not None and node.broker is not None and node.broker.partitions.get(self.key) is not None:
            replica.truncate(replica.count_below(end))

    def look(self, broker: int, node: Node, verify: bool = False) -> None:
        """See what has become of a replica. verify: do not trust what was seen before. Raises Violated."""
        replica = self.replicas.get(broker)
        if replica is None or node.broker is None:
            return
        partition = node.broker.partitions.get(self.key)
        if partition is None:
            if replica.partition is not None:
                self._dropped(broker, replica)
            return
        before = replica.end
        anew = partition is not replica.partition
        if anew:
            lost_power = not replica.known
            replica.forget()
            replica.partition = partition
            replica.broker_epoch = node.broker.broker_epoch
            self._registry.absorb(replica, partition.log, self.committed)
            beyond = self._beyond_contract and not self._elr_enabled
            if lost_power and beyond and self.registration.isr == (broker,):
                self._unclean = broker  # without ELR nobody else can be elected
                self._era = self.registration.leader_epoch
        elif verify:
            self._registry.verify(replica, partition.log, self.committed)
        else:
            new = self._registry.absorb(replica, partition.log, self.committed)
            if new and not partition.is_leader:
                self._check_follows(replica, partition)
        if self._unclean is not None:
            self._start_anew()
        new = len(replica.batches) - (0 if anew else replica.count_below(before))
        thoroughly = verify or anew or replica.cut is not None
        if not replica.damaged:  # what it remembers of producers may come from other numbers than it ever got
            self.producers.look(replica, partition, new, thoroughly=thoroughly, lost=self._era > 0)
        self._answers.look(replica.node, partition, self.min_isr if self._elr_enabled else 0)
        self._check_replica(replica, partition)

    def _dropped(self, broker: int, replica: PartitionReplica) -> None:
        """Its broker has deleted it."""
        replica.forget()
        replica.known = True
        replica.partition = None
        replica.term = -1
        self.producers.replica_gone(replica.node)
        if broker not in self.registration.replicas:
            del self.replicas[broker]

    # -- properties of one replica ----------------------------------------------------------------------------

    def _check_follows(self, replica: PartitionReplica, partition: Partition) -> None:
        """Right after an append: a follower has a prefix of its leader's log (description 6.6)."""
        leader = self.replicas.get(partition.leader)
        if leader is None or leader.partition is None or not leader.known or not replica.known:
            return
        of_this_epoch = leader.partition.is_leader and leader.partition.leader_epoch == partition.leader_epoch
        if of_this_epoch and not leader.holds(replica):
            at = leader.common(replica)
            raise Violated(
                "LogMatching",
                f"{replica.node} follows {leader.node} in leader epoch {partition.leader_epoch} and has appended, and "
                f"its log has {replica.describe(at)} where {leader.node} has {leader.describe(at)}",
                self.where,
                (replica.node, leader.node),
            )

    def _check_replica(self, replica: PartitionReplica, partition: Partition) -> None:
        watermark, leadership, start = partition.high_watermark, partition.leadership, partition.log.start_offset
        if start > watermark:
            self._fail("ValidLogStart",
                       f"the log of {replica.node} starts at {start}, and as far as it knows only what is below "
                       f"{watermark} is committed", replica)  # fmt: skip
        if leadership is not None:
            self._log_start = max(self._log_start, start)
        elif start > self._log_start:
            self._fail("ValidLogStart",
                       f"the log of {replica.node}, which does not lead, starts at {start}, and no leader's has "
                       f"started above {self._log_start}", replica)  # fmt: skip
        if replica.known and watermark > max(replica.end, start):
            self._fail("HighWatermarkMonotonicity",
                       f"the high watermark of {replica.node} is {watermark}, its log ends at {replica.end}",
                       replica)  # fmt: skip
        if leadership is None:
            replica.term = -1
        elif partition.leader_epoch >= self._era:
            self._check_term(replica, partition, leadership)
            self._commit(replica, partition)
        replica.cut = None

    def _check_term(self, replica: PartitionReplica, partition: Partition, leadership: Leadership) -> None:
        epoch, watermark = partition.leader_epoch, partition.high_watermark
        if replica.term != epoch:
            replica.term, replica.term_end, replica.term_watermark, replica.term_start = epoch, replica.end, 0, 0
        elif replica.cut is not None and replica.cut < replica.term_end:
            self._fail("LeaderAppendOnly",
                       f"{replica.node} leads epoch {epoch} and has cut its log from {replica.term_end} to "
                       f"{replica.cut}", replica)  # fmt: skip
        for batch in replica.batches[replica.count_below(replica.term_end) :]:
            if batch.epoch != epoch:
                self._fail("LeaderAppendOnly",
                           f"{replica.node} leads epoch {epoch} from offset {leadership.epoch_start} on, and its log "
                           f"has grown by {batch}, which it did not write", replica)  # fmt: skip
        if watermark < replica.term_watermark:
            self._fail("HighWatermarkMonotonicity",
                       f"the high watermark of {replica.node}, leader of epoch {epoch}, fell from "
                       f"{replica.term_watermark} to {watermark}", replica)  # fmt: skip
        start = partition.log.start_offset
        if start < replica.term_start:
            self._fail("ValidLogStart",
                       f"the log start of {replica.node}, leader of epoch {epoch}, fell from {replica.term_start} to "
                       f"{start}", replica)  # fmt: skip
        told = max((follower.deleted_below for follower in leadership.followers.values()), default=-1)
        if start < min(told, watermark):
            self._fail("ValidLogStart",
                       f"the log of {replica.node}, leader of epoch {epoch}, starts at {start}; a follower has told "
                       f"that it has deleted all below {told}, and its high watermark is {watermark}",
                       replica)  # fmt: skip
        replica.term_end, replica.term_watermark = max(replica.term_end, replica.end), watermark
        replica.term_start = start

    def _commit(self, replica: PartitionReplica, partition: Partition) -> None:
        """Everything below a leader's high watermark is committed, and can be read from now on."""
        if not replica.known:
            return
        count = replica.count_below(partition.high_watermark)
        both = min(count, len(self.committed.batches))
        if both and replica.batches[both - 1] is not self.committed.batches[both - 1]:
            at = replica.common(self.committed)
            self._fail("ConsistentRead",
                       f"{replica.node}, leader of epoch {partition.leader_epoch} with high watermark "
                       f"{partition.high_watermark}, shows {replica.describe(at)}, and {self.committed.describe(at)} "
                       "could be read there before", replica)  # fmt: skip
        for batch in replica.batches[both:count]:
            self.committed.append(batch)

    # -- properties of the whole ------------------------------------------------------------------------------

    def check(self) -> None:
        """Once every change of this step has been seen. Raises Violated."""
        if self._unclean is not None:
            self._start_anew()
        if self._unclean is None:
            self._check_leader_complete()
            self._check_candidates_complete()
            self._check_somebody_complete()
        leader = self._leading()
        if leader is not None:
            self._check_quorum_superset(*leader)
            self._check_followers(*leader)
            self._check_proposed(*leader)
            self._check_applied_watermark(*leader)

    def _leading(self) -> tuple[PartitionReplica, Partition, Leadership] | None:
        """The replica that leads and that the controller takes for the leader (the model's non-stale leader)."""
        replica = self.replicas.get(self.registration.leader)
        partition = replica.partition if replica is not None else None
        if replica is None or partition is None or partition.leadership is None:
            return None
        current = partition.leader_epoch == self.registration.leader_epoch
        return (replica, partition, partition.leadership) if current else None

    def _known(self, brokers: tuple[int, ...]) -> Iterator[tuple[int, PartitionReplica]]:
        for broker in brokers:
            replica = self.replicas.get(broker)
            if replica is not None and replica.known:
                yield broker, replica

    def _check_leader_complete(self) -> None:
        for _, replica in self._known((self.registration.leader,)):
            if not replica.holds(self.committed):
                self._incomplete("LeaderCompleteness", f"elected leader of epoch {self.registration.leader_epoch}",
                                 replica)  # fmt: skip

    def _check_candidates_complete(self) -> None:
        registration = self.registration
        for broker, replica in self._known((*registration.isr, *registration.elr)):
            if not self._elr_enabled and registration.leader == NO_LEADER and not replica.holds(self.committed):
                continue  # the last member stays in the ISR without a choice (000, 2.8): it counts once it is elected
            if not replica.holds(self.committed):
                of = "ISR" if broker in registration.isr else "ELR"
                self._incomplete("LeaderCandidateCompleteness",
                                 f"in the {of} as of partition epoch {registration.partition_epoch} (leader "
                                 f"{registration.leader}, ISR {list(registration.isr)}, ELR {list(registration.elr)})",
                                 replica)  # fmt: skip
            self._lossy.pop(broker, None)

    def _incomplete(self, property_: str, what: str, replica: PartitionReplica) -> None:
        at = replica.common(self.committed)
        end = self.committed.ends[at - 1] if at else 0
        self._fail(property_,
                   f"{replica.node} is {what}, but of the log committed up to offset {self.committed.end} it holds "
                   f"only what is below {end}: there it has {replica.describe(at)}, and committed is "
                   f"{self.committed.describe(at)}", replica)  # fmt: skip

    def _check_somebody_complete(self) -> None:
        if not self._elr_enabled and self.registration.leader == NO_LEADER:
            return  # what the last member of the ISR had alone: LeaderCompleteness tells more, once it is elected
        replicas = [self.replicas[r] for r in self.registration.replicas if r in self.replicas]
        if any(not replica.known or replica.holds(self.committed) for replica in replicas):
            return
        best = max((replica.common(self.committed) for replica in replicas), default=0)
        end = self.committed.ends[best - 1] if best else 0
        message = (
            f"offsets {end} to {self.committed.end - 1} were committed, and no replica has them any more: "
            + ", ".join(f"{r.node} shares {r.common(self.committed)} batches" for r in replicas)
            + f" of {len(self.committed.batches)}"
        )
        if not self._beyond_contract:
            raise Violated("NoCommittedRecordLostGlobally", message, self.where, [r.node for r in replicas])
        self._losses.append(f"{self.where}: {message} (beyond the contract)")
        self.committed.truncate(best)

    def _start_anew(self) -> None:
        """After an unclean election outside the contract: what the elected replica holds is the committed log now."""
        assert self._unclean is not None
        replica = self.replicas.get(self._unclean)
        if replica is None or not replica.known or replica.partition is None:
            return  # not to be seen yet: nothing is asked of anybody until it is, or another is elected
        kept = replica.common(self.committed)
        if kept < len(self.committed.batches):
            why = "unclean, beyond the contract" if self._beyond_contract else "unclean, by a strategy without promises"
            end = self.committed.ends[kept - 1] if kept else 0
            self._losses.append(
                f"{self.where}: offsets {end} to {self.committed.end - 1} are lost: {replica.node} was elected without "
                f"them for leader epoch {self._era} ({why})"
            )
            self.committed.truncate(kept)
        self._lossy.pop(self._unclean, None)
        self._unclean = None
        self._beyond_contract = len(self._lossy) >= self.min_isr

    def _check_quorum_superset(self, replica: PartitionReplica, partition: Partition, leadership: Leadership) -> None:
        maximal = leadership.maximal_isr
        if leadership.proposal is None and maximal != partition.isr:
            self._fail("ReplicationQuorumSuperset",
                       f"{replica.node} has proposed nothing, yet its maximal ISR is {sorted(maximal)} and its ISR "
                       f"{sorted(partition.isr)}", replica)  # fmt: skip
        if len(partition.isr) < self.min_isr and self._elr_enabled:
            return
        electable = {*self.registration.isr, *self.registration.elr}
        if not electable <= maximal:
            self._fail("ReplicationQuorumSuperset",
                       f"{replica.node} leads epoch {partition.leader_epoch} and commits what its maximal ISR "
                       f"{sorted(maximal)} has (ISR {sorted(partition.isr)}, partition epoch "
                       f"{partition.partition_epoch}), but the controller may also elect "
                       f"{sorted(electable - maximal)} (ISR {list(self.registration.isr)}, ELR "
                       f"{list(self.registration.elr)}, partition epoch {self.registration.partition_epoch})",
                       replica)  # fmt: skip

    def _check_followers(self, replica: PartitionReplica, partition: Partition, leadership: Leadership) -> None:
        """What a leader counts on is there."""
        if not replica.known:
            return
        for broker, state in leadership.followers.items():
            follower = self.replicas.get(broker)
            counts = follower is not None and follower.known and follower.broker_epoch == state.broker_epoch
            if follower is None or not counts:
                continue
            if state.end_offset <= partition.log.start_offset:
                continue  # it has nothing of this log, and has to begin anew: it may end in the midst of that
            count = replica.count_below(state.end_offset)
            if not count or (
                len(follower.batches) >= count and follower.batches[count - 1] is replica.batches[count - 1]
            ):
                continue
            at = replica.common(follower)
            self._fail("StrongIsr",
                       f"{replica.node}, leader of epoch {partition.leader_epoch}, counts on {follower.node} having "
                       f"its log up to offset {state.end_offset}, but that one has {follower.describe(at)} where the "
                       f"leader has {replica.describe(at)}", follower)  # fmt: skip

    def _check_proposed(self, replica: PartitionReplica, partition: Partition, leadership: Leadership) -> None:
        """A leader adds only who is complete: the controller may have accepted before anybody knows."""
        if leadership.proposal is None or self._unclean is not None:
            return
        for broker, epoch in leadership.proposal.isr:
            added = self.replicas.get(broker)
            if broker in partition.isr or added is None or not added.known or added.broker_epoch != epoch:
                continue
            if not added.holds(self.committed):
                self._incomplete("LeaderCandidateCompleteness",
                                 f"proposed for the ISR by {replica.node}, leader of epoch {partition.leader_epoch} "
                                 f"from offset {leadership.epoch_start} on, with high watermark "
                                 f"{partition.high_watermark}", added)  # fmt: skip

    def _check_applied_watermark(self, replica: PartitionReplica, partition: Partition, term: Leadership) -> None:
        watermark = partition.high_watermark
        if term.epoch_start <= watermark < self.committed.end and replica.known:
            self._fail("HighWatermarkMonotonicity",
                       f"{replica.node}, leader of epoch {partition.leader_epoch}, takes its high watermark "
                       f"{watermark} for the true one, having reached its epoch's start {term.epoch_start}, but "
                       f"{self.committed.end} was reached before", replica)  # fmt: skip

    def _fail(self, property_: str, message: str, replica: PartitionReplica) -> None:
        raise Violated(property_, message, self.where, (replica.node,))


def _is_unclean_election(before: PartitionRegistration, after: PartitionRegistration) -> bool:
    """Has somebody been elected who was not known to be complete? A replica that a reassignment adds may join the ISR
    and lead by one and the same record."""
    if after.leader in (NO_LEADER, before.leader) or after.leader in (*before.isr, *before.elr):
        return False
    return after.leader_recovery_state == RECOVERING or not (before.isr or before.elr)
