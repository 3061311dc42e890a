"""What a simulated cluster of this generation must come to once all faults are healed (settled.py), and what holds at
every step whatever 001 got wrong:

| property      | statement                                                             | checked when
| ------------- | --------------------------------------------------------------------- | ------------------------------
| ElectedIsr    | a new leader was in the ISR that the one before it left, and begins   | it has written the ISR first
|               | with it: of whom it gives up nobody knows who is there                |
| FollowersAwai-| a new leader takes no live follower out of the ISR before this has   | it has written the ISR, and
| ted           | had replica.lag.time.max.ms to catch up                               | does not serve yet
| LeaderStays   | a leader gives up by itself for a later one, or for the preferred     | it leads no longer
|               | replica, where that may lead; with v2.close.isr also as a             |
|               | reassignment that it was about is given up                            |
| IsrOfReplicas | once its followers have had their time a new leader counts alone on   | it has written the ISR, and
|               | what it knows for replicas: the ISR that it found can name a broker   | does not serve yet
|               | that has been removed                                                 |
| progress.py   | what must come about under load                                       | five times a second

Nothing else stops a run: that logs diverge and acknowledged records go is what 001 is known for (004), and the history
and the replicas' logs are judged for it in the end, with every cause on record.

Source: 001, becomeLeader and checkLoadBalancing; KAFKA-9672."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

from checkers.inside.violation import Unmet, Violated
from checkers.properties import ISR_OF_REPLICAS, REQUESTS_ANSWERED
from cluster_image.v2.node import Node
from cluster_image.v2.partition.replica import Partition

from .progress import Progress
from .settled import unsettled
from .states import States
from .terms import Terms, Tree


class Invariants:
    """Implements harness.targets.target.Invariants."""

    losses: Sequence[str] = ()

    def __init__(self) -> None:
        self._states: States | None = None
        self._nodes: dict[str, Node] = {}  # brokers whose processes run
        self._servers: dict[str, Any] = {}  # of ZooKeeper, whose processes run
        self._ids: dict[str, int] = {}
        self._progress = Progress()
        self._terms = Terms()
        self._replicas: dict[str, dict[str, None]] = {}  # by partition, brokers that ever had one
        self._dirty: dict[str, None] = {}  # partitions
        self._written: dict[tuple[str, str], int] = {}  # node, and partition whose ISR it has written: leader epoch
        self._epochs: dict[str, int] = {}  # see unsettled()

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
        self._terms.node_gone(name)
        self._dirty |= {where: None for where, brokers in self._replicas.items() if name in brokers}

    def check(self) -> None:
        """See above; and the states that it is in are counted."""
        dirty, self._dirty = self._dirty, {}
        written, self._written = self._written, {}
        for (name, where), epoch in written.items():
            if (replica := self._replica(where, name)) is not None:
                _check_isr(name, where, replica, epoch)
        if (tree := self._tree) is not None:
            for where in dirty:
                replicas = {name: self._replica(where, name) for name in self._replicas[where]}
                self._terms.look(where, replicas, self._nodes, tree)
        if self._states is not None:
            for where in dirty:
                self._states.look({self._ids[name]: self._replica(where, name) for name in self._replicas[where]})

    @property
    def _tree(self) -> Tree | None:
        """As ZooKeeper's leader has it; None: nobody leads it."""
        return next((server.tree for server in self._servers.values() if server.leads), None)

    def _replica(self, where: str, name: str) -> Partition | None:
        if name not in self._nodes:
            return None
        replicas = self._nodes[name].broker.partitions.values()
        return next((each for each in replicas if f"{each.topic}-{each.index}" == where), None)

    def check_liveness(self, now: float) -> None:
        self._terms.now = now
        self._progress.look(self._nodes, self._tree, now)

    def check_all(self) -> None: ...

    def count_states(self, faults: Callable[[], tuple[int, ...]]) -> tuple[Set[int], Set[int]]:
        """See harness.targets.target.Invariants."""
        self._states = States(faults)
        return self._states.seen, self._states.under_faults

    def unsettled(self, processes: Mapping[str, Any]) -> Unmet | None:
        return unsettled(processes, self._epochs)

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
