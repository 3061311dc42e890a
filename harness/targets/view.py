"""What a live cluster says of itself: who leads what, which replicas are in sync, who is the active controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.cluster import Node


@dataclass(frozen=True)
class PartitionState:
    leader: int  # broker id; -1: none
    leader_epoch: int
    replicas: frozenset[int]
    isr: frozenset[int]


@dataclass(frozen=True)
class ClusterView:
    """What every node that answered knows, at one moment."""

    #: By broker id and partition. A broker that did not answer, or does not know the topic, is not in it.
    partitions: Mapping[int, Mapping[int, PartitionState]]
    active_controller: int | None
    out_of_sync: str | None  # why not every replica is in its ISR, as a clause; None: they all are

    @property
    def leaders(self) -> Mapping[int, int]:
        """Broker id: number of partitions it leads, by the newest leader epoch that any broker knows."""
        return Counter(state.leader for state in self.newest.values())

    @property
    def isrs(self) -> Mapping[int, frozenset[int]]:
        """By partition, as of the newest leader epoch; of equal ones the smallest."""
        return {partition: state.isr for partition, state in self.newest.items()}

    @property
    def newest(self) -> Mapping[int, PartitionState]:
        newest: dict[int, PartitionState] = {}
        for partitions in self.partitions.values():
            for partition, state in partitions.items():
                known = newest.get(partition)
                if known is None or (state.leader_epoch, -len(state.isr)) > (known.leader_epoch, -len(known.isr)):
                    newest[partition] = state
        return newest

    def not_back(self, nodes: Sequence[Node]) -> str | None:
        """Why not each of these brokers is again in the ISR of all that it replicates, as a clause; None: they are.

        Each must say so itself: it serves metadata only once it has read its own new registration, which took it out of
        the ISRs."""
        for node in nodes:
            if node.role != "broker":
                continue
            if node.id not in self.partitions:
                return f"{node.name} does not answer or does not know the topic"
            for partition, state in sorted(self.partitions[node.id].items()):
                if node.id in state.replicas - state.isr:
                    return f"{node.name} is not in the ISR of partition {partition}"
        return None


class Observer(Protocol):
    async def view(self) -> ClusterView:
        """Ask every node now. Never raises for nodes that do not answer."""
        ...

    async def unhealthy(self) -> str | None:
        """What is wrong with the cluster now, of all its topics and not of the run's alone: members that do not answer
        or are missing, partitions without a leader, under-replicated ones, no active controller; a clause each. None:
        nothing, or it is not known. Never raises for nodes that do not answer."""
        return None
