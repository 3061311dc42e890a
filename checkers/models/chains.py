"""Judges values that are each written once, where some writes replaced a known other value. Exact, in O(n log n).

This is a register with distinct writes and compare-and-set, and also a key-value store whose texts tell in which order
they were put together (kv.py). Each write has a value of its own; some say which write's value they replaced.
Writes that replaced each other are a chain: nothing else was written between them. Zones (checkers/registers/zones.py)
carry over from values to chains: with

    f = the earliest completion of a write or read in the chain      s = the latest invocation

some operation of chain A certainly precedes some operation of chain B if f_A < s_B, and then all of A must come before
all of B. A history is linearizable if and only if

(a) every value read or replaced was written, no value was replaced twice, and no chain bites its tail;
(b) within a chain, no operation on a later value completed before one on an earlier value was invoked, a value's write
    being the earliest on it; and
(c) no two chains clash: f_A < s_B and f_B < s_A.

Sufficiency: "f_A < s_B" has no cycles if it has none of length two (f1 < s2 <= f3 < s1 <= f2 < s3 <= f1 would follow
from one of length three, and so on), so that chains can be put in a row; by (b) each can be put in a row by itself;
and in the row of all operations none precedes in time one that stands before it.

A write of unknown outcome took effect if a read that is ok, or a write that took effect, found its value; else it is
as if it had never been, which is the case that allows most.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from checkers.models.calls import Call
from spark_history.log import NEVER

Name = Hashable  # of a write
#: The write before all others.
INITIAL: Final = ("initial value",)


@dataclass(frozen=True)
class Write:
    """after: the write whose value this one replaced; None: whatever was there. reported: a read that says so, of this
    one and of all before it in its chain; None: the call itself does."""

    call: Call
    after: Name | None = None
    reported: Call | None = None


def judge_chains(writes: Mapping[Name, Write], reads: Sequence[tuple[Call, Name]]) -> Sequence[Call]:
    """Returns calls that contradict each other, none if the history is linearizable.

    writes: those that may have taken effect, INITIAL not among them; `after` may name none of them. reads: those that
    are ok, and whose value each returned, a name in `writes` or INITIAL.
    """
    effective: dict[Name, Write] = {}
    # Why a write took effect: it completed, or a read found its value, or a write replaced it.
    because: dict[Name, Call] = {name: write.call for name, write in writes.items()}
    left: list[Name] = []
    for call, name in reads:
        if name != INITIAL and name in writes and writes[name].call.complete is None:
            because[name] = call
        left.append(name)
    left += [name for name, write in writes.items() if write.call.complete is not None]
    replaced: dict[Name, Name] = {}
    reasons = _Reasons(effective, because)
    while left:
        name = left.pop()
        if name == INITIAL or name in effective:
            continue
        write = writes.get(name)
        if write is None:
            return reasons.of([replaced[name]])
        effective[name] = write
        if write.after is not None:
            other = replaced.setdefault(write.after, name)
            if other != name:
                return reasons.of([other, name])
            before = writes.get(write.after)
            if before is not None and before.call.complete is None and because[write.after] is before.call:
                because[write.after] = write.call
                reasons.follower[write.after] = name
            left.append(write.after)

    on: dict[Name, list[Call]] = {INITIAL: []}
    for name, write in effective.items():
        on[name] = [write.call]
    for call, name in reads:
        on[name].append(call)
    zones = []
    placed = 0
    for head in on:
        if head != INITIAL and effective[head].after is not None:
            continue
        # Of the chain so far: which operation completed first, which was invoked last, and on which value each.
        chain: list[Name] = []
        first: _Found | None = None
        last: _Found | None = None
        at: Name | None = head
        while at is not None:
            place = len(chain)
            chain.append(at)
            calls = on[at]
            soonest = min(calls, key=lambda call: call.end, default=None)
            latest = max(calls, key=lambda call: call.invoke, default=None)
            if at != INITIAL:
                written = calls[0]
                if soonest is not None and soonest.end < written.invoke:
                    return [soonest, written]
            if soonest is not None and last is not None and soonest.end < last[0].invoke:
                return [soonest, last[0], *reasons.link(chain, last[1], place)]
            if soonest is not None and (first is None or soonest.end < first[0].end):
                first = (soonest, place)
            if latest is not None and (last is None or latest.invoke > last[0].invoke):
                last = (latest, place)
            at = replaced.get(at)
        placed += len(chain)
        if first is not None and last is not None:
            begins = -NEVER if head == INITIAL else first[0].end
            zones.append((begins, last[0].invoke, _Zone(chain, first, last)))
    if placed < len(on):
        inside = next(name for name in effective if _bites(effective, name))
        return reasons.of(_circle(effective, inside))
    return _clash(zones, reasons)


_Found = tuple[Call, int]  # a call, and the place in its chain of the value that it is on


@dataclass(frozen=True)
class _Zone:
    chain: Sequence[Name]
    first: _Found
    last: _Found


@dataclass(frozen=True)
class _Reasons:
    """What shows that writes are of one chain, and that those of unknown outcome took effect: without these calls, two
    that contradict each other would not seem to."""

    effective: Mapping[Name, Write]
    because: Mapping[Name, Call]
    follower: dict[Name, Name] = field(default_factory=dict)  # by a write: what replaced it, if that is why

    def of(self, names: Sequence[Name]) -> list[Call]:
        """The writes, and why they took effect."""
        found = []
        for name in names:
            at: Name | None = name
            while at is not None:
                found += [self.effective[at].call, self.because.get(at, self.effective[at].call)]
                at = self.follower.get(at)
        return found

    def link(self, chain: Sequence[Name], one: int, other: int) -> list[Call]:
        """Why the values at these places are of one chain, in their order."""
        low, high = sorted((one, other))
        if low == high:
            return []
        reported = self.effective[chain[high]].reported
        return self.of(chain[low + 1 : high + 1]) if reported is None else [reported]

    def zone(self, zone: _Zone) -> list[Call]:
        (first, here), (last, there) = zone.first, zone.last
        if zone.chain[0] == INITIAL:  # which was there before everything
            found, here = [last], 0
        else:
            found = [first, last]
        found += self.link(zone.chain, here, there)
        name = zone.chain[there]
        return found + (self.of([name]) if last.complete is None and name != INITIAL else [])


def _bites(effective: Mapping[Name, Write], name: Name) -> bool:
    """Whether the chain leads back to where it began."""
    seen = set()
    at: Name | None = name
    while at is not None and at != INITIAL and at not in seen:
        seen.add(at)
        at = effective[at].after
    return at is not None and at != INITIAL


def _circle(effective: Mapping[Name, Write], name: Name) -> list[Name]:
    """The writes of the circle to which the chain leads back."""
    order: dict[Name, None] = {}
    at: Name | None = name
    while at is not None and at not in order:
        order[at] = None
        at = effective[at].after
    names = list(order)
    return names[names.index(at) :]


_Timed = tuple[int, int, _Zone]  # f, s


def _clash(zones: list[_Timed], reasons: _Reasons) -> Sequence[Call]:
    """Two forward zones that overlap, or a backward zone within a forward one: the first of each precedes the last of
    the other."""
    zones.sort(key=lambda zone: zone[0])
    forward = [zone for zone in zones if zone[0] < zone[1]]
    for one, other in pairwise(forward):
        if one[1] > other[0]:
            return [*reasons.zone(one[2]), *reasons.zone(other[2])]
    position = -1
    for zone in sorted((zone for zone in zones if zone[0] >= zone[1]), key=lambda zone: zone[1]):
        while position + 1 < len(forward) and forward[position + 1][0] < zone[1]:
            position += 1
        if position >= 0 and forward[position][1] > zone[0]:
            return [*reasons.zone(forward[position][2]), *reasons.zone(zone[2])]
    return []
