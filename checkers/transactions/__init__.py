"""Transactions: Elle's list-append and rw-register, and log transactions over partitions (Jepsen's kafka workload).

A history of transactions is consistent if there is an order of those that were committed that explains everything they
read (serializable), and that does not contradict real time (strict serializable). Such an order exists unless some
transactions must each come before the next, all around a cycle, or something was read that no order explains.

What must come before what follows from what was read (lists.py, registers.py, logs.py). Which of the dependencies lie
on a cycle is found without looking at paths (graph.py); a shortest cycle of each class, in each strongly connected
component, is then the witness (cycles.py), told in sentences like Elle's (explanation.py). What is wrong without a
cycle is in list_anomalies.py, register_anomalies.py and log_anomalies.py.

`consistency` of the plan, a name or a list of names, says what must hold: strict-serializable (default), serializable,
snapshot-isolation, read-committed, … (consistency.py). What it allows is reported as a property of its own, and never
makes a history fail. For kafka it is Jepsen's choice (log_anomalies.py).

Indeterminate transactions may have happened: an append of theirs that was read is committed, and what they read is not
believed (of kafka what they polled is, see logs.py). Transactions that failed have not happened.

Completeness. If every append was read, the versions of each key are totally ordered, and list-append is decided
exactly: `pass` if and only if there is a (strict) serial order. Where the order of appends that were never read
matters, it may go unnoticed that there is none; `fail` is always right. Of rw-register much less is known of the order
of versions, and the more of it the more the plan allows to assume (registers.py); `fail` is right if that holds.

Sizes. A part of the keys yields its dependencies by itself, in a Spark task each; the dependencies of the whole run, a
few times 9 bytes for each micro-operation, are then searched in this process.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from checkers.naming import Naming
from checkers.properties import ALLOWED_TRANSACTIONS, LOG_LINEARIZABILITY, TRANSACTIONS
from checkers.stored import Stored, run_units, visible
from checkers.transactions import assignments, history, list_anomalies, log_anomalies, register_anomalies
from checkers.transactions.assignments import Assignments
from checkers.transactions.consistency import DEFAULT, forbidden, model_named
from checkers.transactions.cycles import Cycle, find
from checkers.transactions.explanation import KAFKA, LIST_APPEND, RW_REGISTER, Details, explain, rows_of
from checkers.transactions.graph import WR, WW, Edges, Graph
from checkers.transactions.history import (
    OK,
    Micro,
    Transactions,
    load_part,
    load_transactions,
    micro_of,
    transactions_of,
)
from checkers.transactions.history import write_history as write_history
from checkers.transactions.lists import Dependencies, Lists
from checkers.transactions.logs import Logs
from checkers.transactions.registers import Assumed, Registers
from checkers.transactions.report import Report
from checkers.verdict.judged import Judged
from spark_history.errors import HistoryError
from spark_history.files import Ints, read_parquet, write_parquet
from spark_history.log import NEVER
from spark_history.spark.tasks import Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EDGES: Final = pa.schema([("source", pa.int32()), ("target", pa.int32()), ("relation", pa.int8())])
_DETAILS: Final = pa.schema([(name, pa.int64()) for name in ("key", "value", "before")])


def check_tables(plan: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Judged:
    """A history in memory: TRANSACTIONS and MICRO_OPERATIONS, and of kafka ASSIGNMENTS if there are any. Raises
    HistoryError if it cannot be judged."""
    table = tables["transactions"]
    run = plan.get("run") or (table["run"][0].as_py() if table.num_rows else "history")
    txns = transactions_of(str(run), table)
    assigned = assignments.assignments_of(plan, tables.get(assignments.TABLE))
    return _judge_whole(_workload(plan), plan, txns, micro_of(txns, tables["micro_operations"]), assigned)


def _judge_whole(
    workload: str, plan: Mapping[str, Any], txns: Transactions, micro: Micro, assigned: Assignments
) -> Judged:
    report = Report(txns, _forbidden(workload, plan, assigned), Naming.of(plan))
    judged = _judged(workload, txns)
    found, undecided = _judge_part(workload, plan, txns, micro, assigned, report)
    judged.undecided += undecided
    judged.counts["records"] = _records(workload, txns, micro)
    edges = Edges(found.source, found.target, found.kind.astype(np.int8), np.arange(len(found.source)))

    def details(rows: Sequence[int]) -> Details:
        return {row: (int(found.key[row]), int(found.value[row]), int(found.before[row])) for row in rows}

    _judge_cycles(workload, txns, edges, details, report, judged)
    return _finish(judged, report)


def _workload(plan: Mapping[str, Any]) -> str:
    name = LIST_APPEND if plan.get("workload") == "append" else plan.get("workload")
    if name not in (LIST_APPEND, RW_REGISTER, KAFKA):
        raise HistoryError(f"{name!r} is no workload of transactions; there are {LIST_APPEND}, {RW_REGISTER}, {KAFKA}")
    return str(name)


def _forbidden(workload: str, plan: Mapping[str, Any], assigned: Assignments) -> frozenset[str]:
    if workload == KAFKA:
        return log_anomalies.forbidden(assigned)
    asked = plan.get("consistency") or DEFAULT
    models = [asked] if isinstance(asked, str) else asked
    if not isinstance(models, list | tuple) or not all(isinstance(model, str) for model in models):
        raise HistoryError(f"the plan's consistency must be the name of a model, or a list of these, not {asked!r}")
    return frozenset().union(*(forbidden(model_named(model)) for model in models))


def _judged(workload: str, txns: Transactions) -> Judged:
    properties = [TRANSACTIONS, *([LOG_LINEARIZABILITY] if workload == KAFKA else ())]
    return Judged(txns.run, properties, counts=txns.counts(), origin=txns.origin)


def _judge_part(
    workload: str, plan: Mapping[str, Any], txns: Transactions, micro: Micro, assigned: Assignments, report: Report
) -> tuple[Dependencies, list[str]]:
    """All of some keys: what is wrong without a cycle goes to `report`; their dependencies, and what is undecided."""
    if workload == KAFKA:
        logs = Logs(txns, micro, report.naming)
        if logs.twice:
            return _NO_DEPENDENCIES, [logs.twice]
        undecided = log_anomalies.check(logs, report, assigned)
        return logs.dependencies(), undecided
    if workload == RW_REGISTER:
        registers = Registers(txns, micro, report.naming, Assumed.of(plan))
        if registers.twice:
            return _NO_DEPENDENCIES, [registers.twice]
        register_anomalies.check(registers, report)
        crowded = f"{registers.not_drawn} keys have too many transactions at once to relate each to each"
        return registers.dependencies(), [crowded] if registers.not_drawn else []
    lists = Lists(txns, micro, report.naming)
    if lists.twice:
        return _NO_DEPENDENCIES, [lists.twice]
    list_anomalies.check(lists, report)
    undecided = []
    if lists.not_drawn:
        undecided.append(f"{lists.not_drawn} keys have too many appends that were never read to relate to every reader")
    return lists.dependencies(), undecided


def _records(workload: str, txns: Transactions, micro: Micro) -> int:
    """How many micro-operations say something. A read of a list by a transaction that is not ok says nothing, be it on
    record or not: foreign histories, and exports, leave it out."""
    silent = 0 if workload == KAFKA else np.count_nonzero(micro.read & (txns.outcome[micro.txn] != OK))
    return len(micro) - int(silent)


_NO_DEPENDENCIES: Final = Dependencies(*(np.empty(0, np.int64) for _ in range(6)))


def _judge_cycles(
    workload: str, txns: Transactions, edges: Edges, details: Any, report: Report, judged: Judged
) -> None:
    """details: for rows of edges, what explains them."""
    judged.counts["dependencies"] = len(edges)

    def graph(some: Edges, done: Ints) -> Graph:
        return Graph(some, txns.invoke, done, txns.process, done != NEVER)

    cycles: list[tuple[Cycle, str | None]] = []
    if workload == KAFKA:
        # Every wr edge into a transaction is of a poll, and that was over when it completed, whatever became of it. Its
        # sends may take effect later, so that does not hold with ww edges.
        found = find(graph(edges.of(WR), txns.over))
        cycles += [(cycle, None) for cycle in found.cycles]
        # Writes of transactions are not isolated from each other: what takes a ww edge is allowed.
        both = find(graph(edges, txns.done)).cycles
        cycles += [(cycle, ALLOWED_TRANSACTIONS) for cycle in both if (cycle.edges.kind == WW).any()]
    else:
        found = find(graph(edges, txns.done))
        cycles += [(cycle, None) for cycle in found.cycles]
    shown = _some_of_each(cycles)
    explained = details(rows_of([cycle for cycle, _ in shown]))
    for cycle, property_ in shown:
        explain(cycle, explained, workload, report, property_)
    for cycle, property_ in cycles[len(shown) :] if len(shown) < len(cycles) else ():
        report.unlisted(cycle.name, 1, property_)
    given_up = sorted(found.given_up & report.forbidden)
    if given_up:
        judged.undecided.append(f"the search for {', '.join(given_up)} was given up")


def _some_of_each(cycles: list[tuple[Cycle, str | None]]) -> list[tuple[Cycle, str | None]]:
    """The shortest cycles of each name, as many as are kept, before all others; sorts `cycles` so."""
    from checkers.anomalies import MAX_WITNESSES

    cycles.sort(key=lambda entry: len(entry[0].edges))
    seen: dict[tuple[str, str | None], int] = {}
    kept: list[tuple[Cycle, str | None]] = []
    rest: list[tuple[Cycle, str | None]] = []
    for entry in cycles:
        name = (entry[0].name, entry[1])
        seen[name] = seen.get(name, 0) + 1
        (kept if seen[name] <= MAX_WITNESSES else rest).append(entry)
    cycles[:] = kept + rest
    return kept


def _finish(judged: Judged, report: Report) -> Judged:
    judged.rows += report.anomalies.rows
    judged.tally += report.anomalies.tally
    if any(property_ == ALLOWED_TRANSACTIONS for property_, *_ in judged.tally):
        judged.properties = [*judged.properties, ALLOWED_TRANSACTIONS]
    return judged


def check_directories(
    runs: Sequence[Path], spark: SparkSession | None = None, asked: Mapping[str, Any] | None = None
) -> list[Judged]:
    """Runs on disk, in one Spark job, or in this process: a small run is a unit of it, of a large one each part is.

    asked: entries that override those of plans. What cannot be read is undecided, and the reason names the file.
    Raises HistoryError if Spark's executors do not see the runs.
    """
    runs = visible(spark, runs)
    units = {directory: _units(directory, dict(asked or {})) for directory in runs}  # each once
    results = iter(run_units(spark, _run_unit, [unit for of_run in units.values() for unit in of_run]))
    judged = {
        directory: _gather(directory, asked, [next(results) for _ in of_run]) for directory, of_run in units.items()
    }
    return [judged[directory] for directory in runs]


def _units(directory: Path, asked: Mapping[str, Any]) -> list[Unit]:
    common = {"directory": str(directory), "part": None, "asked": asked}
    try:
        run = history.stored(directory)
    except HistoryError:
        return [common]  # the task finds the same
    parts = len(run.paths("micro_operations"))
    small = run.rows.get("micro_operations", history.PART_ROWS + 1) <= history.PART_ROWS
    return [common] if parts <= 1 or small else [common | {"part": part} for part in range(parts)]


def _run_unit(unit: Unit) -> dict[str, Any]:
    run = history.stored(Path(unit["directory"]), unit["asked"])
    return asdict(_run_whole(run)) if unit["part"] is None else _run_part(run, int(unit["part"]))


def _run_whole(run: Stored) -> Judged:
    txns = load_transactions(run)
    parts: list[Micro] = []
    damaged: list[str] = []
    for path in run.paths("micro_operations"):
        try:
            parts.append(load_part(txns, path))
        except HistoryError as error:
            damaged.append(str(error))
    if damaged and not parts:
        raise HistoryError(damaged[0])
    judged = _judge_whole(_workload(run.plan), run.plan, txns, Micro.join(parts), assignments.load(run))
    judged.undecided += map(_not_judged, damaged)
    return judged


def _not_judged(error: str) -> str:
    return f"{error}: its operations are not judged"


def _edge_paths(directory: Path, part: int) -> tuple[Path, Path]:
    folder, name = directory / "candidates", f"{part:06}.parquet"
    return folder / "edges" / name, folder / "details" / name


def _run_part(run: Stored, part: int) -> dict[str, Any]:
    txns = load_transactions(run)
    workload = _workload(run.plan)
    micro = load_part(txns, run.paths("micro_operations")[part])
    assigned = assignments.load(run)
    report = Report(txns, _forbidden(workload, run.plan, assigned), Naming.of(run.plan))
    found, undecided = _judge_part(workload, run.plan, txns, micro, assigned, report)
    known = vars(found) | {"relation": found.kind}
    for path, schema in zip(_edge_paths(run.directory, part), (_EDGES, _DETAILS), strict=True):
        columns = [pa.array(known[field.name]).cast(field.type) for field in schema]
        write_parquet(path, pa.table(columns, schema=schema))
    return {
        "rows": report.anomalies.rows,
        "tally": report.anomalies.tally,
        "undecided": undecided,
        "records": _records(workload, txns, micro),
        "part": part,
    }


def _gather(directory: Path, asked: Mapping[str, Any] | None, results: Sequence[dict[str, Any]]) -> Judged:
    """What the units of one run found, and the cycles of a run of several parts. A part that could not be judged takes
    its dependencies out, no more: what the others show is wrong whatever it holds."""
    sound = [result for result in results if "error" not in result]
    errors = list(dict.fromkeys(result["error"] for result in results if "error" in result))
    try:
        if not sound:
            return Judged(directory.name, [TRANSACTIONS], undecided=errors[:1])
        if "part" not in sound[0]:
            facts = sound[0]
            return Judged(**{**facts, "tally": [tuple(entry) for entry in facts["tally"]]})
        run = history.stored(directory, asked)
        txns = load_transactions(run)
        workload = _workload(run.plan)
        report = Report(txns, _forbidden(workload, run.plan, assignments.load(run)), Naming.of(run.plan))
        judged = _judged(workload, txns)
        judged.undecided += map(_not_judged, errors)
        judged.counts["records"] = sum(result["records"] for result in sound)
        for result in sound:
            report.merge(result["rows"], result["tally"])
            judged.undecided += result["undecided"]
        parts = [int(result["part"]) for result in sound]
        edges, firsts = _load_edges(directory, parts)

        def details(rows: Sequence[int]) -> Details:
            return _load_details(directory, parts, firsts, rows)

        _judge_cycles(workload, txns, edges, details, report, judged)
        return _finish(judged, report)
    except HistoryError as error:
        return Judged(directory.name, [TRANSACTIONS], undecided=[str(error)])
    finally:
        shutil.rmtree(directory / "candidates", ignore_errors=True)


def _load_edges(directory: Path, parts: Sequence[int]) -> tuple[Edges, Ints]:
    """The dependencies of these parts, and the number of the first of each."""
    tables = [read_parquet(_edge_paths(directory, part)[0], _EDGES) for part in parts]
    firsts = np.concatenate(([0], np.cumsum([table.num_rows for table in tables])))
    table = pa.concat_tables(tables)
    # Vertices in 4 bytes: these arrays are the largest in memory.
    source, target, kind = (table[name].to_numpy() for name in _EDGES.names)
    return Edges(source, target, kind, np.arange(len(source), dtype=np.int64)), firsts


def _load_details(directory: Path, parts: Sequence[int], firsts: Ints, rows: Sequence[int]) -> Details:
    found: dict[int, tuple[int, int, int]] = {}
    place = np.searchsorted(firsts, np.array(rows, np.int64), "right") - 1
    for each in np.unique(place).tolist():
        table = read_parquet(_edge_paths(directory, parts[each])[1], _DETAILS)
        mine = np.array(rows)[place == each]
        wanted = table.take(pa.array(mine - firsts[each])).to_pydict()
        for row, *values in zip(mine.tolist(), *(wanted[name] for name in _DETAILS.names), strict=True):
            found[row] = (values[0], values[1], values[2])
    return found
