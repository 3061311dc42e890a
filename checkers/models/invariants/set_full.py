"""set-full (jepsen.checker/set-full): of each element of a set, from when on it is there, or when it was lost.

An element is known from the completion of its add, or of the first read that has it, whichever is earlier. Of the ok
reads that completed after its add was invoked, by the order of their invocations, it is

    stable      if the last that has it comes after the last that has not
    lost        if the last that has not comes after all that have it, and was invoked when it was known
    never-read  otherwise: no read says anything of it
    stale       if it is stable, and a read had it not that was invoked when it was known

A lost element is wrong, and so is one that is `duplicated` in a read. A stale one is reported, and wrong only where the
plan's `linearizable` says that each read must be of the present. Without a stable element, and none lost, the answer is
`unknown`. Latencies are told as quantiles, in ms: `stable_latency_ms` from when it is known to after the last read that
has it not, or 0; `lost_latency_ms` to after the last read that has it. Elements that nobody added are counted only
(`unexpected`): the checker `set` judges them.

An element is told by where its run of reads ends, so all takes time and memory linear in what the reads returned.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkers.models.invariants.history import Found, History, Row, Told, few, shown
from spark_history.files import Ints
from spark_history.log import NEVER

NAME: Final = "set-full"
_NO_READ: Final = -1


@dataclass(frozen=True)
class _Read:
    row: Row
    invoke: int
    complete: int
    elements: Ints  # numbers, ascending


def judge(history: History) -> Found:
    history.only("read", "add")
    linearizable = history.option("linearizable", bool, "true or false", False)
    numbers: dict[Any, int] = {}
    adds: list[Row] = []
    for row in history.of("add"):
        value = history.frozen(row, "argument")
        if value in numbers:
            return Found(doubt=f"{shown(value)} was added twice: only unique elements make it decidable")
        numbers[value] = len(adds)
        adds.append(row)
    found = Found()
    reads = _reads(history, numbers, found)
    names = list(numbers)
    invoke = np.array([row["invoke"] for row in adds], np.int64)
    known = np.array([row["complete"] if row["outcome"] == "ok" else NEVER for row in adds], np.int64)
    present = np.full(len(adds), _NO_READ)  # by element, the last read that has it
    for number, read in enumerate(reads):
        mine = read.elements[invoke[read.elements] <= read.complete]
        known[mine] = np.minimum(known[mine], read.complete)
        present[mine] = number
        history.budget.spend(1 + (len(mine) >> 6))
    absent = _last_without(history, reads, invoke)
    at = np.array([read.invoke for read in reads] or [0], np.int64)
    since = np.where(absent != _NO_READ, at[absent], -1)
    stable = (present != _NO_READ) & (absent < present)
    later = (absent != _NO_READ) & (since > known)
    lost = ~stable & (present < absent) & later
    stale = stable & later
    _count(found, {"stable": stable, "lost": lost, "never-read": ~stable & ~lost, "stale": stale})
    latency = np.where(stale, since + 1 - known, 0)[stable] / 1e6
    gone = np.where(present != _NO_READ, at[present] + 1 - known, 0)[lost].clip(min=0) / 1e6
    found.measured = {"stable_latency_ms": latency.tolist(), "lost_latency_ms": gone.tolist()}
    for number in np.flatnonzero(lost).tolist():
        rows = [adds[number], *(reads[each[number]].row for each in (present, absent) if each[number] != _NO_READ)]
        seen = "had been read, and" if present[number] != _NO_READ else "was added, and"
        found.told.append(Told("lost", f"{shown(names[number])} {seen} was gone for good", rows))
    for number in np.flatnonzero(stale).tolist():
        rows = [adds[number], reads[absent[number]].row, reads[present[number]].row]
        message = f"{shown(names[number])} was known to be there when a read began that did not return it"
        found.told.append(Told("stale", message, rows, allowed=not linearizable))
    if not stable.any() and not lost.any():
        found.doubt = "no element is known to be stable: none was read, or all were added too late"
    return found


def _reads(history: History, numbers: dict[Any, int], found: Found) -> list[_Read]:
    """Those that are ok, in the order of their invocations."""
    reads = []
    unexpected: set[Any] = set()
    for row in history.of("read"):
        if row["outcome"] != "ok":
            continue
        listed = history.listed(row)
        elements = [numbers[each] for each in listed if each in numbers]
        unexpected.update(each for each in listed if each not in numbers)
        distinct = np.unique(np.array(elements, np.int64))
        if len(set(listed)) < len(listed):
            often = [each for each, count in Counter(listed).items() if count > 1]
            message = f"a read returned {few(often)} more than once"
            found.told.append(Told("duplicated", message, [row], count=len(often)))
        reads.append(_Read(row, row["invoke"], row["complete"], distinct))
    found.counts = {"unexpected": len(unexpected), "duplicated": len(found.told)}
    return reads


def _count(found: Found, outcomes: dict[str, Any]) -> None:
    found.counts |= {name: int(np.count_nonzero(which)) for name, which in outcomes.items()}


def _last_without(history: History, reads: Sequence[_Read], invoke: Ints) -> Ints:
    """By element, the last read that has it not, of those that completed after its add was invoked.

    From the last read back, what a read has is looked for in the one before it, and the rest is told by this one.
    """
    found = np.full(len(invoke), _NO_READ)
    marked = np.zeros(len(invoke), bool)
    left = np.arange(len(invoke))
    early: list[Ints] = []  # of these, only reads tell that were open when the add was invoked
    for number in range(len(reads) - 1, -1, -1):
        if not len(left):
            break
        read = reads[number]
        history.budget.spend(1 + (len(left) >> 6))
        marked[read.elements] = True
        inside = marked[left]
        marked[read.elements] = False
        without = left[~inside]
        told = invoke[without] <= read.complete
        found[without[told]] = number
        early.append(without[~told])
        left = left[inside]
    rest = np.concatenate([*early, left])
    _of_open_reads(history, reads, rest[np.argsort(invoke[rest], kind="stable")], invoke, found)
    return found


def _of_open_reads(history: History, reads: Sequence[_Read], elements: Ints, invoke: Ints, found: Ints) -> None:
    open_: dict[int, _Read] = {}  # by number, in the order of their invocations
    ends: list[tuple[int, int]] = []
    ahead = 0
    for element in elements.tolist():
        at = int(invoke[element])
        while ahead < len(reads) and reads[ahead].invoke <= at:
            open_[ahead] = reads[ahead]
            heapq.heappush(ends, (reads[ahead].complete, ahead))
            ahead += 1
        while ends and ends[0][0] < at:
            del open_[heapq.heappop(ends)[1]]
        for number in reversed(open_):
            history.budget.spend()
            elements_of = open_[number].elements
            place = int(np.searchsorted(elements_of, element))
            if place == len(elements_of) or elements_of[place] != element:
                found[element] = number
                break
