"""Histories that are hard to judge: many operations at once, few values, many outcomes unknown, states of great size.

Each takes effect at an instant of its own, so that what came of it is right; a wrong one has a result that nothing
explains put in its place, late, so that a search has everything before it to go through. Shapes:

    wide      all operations overlap
    open      a third never completes
    long      hundreds to thousands of operations of ten to fifty clients
    huge      large values: long texts, sets and queues of thousands, hundreds of keys in a transaction

Histories of key-value stores (kv_of_clients) are as clients make them that each do one operation after the other: what
is put and appended is not distinct.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from spark_history.schema import CALLS, REGISTERS

SHAPES: Final = ("wide", "open", "long", "huge")
OBJECTS: Final = ("mutex", "owned-mutex", "fifo-queue", "queue", "set", "kv", "counter", "multi-register")
MODELS: Final = ("register", *OBJECTS)

Row = dict[str, Any]


def adversarial(model: str, seed: int) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Plan and tables of a history of one object, of the shape that the seed says."""
    rng = random.Random(f"{model} {seed}")
    shape = SHAPES[seed % len(SHAPES)]
    count = {"wide": rng.randint(12, 200), "open": rng.randint(15, 120), "long": rng.randint(300, 3000)}.get(shape, 400)
    clients = {"wide": count, "long": rng.choice([10, 50])}.get(shape, rng.choice([5, 20]))
    rows = _times(rng, count, clients)
    state: Any = _INITIAL.get(model)
    few = rng.choice([2, 3, 5, count])
    unknown = {"open": 0.35, "huge": 0.05}.get(shape, rng.choice([0.0, 0.05]))
    for row in rows:
        kind, argument = _choose(rng, model, row["process"], few, shape == "huge")
        happens = True
        if rng.random() < unknown:
            row["outcome"], row["complete"] = "info", None
            happens = rng.random() < 0.5
        result = None
        if happens:
            possible, result, state = _apply(rng, model, state, kind, argument)
            if not possible:
                row["outcome"] = "fail"
        row["kind"], row["argument"] = kind, argument
        row["result"] = result if row["outcome"] == "ok" else None
    rows = [row for row in rows if row["outcome"] != "fail"]
    if rng.random() < 0.7:
        _spoil(rng, model, rows)
    plan = {"run": f"{model}-{seed}", "workload": model, "initial": 0 if model == "register" else None}
    return plan, _tables(model, rows)


