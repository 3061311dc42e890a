"""Labelled histories of bank, long-fork, comments, sequential, set-full, queues and rw-register: right by construction,
or with one defect planted (object_defects.py).

Every operation takes effect at an instant of its own between its invocation and its completion: in the order of these
instants the object does what it is there for. Some operations fail, and some are indeterminate, of which half took
effect; whoever had one goes on under a new number, as in Jepsen. A defect is a short script, run one to PLACES times
while no other operation is in progress. All of a history is in memory. The label is in plan.json:

    {"verdict": "pass" or "fail", "anomaly": what must be found, or null, "defect": name or null,
     "at": the first place, "places": [{"ops": [operations]}, …]}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from checkers import models
from checkers.models import invariants
from checkers.transactions import write_history
from harness.errors import BadArguments
from harness.generate import check_defect
from harness.generate.object_defects import DEFECTS, DEFECTS_OF, Line
from spark_history.schema import CALLS, MICRO_OPERATIONS, TRANSACTIONS

__all__ = ["DEFECTS_OF", "generate"]

PLACES: Final = 5
ORIGIN: Final = 1_000_000_000  # ns
MS: Final = 1_000_000  # ns
ACCOUNTS: Final = tuple("abcdefgh")
SUBKEYS: Final = 4
GROUP: Final = 2  # keys of long-fork that are read together
KEYS: Final = 10  # of rw-register, written to at the same time
WRITES_OF_A_KEY: Final = 100

Did = tuple[str, Any, Any]  # kind, argument, and the result if it is ok


def generate(
    directory: Path,
    *,
    operations: int,
    processes: int,
    seed: int,
    defect: str | None = None,
    workload: str,
    places: int = PLACES,
) -> dict[str, Any]:
    """Write one run and return its label. Raises BadArguments.

    places: how many times the defect is planted, less where there are few operations.
    """
    check_defect(workload, defect, DEFECTS_OF)
    if operations < 1 or processes < 1:
        raise BadArguments("a history needs at least one operation and one process")
    made = _Made(Random(seed), _OBJECTS[workload](), processes)
    at = []
    parts = min(places, operations) if defect else 0
    for part in range(parts + 1):
        share = operations * (part + 1) // (parts + 1) - operations * part // (parts + 1)
        made.run(share)
        if part < parts:
            at.append(made.plant(DEFECTS[workload][defect].lines(part)))  # type: ignore[index]
    made.finish()
    rows = sorted(made.rows, key=lambda row: (row["invoke"], row["number"]))
    for op, row in enumerate(rows):
        row["op"] = op
    ops = {row["number"]: row["op"] for row in rows}
    found = [{"ops": [ops[number] for number in numbers]} for numbers in at]
    label: dict[str, Any] = {
        "verdict": "fail" if defect else "pass",
        "anomaly": DEFECTS[workload][defect].anomaly if defect else None,
        "defect": defect,
        "at": found[0] if found else None,
        "places": found,
    }
    plan = {
        "run": directory.name,
        "workload": workload,
        "source": "generated",
        "operations": len(rows),
        "processes": processes,
        "seed": seed,
        "label": label,
        **made.object.plan,
        **(DEFECTS[workload][defect].plan if defect else {}),
    }
    if workload == "rw-register":
        write_history(directory, plan, _transactions(directory.name, rows))
    else:
        family = models if workload == "queue" else invariants
        family.write_history(directory, plan, {"calls": _calls(directory.name, rows)})
    return label


# --- what the objects do --------------------------------------------------------------------------------------------


class _Object:
    """plan: what the plan must say of it."""

    def __init__(self) -> None:
        self.plan: dict[str, Any] = {}
        self.next = 0

    def fresh(self) -> int:
        self.next += 1
        return self.next

    def draw(self, random: Random) -> tuple[str, Any]:
        """What is asked for next: kind and argument."""
        raise NotImplementedError

    def do(self, kind: str, argument: Any) -> Any:
        """Do it; the result."""
        raise NotImplementedError

    def end(self) -> list[tuple[str, Any]]:
        """What is asked for when all else is over."""
        return []


class _Bank(_Object):
    def __init__(self) -> None:
        super().__init__()
        self.held = dict.fromkeys(ACCOUNTS, 100)
        self.plan = {"total_amount": sum(self.held.values()), "accounts": list(ACCOUNTS)}

    def draw(self, random: Random) -> tuple[str, Any]:
        if random.random() < 0.5:
            return "read", None
        one, other = random.sample(ACCOUNTS, 2)
        return "transfer", {"from": one, "to": other, "amount": random.randint(1, 5)}

    def do(self, kind: str, argument: Any) -> Any:
        if kind == "read":
            return dict(self.held)
        amount = min(argument["amount"], self.held[argument["from"]])
        self.held[argument["from"]] -= amount
        self.held[argument["to"]] += amount
        return argument


class _LongFork(_Object):
    def __init__(self) -> None:
        super().__init__()
        self.there = set[int]()
        self.plan = {"group_size": GROUP}

    def draw(self, random: Random) -> tuple[str, Any]:
        if self.next < GROUP or random.random() < 0.3:
            return "txn", [["w", self.fresh(), 1]]
        first = max(self.next - random.randrange(4), 0) // GROUP * GROUP
        return "txn", [["r", first + each, None] for each in random.sample(range(GROUP), GROUP)]

    def do(self, kind: str, argument: Any) -> Any:
        self.there.update(key for f, key, _ in argument if f == "w")
        return [[f, key, 1 if key in self.there else None] for f, key, _ in argument]


class _Comments(_Object):
    """Reads are few: each returns all there is."""

    kind = "write"

    def __init__(self) -> None:
        super().__init__()
        self.there: list[int] = []

    def draw(self, random: Random) -> tuple[str, Any]:
        often = 0.5 if self.next < 100 else 50 / self.next
        return ("read", None) if random.random() < often else (self.kind, self.fresh())

    def do(self, kind: str, argument: Any) -> Any:
        if kind == "read":
            return list(self.there)
        self.there.append(argument)
        return argument

    def end(self) -> list[tuple[str, Any]]:
        return [("read", None)]


class _SetFull(_Comments):
    kind = "add"


class _Sequential(_Object):
    def __init__(self) -> None:
        super().__init__()
        self.there = set[int]()

    def draw(self, random: Random) -> tuple[str, Any]:
        if not self.next or random.random() < 0.4:
            return "write", self.fresh()
        return "read", max(self.next - random.randrange(6), 1)

    def do(self, kind: str, argument: Any) -> Any:
        if kind == "write":
            self.there.add(argument)
            return argument
        return [argument, subkeys(argument, range(SUBKEYS) if argument in self.there else ())]


def subkeys(key: int, there: Any) -> list[str | None]:
    return [f"{key}_{each}" if each in there else None for each in reversed(range(SUBKEYS))]


class _Queue(_Object):
    def __init__(self) -> None:
        super().__init__()
        self.there: list[int] = []

    def draw(self, random: Random) -> tuple[str, Any]:
        return ("enqueue", self.fresh()) if not self.there or random.random() < 0.5 else ("dequeue", None)

    def do(self, kind: str, argument: Any) -> Any:
        if kind == "enqueue":
            self.there.append(argument)
            return argument
        if kind == "drain":
            taken, self.there = self.there, []
            return taken
        return self.there.pop(0) if self.there else None


class _TotalQueue(_Queue):
    def end(self) -> list[tuple[str, Any]]:
        return [("drain", None)]


class _RwRegister(_Object):
    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}

    def draw(self, random: Random) -> tuple[str, Any]:
        micro = []
        for each in random.sample(range(KEYS), random.randint(1, 4)):
            key = self.next // WRITES_OF_A_KEY * KEYS + each
            micro.append(["r", key, None] if random.random() < 0.5 else ["w", key, self.fresh()])
        return "txn", micro

    def do(self, kind: str, argument: Any) -> Any:
        done = []
        for f, key, value in argument:
            if f == "w":
                self.held[key] = value
            done.append([f, key, self.held.get(key)])
        return done


_OBJECTS: Final[Mapping[str, Callable[[], _Object]]] = {
    "rw-register": _RwRegister, "bank": _Bank, "long-fork": _LongFork, "comments": _Comments,
    "sequential": _Sequential, "set-full": _SetFull, "queue": _Queue, "total-queue": _TotalQueue,
}  # fmt: skip


# --- when -----------------------------------------------------------------------------------------------------------


@dataclass
class _Made:
    random: Random
    object: _Object
    processes: int
    now: int = ORIGIN  # all that there is is over by then
    rows: list[dict[str, Any]] = field(default_factory=list)
    crashes: dict[int, int] = field(default_factory=dict)  # by process, how often

    def run(self, number: int) -> None:
        """So many operations, at the same time as each other, and none before or after."""
        free = dict.fromkeys(range(min(self.processes, max(number, 1))), self.now)
        moments = []
        for _ in range(number):
            process = min(free, key=free.__getitem__) if len(free) <= _FEW else self.random.choice(list(free))
            invoke = free[process] + 1 + int(self.random.expovariate(1) * MS)
            complete = invoke + 2 + MS + int(self.random.expovariate(0.25) * MS)
            free[process] = complete + 1
            moments.append((self.random.randint(invoke + 1, complete - 1), process, invoke, complete))
        # In the order of invocations an indeterminate operation gives the next of its process another number.
        crashed = [self.random.random() < 0.02 for _ in moments]
        numbers = {}
        for place in sorted(range(number), key=lambda each: moments[each][2]):
            process = moments[place][1]
            numbers[place] = self._number(process)
            self.crashes[process] = self.crashes.get(process, 0) + crashed[place]
        for place in sorted(range(number), key=lambda each: moments[each]):
            kind, argument = self.object.draw(self.random)
            _, _, invoke, complete = moments[place]
            outcome = "info" if crashed[place] else "fail" if self.random.random() < 0.02 else "ok"
            result = None
            if outcome == "ok" or (outcome == "info" and kind != "dequeue" and self.random.random() < 0.5):
                result = self.object.do(kind, argument)
            self._add(numbers[place], kind, argument, result, invoke, None if outcome == "info" else complete, outcome)
        self.now = max([self.now, *free.values()]) + MS

    def _number(self, process: int) -> int:
        return process + self.processes * self.crashes.get(process, 0)

    def _add(
        self, process: int, kind: str, argument: Any, result: Any, invoke: int, complete: int | None, outcome: str
    ) -> int:
        number = len(self.rows)
        result = result if outcome == "ok" else None
        self.rows.append(
            {"number": number, "process": process, "kind": kind, "argument": argument, "result": result,
             "invoke": invoke, "complete": complete, "outcome": outcome}
        )  # fmt: skip
        return number

    def plant(self, lines: list[Line]) -> list[int]:
        """The script, by processes that do nothing else; the rows."""
        numbers, first = [], _SCRIPTS + len(self.rows)
        for line in lines:
            invoke, complete = self.now + line.invoke * MS, self.now + line.complete * MS
            result = line.result(self.object.do) if callable(line.result) else line.result
            process = first + line.process
            numbers.append(self._add(process, line.kind, line.argument, result, invoke, complete, line.outcome))
        self.now += (max(line.complete for line in lines) + 1) * MS
        return numbers

    def finish(self) -> None:
        for kind, argument in self.object.end():
            result = self.object.do(kind, argument)
            self._add(self._number(0), kind, argument, result, self.now, self.now + MS, "ok")
            self.now += 2 * MS


_FEW: Final = 64  # processes, of which the one that is free first goes on
_SCRIPTS: Final = 1 << 30  # processes of scripts count from here


# --- how it is laid out ---------------------------------------------------------------------------------------------


def _calls(run: str, rows: list[dict[str, Any]]) -> pa.Table:
    table = [
        {
            "run": run, "process": row["process"], "op": row["op"], "kind": row["kind"], "key": None,
            "argument": json.dumps(row["argument"]),
            "result": json.dumps(row["result"]) if row["outcome"] == "ok" else None,
            "invoke": row["invoke"], "complete": row["complete"], "outcome": row["outcome"], "error": None,
        }
        for row in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(table, schema=CALLS)


def _transactions(run: str, rows: list[dict[str, Any]]) -> dict[str, pa.Table]:
    names = ("process", "op", "invoke", "complete", "outcome")
    txns = [{"run": run, "error": None, **{name: row[name] for name in names}} for row in rows]
    micro = []
    for row in rows:
        ok = row["outcome"] == "ok"
        for position, (f, key, value) in enumerate(row["result"] if ok else row["argument"]):
            if ok or f == "w":  # else it does not say what it read
                kind = "write" if f == "w" else "read"
                micro.append({"run": run, "op": row["op"], "position": position, "kind": kind, "key": key,
                              "offset": None, "value": value})  # fmt: skip
    return {
        "transactions": pa.Table.from_pylist(txns, schema=TRANSACTIONS),
        "micro_operations": pa.Table.from_pylist(micro, schema=MICRO_OPERATIONS),
    }
