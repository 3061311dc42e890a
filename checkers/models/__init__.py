"""Objects other than logs and registers: mutex, queues, set, key-value store, counter, several registers at once.

A history is linearizable if and only if the operations that are ok, and some of those that are info, can be put into
one order in which each does what the object's model says (objects.py) and none comes before one that had completed
when it was invoked. Times are compared strictly: operations that touch are concurrent. Failed operations had no effect.

| workload       | operations (argument -> result)                                            | initially |
| -------------- | --------------------------------------------------------------------------- | --------- |
| mutex          | acquire, release                                                            | free      |
| owned-mutex    | acquire client, release client: only the holder can release                 | free      |
| fifo-queue     | enqueue v, dequeue -> v, or nil if it is empty                              | empty     |
| queue          | the same; dequeue may take any                                              | empty     |
| set            | add v, read -> all                                                          | empty     |
| kv             | get -> text, put text, append text; each key by itself                      | ""        |
| counter        | add n, read -> n                                                            | 0         |
| multi-register | txn [[f k v] ...] with f of r, read, w, write; read {k v}; write {k v}      | nil       |

The plan's `initial` replaces the initial value of a kv, a counter or several registers (a map, or one value for all).
Objects have a `key` (linearizability is local). Histories of sets, queues and kv whose values are distinct are
judged directly (direct.py, kv.py), whatever their size, where that can be done exactly. The others are searched
(search.py), each object within the plan's `bounds`: {"seconds": 60, "memory_mb": 1024}. What is not decided within
these is `unknown`.

Anomalies, by name: `phantom`, an ok read or dequeue of what nothing ever put there; `duplicate`, one value dequeued
twice; `not linearizable`, any other: the operations named cannot all take effect in time, whatever the others do.

On disk: `history/calls/<number>.parquet` (CALLS), in the order of key and invocation, all of a key in one file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from checkers import witness
from checkers.anomalies import Anomalies, seconds
from checkers.models.actions import calls_of, model_of
from checkers.models.bounds import Bounds, Budget, Exceeded, judge_each
from checkers.models.calls import Call, Object
from checkers.models.core import bounds_of_core, find_core
from checkers.models.direct import DIRECT
from checkers.models.groups import groups
from checkers.models.kv import judge_kv
from checkers.models.objects import Model
from checkers.models.search import search
from checkers.models.texts import Texts
from checkers.naming import short
from checkers.stored import check_files, judged_of, write_files
from checkers.verdict.judged import NEVER_READ, Judged
from spark_history.errors import HistoryError
from spark_history.files import read_parquet
from spark_history.schema import CALLS
from spark_history.spark.tasks import Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTCOMES: Final = ("ok", "fail", "info")
PHANTOM: Final = "phantom"
DUPLICATE: Final = "duplicate"
NOT_LINEARIZABLE: Final = "not linearizable"


def check_tables(plan: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Judged:
    """tables: `calls`. Needs no Spark. Raises HistoryError."""
    rows = rows_of(tables["calls"])
    origin = min((row["invoke"] for row in rows), default=0)
    return judged_of(plan, _properties(plan), [judge(plan, rows, origin)], origin)


def check_directories(
    runs: Sequence[Path], spark: SparkSession | None = None, asked: Mapping[str, Any] | None = None
) -> list[Judged]:
    """Runs whose history write_history() laid out, all of them in one Spark job, or in this process. asked: entries
    that override those of plans. Raises HistoryError if Spark's executors do not see the runs."""
    return check_files(runs, "calls", _properties, judge_file, spark, asked)


def judge_file(unit: Unit) -> dict[str, Any]:
    return judge(unit["plan"], rows_of(read_parquet(unit["path"], CALLS)), unit["origin"])


def write_history(directory: Path, plan: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """The run in `directory`: plan.json, and its history as described above. Raises HistoryError."""
    table = tables["calls"].select(CALLS.names).cast(CALLS)
    table = table.sort_by([("key", "ascending"), ("invoke", "ascending")])
    keys = table["key"].to_pylist()
    ends = [end for end in range(1, len(keys) + 1) if end == len(keys) or keys[end] != keys[end - 1]]
    write_files(directory, plan, "calls", table, CALLS, np.array(ends, np.int64))


def _properties(plan: Mapping[str, Any]) -> list[str]:
    return [f"{plan.get('workload')} linearizability"]


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """CALLS, sorted by key and invocation, and sane. Raises HistoryError."""
    names = [name for name in CALLS.names if name in table.column_names and name != "run"]
    rows: list[dict[str, Any]] = table.select(names).to_pylist()
    seen: set[int] = set()
    for row in rows:
        op, complete = row["op"], row["complete"]
        for name in ("op", "kind", "invoke"):
            if row[name] is None:
                raise HistoryError(f"an operation lacks its {name!r}")
        if row["outcome"] not in OUTCOMES:
            raise HistoryError(f"operation {op} has the outcome {row['outcome']!r}: there are {', '.join(OUTCOMES)}")
        if complete is None and row["outcome"] == "ok":
            raise HistoryError(f"operation {op} is ok but has no completion")
        if complete is not None and complete < row["invoke"]:
            raise HistoryError(f"operation {op} completed before it was invoked: its times are wrong")
        if op in seen:
            raise HistoryError(
                f"operation {op} is on record twice: the recorder is at fault, not the system under test"
            )
        seen.add(op)
    rows.sort(key=lambda row: (row["key"] is not None, row["key"] or "", row["invoke"], row["op"]))
    return rows


def judge(plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], origin: int) -> dict[str, Any]:
    """What is found of some objects, as facts that JSON can hold: see stored.judged_of()."""
    name, model = model_of(plan)
    bounds = Bounds.of(plan)
    anomalies = Anomalies(str(plan.get("run", "")), None, None)
    objects: dict[str | None, list[Mapping[str, Any]]] = {}
    for row in rows:
        objects.setdefault(row["key"], []).append(row)

    def judge_one(key: str | None, within: Bounds) -> str | None:
        return OneObject(name, model, key, objects[key], anomalies, origin).judge(within)

    undecided = judge_each(list(objects), bounds, judge_one, lambda: bool(anomalies.tally))
    counts = Counter(f"{row['kind']} {row['outcome']}" for row in rows)
    if name == "set":  # of which jepsen.checker/set says nothing
        read = {row["key"] for row in rows if row["kind"] == "read" and row["outcome"] == "ok"}
        counts[NEVER_READ] = len(objects) - len(read)
    return {
        "anomalies": anomalies.rows,
        "tally": anomalies.tally,
        "counts": {"operations": len(rows), "keys": len(objects)} | dict(counts),
        "undecided": undecided,
    }