def kv_of_clients(
    seed: int, clients: int, operations: int, keys: int, wrong: bool
) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Half gets, a twentieth puts. A wrong one has, on each key and late, a get that lost an append."""
    rng = random.Random(f"kv {seed} {clients} {operations} {keys} {wrong}")
    rows = _times(rng, operations, clients)
    texts: dict[str, str] = {}
    for row in rows:
        row["key"] = key = json.dumps(str(rng.randrange(keys)))
        row["kind"] = kind = rng.choices(["get", "append", "put"], [10, 9, 1])[0]
        if kind == "get":
            row["argument"], row["result"] = None, texts.get(key, "")
            continue
        row["argument"] = part = rng.choice(
            [f"x {row['process']} {rng.randrange(9)} y", "x", "", f"{rng.randrange(4)}"]
        )
        row["result"] = None
        texts[key] = part if kind == "put" else texts.get(key, "") + part
    if wrong:
        for key in texts:
            late = [row for row in rows if row["key"] == key and row["kind"] == "get" and len(row["result"]) > 3]
            if late:
                row = late[-1 - len(late) // 5]
                at = rng.randrange(len(row["result"]) - 1)
                row["result"] = row["result"][:at] + row["result"][at + 1 :]
    return {"run": f"kv-{seed}", "workload": "kv"}, _tables("kv", rows)


def register_log(seed: int) -> str:
    """100 operations of 5 clients on a register of five values, with cas, in EDN; half of the seeds have one read that
    is off."""
    rng = random.Random(f"register log {seed}")
    rows = _times(rng, 100, 5)
    state: Any = None
    for row in rows:
        row["kind"], row["argument"] = _choose(rng, "register", row["process"], 5, huge=False)
        possible, row["result"], state = _apply(rng, "register", state, row["kind"], row["argument"])
        row["outcome"] = "fail" if not possible else "info" if rng.random() < 0.02 else "ok"
    if seed % 2:
        reads = [row for row in rows if row["kind"] == "read" and row["outcome"] == "ok"]
        row = reads[-1 - len(reads) // 3]
        row["result"] = ((row["result"] or 0) + 1) % 5
    events = []
    for row in rows:
        asked = "nil" if row["argument"] is None else json.dumps(row["argument"]).replace(",", "")
        result = asked if row["kind"] != "read" else "nil" if row["result"] is None else str(row["result"])
        for at, what, value in ((row["invoke"], "invoke", asked), (row["complete"], row["outcome"], result)):
            events.append((at, f"{{:process {row['process']}, :type :{what}, :f :{row['kind']}, :value {value}}}"))
    return "\n".join(event for _, event in sorted(events)) + "\n"


def _times(rng: random.Random, operations: int, clients: int) -> list[Row]:
    """In the order of their effects, clients one operation after the other."""
    rows: list[Row] = []
    free = [0] * clients
    at = 0
    for _ in range(operations):
        at += rng.randint(1, 1000)
        client = rng.randrange(clients)
        if free[client] >= at:
            client = min(range(clients), key=lambda each: free[each])
            at = max(at, free[client] + 1)
        invoke = rng.randint(max(free[client] + 1, at - 1000 * clients), at)
        complete = at + rng.randint(1, 1000 * clients // 2)
        free[client] = complete
        rows.append({"process": client, "invoke": invoke, "complete": complete, "outcome": "ok", "key": None})
    if clients >= operations:  # all at once
        latest = max(row["invoke"] for row in rows)
        for row in rows:
            row["complete"] = latest + rng.randint(1, 1000)
    return rows


_INITIAL: Final = {
    "register": 0, "mutex": False, "fifo-queue": [], "queue": [], "set": [], "kv": "", "counter": 0,
    "multi-register": {},
}  # fmt: skip


def _choose(rng: random.Random, model: str, process: int, few: int, huge: bool) -> tuple[str, Any]:
    value = rng.randrange(few)
    match model:
        case "register":
            kind = rng.choice(["read", "write", "cas"])
            return kind, [value, rng.randrange(few)] if kind == "cas" else None if kind == "read" else value
        case "mutex" | "owned-mutex":
            return rng.choice(["acquire", "release"]), process if model == "owned-mutex" else None
        case "fifo-queue" | "queue":
            kind = rng.choices(["enqueue", "dequeue"], [3, 1 if huge else 2])[0]
            return kind, None if kind == "dequeue" else "v" * 500 + str(rng.random()) if huge else value
        case "set":
            kind = rng.choices(["add", "read"], [1, 1 if huge else 2])[0]
            return kind, None if kind == "read" else rng.randrange(100 * few) if huge else value
        case "kv":
            kind = rng.choices(["get", "append", "put"], [2, 4, 1])[0]
            return kind, None if kind == "get" else rng.choice("ab") * (2000 if huge else rng.randint(0, 2))
        case "counter":
            kind = rng.choice(["add", "read"])
            return kind, None if kind == "read" else rng.choice([-1, 1]) * rng.randrange(1 << (200 if huge else 4))
    width, names = (100, 400) if huge else (rng.randint(1, 3), 5)
    steps = [[rng.choice("rw"), rng.randrange(names), value] for _ in range(width)]
    return "txn", [[f, key, each if f == "w" else None] for f, key, each in steps]


def _apply(rng: random.Random, model: str, state: Any, kind: str, argument: Any) -> tuple[bool, Any, Any]:
    """Whether it can be, its result, and the state after it."""
    match kind:
        case "read" | "get":
            return True, state if model != "set" else list(state), state
        case "write" | "put":
            return True, None, argument
        case "cas":
            return state == argument[0], None, argument[1] if state == argument[0] else state
        case "acquire" if model == "mutex":
            return not state, None, True
        case "release" if model == "mutex":
            return state, None, False
        case "acquire":
            return state is None, None, argument if state is None else state
        case "release":
            return state == argument, None, None if state == argument else state
        case "enqueue":
            return True, None, [*state, argument]
        case "dequeue":
            at = 0 if model == "fifo-queue" or not state else rng.randrange(len(state))
            return bool(state), state[at] if state else None, state[:at] + state[at + 1 :]
        case "add" if model == "set":
            return True, None, state if argument in state else [*state, argument]
        case "add" | "append":
            return True, None, state + argument
    after, results = dict(state), []
    for f, key, value in argument:
        if f == "w":
            after[key] = value
        results.append([f, key, after.get(key)])
    return True, results, after


def _spoil(rng: random.Random, model: str, rows: Sequence[Row]) -> None:
    """A late result is another one's, or one more of what there cannot be."""
    asking = [row for row in rows if row["outcome"] == "ok" and row["result"] is not None]
    if asking:
        row = asking[-1 - rng.randrange(1 + len(asking) // 4)]
        row["result"] = rng.choice(asking)["result"] if model != "multi-register" else _other(rng, row["result"])
    elif rows and "mutex" in model:
        ok = [row for row in rows if row["outcome"] == "ok"] or rows
        ok[-1]["kind"] = "acquire" if ok[-1]["kind"] == "release" else "release"


def _other(rng: random.Random, result: list[list[Any]]) -> list[list[Any]]:
    at = rng.randrange(len(result))
    return [[f, key, 10**6 if f == "r" and i == at else value] for i, (f, key, value) in enumerate(result)]


def _tables(model: str, rows: Sequence[Row]) -> dict[str, pa.Table]:
    made = []
    for op, row in enumerate(sorted(rows, key=lambda row: row["invoke"])):
        common = {"run": "r", "op": op, "error": None}
        if model == "register":
            cas = row["kind"] == "cas"
            value = row["argument"][1] if cas else row["result"] if row["kind"] == "read" else row["argument"]
            expected = row["argument"][0] if cas else None
            made.append({**row, **common, "key": 0, "value": value, "expected": expected})
        else:
            result = json.dumps(row["result"]) if row["outcome"] == "ok" else None
            made.append({**row, **common, "argument": json.dumps(row["argument"]), "result": result})
    schema = REGISTERS if model == "register" else CALLS
    names = set(schema.names)
    made = [{name: value for name, value in row.items() if name in names} for row in made]
    return {"registers" if model == "register" else "calls": pa.Table.from_pylist(made, schema=schema)}
