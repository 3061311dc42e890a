"""Replica placement: over racks first, then over the brokers of a rack (003, replica placement).

Racks are taken in turn, so that no rack holds a second replica while another has none, and each rack's brokers in turn,
so that leaders and replicas spread evenly. No randomness: placement depends on the brokers and the topic alone.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from ..metadata.image import BrokerRegistration


def place(
    brokers: Iterable[BrokerRegistration], partitions: int, replication_factor: int, first: int = 0
) -> list[tuple[int, ...]]:
    """Replica lists (broker ids, preferred leader first), one a partition, from partition number `first` on.

    brokers: all that are registered. Those that are fenced come last, and only where there are not enough others (as
    Apache Kafka's StripedReplicaPlacer). Raises ValueError: fewer brokers than replicas, or all are fenced."""
    registered = list(brokers)
    active, fenced = [b for b in registered if b.active], [b for b in registered if not b.active]
    total = len(active) + len(fenced)
    if replication_factor > total:
        raise ValueError(f"replication factor {replication_factor} is larger than the {total} registered brokers")
    if not active:
        raise ValueError("all brokers are fenced")
    placed = _stripe(active, partitions, min(replication_factor, len(active)), first)
    missing = replication_factor - len(active)
    if missing <= 0:
        return placed
    return [before + last for before, last in zip(placed, _stripe(fenced, partitions, missing, first), strict=True)]


def _stripe(
    brokers: Iterable[BrokerRegistration], partitions: int, replication_factor: int, first: int
) -> list[tuple[int, ...]]:
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        racks.setdefault(broker.rack or "", []).append(broker.id)
    rack_names = sorted(racks)
    placed = []
    for partition in range(first, first + partitions):
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


def check(replicas: Sequence[int], known: Container[int], replication_factor: int) -> None:
    """Raises ValueError unless these are that many different known brokers."""
    if not replicas:
        raise ValueError("an assignment without replicas")
    if len(set(replicas)) != len(replicas):
        raise ValueError(f"assignment {list(replicas)} has a broker twice")
    unknown = [r for r in replicas if r not in known]
    if unknown:
        raise ValueError(f"assignment {list(replicas)} has brokers that are not registered: {unknown}")
    if len(replicas) != replication_factor:
        raise ValueError(f"assignment {list(replicas)} has not {replication_factor} replicas as the others have")
