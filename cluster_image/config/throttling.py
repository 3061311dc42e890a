"""Settings of throttled replication (KIP-73): a topic's say which replicas are throttled, a broker's at which rate.

They are dynamic: changed with IncrementalAlterConfigs while the cluster runs, and kept in the metadata log. No other
setting of a broker is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from . import NO_LIMIT, ConfigError, Setting, integer

_REPLICA: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")


class Side(NamedTuple):
    """Names of its settings. rate: a broker's, bytes a second of all its throttled replicas together; replicas: a
    topic's, see ThrottledReplicas."""

    rate: str
    replicas: str


#: What a broker sends of partitions that it leads, and what it takes of those that it follows.
LEADER: Final = Side("leader.replication.throttled.rate", "leader.replication.throttled.replicas")
FOLLOWER: Final = Side("follower.replication.throttled.rate", "follower.replication.throttled.replicas")
SIDES: Final = (LEADER, FOLLOWER)


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """A topic's replicas that are throttled on one side: all of them, or (partition, broker)."""

    every: bool
    replicas: frozenset[tuple[int, int]]

    def has(self, partition: int, broker: int) -> bool:
        return self.every or (partition, broker) in self.replicas


@lru_cache(maxsize=1024)  # fetches ask for it
def read_replicas(text: str) -> ThrottledReplicas:
    """`*`, or `partition:broker,…`. Raises ValueError."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    if items == ["*"]:
        return ThrottledReplicas(True, frozenset())
    matches = [_REPLICA.fullmatch(item) for item in items]
    if not all(matches):
        raise ValueError(text)
    return ThrottledReplicas(False, frozenset((int(m[1]), int(m[2])) for m in matches if m is not None))


_VALID_REPLICAS: Final = "`*`, or partition:broker,…"
_VALID_RATE: Final = "an integer from 0 on"

#: Of topics alone: no node has a value that they override. By name, with Kafka's defaults.
TOPIC_THROTTLES: Final[Mapping[str, Setting]] = {
    side.replicas: Setting(
        side.replicas, "list", "", _VALID_REPLICAS, f"{help}: of each replica its partition and its broker (KIP-73).",
        read_replicas,
    )
    for side, help in ((LEADER, "Replicas that are throttled as leaders, in what they send to followers out of sync"),
                       (FOLLOWER, "Replicas that are throttled as followers, in what they fetch while out of sync"))
}  # fmt: skip

#: Of brokers, each its own or one for all. By name, with Kafka's defaults.
BROKER_SETTINGS: Final[Mapping[str, Setting]] = {
    name: Setting(name, "long", str(NO_LIMIT), _VALID_RATE, help, integer(0, NO_LIMIT))
    for name, help in (
        (LEADER.rate, "Bytes a second that the broker sends of replicas that are throttled as leaders (KIP-73)."),
        (FOLLOWER.rate, "Bytes a second that the broker takes of replicas that are throttled as followers (KIP-73)."),
        # Kafka's own tools remove all three when a reassignment is done.
        ("replica.alter.log.dirs.io.max.bytes.per.second",
         "Changes nothing here: a broker has one log directory, and moves nothing to another."),
    )
}  # fmt: skip


def broker_setting_of(name: str) -> Setting:
    """Raises ConfigError unless a broker's setting of this name can be changed while the cluster runs."""
    if name not in BROKER_SETTINGS:
        raise ConfigError(
            f"{name} is read-only: of a broker's, {', '.join(BROKER_SETTINGS)} can be changed while the cluster runs"
        )
    return BROKER_SETTINGS[name]


def rate_of(settings: Mapping[str, Mapping[str, str]], broker: int, side: Side) -> int:
    """Bytes a second, NO_LIMIT: it is not throttled. settings: of brokers as the metadata has them, by id, and under ""
    of all."""
    for name in (str(broker), ""):
        if (text := settings.get(name, {}).get(side.rate)) is not None:
            return int(text)
    return NO_LIMIT
