"""Workloads of Jepsen's whose checkers look for one thing that must hold, and no order of all operations.

| workload    | operations (argument -> result)         | what must hold                                              |
| ----------- | --------------------------------------- | ----------------------------------------------------------- |
| bank        | transfer, read -> {account balance}     | each read adds up to one total; no balance is below zero    |
| long-fork   | txn [[w k v]], txn [[r k v] …]          | of two reads of a group, one saw all that the other did     |
| comments    | write v, read -> all                    | who sees a write, sees what had completed when it began     |
| sequential  | write k, read -> [k [sub …]]            | who finds a subkey of k, finds those written before it      |
| set-full    | add v, read -> all                      | what is known to have been added is not gone for good       |
| total-queue | enqueue v, dequeue -> v, drain -> [v …] | what goes in comes out, and nothing else                    |

They are those of jepsen.tests.bank and .long-fork, of the tests of CockroachDB (comments, sequential), and of
jepsen.checker (set-full, total-queue); each module opens with its definition. A history that is right by them may be
wrong by a stricter one (of a set or a queue: checkers.models), which the names tell apart. Each takes time and memory
linear in its history, within the plan's `bounds`: beyond them the answer is `unknown`.

The layout on disk, and keys, are those of checkers.models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from checkers.anomalies import Anomalies
from checkers.models import rows_of
from checkers.models import write_history as write_history
from checkers.models.bounds import Bounds, Budget, Exceeded
from checkers.models.invariants import bank, comments, long_fork, sequential, set_full, total_queue
from checkers.models.invariants.history import Found, History, allowed_of, property_of
from checkers.stored import check_files, judged_of
from checkers.verdict.judged import Judged
from spark_history.errors import HistoryError
from spark_history.files import read_parquet
from spark_history.schema import CALLS
from spark_history.spark.tasks import Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: By workload: judges the history of one object. Raises HistoryError, Exceeded.
JUDGES: Final[Mapping[str, Callable[[History], Found]]] = {
    "bank": bank.judge,
    "long-fork": long_fork.judge,
    "comments": comments.judge,
    "sequential": sequential.judge,
    "set-full": set_full.judge,
    "total-queue": total_queue.judge,
}


def check_tables(plan: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Judged:
    """tables: `calls`. Needs no Spark. Raises HistoryError."""
    rows = rows_of(tables["calls"])
    origin = min((row["invoke"] for row in rows), default=0)
    return judged_of(plan, _properties(plan), [judge(plan, rows, origin)], origin)


def check_directories(
    runs: Sequence[Path], spark: SparkSession | None = None, asked: Mapping[str, Any] | None = None
) -> list[Judged]:
    """As checkers.models.check_directories()."""
    return check_files(runs, "calls", _properties, judge_file, spark, asked)


def judge_file(unit: Unit) -> dict[str, Any]:
    return judge(unit["plan"], rows_of(read_parquet(unit["path"], CALLS)), unit["origin"])


def _properties(plan: Mapping[str, Any]) -> list[str]:
    name = str(plan.get("workload"))
    return [property_of(name), allowed_of(name)] if name in (set_full.NAME, total_queue.NAME) else [property_of(name)]


def judge(plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], origin: int) -> dict[str, Any]:
    """What is found of some objects, as facts that JSON can hold: see stored.judged_of()."""
    name = plan.get("workload")
    if not isinstance(name, str) or name not in JUDGES:
        raise HistoryError(f"there is no invariant of a {name!r}; there are {', '.join(JUDGES)}")
    anomalies = Anomalies(str(plan.get("run", "")), None, None)
    objects: dict[str | None, list[Mapping[str, Any]]] = {}
    for row in rows:
        objects.setdefault(row["key"], []).append(row)
    counts = Counter({"operations": len(rows), "keys": len(objects)})
    counts.update(f"{row['kind']} {row['outcome']}" for row in rows)
    measured: dict[str, list[float]] = {}

    def judge_one(key: str | None) -> str | None:
        history = History(name, key, objects[key], plan, Budget(Bounds.of(plan)), origin)
        try:
            found = JUDGES[name](history)
        except Exceeded as exceeded:
            return f"{history.called}: not decided within {exceeded}"
        for told in found.told:
            history.add(anomalies, told)
        counts.update({each: count for each, count in found.counts.items() if count})
        for each, values in found.measured.items():
            measured.setdefault(each, []).extend(values)
        return None if found.doubt is None else f"{history.called}: {found.doubt}"

    undecided = [doubt for key in objects if (doubt := judge_one(key)) is not None]
    return {
        "anomalies": anomalies.rows,
        "tally": anomalies.tally,
        "counts": dict(counts),
        "undecided": undecided,
        "measured": measured,
    }
