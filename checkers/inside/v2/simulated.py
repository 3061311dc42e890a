"""What a simulated cluster of this generation must come to once all faults are healed (settled.py), and what holds at
every step whatever 001 got wrong:

| property      | statement                                                             | checked when
| ------------- | --------------------------------------------------------------------- | ------------------------------
| ElectedIsr    | a new leader begins with the ISR that the one before it left: of whom | it has written the ISR first
|               | it gives up nobody knows who is there                                 |
| IsrOfReplicas | once its followers have had their time a new leader counts alone on   | it has written the ISR, and
|               | what it knows for replicas: the ISR that it found can name a broker   | does not serve yet
|               | that has been removed                                                 |
| progress.py   | what must come about under load                                       | five times a second

Nothing else stops a run: that logs diverge and acknowledged records go is what 001 is known for (004), and the history
and the replicas' logs are judged for it in the end, with every cause on record.

Source: 001, becomeLeader; KAFKA-9672."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

from checkers.inside.violation import Unmet, Violated
from checkers.properties import ELECTED_ISR, ISR_OF_REPLICAS, REQUESTS_ANSWERED
from cluster_image.v2.metadata import paths
from cluster_image.v2.metadata.paths import Isr
from cluster_image.v2.node import Node
from cluster_image.v2.partition.replica import Partition

from .progress import Progress
from .settled import unsettled
from .states import States


class Invariants:
    """Implements harness.targets.target.Invariants."""

    losses: Sequence[str] = ()

    def __init__(self) -> None:
        self._states: States | None = None
        self._nodes: dict[str, Node] = {}  # brokers whose processes run
        self._servers: dict[str, Any] = {}  # of ZooKeeper, whose processes run
        self._ids: dict[str, int] = {}
        self._progress = Progress()
        self._isr: dict[str, dict[int, frozenset[int]]] = {}  # of each partition, by the version of its node
        self._began: dict[tuple[str, str], int] = {}  # node and partition: leader epoch
        self._replicas: dict[str, dict[str, None]] = {}  # by partition, brokers that ever had one
        self._dirty: dict[str, None] = {}  # partitions
        self._written: dict[tuple[str, str], int] = {}  # node, and partition whose ISR it has written: leader epoch
        self._terms: dict[str, int] = {}  # see unsettled()

    def changed(self, node: str, event: str, where: str, fields: Mapping[str, object]) -> None:
        if event == "start":
            self._ids[node] = int(str(fields["node_id"]))
        elif where:
            self._replicas.setdefault(where, {})[node] = None
            self._dirty[where] = None
            if event == "isr written":
                self._written[node, where] = int(str(fields["leader_epoch"]))

    def asks(self, node: str, request: Any, now: float) -> None: ...

    def answers(self, node: str, request: Any, response: Any, since: float, now: float) -> None:
        self._progress.answered(node)

    def node_started(self, name: str, process: Any, disk: Any) -> None:
        if isinstance(process, Node):
            self._nodes[name] = process
        else:
            self._servers[name] = process

    def node_gone(self, name: str, lossy: bool | Collection[str]) -> None:
        self._nodes.pop(name, None)
        self._servers.pop(name, None)
        self._dirty |= {where: None for where, brokers in self._replicas.items() if name in brokers}

    def check(self) -> None:
        """See above; and the states that it is in are counted."""
        dirty, self._dirty = self._dirty, {}
        written, self._written = self._written, {}
        for (name, where), epoch in written.items():
            if (replica := self._replica(where, name)) is not None:
                _check_isr(name, where, replica, epoch)
        for where in dirty:
            self._look_at_isr(where)
        if self._states is not None:
            for where in dirty:
                self._states.look({self._ids[name]: self._replica(where, name) for name in self._replicas[where]})

    def _look_at_isr(self, where: str) -> None:
        """As ZooKeeper has it now, and as a new leader has taken it over."""
        known = self._isr.setdefault(where, {})
        topic, _, index = where.rpartition("-")
        for server in self._servers.values():
            if server.leads and (found := server.tree.node(paths.isr(topic, int(index)))) is not None:
                if found.version < max(known, default=0):
                    known.clear()  # it is another partition's, of the same name
                known[found.version] = frozenset(Isr.decode(bytes(found.data)).brokers)
        for name in self._replicas[where]:
            replica = self._replica(where, name)
            term = None if replica is None else replica.leadership
            if replica is None or term is None or self._began.get((name, where)) == term.epoch:
                continue
            self._began[name, where] = term.epoch
            left = known.get(term.isr_version - 1)
            if not self._nodes[name].broker.checks_isr_version:
                continue  # one that was deposed may have written it meanwhile
            if left and not term.serves_clients and replica.isr != left:
                raise Violated(
                    ELECTED_ISR,
                    f"{name} begins to lead {where} in epoch {term.epoch} with the ISR {sorted(replica.isr)}; the "
                    f"leader before it left {sorted(left)}",
                    where,
                    (name,),
                )

    def _replica(self, where: str, name: str) -> Partition | None:
        if name not in self._nodes:
            return None
        replicas = self._nodes[name].broker.partitions.values()
        return next((each for each in replicas if f"{each.topic}-{each.index}" == where), None)

    def check_liveness(self, now: float) -> None:
        leading = (server.tree for server in self._servers.values() if server.leads)
        self._progress.look(self._nodes, next(leading, None), now)

    def check_all(self) -> None: ...

    def count_states(self, faults: Callable[[], tuple[int, ...]]) -> tuple[Set[int], Set[int]]:
        """See harness.targets.target.Invariants."""
        self._states = States(faults)
        return self._states.seen, self._states.under_faults

    def unsettled(self, processes: Mapping[str, Any]) -> Unmet | None:
        return unsettled(processes, self._terms)

    def not_recovered(self, processes: Mapping[str, Any]) -> str:
        """See harness.targets.target.Invariants. Where all is as it must be inside, it is the clients that wait."""
        left = self.unsettled(processes)
        return REQUESTS_ANSWERED if left is None else left.property


def _check_isr(name: str, where: str, partition: Partition, epoch: int) -> None:
    """epoch: that it was written in; what comes late may be of an earlier term. Raises Violated."""
    leadership = partition.leadership
    if leadership is None or leadership.epoch != epoch or leadership.serves_clients:
        return
    removed = partition.isr - set(leadership.assigned)
    if removed:
        raise Violated(
            ISR_OF_REPLICAS,
            f"{name} begins to lead {where} in epoch {leadership.epoch}, and counts on {sorted(partition.isr)}; its "
            f"replicas are {sorted(leadership.assigned)}",
            where,
            (name,),
        )