@dataclass(frozen=True)
class OneObject:
    """One object's history. (Of a model of the user's own: own.py.)"""

    name: str  # of the workload
    model: Model
    key: str | None
    rows: Sequence[Mapping[str, Any]]
    anomalies: Anomalies
    origin: int

    def judge(self, bounds: Bounds) -> str | None:
        """Anomalies are added; returns why the object is undecided, if it is."""
        budget = Budget(bounds)
        try:
            calls, model = self._calls(budget)
            wrong = self._directly(calls, model, budget)
            if wrong is None:
                object_ = self._prepare(model, calls, budget)
        except Exceeded as exceeded:
            return f"{self._name()}: not decided within {exceeded}"
        if wrong is not None:
            if wrong:
                self._tell(wrong)
            return None
        parts = groups(calls, model) if self.name == "multi-register" else [(calls, object_)]
        doubt = None
        for own, part in parts:
            answer = search(own, part, budget)
            if answer.linearizable is None:
                doubt = f"{self._name()}: {answer.doubt()}"
            elif not answer.linearizable:
                prepare = partial(self._prepare, part if isinstance(part, Model) else model)
                core = find_core(own, prepare, answer, bounds_of_core(budget, len(self.anomalies.rows)))
                self._tell(core, answer.done)
                return None  # the others would not change the verdict
        return doubt

    def _calls(self, budget: Budget) -> tuple[list[Call], Model]:
        return calls_of(self.name, self.model, self.rows, budget)

    def _directly(self, calls: Sequence[Call], model: Model, budget: Budget) -> Sequence[Call] | None:
        if self.name == "kv":
            return judge_kv(calls, model.initial, budget)
        direct = DIRECT.get(self.name)
        return None if direct is None else direct(calls, budget)

    def _prepare(self, model: Model, calls: Sequence[Call], budget: Budget) -> Object:
        return Texts(calls, model.initial, budget) if self.name == "kv" else model

    def _name(self) -> str:
        return self.name if self.key is None else f"{self.name} {short(self.key)}"

    def _tell(self, wrong: Sequence[Call], done: int | None = None) -> None:
        rows = [self.rows[call.number] for call in sorted(set(wrong), key=lambda call: (call.invoke, call.number))]
        last = rows[-1]
        listed = witness.listing(rows, self._say)
        anomaly = NOT_LINEARIZABLE
        results = {row["result"] for row in rows}
        if len(rows) == 1 and last["kind"] in ("read", "get", "dequeue"):
            anomaly = PHANTOM
            message = f"{listed} found what was not there before it completed"
        elif len(rows) == 2 and len(results) == 1 and {row["kind"] for row in rows} == {"dequeue"}:
            anomaly = DUPLICATE
            message = f"one value was dequeued twice: {listed}"
        else:
            message = (
                f"these cannot all take effect between invocation and completion, whatever the others do: {listed}"
            )
        if done is not None:
            message += f" (the {done:,} operations that completed first can be explained)"
        steps = [
            witness.Step(row["op"], row["process"], self._what(row), row["invoke"], row["complete"], row["outcome"])
            for row in rows
        ]
        self.anomalies.add(
            f"{self.name} linearizability",
            anomaly,
            f"{self._name()}: {message}",
            ops=[row["op"] for row in rows],
            witness=witness.encode(steps),
        )

    def _what(self, row: Mapping[str, Any]) -> str:
        text = str(row["kind"])
        if row["argument"] not in (None, "null"):
            text += f" {short(row['argument'])}"
        if row["outcome"] == "ok" and row["kind"] in ("read", "get", "dequeue", "txn"):
            text += f" -> {short(row['result'] or 'nil')}"
        return text

    def _say(self, row: Mapping[str, Any]) -> str:
        end = "?" if row["complete"] is None else seconds(row["complete"], self.origin)
        return f"{self._what(row)} (operation {row['op']}, {seconds(row['invoke'], self.origin)} to {end})"
