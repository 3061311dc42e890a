"""Values that are written once each, some of them only in place of a certain other: exact, in O(n log n).

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
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from checkers.models.calls import Call
from spark_history.log import NEVER

Name = Hashable  # of a write
#: The write before all others.
INITIAL: Final = ("initial value",)


@dataclass(frozen=True)
class Write:
    """after: the write whose value this one replaced; None: whatever was there."""

    call: Call
    after: Name | None = None


def judge_chains(writes: Mapping[Name, Write], reads: Sequence[tuple[Call, Name]]) -> Sequence[Call]:
    """Returns calls that contradict each other, none if the history is linearizable.

    writes: those that may have taken effect, INITIAL not among them; `after` may name none of them. reads: those that
    are ok, and whose value each returned, a name in `writes` or INITIAL.
    """
    effective: dict[Name, Write] = {}
    left: list[Name] = [name for _, name in reads]
    left += [name for name, write in writes.items() if write.call.complete is not None]
    replaced: dict[Name, Name] = {}
    while left:
        name = left.pop()
        if name == INITIAL or name in effective:
            continue
        write = writes.get(name)
        if write is None:
            return [effective[replaced[name]].call]
        effective[name] = write
        if write.after is not None:
            other = replaced.setdefault(write.after, name)
            if other != name:
                return [effective[other].call, write.call]
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
        # Of the chain so far: which operation completed first, and which was invoked last.
        first: Call | None = None
        last: Call | None = None
        at: Name | None = head
        while at is not None:
            placed += 1
            calls = on[at]
            soonest = min(calls, key=lambda call: call.end, default=None)
            latest = max(calls, key=lambda call: call.invoke, default=None)
            if at != INITIAL:
                written = calls[0]
                if soonest is not None and soonest.end < written.invoke:
                    return [soonest, written]
            if soonest is not None and last is not None and soonest.end < last.invoke:
                return [soonest, last]
            if soonest is not None and (first is None or soonest.end < first.end):
                first = soonest
            if latest is not None and (last is None or latest.invoke > last.invoke):
                last = latest
            at = replaced.get(at)
        if first is not None and last is not None:
            zones.append((-NEVER if head == INITIAL else first.end, last.invoke, first, last))
    if placed < len(on):
        inside = next(name for name in effective if _bites(effective, name))
        return [effective[inside].call]
    return _clash(zones)


def _bites(effective: Mapping[Name, Write], name: Name) -> bool:
    """Whether the chain leads back to where it began."""
    seen = set()
    at: Name | None = name
    while at is not None and at != INITIAL and at not in seen:
        seen.add(at)
        at = effective[at].after
    return at is not None and at != INITIAL


_Zone = tuple[int, int, Call, Call]  # f, s, and the calls that set them


def _clash(zones: list[_Zone]) -> Sequence[Call]:
    """Two forward zones that overlap, or a backward zone within a forward one."""
    zones.sort(key=lambda zone: zone[0])
    forward = [zone for zone in zones if zone[0] < zone[1]]
    for one, other in pairwise(forward):
        if one[1] > other[0]:
            return _contradiction(one, other)
    position = -1
    for zone in sorted((zone for zone in zones if zone[0] >= zone[1]), key=lambda zone: zone[1]):
        while position + 1 < len(forward) and forward[position + 1][0] < zone[1]:
            position += 1
        if position >= 0 and forward[position][1] > zone[0]:
            return _contradiction(forward[position], zone)
    return []


def _contradiction(one: _Zone, other: _Zone) -> Sequence[Call]:
    """The first of each precedes the last of the other."""
    calls = {call.number: call for zone in (one, other) for call in zone[2:]}
    if one[0] == -NEVER:
        del calls[one[2].number]  # the initial value was there before everything
        calls[one[3].number] = one[3]
    return list(calls.values())
