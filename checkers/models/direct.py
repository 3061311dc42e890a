"""Objects that can be judged without a search, when nothing in the history calls for one. Exact, O(n log n).

Each function takes the calls of one object and returns None where the search must decide, else the calls that
contradict each other, none if the history is linearizable. They raise Exceeded.

**Set** that only grows, each element added once. Reads must return sets of which one contains the other, and that gives
the order: an add comes before the first read that has its element and after the last that has not, and the history is
linearizable if and only if no call completed before one that comes earlier was invoked.

**Queue** without order, each value enqueued once: values have nothing to do with each other. Each must be enqueued
before the end of its dequeue, and dequeued once. It certainly is in the queue between the end of its enqueue and the
start of its dequeue; these spans, of all values, must leave a moment free in each dequeue that found nothing, and where
all dequeues said what they took, such moments suffice.

**First-in-first-out queue**, the same, and every dequeue said what it took: linearizable if and only if also no value
was certainly enqueued before another and, if at all, certainly dequeued after it (Henzinger, Sezgin and Vafeiadis,
"Aspect-oriented linearizability proofs", CONCUR 2013: VFresh, VRepet and VOrd; VWit is of dequeues that found nothing).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from checkers.models.bounds import Budget
from checkers.models.calls import Call
from checkers.models.objects import UNKNOWN
from spark_history.log import NEVER

Contradiction = Sequence[Call]


def judge_set(calls: Sequence[Call], budget: Budget) -> Contradiction | None:
    adds: dict[object, Call] = {}
    for call in calls:
        if call.action[0] == "add":
            if call.action[1] in adds:
                return None
            adds[call.action[1]] = call
    ok = (call for call in calls if call.action[0] == "read" and call.complete is not None)
    reads = []
    for call in ok:
        elements = frozenset(call.action[2] or ())
        budget.hold(sys.getsizeof(elements))
        reads.append((elements, call))
    reads.sort(key=lambda read: len(read[0]))
    place: list[tuple[int, Call]] = []
    first_seen: dict[object, int] = {}
    shown_by: dict[int, Call] = {}  # by number of an add: the first read that has its element
    level = 0
    for number, (elements, call) in enumerate(reads):
        budget.spend(1 + (len(elements) >> 6))
        earlier, other = reads[number - 1] if number else (frozenset[object](), call)
        if not earlier <= elements:
            return [other, call]
        if number and len(elements) > len(earlier):
            level += 2
        for element in elements - earlier:
            if element not in adds:
                return [call]
            first_seen[element] = level - 1
            shown_by[adds[element].number] = call
        place.append((level, call))
    for element, call in adds.items():
        if element in first_seen:
            place.append((first_seen[element], call))
        elif call.complete is not None:
            place.append((level + 1, call))
    wrong = _in_order(place)
    if len(wrong) == 2 and all(call.action[0] == "add" for call in wrong):
        # Alone, adds may come in any order: it is the read with one of them and without the other that tells.
        wrong = [*wrong, shown_by[wrong[1].number]]
    return wrong


def _in_order(place: list[tuple[int, Call]]) -> Contradiction:
    """The calls at their places: does any complete before one at a lower place is invoked?"""
    place.sort(key=lambda entry: entry[0])
    latest: Call | None = None  # of all at lower places the one that was invoked last
    pending: list[Call] = []
    level = None
    for number, call in place:
        if number != level:
            for each in pending:
                if latest is None or each.invoke > latest.invoke:
                    latest = each
            pending, level = [], number
        if latest is not None and call.end < latest.invoke:
            return [call, latest]
        pending.append(call)
    return []


def _pair(calls: Sequence[Call]) -> tuple[dict[object, Call], dict[object, Call], list[Call], Contradiction] | None:
    """By value who enqueued and who dequeued it, dequeues that did not say what they took, and what is wrong."""
    enqueued: dict[object, Call] = {}
    dequeued: dict[object, Call] = {}
    blind: list[Call] = []
    twice: list[Call] = []
    for call in calls:
        f, argument, result = call.action
        if f == "enqueue":
            if argument in enqueued:
                return None
            enqueued[argument] = call
        elif result is UNKNOWN:
            blind.append(call)
        elif result is None:
            return None
        elif result in dequeued:
            twice = twice or [dequeued[result], call]
        else:
            dequeued[result] = call
    if twice:
        return enqueued, dequeued, blind, twice
    for value, call in dequeued.items():
        source = enqueued.get(value)
        if source is None:
            return enqueued, dequeued, blind, [call]
        if call.end < source.invoke:
            return enqueued, dequeued, blind, [call, source]
    return enqueued, dequeued, blind, []


def judge_queue(calls: Sequence[Call], budget: Budget) -> Contradiction | None:
    empty = [call for call in calls if call.action[0] == "dequeue" and call.action[2] is None]
    pairs = _pair([call for call in calls if call.action[0] == "enqueue" or call.action[2] is not None])
    if pairs is None:
        return None
    enqueued, dequeued, blind, wrong = pairs
    if wrong or not empty:
        return wrong
    return None if blind else _never_empty(empty, enqueued, dequeued, budget)


def _never_empty(
    empty: Sequence[Call], enqueued: Mapping[object, Call], dequeued: Mapping[object, Call], budget: Budget
) -> Contradiction:
    """A dequeue that found nothing though at every moment something was in the queue, and what was; or none."""
    spans = []
    for value, call in enqueued.items():
        taken = dequeued.get(value)
        end = NEVER if taken is None else taken.invoke
        if call.end < end:
            spans.append((call.end, end, call, [] if taken is None else [taken]))
    spans.sort(key=lambda span: span[0])
    position, furthest = 0, -1  # of those that begin before the dequeue, the one that ends last
    for call in sorted(empty, key=lambda each: each.invoke):
        while position < len(spans) and spans[position][0] < call.invoke:
            if furthest < 0 or spans[position][1] > spans[furthest][1]:
                furthest = position
            position += 1
        found, reached, best, at = [call], call.invoke, furthest, position
        while best >= 0 and spans[best][1] > reached:
            reached = spans[best][1]
            found += [spans[best][2], *spans[best][3]]
            if reached > call.end:
                return found
            while at < len(spans) and spans[at][0] < reached:
                budget.spend()
                best = at if spans[at][1] > spans[best][1] else best
                at += 1
    return []


def judge_fifo_queue(calls: Sequence[Call], budget: Budget) -> Contradiction | None:
    budget.spend(len(calls))
    pairs = _pair(calls)
    if pairs is None:
        return None
    enqueued, dequeued, blind, wrong = pairs
    if wrong:
        return wrong
    if blind:
        return None
    # Those enqueued first to last, and of those certainly enqueued before: the one dequeued last, or never.
    by_end = sorted((call for call in enqueued.values() if call.complete is not None), key=lambda call: call.end)
    late: tuple[int, Call] | None = None
    position = 0
    for call in sorted(enqueued.values(), key=lambda each: each.invoke):
        value = call.action[1]
        while position < len(by_end) and by_end[position].end < call.invoke:
            other = by_end[position]
            taken = dequeued.get(other.action[1])
            since = NEVER if taken is None else taken.invoke
            if late is None or since > late[0]:
                late = (since, other)
            position += 1
        mine = dequeued.get(value)
        if mine is not None and late is not None and mine.end < late[0]:
            taken = dequeued.get(late[1].action[1])
            return [late[1], call, mine, *([] if taken is None else [taken])]
    return []


DIRECT: Final[Mapping[str, Callable[[Sequence[Call], Budget], Contradiction | None]]] = {
    "set": judge_set,
    "queue": judge_queue,
    "fifo-queue": judge_fifo_queue,
}
