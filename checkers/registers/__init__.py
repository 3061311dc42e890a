"""Registers: read, write and compare-and-set of single values, each key by itself (linearizability is local).

What each operation proves. Times are compared strictly: operations that touch are concurrent.

| operation | ok                                           | info                                          | fail      |
| --------- | -------------------------------------------- | --------------------------------------------- | --------- |
| read v    | v was current sometime from start to end     | nothing                                       | nothing   |
| write v   | v became current in between                  | perhaps so, at some time after the invocation | no effect |
| cas u v   | v replaced u in between                      | the same                                      | no effect |

nil (a null) is a value like others, and the initial value is the plan's `initial` (nil unless it says otherwise).
Two readings of histories differ between tools, so the plan may say: `"nil_reads": "anything"`, an ok read of nil
proves nothing (Knossos' models); `"failed_cas": "evidence"`, a cas that failed and completed saw another value than the
one it expected (Porcupine's etcd model).

A key whose writes are distinct from each other and from the initial value, and that has no cas, is decided by
zones (zones.py), however many operations it has; with cas too, as long as no value is set twice, by chains of values
(checkers/models/chains.py). Any other key is searched (checkers/models/search.py) within bounds of time and memory; if
these do not suffice, the key is undecided and the verdict `unknown`.

Anomalies, by name

    stale read           a read returned a value that another had replaced before the read was invoked: an operation of
                         the newer value came after one of the older value, and had completed
    lost write           the same, where the newer value was acknowledged and never read, and the older one was read
                         at least twice after that
    split brain          two values were each current after the other: different readers saw them in different orders
    future read          a read completed before the write of its value was invoked
    phantom              a read, or a cas that succeeded, found a value that nothing ever wrote
    failed but visible   a read, or a cas that succeeded, found a value that only a failed operation would have written
    lost update          two cas from one value both succeeded though it was current only once
    not linearizable     found by search, and none of the above: the operations that cannot all have taken effect

On disk a history has its keys in order, a key's operations by invocation, and all of a key in one file, so that files
are judged apart: `history/registers/<number>.parquet` (REGISTERS).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from checkers.anomalies import Anomalies
from checkers.models.bounds import Bounds, judge_each
from checkers.naming import NIL
from checkers.registers import findings
from checkers.registers.columns import COLUMNS, OK, READ, Columns, RegisterNaming
from checkers.registers.findings import REGISTER_LINEARIZABILITY
from checkers.registers.searched import judge_key
from checkers.registers.zones import find_simple, windows
from checkers.stored import check_files, judged_of, write_files
from checkers.verdict.judged import Judged
from spark_history.errors import HistoryError
from spark_history.files import integers, read_parquet
from spark_history.schema import REGISTERS
from spark_history.spark.tasks import Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_tables(plan: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Judged:
    """tables: `registers`. Needs no Spark. Raises HistoryError."""
    columns = Columns.of(tables["registers"])
    origin = int(columns.invoke.min()) if len(columns) else 0
    return judged_of(plan, [REGISTER_LINEARIZABILITY], [judge(plan, columns, origin)], origin)


def check_directories(
    runs: Sequence[Path], spark: SparkSession | None = None, asked: Mapping[str, Any] | None = None
) -> list[Judged]:
    """Runs whose history write_history() or a generator laid out, all of them in one Spark job, or in this process.
    asked: entries that override those of plans. Raises HistoryError if Spark's executors do not see the runs."""
    return check_files(runs, "registers", lambda _: [REGISTER_LINEARIZABILITY], judge_file, spark, asked)


def judge_file(unit: Unit) -> dict[str, Any]:
    columns = Columns.of(read_parquet(unit["path"], COLUMNS))
    return judge(unit["plan"], columns, unit["origin"])


def write_history(directory: Path, plan: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
    """The run in `directory`: plan.json, and its history as described above. Raises HistoryError."""
    table = tables["registers"].sort_by([("key", "ascending"), ("invoke", "ascending")])
    key = integers(table, "key", 0)
    ends = np.append(np.flatnonzero(key[1:] != key[:-1]) + 1, len(key))
    write_files(directory, plan, "registers", table, REGISTERS, ends)


def judge(plan: Mapping[str, Any], columns: Columns, origin: int) -> dict[str, Any]:
    """What is found of some keys, as facts that JSON can hold: see stored.judged_of()."""
    first, naming, bounds = _initial(plan), RegisterNaming.of(plan), Bounds.of(plan)
    anomalies = Anomalies(str(plan.get("run", "")), None, None)
    undecided: list[str] = []
    evidence = _as_the_plan_reads_them(plan, columns)
    for part in windows(evidence):
        report = findings.Report(part, naming, anomalies, origin)
        simple, writer = find_simple(part, first)
        findings.judge(report, simple, writer)
        ends = np.append(simple.starts[1:], len(part))
        starts = simple.starts.tolist()
        judge_one = partial(_judge_key, report, starts, ends.tolist(), first)
        left = np.flatnonzero(~simple.decidable).tolist()
        undecided += judge_each(left, bounds, judge_one, lambda: bool(anomalies.tally))
    return {
        "anomalies": anomalies.rows,
        "tally": anomalies.tally,
        "counts": columns.counts(),
        "undecided": undecided,
    }


def _judge_key(
    report: findings.Report, starts: Sequence[int], ends: Sequence[int], first: int, number: int, bounds: Bounds
) -> str | None:
    return judge_key(report, starts[number], ends[number], first, bounds)


def _initial(plan: Mapping[str, Any]) -> int:
    initial = plan.get("initial")
    if initial is None:
        return NIL
    if type(initial) is not int or not NIL < initial < -NIL:
        raise HistoryError(f"the plan's initial value of a register must be an integer or nil, not {initial!r}")
    return initial


def _as_the_plan_reads_them(plan: Mapping[str, Any], columns: Columns) -> Columns:
    if plan.get("nil_reads") == "anything":
        columns = columns.proving_nothing((columns.kind == READ) & (columns.outcome == OK) & (columns.value == NIL))
    return columns.believing_refusals() if plan.get("failed_cas") == "evidence" else columns
