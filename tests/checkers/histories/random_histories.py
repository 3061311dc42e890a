"""How many random small histories a checker is compared with brute force on, and how one is broken in time."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

#: 100,000 were run before a release: CHAOS_HISTORIES=100000 make test ARGS="tests/test_…".
HISTORIES: Final = int(os.environ.get("CHAOS_HISTORIES", "1000"))


class Timed(Protocol):
    """A dataclass of an operation."""

    __dataclass_fields__: Any
    invoke: int
    complete: int | None
    outcome: str


T = TypeVar("T", bound=Timed)


def at_other_times(rng: random.Random, history: Sequence[T]) -> list[T]:
    """What was done is right, and when it was done is not: up to three pairs of operations change places."""
    changed = list(history)
    for _ in range(rng.choice([0, 0, 1, 2, 3])):
        i, j = rng.randrange(len(changed)), rng.randrange(len(changed))
        one, other = changed[i], changed[j]
        if one.outcome == other.outcome == "ok":
            changed[i] = replace(one, invoke=other.invoke, complete=other.complete)
            changed[j] = replace(other, invoke=one.invoke, complete=one.complete)
    return changed


def earlier_or_later(rng: random.Random, op: T) -> T:
    delta = rng.choice([-9, -3, -1, 1, 3, 9])
    return replace(op, invoke=op.invoke + delta, complete=None if op.complete is None else op.complete + delta)
