"""What a simulated cluster of this generation must come to once all faults are healed.

Nothing else stops a run: that logs diverge and acknowledged records go is what 001 is known for (004), and the history
and the replicas' logs are judged for it in the end, with every cause on record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cluster_image.v2.node import Node
from cluster_image.v2.partition.replica import Partition


class Invariants:
    """Implements harness.targets.target.Invariants."""

    losses: Sequence[str] = ()

    def changed(self, node: str, event: str, where: str, fields: Mapping[str, object]) -> None: ...

    def node_started(self, name: str, process: Any) -> None: ...

    def node_gone(self, name: str, lossy: bool | Collection[str]) -> None: ...

    def check(self) -> None: ...

    def check_liveness(self, now: float) -> None: ...

    def check_all(self) -> None: ...

    def unsettled(self, processes: Mapping[str, Any]) -> str | None:
        for name, process in processes.items():
            if process is None:
                return f"{name} does not run"
        brokers = {name: process for name, process in processes.items() if isinstance(process, Node)}
        for name, broker in brokers.items():
            if not broker.broker.ready:
                return f"{name} is not registered"
        return next(filter(None, (_unsettled(name, p) for name, p in _partitions(brokers))), None)


def _partitions(brokers: Mapping[str, Node]) -> list[tuple[str, Partition]]:
    return [(name, partition) for name, node in brokers.items() for partition in node.broker.partitions.values()]


def _unsettled(name: str, partition: Partition) -> str | None:
    if partition.is_leader and not partition.serves_clients:
        return f"{name} waits for the followers of {partition}"
    if partition.leadership is not None and partition.leadership.queue:
        return f"{name} has not committed all that was produced to {partition}"
    if partition.leader < 0:
        return f"{name} follows nobody in {partition}"
    return None
