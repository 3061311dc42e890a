"""Random small histories of objects, and what the objects do, said as plainly as can be."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_history.schema import CALLS
from tests.checkers.histories.random_histories import at_other_times, earlier_or_later


@dataclass(frozen=True)
class Op:
    kind: str
    argument: Any
    result: Any
    invoke: int
    complete: int | None
    outcome: str


def table(history: Sequence[Op], key: str | None = None) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "run": "r",
                "process": number % 3,
                "op": number,
                "kind": op.kind,
                "key": key,
                "argument": json.dumps(op.argument),
                "result": json.dumps(op.result) if op.outcome == "ok" else None,
                "invoke": op.invoke,
                "complete": op.complete,
                "outcome": op.outcome,
                "error": None,
            }
            for number, op in enumerate(history)
        ],
        schema=CALLS,
    )


def _apply(workload: str, state: Any, kind: str, argument: Any) -> list[tuple[Any, Any]]:
    """(result, next state) of each way in which the operation may go; none if it cannot take place."""
    match workload, kind:
        case "mutex", "acquire":
            return [(None, True)] if not state else []
        case "mutex", "release":
            return [(None, False)] if state else []
        case "owned-mutex", "acquire":
            return [(None, argument)] if state is None else []
        case "owned-mutex", "release":
            return [(None, None)] if state == argument else []
        case (("fifo-queue" | "queue"), "enqueue"):
            return [(None, [*state, argument])]
        case (("fifo-queue" | "queue"), "dequeue") if not state:
            return [(None, state)]
        case "fifo-queue", "dequeue":
            return [(state[0], state[1:])]
        case "queue", "dequeue":
            return [(value, state[:i] + state[i + 1 :]) for i, value in enumerate(state)]
        case "set", "add":
            return [(None, sorted({*state, argument}))]
        case "counter", "add":
            return [(None, state + argument)]
        case (("set" | "counter"), "read"):
            return [(state, state)]
        case "kv", "put":
            return [(None, argument)]
        case "kv", "append":
            return [(None, state + argument)]
        case "kv", "get":
            return [(state, state)]
        case "multi-register", "txn":
            values, results = dict(state), []
            for f, key, value in argument:
                if f == "w":
                    values[key] = value
                results.append([f, key, values.get(key)])
            return [(results, values)]
    raise AssertionError((workload, kind))


def step(workload: str, state: Any, op: Op) -> list[Any]:
    outcomes = _apply(workload, state, op.kind, op.argument)
    return [after for result, after in outcomes if op.outcome == "info" or same(workload, op, result)]


def same(workload: str, op: Op, result: Any) -> bool:
    if workload == "set" and op.kind == "read":
        return sorted(set(op.result)) == result
    return op.kind not in ("read", "get", "dequeue", "txn") or bool(op.result == result)


INITIAL: dict[str, Any] = {
    "mutex": False,
    "owned-mutex": None,
    "fifo-queue": [],
    "queue": [],
    "set": [],
    "counter": 0,
    "kv": "",
    "multi-register": {},
}
_KINDS = {
    "mutex": ["acquire", "release"],
    "owned-mutex": ["acquire", "release"],
    "fifo-queue": ["enqueue", "dequeue"],
    "queue": ["enqueue", "dequeue"],
    "set": ["add", "add", "read"],
    "counter": ["add", "read"],
    "kv": ["get", "get", "put", "append", "append"],
    "multi-register": ["txn"],
}


def _argument(rng: random.Random, workload: str, kind: str, number: int, unique: bool) -> Any:
    value = number if unique else rng.randrange(3)
    if workload == "owned-mutex":
        return rng.randrange(2)
    if kind in ("put", "append"):
        return rng.choice(["", "x", f"{value}."])
    if kind == "txn":
        return [[rng.choice("rw"), rng.choice("ab"), None] for _ in range(rng.randint(1, 3))]
    return value if kind in ("enqueue", "add") else None


def random_history(rng: random.Random, workload: str, most: int = 8) -> list[Op]:
    """Linearizable by construction: each operation takes effect at an instant of its own."""
    length, unique, empties = rng.randint(2, most), rng.random() < 0.6, rng.random() < 0.3
    span, slack = rng.choice([4, 2 * length, 6 * length]), rng.choice([[0], [0, 1], [0, 0, 1, 2, 5]])
    state = INITIAL[workload]
    history: list[Op] = []
    for number, point in enumerate(sorted(rng.uniform(0, span) for _ in range(length))):
        kind = rng.choice(_KINDS[workload])
        argument = _argument(rng, workload, kind, number, unique)
        if kind == "txn":
            argument = [[f, key, number if f == "w" else None] for f, key, _ in argument]
        invoke = int(point) - rng.choice(slack)
        complete: int | None = int(point) + 1 + rng.choice(slack)
        outcome = rng.choice(["ok"] * 7 + ["info", "fail"])
        result = None
        ways = _apply(workload, state, kind, argument)
        if (outcome != "ok" and rng.random() < 0.5) or outcome == "fail":
            ways = [] if outcome == "info" else [(None, state)]
        elif not ways or (kind == "dequeue" and not state and not empties):
            outcome = "fail" if outcome == "ok" else outcome
        if ways and outcome != "fail":
            result, state = rng.choice(ways)
        if outcome == "info":
            complete = rng.choice([None, complete])
        history.append(Op(kind, argument, result, invoke, complete, outcome))
    return history


def mutate(rng: random.Random, history: list[Op]) -> list[Op]:
    """Broken in one or two ways, or not quite."""
    history = at_other_times(rng, history)
    for _ in range(rng.choice([0, 1, 2])):
        i = rng.randrange(len(history))
        op, other = history[i], rng.choice(history)
        alike = [each for each in history if each.kind == op.kind and each.outcome == "ok"] or [op]
        match rng.randrange(5):
            case 0 | 1 if op.kind == "txn":
                if op.outcome == "ok":
                    result = [[f, key, rng.randrange(8) if f == "r" else value] for f, key, value in op.result]
                    op = replace(op, result=result)
            case 0 | 1:
                op = replace(op, result=rng.choice(alike).result if op.outcome == "ok" else None)
            case 2:
                outcome = rng.choice(["fail", "info"]) if op.outcome == "ok" else op.outcome
                op = replace(op, outcome=outcome)
            case 3:
                op = earlier_or_later(rng, op)
            case 4 if isinstance(op.result, list) and op.kind == "read" and op.result:
                op = replace(op, result=rng.sample(op.result, rng.randrange(len(op.result))))
            case 4 if other.kind == op.kind and op.kind != "txn":
                op = replace(op, argument=other.argument)
        history[i] = op
    return history
