"""Finds the witness of a history that is not linearizable: a few operations that cannot all take effect between their
invocation and completion, whatever the others do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from checkers.models.bounds import Bounds, Budget, Exceeded
from checkers.models.calls import Call, Object
from checkers.models.search import Answer, search

#: What a witness may take: as long as the verdict, but at least the first and at most the last. Of those after the
#: first few, which nobody is shown unless they ask, only the second.
AT_LEAST_S: Final = 0.5
AT_LEAST_OF_MORE_S: Final = 0.1
AT_MOST_S: Final = 3.0
FEW: Final = 2
MEMORY_MB: Final = 128.0

#: Of some calls of an object, what the search needs to know. May raise Exceeded, and so may the object's methods.
Prepare = Callable[[Sequence[Call], Budget], Object]


def bounds_of_core(verdict: Budget, reported: int) -> Bounds:
    """verdict: what was spent on it, and of which the rest is left for the witness. reported: witnesses before it."""
    least = AT_LEAST_S if reported < FEW else AT_LEAST_OF_MORE_S
    left = max(verdict.bounds.seconds - verdict.spent, AT_LEAST_OF_MORE_S)
    wanted = max(verdict.spent, least) if reported < FEW else least
    return Bounds(min(wanted, left, AT_MOST_S), min(MEMORY_MB, verdict.bounds.memory_mb))


def find_core(calls: Sequence[Call], prepare: Prepare, answer: Answer, bounds: Bounds) -> list[Call]:
    """calls: a history that is not linearizable, by `answer`. Returns a few, in the order of invocation, that cannot
    all take effect in time though all the others may do so at any time after their invocation, or never.

    To relax an operation that way can only make a history linearizable, so what is left contradicts itself, also where
    all the others are left out. No one of the calls returned can be relaxed, too, unless the bounds were not enough to
    try.
    """
    budget = Budget(bounds)
    blocked = next(call for call in calls if call.number == answer.blocked)
    assert blocked.complete is not None
    end = blocked.complete
    concerned = [call for call in calls if call.invoke <= end]
    relaxed = {call.number: replace(call, complete=None) for call in concerned}
    required = [call for call in concerned if call.complete is not None and call.complete <= end]
    required.sort(key=lambda call: (call.end, call.number == blocked.number))

    def contradict(chosen: Sequence[Call]) -> bool:
        left = bounds.seconds - budget.spent
        if left <= 0:
            return False
        latest = max(call.end for call in chosen)  # nothing that begins later can matter
        numbers = {call.number for call in chosen}
        tried = [
            call if call.number in numbers else relaxed[call.number] for call in concerned if call.invoke <= latest
        ]
        mine = Budget(Bounds(left / 2, bounds.memory_mb), budget.before)
        try:
            return search(tried, prepare(tried, mine), mine).linearizable is False
        except Exceeded:
            return False

    # The last few that completed are often enough.
    core, length = required, 1
    while length < len(required):
        if contradict(required[-length:]):
            core = required[-length:]
            break
        length *= 2
    size = (len(core) + 1) // 2 if len(core) > 1 else 0
    while size and budget.spent < bounds.seconds:
        low = 0
        while low < len(core) and budget.spent < bounds.seconds:
            without = core[:low] + core[low + size :]
            if without and contradict(without):
                core = without
            else:
                low += size
        size = size // 2 if size > 1 else 0
    return sorted(core, key=lambda call: (call.invoke, call.number))
