"""What a simulated cluster of this generation must come to once all faults are healed.

Nothing else stops a run: that logs diverge and acknowledged records go is what 001 is known for (004), and the history
and the replicas' logs are judged for it in the end, with every cause on record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any

from checkers.properties import LIVENESS
from cluster_image.v2.node import Node
from cluster_image.v2.partition.replica import Partition

from .states import States


class Invariants:
    """Implements harness.targets.target.Invariants."""

    losses: Sequence[str] = ()

    def __init__(self) -> None:
        self._states: States | None = None
        self._nodes: dict[str, Node] = {}  # brokers whose processes run
        self._ids: dict[str, int] = {}
        self._replicas: dict[str, dict[str, None]] = {}  # by partition, brokers that ever had one
        self._dirty: dict[str, None] = {}  # partitions

    def changed(self, node: str, event: str, where: str, fields: Mapping[str, object]) -> None:
        if event == "start":
            self._ids[node] = int(str(fields["node_id"]))
        elif where:
            self._replicas.setdefault(where, {})[node] = None
            self._dirty[where] = None

    def answers(self, node: str, request: Any, response: Any, since: float, now: float) -> None: ...

    def node_started(self, name: str, process: Any, disk: Any) -> None:
        if isinstance(process, Node):
            self._nodes[name] = process

    def node_gone(self, name: str, lossy: bool | Collection[str]) -> None:
        self._nodes.pop(name, None)
        self._dirty |= {where: None for where, brokers in self._replicas.items() if name in brokers}

    def check(self) -> None:
        """Nothing that would stop a run; the states that it is in are counted."""
        dirty, self._dirty = self._dirty, {}
        if self._states is not None:
            for where in dirty:
                self._states.look({self._ids[name]: self._replica(where, name) for name in self._replicas[where]})

    def _replica(self, where: str, name: str) -> Partition | None:
        if name not in self._nodes:
            return None
        replicas = self._nodes[name].broker.partitions.values()
        return next((each for each in replicas if f"{each.topic}-{each.index}" == where), None)

    def check_liveness(self, now: float) -> None: ...

    def check_all(self) -> None: ...

    def count_states(self, faults: Callable[[], tuple[int, ...]]) -> tuple[Set[int], Set[int]]:
        """See harness.targets.target.Invariants."""
        self._states = States(faults)
        return self._states.seen, self._states.under_faults

    def not_recovered(self, processes: Mapping[str, Any]) -> str:
        return LIVENESS

    def unsettled(self, processes: Mapping[str, Any]) -> str | None:
        for name, process in processes.items():
            if process is None:
                return f"{name} does not run"
        brokers = {name: process for name, process in processes.items() if isinstance(process, Node)}
        for name, broker in brokers.items():
            if not broker.broker.ready:
                return f"{name} is not registered"
        partitions = [(name, p) for name, node in brokers.items() for p in node.broker.partitions.values()]
        return next(_unsettled(partitions), None)


def _unsettled(partitions: Sequence[tuple[str, Partition]]) -> Iterator[str]:
    """partitions: each replica, with the name of its broker."""
    for name, partition in partitions:
        if partition.is_leader and not partition.serves_clients:
            yield f"{name} waits for the followers of {partition}"
        if partition.leadership is not None and partition.leadership.queue:
            yield f"{name} has not committed all that was produced to {partition}"
        if partition.leader < 0:
            yield f"{name} follows nobody in {partition}"
    ends = {p.key: (name, p.log.end_offset) for name, p in partitions if p.is_leader}
    for name, partition in partitions:
        leader, end = ends.get(partition.key, (name, partition.log.end_offset))
        if partition.log.end_offset != end:
            own = partition.log.end_offset
            yield f"the log of {name} ends at {own}, and that of {leader}, which leads {partition}, at {end}"
