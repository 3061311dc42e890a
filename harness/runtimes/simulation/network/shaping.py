"""Applies shapes (harness.cluster.Shape: delay, loss, rate, …) to the messages on simulated links, with the effects
that are visible through TCP.

A lost packet is late by a retransmission timeout, which doubles each time. What goes over the rate waits for its turn.
A packet that overtakes others waits for them, and one that comes twice is dropped the second time: neither shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from harness.cluster import Shape

Link = tuple[str, str]  # from host, to host

#: Linux's least retransmission timeout, its largest, and after how many it gives the connection up.
RETRANSMISSION_S: Final = 0.2
LONGEST_RETRANSMISSION_S: Final = 120.0
RETRANSMISSIONS: Final = 15
_PACKET_BYTES: Final = 1448
#: What may pass at once at any rate, as in Docker.
_BURST_S: Final = 0.02
_SMALLEST_BURST: Final = 2_000


class HeldUp(NamedTuple):
    seconds: float
    waiting: float  # of these, for its turn at a rate


_NOT: Final = HeldUp(0.0, 0.0)


class Shaping:
    """By key. What it is asked of a link that no key shapes costs nothing, and draws nothing."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._shapes: dict[str, tuple[frozenset[Link], Shape]] = {}
        self._on: dict[Link, list[str]] = {}  # keys in force
        self._counted: dict[str, dict[Link, Counter[str]]] = {}  # by key
        self._free_at: dict[tuple[str, Link], float] = {}  # when what passes at the rate will all have passed
        self._random: dict[Link, Random] = {}

    def shape(self, key: str, links: Iterable[Link], shape: Shape) -> None:
        """In place of what this key did before."""
        self._shapes[key] = frozenset(links), shape
        self._counted.setdefault(key, {})
        self._changed()

    def unshape(self, key: str) -> Mapping[Link, Mapping[str, int]]:
        """What was counted, by link. Safe to repeat."""
        self._shapes.pop(key, None)
        self._changed()
        return self._counted.pop(key, {})

    @property
    def keys(self) -> list[str]:
        return list(self._shapes)

    def limits(self, link: Link) -> bool:
        """Is there a rate?"""
        return any(shape.rate_kbit for shape, _ in self._in_force(link))

    def delay(self, link: Link) -> float:
        """Seconds for one packet."""
        if link not in self._on:
            return 0.0
        random, seconds = self._stream(link), 0.0
        for shape, _ in self._in_force(link):
            if random.random() >= shape.reorder:
                jitter = random.uniform(-shape.jitter_ms, shape.jitter_ms) if shape.jitter_ms else 0.0
                seconds += max(shape.delay_ms + jitter, 0.0) / 1e3
        return seconds

    def loses(self, link: Link) -> bool:
        """Is a packet lost that is not part of a connection yet?"""
        if link not in self._on:
            return False
        random, lost = self._stream(link), False
        for shape, counted in self._in_force(link):
            if shape.loss and random.random() < shape.loss:
                counted["packets_dropped"] += 1
                lost = True
        return lost

    def hold_up(self, link: Link, now: float, size: Callable[[], int]) -> HeldUp:
        """For how long a message of so many bytes is, beside the delay of its last packet."""
        if link not in self._on:
            return _NOT
        random, seconds, waiting, length = self._stream(link), 0.0, 0.0, size()
        packets = -(-length // _PACKET_BYTES)
        for key in self._on[link]:
            shape, counted = self._shapes[key][1], self._counted[key].setdefault(link, Counter())
            if shape.delay_ms or shape.jitter_ms:
                early = sum(random.random() < shape.reorder for _ in range(packets)) if shape.reorder else 0
                counted["packets_reordered"] += early
                counted["packets_delayed"] += packets - early
            if shape.duplicate:
                counted["packets_duplicated"] += sum(random.random() < shape.duplicate for _ in range(packets))
            if shape.loss:
                lost = [_times_lost(random, shape.loss) for _ in range(packets)]
                counted["packets_dropped"] += sum(lost)
                seconds += _until_it_gets_through(max(lost))
            if shape.rate_kbit:
                wait = self._wait(key, link, shape.rate_kbit * 1000 / 8, now + seconds, length)
                counted["shaped_bytes"] += length
                counted["throttled"] += wait > 0
                seconds += wait
                waiting += wait
        return HeldUp(seconds, waiting)

    def typical(self, link: Link, now: float) -> float:
        """Seconds that a packet now takes longer than without any shape, if it is not lost."""
        delays = sum(shape.delay_ms * (1 - shape.reorder) for shape, _ in self._in_force(link)) / 1e3
        waits = (self._free_at.get((key, link), now) - now for key in self._on.get(link, ()))
        return delays + sum(max(wait, 0.0) for wait in waits)

    def _wait(self, key: str, link: Link, bytes_per_s: float, now: float, length: int) -> float:
        """A token bucket that was full when it began."""
        burst = max(_SMALLEST_BURST, bytes_per_s * _BURST_S)
        earliest = now - burst / bytes_per_s
        free_at = max(self._free_at.get((key, link), earliest), earliest) + length / bytes_per_s
        self._free_at[key, link] = free_at
        return max(free_at - now, 0.0)

    def _in_force(self, link: Link) -> Iterable[tuple[Shape, Counter[str]]]:
        for key in self._on.get(link, ()):
            yield self._shapes[key][1], self._counted[key].setdefault(link, Counter())

    def _changed(self) -> None:
        self._on = {}
        for key, (links, _) in self._shapes.items():
            for link in sorted(links):
                self._on.setdefault(link, []).append(key)
        self._free_at = {(key, link): at for (key, link), at in self._free_at.items() if key in self._on.get(link, ())}

    def _stream(self, link: Link) -> Random:
        if link not in self._random:
            self._random[link] = Random(f"{self._seed}/shaping/{link[0]}>{link[1]}")
        return self._random[link]


def _times_lost(random: Random, loss: float) -> int:
    """How often one packet is, before it gets through."""
    times = 0
    while times < RETRANSMISSIONS and random.random() < loss:
        times += 1
    return times


def _until_it_gets_through(times_lost: int) -> float:
    return sum(min(RETRANSMISSION_S * 2**time, LONGEST_RETRANSMISSION_S) for time in range(times_lost))


def evidence(counted: Mapping[Link, Mapping[str, int]], name: Callable[[str], str]) -> dict[str, Any]:
    """As of Cluster.unshape. name: of a host, as links have it."""
    total: Counter[str] = Counter({"packets_dropped": 0})
    dropped: Counter[str] = Counter()
    for (source, target), counts in counted.items():
        total.update(counts)
        if counts.get("packets_dropped"):
            dropped[f"{name(source)} > {name(target)}"] += counts["packets_dropped"]
    return {**total, "packets_dropped_by_link": dict(dropped)}
