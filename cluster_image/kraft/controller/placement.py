"""Where the controller places replicas of new partitions: `cluster_image.placement` on what the metadata log tells."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Sequence

from cluster_image.placement import initial
from cluster_image.placement.spread import Replicas, Spread, warnings

from ..metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration

log = logging.getLogger(__name__)


def spread_of(image: MetadataImage) -> Spread:
    """Of all partitions, those being moved as they are going to be."""
    return Spread(map(_replicas, image.partitions()))


def _replicas(partition: PartitionRegistration) -> Replicas:
    return tuple(r for r in partition.replicas if r not in partition.removing)


def place(
    image: MetadataImage, topic: str, partitions: int, replication_factor: int, spread: Spread
) -> list[tuple[int, ...]]:
    """Replica lists (broker ids, preferred leader first) of so many new partitions of a topic, which may be new too.

    Brokers that are fenced come last, and only where there are not enough others (as Apache Kafka's
    StripedReplicaPlacer). spread: of all partitions; the new ones are added. Raises ValueError: fewer brokers than
    replicas, or all are fenced."""
    registered = list(image.brokers.values())
    active, fenced = [b for b in registered if b.active], [b for b in registered if not b.active]
    if replication_factor > len(registered):
        number = len(registered)
        raise ValueError(f"replication factor {replication_factor} is larger than the {number} registered brokers")
    if not active:
        raise ValueError("all brokers are fenced")
    known = image.topics.get(topic)
    before = [] if known is None else [_replicas(p) for p in known.partitions.values()]
    placed = initial.place(_racks(active), partitions, min(replication_factor, len(active)), before, spread)
    for warning in warnings(Spread([*before, *placed]), _racks(active)):
        log.warning("placement is not balanced", extra={"topic": topic, "reason": warning})
    missing = replication_factor - len(active)
    if missing <= 0:
        return placed
    further = initial.place(_racks(fenced), partitions, missing)
    spread.replicas.update(broker for replicas in further for broker in replicas)
    return [active_ones + fenced_ones for active_ones, fenced_ones in zip(placed, further, strict=True)]


def _racks(brokers: Iterable[BrokerRegistration]) -> dict[int, str | None]:
    return {broker.id: broker.rack for broker in brokers}


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
