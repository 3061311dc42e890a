"""The throttle of a reassignment (KIP-73): what to set before it begins, and to remove when it is done.

As Apache Kafka's kafka-reassign-partitions does: of each partition that gets new replicas, those that it has are
throttled as leaders and those that it gets as followers, and the brokers of both at the same rate. Pure functions:
whoever calls them has the changes made (Cluster.configure).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..config.throttling import BROKER_SETTINGS, FOLLOWER, LEADER, SIDES
from ..kraft.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from .cluster import ConfigChange


class Move(NamedTuple):
    """One partition's replicas, by broker id. present: without those that a reassignment under way is adding."""

    present: Sequence[int]
    target: Sequence[int]

    @property
    def added(self) -> list[int]:
        return [replica for replica in self.target if replica not in self.present]


#: By topic and partition.
Reassignment = Mapping[str, Mapping[int, Move]]


def throttle(reassignment: Reassignment, rate: int) -> list[ConfigChange]:
    """What to set before the reassignment begins, or to change its rate while it is under way. Partitions that get no
    new replica are left alone; a topic's lists are replaced. rate: bytes a second of each broker, of what it sends and
    of what it takes. Raises ConfigError unless it is from 0 to 2^63 - 1."""
    for side in SIDES:
        BROKER_SETTINGS[side.rate].value_of(str(rate))
    changes = []
    for topic, moves in _moving(reassignment).items():
        present = [(partition, replica) for partition, move in moves.items() for replica in move.present]
        added = [(partition, replica) for partition, move in moves.items() for replica in move.added]
        changes += [
            ConfigChange(TOPIC_RESOURCE, topic, side.replicas, ",".join(f"{p}:{r}" for p, r in sorted(set(replicas))))
            for side, replicas in ((LEADER, present), (FOLLOWER, added))
        ]
    changes += [
        ConfigChange(BROKER_RESOURCE, str(broker), side.rate, str(rate))
        for broker in _brokers(reassignment)
        for side in SIDES
    ]
    return changes


def unthrottle(
    reassignment: Reassignment, brokers: Iterable[int] = (), topics: Iterable[str] = ()
) -> list[ConfigChange]:
    """What to remove when the reassignment is done, or given up. brokers: that may have a rate from an earlier one,
    beside those of this; topics: the same of lists."""
    changes = [
        ConfigChange(TOPIC_RESOURCE, topic, side.replicas, None)
        for topic in sorted({*_moving(reassignment), *topics})
        for side in SIDES
    ]
    changes += [
        ConfigChange(BROKER_RESOURCE, str(broker), side.rate, None)
        for broker in sorted({*_brokers(reassignment), *brokers})
        for side in SIDES
    ]
    return changes


def _moving(reassignment: Reassignment) -> dict[str, dict[int, Move]]:
    """The partitions that get a replica on a broker that has none."""
    moving = {topic: {p: move for p, move in moves.items() if move.added} for topic, moves in reassignment.items()}
    return {topic: moves for topic, moves in moving.items() if moves}


def _brokers(reassignment: Reassignment) -> list[int]:
    """Those that send or take something."""
    moves = [move for moves in _moving(reassignment).values() for move in moves.values()]
    return sorted({replica for move in moves for replica in (*move.present, *move.added)})
