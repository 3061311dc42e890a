"""Judge many short runs: each in memory, by the functions that judge a long one in segments.

`check_dataset` is one Spark job over a dataset (spark_history/dataset.py), a task a few files, without a shuffle: a
file holds whole runs. `check_tables` judges one run and needs no Spark, e.g. to shrink a schedule that fails.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from checkers import availability, log_linearizability, log_matching, log_quick, nodes, verdict
from checkers.anomalies import LOST_APPEND, Anomalies, examples
from checkers.invariants import Violation
from checkers.log_segment import Scope, Segment
from checkers.witness import explain, named_operations, steps_of
from spark_history.dataset import list_parts, read_whole
from spark_history.files import HistoryError
from spark_history.ingest import read_faults
from spark_history.lane import Log, lay_out_run, split_run
from spark_history.tasks import Unit, run_tasks, shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_dataset(path: Path, spark: SparkSession) -> list[dict[str, Any]]:
    """The verdict on every run of a dataset (see verdict.py), in the order of their names. Raises HistoryError."""
    (path,) = shared(spark, [path])
    parts = [{"dataset": str(path), "part": name} for name in list_parts(path)]
    rows = [row for result in run_tasks(spark, check_part, parts) for row in result["verdict"].to_pylist()]
    return sorted((json.loads(row) for row in rows), key=lambda verdict_: str(verdict_["run"]))


def check_part(unit: Unit) -> pa.Table:
    """The runs of one file, a row of JSON each."""
    verdicts = []
    part = read_whole(Path(unit["dataset"]), unit["part"])
    runs = list(part.runs())
    options = [_options(run.plan, read_faults(run.tables["faults"])) for run in runs]
    operations, reads = part.tables["operations"], part.tables["reads"]
    clean = log_quick.count_clean(operations, reads, (part.lengths["operations"], part.lengths["reads"]), options)
    for run, counts in zip(runs, clean, strict=True):
        try:
            verdicts.append(json.dumps(check_tables(run.plan, run.tables, run.doubts, run.violation, counts=counts)))
        except HistoryError as error:
            raise HistoryError(f"run {run.plan.get('run')} of {unit['dataset']}: {error}") from None
    return pa.table({"verdict": pa.array(verdicts, pa.string())})


def _options(plan: Mapping[str, Any], faults: Sequence[Mapping[str, Any]]) -> log_linearizability.Options:
    return log_linearizability.Options.of(plan, verdict.first_effective(faults))


@dataclass
class _Logs:
    """What was found in all logs of one run."""

    found: list[Anomalies]
    counts: Mapping[str, int]
    operations: dict[str, pa.Table]  # by the name of the log
    missing: list[str] = field(default_factory=list)  # logs whose final log is not known
    orphans: int = 0


def _count_logs(run: str, tables: Mapping[str, pa.Table], counts: Mapping[str, int]) -> _Logs:
    """Of a run whose logs are clean: only its replica logs are still to be judged."""
    names = ("operations", "replica_logs") if tables["replica_logs"].num_rows else ("operations",)
    split = split_run(tables, *names)
    operations = {f"{log.topic}-{log.partition}": own[0] for log, own in split}
    if len(names) == 1:
        return _Logs([], counts, operations)
    return _Logs([_match(run, log, own[1]) for log, own in split], counts, operations)


def _judge_logs(
    run: str,
    tables: Mapping[str, pa.Table],
    options: log_linearizability.Options,
    origin: int,
    faults: Sequence[Mapping[str, Any]],
) -> _Logs:
    judged: list[Anomalies] = []
    settled: list[Anomalies] = []
    matched: list[Anomalies] = []
    counts: Counter[str] = Counter()
    logs = _Logs([], counts, {})
    for log, laid_out, replica_logs in lay_out_run(tables):
        scope = Scope(
            run=run,
            topic=log.topic,
            partition=log.partition,
            low=0,
            high=None,
            final_reads=laid_out.final_reads,
            end=laid_out.end,
            acks_all=options.acks_all,
            origin=origin,
            since=options.since,
            compacted=options.compacted,
            log_start=options.log_start,
            retries=options.retries,
        )
        of_log, of_candidates, own = log_linearizability.judge_log(Segment(scope, laid_out.operations, laid_out.reads))
        if named := [op for anomalies in (of_log, of_candidates) for row in anomalies.rows for op in row["ops"]]:
            steps = steps_of(named_operations(laid_out.operations, named))
            for row in (*of_log.rows, *of_candidates.rows):
                explain(row, steps, faults)
        judged.append(of_log)
        settled.append(of_candidates)
        counts.update(own)
        matched.append(_match(run, log, replica_logs))
        logs.operations[scope.log] = laid_out.operations
        logs.orphans += laid_out.orphans
        if not options.complete(laid_out.final_reads):
            logs.missing.append(scope.log)
    logs.found = [*judged, *settled, *matched]
    return logs


def _match(run: str, log: Log, replica_logs: pa.Table) -> Anomalies:
    matched = Anomalies(run, log.topic, log.partition)
    log_matching.judge([log_matching.compare(replica_logs)], matched)
    return matched


def check_tables(
    plan: Mapping[str, Any],
    tables: Mapping[str, pa.Table],
    doubts: Sequence[str] = (),
    violation: Mapping[str, Any] | None = None,
    rows: list[dict[str, Any]] | None = None,
    counts: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The verdict on one run whose history is in memory: that which checkers.check() gives on its directory.

    plan: the content of plan.json; tables: by the names of spark_history.schema.TABLES, the pending appends in
    `operations` (MemoryRecorder.tables() or load_journal()); doubts: see verdict.Evidence; violation: the content of
    violation.json; rows: gets the anomalies (ANOMALIES); counts: of a run whose logs are known to be clean
    (log_quick.py). Raises HistoryError.
    """
    faults = read_faults(tables["faults"])
    options = _options(plan, faults)
    operations = tables["operations"]
    origin = pc.min(operations["invoke"]).as_py() or 0
    until = max(pc.max(operations[name]).as_py() or 0 for name in ("invoke", "complete"))
    run = str(plan.get("run") or (operations["run"][0] if operations.num_rows else ""))

    logs = _judge_logs(run, tables, options, origin, faults) if counts is None else _count_logs(run, tables, counts)
    found = logs.found
    witnessed = [row for anomalies in found for row in anomalies.rows]
    of_nodes = nodes.judge(run, tables["trace"], tables["metadata_log"], nodes.Options.of(plan), faults)
    if rows is not None:
        rows += [*witnessed, *of_nodes.rows]
    return verdict.judge(
        verdict.Evidence(
            run=run,
            plan=plan,
            tally=[*(entry for anomalies in found for entry in anomalies.tally), *of_nodes.tally],
            counts=logs.counts,
            faults=faults,
            complete=bool(logs.operations) and not logs.missing,
            missing=logs.missing,
            origin=origin,
            until=until,
            replica_records=tables["replica_logs"].num_rows if logs.operations else 0,
            orphans=logs.orphans,
            doubts=doubts,
            violation=None if violation is None else Violation.of(violation),
            examples=examples([*witnessed, *of_nodes.rows]),
            nodes=of_nodes,
            lost_in=verdict.places_of(witnessed, LOST_APPEND),
            availability=availability.of_tables(logs.operations.items(), faults, origin),
        )
    )
