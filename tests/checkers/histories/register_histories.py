"""Random small histories of registers, and a search so plain that it needs no proof."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_history.schema import REGISTERS
from tests.checkers.histories.random_histories import at_other_times, earlier_or_later


@dataclass(frozen=True)
class Op:
    kind: str
    value: int | None
    invoke: int
    complete: int | None
    outcome: str
    expected: int | None = None
    key: int = 0


def table(history: Sequence[Op]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "run": "r",
                "process": number % 3,
                "op": number,
                "kind": op.kind,
                "key": op.key,
                "value": op.value,
                "expected": op.expected,
                "invoke": op.invoke,
                "complete": op.complete,
                "outcome": op.outcome,
                "error": None,
            }
            for number, op in enumerate(history)
        ],
        schema=REGISTERS,
    )


def linearizable(
    history: Iterable[tuple[Any, int, int | None]], initial: Any, step: Callable[[Any, Any], Iterable[Any]]
) -> bool:
    """By definition: is there an order? history: (operation, invoke, complete or None: perhaps, at any time after).

    step: from a state and an operation to the states that may follow.
    """
    operations = list(history)

    def explain(left: frozenset[int], state: Any) -> bool:
        must = [operations[i][2] for i in left if operations[i][2] is not None]
        if not must:
            return True
        first_end = min(must)
        for i in left:
            operation, invoke, _ = operations[i]
            if invoke <= first_end and any(explain(left - {i}, after) for after in step(state, operation)):
                return True
        return False

    return explain(frozenset(range(len(operations))), initial)


def step_register(state: int | None, op: Op) -> list[int | None]:
    if op.kind == "write":
        return [op.value]
    if op.kind == "read":
        return [state] if op.outcome == "info" or state == op.value else []
    return [op.value] if state == op.expected else []


def is_linearizable(history: Sequence[Op], initial: int | None) -> bool:
    return all(
        linearizable(
            [
                (op, op.invoke, op.complete if op.outcome == "ok" else None)
                for op in history
                if op.key == key and op.outcome != "fail"
            ],
            initial,
            step_register,
        )
        for key in {op.key for op in history}
    )


def random_history(
    rng: random.Random, *, initial: int | None, unique: bool, cas: bool, most: int = 8, keys: int = 1
) -> list[Op]:
    """Linearizable by construction: each operation takes effect at an instant of its own."""
    length = rng.randint(2, most)
    span = rng.choice([4, 2 * length, 6 * length])  # short: operations often touch
    slack = rng.choice([[0], [0, 1], [0, 0, 1, 2, 5], [0, 3, 9]])
    points = sorted((rng.uniform(0, span), rng.randrange(keys)) for _ in range(length))
    state: dict[int, int | None] = {}
    history = []
    for number, (point, key) in enumerate(points):
        invoke = int(point) - rng.choice(slack)
        complete: int | None = int(point) + 1 + rng.choice(slack)
        current = state.get(key, initial)
        kind = rng.choice(["read", "read", "write"] + (["cas"] * 2 if cas else []))
        outcome = rng.choice(["ok"] * 6 + ["info", "fail"])
        value = number + 10 if unique else rng.choice([initial, 1, 2, 3])
        expected = None
        if kind == "read":
            value = current if outcome == "ok" else rng.choice([None, current])
        elif kind == "cas":
            expected = rng.choice([current, current, 1, initial])
            if outcome == "ok" and expected != current:
                outcome = rng.choice(["fail", "info"])
        took_effect = outcome == "ok" or (outcome == "info" and rng.random() < 0.5)
        if (kind == "write" and took_effect) or (kind == "cas" and took_effect and expected == current):
            state[key] = value
        if outcome == "info":
            complete = rng.choice([None, complete, int(point)])
        history.append(Op(kind, value, invoke, complete, outcome, expected, key))
    return history


def mutate(rng: random.Random, history: list[Op]) -> list[Op]:
    """Broken in one or two ways, or not quite."""
    history = at_other_times(rng, history)
    for _ in range(rng.choice([0, 1, 2])):
        i = rng.randrange(len(history))
        op, other = history[i], rng.choice(history)
        reads = [number for number, each in enumerate(history) if (each.kind, each.outcome) == ("read", "ok")]
        written = [each.value for each in history if each.kind != "read" and each.outcome != "fail"]
        match rng.randrange(8):
            case 6 | 7 | 0 if reads and written:
                i = rng.choice(reads)
                op = replace(history[i], value=rng.choice(written))  # stale, future, split …
            case 0:
                op = replace(op, value=other.value)  # the same twice …
            case 1:
                op = replace(op, value=rng.choice([99, None, 0, op.value]))
            case 2:
                op = replace(op, outcome=rng.choice(["ok", "fail", "info"]))
            case 3:
                op = earlier_or_later(rng, op)
            case 4:
                op = replace(op, kind=rng.choice(["read", "write"]))
            case 5:
                op = replace(op, key=other.key, expected=other.value if op.kind == "cas" else None)
        if op.outcome == "ok" and op.complete is None:
            op = replace(op, complete=op.invoke + rng.choice([0, 1, 4]))
        if op.complete is not None and op.complete < op.invoke:
            op = replace(op, complete=op.invoke)
        history[i] = op
    return history
