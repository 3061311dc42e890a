"""Liveness under load in a cluster of this generation, where leaders look at idle partitions, too (v2.idle.checks).

| property             | statement
| -------------------- | --------------------------------------------------------------------------------------------
| ReassignmentComple-  | a reassignment whose target keeps up, and whose other replicas have left the ISR, is over soon
| tes                  | (001, checkReassignedReplicas)
| RecordsDeleted       | who is no replica of a partition any more, and has done all that it was asked for, keeps no
|                      | log of it (001, closeReplica)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from checkers.inside.violation import Unmet, Violated
from checkers.properties import REASSIGNMENT_COMPLETES
from cluster_image.v2.node import Node
from cluster_image.v2.partition.replica import Partition

from .settled import left_over, placed_in

#: Seconds, of virtual time, for which its broker has been connected to ZooKeeper and has answered others. Leaders of
#: idle partitions look at them twice in replica.lag.time.max.ms.
WITHIN_S: Final = 6.0
LOOK_EVERY_S: Final = 0.2
#: A replica that keeps up has had all that there is so lately.
LATELY_S: Final = 1.0


class Progress:
    def __init__(self) -> None:
        self._active: set[str] = set()  # brokers that have answered anything since the last look
        self._looks: dict[tuple[str, Unmet], int] = {}  # by broker: at which that was so
        self._next = 0.0

    def answered(self, name: str) -> None:
        self._active.add(name)

    def look(self, nodes: Mapping[str, Node], tree: Any | None, now: float) -> None:
        """tree: as ZooKeeper's leader has it; None: nobody leads it. Raises Violated."""
        if now < self._next:
            return
        self._next = now + LOOK_EVERY_S
        active, self._active = self._active, set()
        before, self._looks = self._looks, {}
        for name, unmet in self._unmet(nodes, tree, now):
            looks = self._looks[name, unmet] = before.get((name, unmet), 0) + (name in active)
            if looks > WITHIN_S / LOOK_EVERY_S:
                raise Violated(unmet.property, f"{unmet}, for {WITHIN_S:g} s", nodes=(name,))

    @staticmethod
    def _unmet(nodes: Mapping[str, Node], tree: Any | None, now: float) -> Iterator[tuple[str, Unmet]]:
        placed = [] if tree is None else list(placed_in(tree))
        for name, node in nodes.items():
            if tree is None or not (node.broker.ready and node.broker.is_connected and node.broker.looks_at_idle):
                continue
            if not node.broker.backlog:
                yield from ((name, unmet) for unmet in left_over({name: node}, placed))
            for partition in node.broker.partitions.values():
                if _could_end(partition, node.broker.id, now):
                    assert partition.leadership is not None
                    coming = list(partition.leadership.reassigned or ())
                    yield name, Unmet(
                        f"{name} leads {partition} in epoch {partition.leader_epoch}, which is still being moved to "
                        f"{coming}: these keep up, and of the replicas that are to go none is in the ISR "
                        f"{sorted(partition.isr)}",
                        REASSIGNMENT_COMPLETES,
                    )


def _could_end(partition: Partition, broker: int, now: float) -> bool:
    """Do those keep up that it is moved to, and have those that are to go left the ISR?"""
    leadership = partition.leadership
    if leadership is None or not leadership.serves_clients or not leadership.reassigned:
        return False
    coming = set(leadership.reassigned)
    if leadership.close_sent is None or (set(leadership.assigned) - coming - {broker}) & partition.isr:
        return False
    return all(now - leadership.last_caught_up(replica) < LATELY_S for replica in coming - {broker})
