"""Liveness under load: who does not keep up leaves the ISR (000, 2.9; Apache Kafka's Partition.maybeShrinkIsr).

A member that stays is waited for at each append with acks=all, however long it takes. Here it is not asked what the
leader knows of its followers, but what their logs are: at each look a member has caught up as of the last look at which
the leader's log was no longer than this one is now. What a disk loses no leader can know, and the controller decides by
it once the broker is registered again (002, 5.1.2): of a member that has lost something it is asked what it had.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from checkers.inside.violation import Violated
from checkers.properties import ISR_SHRINKS
from cluster_image.kraft.broker.leadership import Leadership
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.node import Node

LOOK_EVERY_S: Final = 0.1
#: A leader looks so often for who lags, as a part of replica.lag.time.max.ms, and may take so long for it.
LOOKS_IN_LAG: Final = 0.5
LATE_S: Final = 1.0

#: The log's end of a broker's replica, whether or not its process runs; None: not known.
EndOf = Callable[[str, int], int | None]


class _Led:
    """One term of a leader. ends: of its log, one for each look at which it was active. caught_up: by member of the
    ISR, the number of the look as of which that one had everything. lost: by member whose disk has lost something in
    this term, how far its log went before. proposed: that of the last look before it has proposed something."""

    __slots__ = ("caught_up", "ends", "lost", "number", "proposed")

    def __init__(self, most: int) -> None:
        self.number = 0  # of looks
        self.ends: deque[int] = deque(maxlen=most)
        self.caught_up: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        self.proposed = 0

    def look(self, end: int) -> None:
        self.number += 1
        self.ends.append(end)

    def as_of(self, end: int) -> int:
        """The number of the last look at which the leader had no more than this; 0: of none that is remembered."""
        covered = bisect_right(self.ends, end)
        return self.number - len(self.ends) + covered if covered else 0


class Shrinking:
    def __init__(self) -> None:
        self._led: dict[tuple[str, str, int], _Led] = {}  # by node, partition and leader epoch
        self._proposed: set[tuple[str, str]] = set()  # by node, partitions of which it has since the last look
        self._active: set[str] = set()  # nodes that have answered anything since the last look
        self._next = 0.0

    def answered(self, name: str) -> None:
        self._active.add(name)

    def proposed(self, name: str, where: str) -> None:
        """It is for the controller to decide now."""
        self._proposed.add((name, where))

    def loses(self, where: str, broker: int, end: int) -> None:
        """Its disk is about to lose something of its replica, whose log has ended at `end`."""
        for (_, partition, _), led in self._led.items():
            if partition == where:
                led.lost[broker] = max(end, led.lost.get(broker, 0))

    def look(self, nodes: Mapping[str, Node], end_of: EndOf, now: float) -> None:
        """At whatever runs, every LOOK_EVERY_S. Raises Violated."""
        if now < self._next:
            return
        self._next = now + LOOK_EVERY_S
        active, self._active = self._active, set()
        proposed, self._proposed = self._proposed, set()
        before, self._led = self._led, {}
        for name, node in nodes.items():
            for partition in () if node.broker is None else node.broker.partitions.values():
                if (leadership := partition.leadership) is None:
                    continue
                key = name, str(partition), partition.leader_epoch
                lag = partition.config.seconds("replica.lag.time.max.ms")
                led = self._led[key] = before.get(key) or _Led(int((2 * lag + LATE_S) / LOOK_EVERY_S))
                if leadership.proposal is not None or key[:2] in proposed:
                    led.proposed = led.number
                if name in active:
                    self._look_at(name, partition, leadership, led, lag, end_of)

    @staticmethod
    def _look_at(
        name: str, partition: Partition, leadership: Leadership, led: _Led, lag: float, end_of: EndOf
    ) -> None:  # fmt: skip
        led.look(partition.log.end_offset)
        members = partition.isr & leadership.followers.keys()
        to_look = LOOKS_IN_LAG * lag + LATE_S
        led.caught_up = {member: led.caught_up.get(member, led.number) for member in members}
        led.lost = {member: end for member, end in led.lost.items() if member in members}
        for member in members:
            end = end_of(str(partition), member)
            end = None if end is None else max(end, led.lost.get(member, 0))
            reached = led.number if end is None else led.as_of(end)
            led.caught_up[member] = max(led.caught_up[member], reached)
            behind = led.number - led.caught_up[member]
            quiet = led.number - led.proposed
            if behind * LOOK_EVERY_S > lag + to_look and quiet * LOOK_EVERY_S > to_look:
                raise Violated(
                    ISR_SHRINKS,
                    f"{name}, leader of epoch {partition.leader_epoch}, keeps broker {member} in the ISR "
                    f"{sorted(partition.isr)} and proposes nothing else; that one has had {end} of "
                    f"{partition.log.end_offset} at most, less than there was {behind * LOOK_EVERY_S:.1f} s ago",
                    str(partition),
                    (name,),
                )
