"""Follows the nodes' traces, and after each step checks the invariants of whatever it has changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from functools import partial
from typing import Any, Final

from checkers.inside.violation import Unmet, Violated
from checkers.properties import REQUESTS_ANSWERED
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata.image import PartitionRegistration
from cluster_image.kraft.node import METADATA_DIRECTORY, Node

from . import assignments, metadata
from .answering.acknowledging import Acknowledging
from .answering.deciding import DecidingOracle
from .answering.fetching import Fetching
from .answering.lookups import check_ends, check_offsets
from .answering.producing import AT_ONCE_S, check_refused
from .answering.voters import VotersOracle
from .durability import Disk, DurabilityOracle
from .following import check_fetched
from .liveness.deleting import Deleting
from .liveness.expansion import Expansion
from .liveness.leftovers import Leftovers
from .liveness.reassigning import Reassigning
from .liveness.resigning import Resigning
from .liveness.shrinking import Shrinking
from .liveness.unmet import check_leader, unmet
from .log_files import LogFilesOracle
from .partitions import PartitionOracle
from .quorum import Change, QuorumOracle
from .states import Faults, States

BALANCED: Final = "balanced"
_OF_PARTITIONS: Final = frozenset({
    "role", "isr", "isr proposed", "append", "duplicate", "truncate", "high watermark", "log start",
})  # fmt: skip
_OF_QUORUM: Final = frozenset({"quorum", "metadata", "metadata append", "metadata truncate", "metadata snapshot"})


class Invariants:
    """min_insync_replicas, unclean_strategy: of topics that have no value of their own. elr_enabled:
    eligible.leader.replicas.version. deletes_topics: delete.topic.enable. session_s: broker.session.timeout.ms, in
    seconds.

    Every method may raise Violated; the run is over then. losses: what was lost outside the contract, one sentence
    each: not violations."""

    def __init__(
        self, min_insync_replicas: int, elr_enabled: bool = True, unclean_strategy: str = BALANCED,
        deletes_topics: bool = True, session_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.losses: list[str] = []
        self._min_isr = min_insync_replicas
        self._elr_enabled = elr_enabled
        self._unclean_strategy = unclean_strategy
        self._nodes: dict[str, Node] = {}  # those whose processes run
        self._ids: dict[str, int] = {}  # of every node that ever ran
        self._quorum = QuorumOracle(self._batch_replayed)
        self._expansion = Expansion()
        self._shrinking = Shrinking()
        self._reassigning = Reassigning(
            lambda partition: metadata.effective_min_isr(partition, self._quorum.image, self._min_isr)
        )
        self._resigning = Resigning()
        self._deleting = Deleting()
        self._leftovers = Leftovers(session_s)
        self._durability = DurabilityOracle()
        self._log_files = LogFilesOracle()
        self._acknowledging = Acknowledging()
        self._fetching = Fetching(self._acknowledging.before)
        self._answered: Mapping[str, Callable[[str, Node, Any, Any, float, float], None]] = {
            "ProduceRequest": self._check_produced,
            "FetchRequest": self._fetching.check,
            "ListOffsetsRequest": _untimed(partial(check_offsets, before=self._acknowledging.before)),
            "OffsetForLeaderEpochRequest": _untimed(check_ends),
        }
        self._deciding = DecidingOracle(min_insync_replicas, deletes_topics, session_s)
        self._voters = VotersOracle()
        self._partitions: dict[str, PartitionOracle] = {}
        self._states: States | None = None
        # What check() has to look at: (node, ""), (node, partition), or ("", partition) for its committed state.
        self._dirty: dict[tuple[str, str], None] = {}

    def count_states(self, faults: Callable[[], Faults]) -> tuple[Set[int], Set[int]]:
        """See harness.targets.target.Invariants."""
        self._states = States(faults)
        return self._states.seen, self._states.under_faults

    def unsettled(self, processes: Mapping[str, Node | None]) -> Unmet | None:
        """See liveness.unmet(); a violation that is found by looking so closely, too."""
        try:
            return unmet(processes)
        except Violated as violated:
            return Unmet(str(violated), violated.property)

    def not_recovered(self, processes: Mapping[str, Node | None]) -> str:
        """See harness.targets.target.Invariants. Where all is as it must be inside, it is the clients that wait."""
        left = self.unsettled(processes)
        return REQUESTS_ANSWERED if left is None else left.property

    # -- what happens -----------------------------------------------------------------------------------------

    def node_started(self, name: str, node: Node, disk: Disk | None = None) -> None:
        """A process begins, before anything of it has run. disk: its own; None: what it takes to be durable is not
        asked."""
        self._nodes[name] = node
        self._acknowledging.node_started(name)
        self._fetching.node_started(name)
        if node.controller is not None:
            node.controller.decided = partial(self._deciding.decided, name)
        node.raft.watch = self._voters.watch(name)
        if disk is not None:
            self._durability.node_started(name, disk)
            self._log_files.node_started(name, disk)
            self._leftovers.node_started(name, disk)
        self._ids[name] = node.raft.node_id
        damaged = disk is not None and disk.damaged
        for partition in self._partitions.values():
            partition.node_started(self._ids[name], damaged=damaged)
        self._quorum.node_started(name, node, damaged=damaged)

    def node_gone(self, name: str, lossy: bool | Collection[str]) -> None:
        """Its process is over, or was before and now its machine has lost something.

        lossy: False when the page cache has survived, True when anything written may be lost; or the directories of
        the disk in which something is ("topic-0"), which says the same of these alone."""
        self._nodes.pop(name, None)
        self._durability.node_gone(name, lossy=bool(lossy))
        self._log_files.node_gone(name)
        broker = self._ids.get(name)
        if broker is None:
            return  # it has never run
        self._quorum.node_gone(name, _is_lost(METADATA_DIRECTORY, lossy))
        for where, partition in self._partitions.items():
            if _is_lost(where, lossy) and (end := self._end_of(where, broker)) is not None:
                self._shrinking.loses(where, broker, end)
            partition.node_gone(broker, _is_lost(where, lossy))
            self._dirty.pop((name, where), None)
            self._dirty["", where] = None
        self._dirty.pop((name, ""), None)

    def changed(self, name: str, event: str, where: str, fields: Mapping[str, object]) -> None:
        """What a node's trace tells, at once."""
        if event in _OF_PARTITIONS:
            self._dirty[name, where] = None
            if event == "duplicate" and where in self._partitions:
                self._partitions[where].producers.answered_duplicate(name, fields)
            if event == "high watermark":
                self._acknowledging.told(where, int(str(fields["offset"])))
            if event == "isr proposed":
                self._expansion.proposed(name, where)
                self._shrinking.proposed(name, where)
            if event == "truncate":
                self._durability.truncated(name, where)
            if event == "truncate" and name in self._nodes and where in self._partitions:
                # At once: what is appended in the same step must not hide it.
                self._partitions[where].truncated(self._ids[name], self._nodes[name], int(str(fields["end"])))
        elif event == "unclean recovery" and where in self._partitions:
            if fields["strategy"] == BALANCED:
                metadata.check_recovered(name, where, fields)
            else:
                self._partitions[where].best_effort_epochs[int(str(fields["leader_epoch"]))] = None
        elif event in _OF_QUORUM:
            self._dirty[name, ""] = None

    def asks(self, name: str, request: Any, now: float) -> None:
        """See harness.targets.target.Invariants."""
        if name in self._nodes:
            self._acknowledging.asked(name, request, now)

    def answers(self, name: str, request: Any, response: Any, since: float, now: float) -> None:
        """See harness.targets.target.Invariants."""
        check = self._answered.get(type(request).__name__)
        self._acknowledging.ended(name, request)
        if name in self._nodes and response is not None:
            if check is not None:
                check(name, self._nodes[name], request, response, since, now)
            self._fetching.answered(name, now)
            self._acknowledging.answered(name)
            self._shrinking.answered(name)

    def _check_produced(
        self, name: str, node: Node, request: Any, response: Any, since: float, now: float
    ) -> None:  # fmt: skip
        self._acknowledging.check(name, node, request, response)
        if now - since <= AT_ONCE_S:
            check_refused(name, node, request, response, self._acknowledging.before)

    # -- checks -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After a step: what it has changed."""
        self._deciding.raise_found()
        self._voters.raise_found()
        if not self._dirty:
            return
        for name, where in list(self._dirty):
            if name in self._nodes and not where:
                self._quorum.look(name, self._nodes[name])
                self._look_at_quorum(name)
                if self._states is not None:
                    self._states.look_at_quorum(self._nodes)
        dirty, self._dirty = self._dirty, {}
        touched: dict[str, None] = {}
        for name, where in dirty:
            partition = self._partitions.get(where)
            if partition is not None:
                touched[where] = None
                if name in self._nodes:
                    partition.look(self._ids[name], self._nodes[name])
                    if (replica := self._replica(name, partition)) is not None:
                        self._durability.look(name, replica.log)
                        check_leader(name, self._ids[name], replica)
        for where in touched:
            self._partitions[where].check()
        if self._states is not None and touched:
            self._states.look([self._partitions[where] for where in touched])

    def check_liveness(self, now: float) -> None:
        """now: virtual seconds."""
        self._expansion.look(self._nodes, now)
        self._shrinking.look(self._nodes, self._end_of, now)
        self._reassigning.look(self._quorum.image, now)
        self._resigning.look(self._nodes, now)
        self._deleting.look(self._nodes, now)
        self._leftovers.look(self._nodes, now)
        self._acknowledging.look(self._nodes, now)
        self._fetching.look(self._nodes, now)
        for name, node in self._nodes.items():
            if node.broker is not None:
                check_fetched(name, node.broker)

    def check_all(self) -> None:
        """Everything, from what the nodes' logs really hold, whatever their traces have told."""
        for name, node in self._nodes.items():
            self._quorum.look(name, node, verify=True)
            self._look_at_quorum(name, verify=True)
            self._durability.look_at_files(name, node)
            self._log_files.look(name, node)
        self._quorum.check_majority()
        metadata.check_state(self._quorum.image, self._min_isr, self._elr_enabled)
        self._dirty.clear()
        for partition in self._partitions.values():
            for name, node in self._nodes.items():
                if self._ids[name] in partition.replicas:
                    partition.look(self._ids[name], node, verify=True)
                    if (replica := self._replica(name, partition)) is not None:
                        self._durability.look(name, replica.log, verify=True)
            partition.check()

    def _look_at_quorum(self, name: str, verify: bool = False) -> None:
        quorum = self._nodes[name].raft.quorum
        if quorum is not None:
            self._durability.look(name, quorum.replica.log, verify)
            self._durability.look_at_quorum(name, self._nodes[name], self._nodes)

    def _replica(self, name: str, partition: PartitionOracle) -> Partition | None:
        broker = self._nodes[name].broker
        return None if broker is None else broker.partitions.get(partition.key)

    def _end_of(self, where: str, broker: int) -> int | None:
        partition = self._partitions.get(where)
        replica = None if partition is None else partition.replicas.get(broker)
        return None if replica is None or not replica.known else replica.end

    def _batch_replayed(self, changes: list[Change]) -> None:
        """A batch of metadata is committed: the controller's state must be valid again."""
        image = self._quorum.image
        metadata.check_state(image, self._min_isr, self._elr_enabled)
        names = {broker: name for name, broker in self._ids.items()}
        for before, after in changes:
            known = before or after
            assert known is not None
            where = f"{known.topic}-{known.index}"
            if after is None:
                self._partitions.pop(where, None)
                continue
            topic = image.topics.get(after.topic)
            if topic is None or topic.id != after.topic_id:
                continue  # removed by a later record of this batch
            min_isr = metadata.effective_min_isr(after, image, self._min_isr)
            if before is None:
                partition = self._partitions[where] = self._oracle(after, min_isr)
            else:
                metadata.check_told(before, after)
                assignments.check_left(before, after, metadata.min_isr_of(after, image, self._min_isr))
                partition = self._partitions[where]
                partition.changed(before, after, min_isr)
                if self._elr_enabled and partition.was_writable:
                    metadata.check_recovery_quorum(after, partition.min_isr)
            for broker in after.replicas:
                partition.add_replica(broker, names.get(broker, f"broker {broker}"))
            self._dirty["", where] = None

    def _oracle(self, registration: PartitionRegistration, min_isr: int) -> PartitionOracle:
        settings = self._quorum.image.topics[registration.topic].settings
        # Proactive and manual recovery choose availability, or what a person knows better (002, 5.3.1).
        best_effort = settings.get("unclean.recovery.strategy", self._unclean_strategy).lower() != BALANCED
        return PartitionOracle(registration, min_isr, self._elr_enabled, self.losses, best_effort)


def _is_lost(directory: str, lossy: bool | Collection[str]) -> bool:
    return lossy if isinstance(lossy, bool) else directory in lossy


def _untimed(check: Callable[[str, Node, Any, Any], None]) -> Callable[[str, Node, Any, Any, float, float], None]:
    return lambda name, node, request, response, since, now: check(name, node, request, response)
