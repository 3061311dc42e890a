"""Replica placement: over racks first, then over the brokers of a rack (003, replica placement).

Racks are taken in turn, so that no rack holds a second replica while another has none, and each rack's brokers in turn,
so that leaders and replicas spread evenly. No randomness: placement depends on the brokers and the topic alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..metadata.image import BrokerRegistration


def place(brokers: Iterable[BrokerRegistration], partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
    """Replica lists (broker ids, preferred leader first), one a partition.

    Raises ValueError when there are fewer brokers than replicas."""
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        racks.setdefault(broker.rack or "", []).append(broker.id)
    total = sum(map(len, racks.values()))
    if replication_factor > total:
        raise ValueError(f"replication factor {replication_factor} is larger than the {total} available brokers")
    rack_names = sorted(racks)
    placed = []
    for partition in range(partitions):
        replicas: list[int] = []
        step = partition
        while len(replicas) < replication_factor:
            members = racks[rack_names[step % len(rack_names)]]
            # A rack's brokers rotate once a full turn over the racks, so that its second broker gets its share.
            turn = (partition // len(rack_names)) + (step - partition) // len(rack_names)
            candidate = members[turn % len(members)]
            step += 1
            if candidate in replicas:
                candidate = next((b for b in members if b not in replicas), -1)
                if candidate < 0:
                    continue
            replicas.append(candidate)
        placed.append(tuple(replicas))
    return placed
