"""Why a history is not linearizable: a few operations that cannot all take effect in time, whatever others do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from checkers.models.search import Answer, Bounds, Call, Object, search

SECONDS: Final = 3.0
MEMORY_MB: Final = 128.0


def find_core(calls: Sequence[Call], object_: Object, answer: Answer) -> list[Call]:
    """calls: a history that is not linearizable, by `answer`. Returns a few, in the order of invocation, that cannot
    all take effect in time though all the others may do so at any time after their invocation, or never.

    To relax an operation that way can only make a history linearizable, so what is left contradicts itself. No one of
    the calls returned can be left out, unless SECONDS were not enough to try.
    """
    deadline = time.monotonic() + SECONDS
    blocked = next(call for call in calls if call.number == answer.blocked)
    assert blocked.complete is not None
    end = blocked.complete
    concerned = [call for call in calls if call.invoke <= end]
    required = [call for call in concerned if call.complete is not None and call.complete <= end]
    required.sort(key=lambda call: (call.complete or 0, call.number == blocked.number))

    def contradict(chosen: Sequence[Call]) -> bool:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        numbers = {call.number for call in chosen}
        relaxed = [call if call.number in numbers else replace(call, complete=None) for call in concerned]
        return search(relaxed, object_, Bounds(left / 2, MEMORY_MB)).linearizable is False

    # The last few that completed are often enough.
    core, length = required, 1
    while length < len(required):
        if contradict(required[-length:]):
            core = required[-length:]
            break
        length *= 2
    size = len(core) // 2
    while size:
        low = 0
        while low < len(core):
            without = core[:low] + core[low + size :]
            if without and contradict(without):
                core = without
            else:
                low += size
        size = size // 2 if size > 1 else 0
    return sorted(core, key=lambda call: (call.invoke, call.number))
