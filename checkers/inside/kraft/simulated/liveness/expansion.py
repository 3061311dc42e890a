"""Liveness under load: a follower that keeps up does not stay outside the ISR (000, 2.9; Apache Kafka's
Partition.shouldWaitForReplicaToJoinIsr).

What keeps up has, at each of its fetches, all that the leader had at the fetch before. Were the high watermark to
follow the ISR alone, such a follower could be one batch below it at every fetch for as long as clients write.

And the other way round: the high watermark is not held back for a replica that may not join, as its broker is fenced or
shuts down. A leader that has heard so notices at that one's next fetch (KAFKA-15021). Nor for one that lags: its leader
notices by itself, when it looks for members of the ISR that do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from checkers.inside.violation import Violated
from checkers.properties import ISR_EXPANDS, WATERMARK_ADVANCES
from cluster_image.kraft.broker.leadership import Leadership
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata import rules
from cluster_image.kraft.metadata.image import BrokerRegistration, MetadataImage
from cluster_image.kraft.node import Node

from .lasting import Lasting

#: Seconds within which a follower that keeps up must have been proposed by its leader, of virtual time.
WITHIN_S: Final = 1.0
#: It fetches so often at least, or the time begins anew; and several times in replica.lag.time.max.ms: before a fetch
#: it was caught up two fetches ago, and whoever lags for longer than that is waited for no longer.
FETCHES_EVERY_S: Final = 0.5
FETCHES_IN_LAG: Final = 4
#: A leader looks so often for who lags, as a part of replica.lag.time.max.ms, and may take so long for it.
LOOKS_IN_LAG: Final = 0.5
LOOKS_LATE_S: Final = 1.0
#: Between two looks.
LOOK_EVERY_S: Final = 0.1

#: Leader's node, partition and leader epoch; follower and the epoch of its uptime session.
_Key = tuple[str, str, int, int, int]


class _KeepsUp:
    __slots__ = ("advanced", "caught_up", "since")

    def __init__(self, caught_up: float, now: float) -> None:
        self.caught_up = caught_up  # as the leader has it, by its own clock
        self.advanced = now
        self.since = float("inf")  # its first fetch that was seen


class Expansion:
    def __init__(self) -> None:
        self._followers: dict[_Key, _KeepsUp] = {}
        #: Of followers that a high watermark is held back for and that may not join: since when, and as what, their
        #: leader has known it.
        self._ineligible: dict[_Key, tuple[float, BrokerRegistration | None]] = {}
        #: Of followers that it is held back for and that lag.
        self._lagging: dict[_Key, Lasting] = {}
        self._next = 0.0

    def proposed(self, node: str, where: str) -> None:
        """It is for the controller to decide now; and the time begins anew."""
        for key in [key for key in self._followers if key[:2] == (node, where)]:
            del self._followers[key]

    def look(self, nodes: Mapping[str, Node], now: float) -> None:
        """At whatever runs, every LOOK_EVERY_S. Raises Violated."""
        if now < self._next:
            return
        self._next = now + LOOK_EVERY_S
        before, self._followers = self._followers, {}
        ineligible, self._ineligible = self._ineligible, {}
        lagging, self._lagging = self._lagging, {}
        for name, node in nodes.items():
            if node.broker is None:
                continue
            for partition in node.broker.partitions.values():
                if partition.leadership is not None:
                    self._look_at(name, partition, partition.leadership, node.broker.image, before, now)
                    if partition.leadership.joining:
                        self._look_at_joining(name, partition, partition.leadership, node.broker.image, ineligible, now)
                        self._look_at_lagging(name, partition, partition.leadership, lagging, now)

    def _look_at(
        self,
        name: str,
        partition: Partition,
        leadership: Leadership,
        image: MetadataImage,
        before: Mapping[_Key, _KeepsUp],
        now: float,
    ) -> None:
        if leadership.proposal is not None:
            return
        interval = min(FETCHES_EVERY_S, partition.config.seconds("replica.lag.time.max.ms") / FETCHES_IN_LAG)
        for broker, follower in leadership.followers.items():
            if broker in partition.isr or not rules.may_be_in_isr(follower.broker_epoch, image.brokers.get(broker)):
                continue
            key = (name, str(partition), partition.leader_epoch, broker, follower.broker_epoch)
            known = before.get(key)
            if known is None or follower.last_caught_up < known.caught_up:
                known = _KeepsUp(follower.last_caught_up, now)
            elif follower.last_caught_up > known.caught_up:
                known.caught_up, known.advanced = follower.last_caught_up, now
                known.since = min(known.since, now)
            elif now - known.advanced > interval:
                continue
            self._followers[key] = known
            if now - known.since > WITHIN_S:
                raise Violated(
                    ISR_EXPANDS,
                    f"broker {broker} has kept up with its leader {name} for {now - known.since:.1f} s, and is not in "
                    f"the ISR {sorted(partition.isr)} nor proposed for it: it ends at {follower.end_offset}, the high "
                    f"watermark is {partition.high_watermark}",
                    str(partition),
                    (name,),
                )

    def _look_at_joining(
        self,
        name: str,
        partition: Partition,
        leadership: Leadership,
        image: MetadataImage,
        before: Mapping[_Key, tuple[float, BrokerRegistration | None]],
        now: float,
    ) -> None:
        for broker in leadership.joining:
            follower, registration = leadership.followers[broker], image.brokers.get(broker)
            if rules.may_be_in_isr(follower.broker_epoch, registration):
                continue
            key = (name, str(partition), partition.leader_epoch, broker, follower.broker_epoch)
            since, known = before.get(key, (now, registration))
            if known is not registration:
                since = now
            self._ineligible[key] = since, registration
            if follower.last_fetch > since:
                raise Violated(
                    WATERMARK_ADVANCES,
                    f"{name} holds the high watermark of {partition} back at {partition.high_watermark} for broker "
                    f"{broker}, of which it has known for {now - since:.1f} s that it may not join the ISR, and which "
                    "has fetched since",
                    str(partition),
                    (name,),
                )

    def _look_at_lagging(
        self, name: str, partition: Partition, leadership: Leadership, before: Mapping[_Key, Lasting], now: float
    ) -> None:
        max_lag = partition.config.seconds("replica.lag.time.max.ms")
        served = max(follower.last_fetch for follower in leadership.followers.values())
        for broker in leadership.joining:
            follower = leadership.followers[broker]
            if not follower.lags(partition.log.end_offset, served, max_lag):
                continue
            key = (name, str(partition), partition.leader_epoch, broker, follower.broker_epoch)
            known = self._lagging[key] = Lasting.seen(before.get(key), served, now, FETCHES_EVERY_S)
            if known.seconds > LOOKS_IN_LAG * max_lag + LOOKS_LATE_S:
                raise Violated(
                    WATERMARK_ADVANCES,
                    f"{name} holds the high watermark of {partition} back at {partition.high_watermark} for broker "
                    f"{broker}, which has been out of sync for {max_lag:g} s and {known.seconds:.1f} s "
                    "more",
                    str(partition),
                    (name,),
                )
