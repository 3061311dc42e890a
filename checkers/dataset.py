"""Judge many short runs: each in memory, by the functions that judge a long one in segments.

`check_dataset` is one Spark job over a dataset (spark_history/dataset.py), a task a few files, without a shuffle: a
file holds whole runs. `check_tables` judges one run and needs no Spark, e.g. to shrink a schedule that fails.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from checkers import log_linearizability, log_matching, nodes, verdict
from checkers.anomalies import Anomalies, examples
from checkers.invariants import Violation
from checkers.log_segment import Scope, Segment
from spark_history.dataset import list_parts, read_part
from spark_history.files import HistoryError
from spark_history.ingest import read_faults
from spark_history.lane import lay_out_run
from spark_history.tasks import Unit, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_dataset(path: Path, spark: SparkSession) -> list[dict[str, Any]]:
    """The verdict on every run of a dataset (see verdict.py), in the order of their names. Raises HistoryError."""
    parts = [{"dataset": str(path), "part": name} for name in list_parts(path)]
    rows = [row for result in run_tasks(spark, check_part, parts) for row in result["verdict"].to_pylist()]
    return sorted((json.loads(row) for row in rows), key=lambda verdict_: str(verdict_["run"]))


def check_part(unit: Unit) -> pa.Table:
    """The runs of one file, a row of JSON each."""
    verdicts = []
    for run in read_part(Path(unit["dataset"]), unit["part"]):
        try:
            verdicts.append(json.dumps(check_tables(run.plan, run.tables, run.doubts, run.violation)))
        except HistoryError as error:
            raise HistoryError(f"run {run.plan.get('run')} of {unit['dataset']}: {error}") from None
    return pa.table({"verdict": pa.array(verdicts, pa.string())})


def check_tables(
    plan: Mapping[str, Any],
    tables: Mapping[str, pa.Table],
    doubts: Sequence[str] = (),
    violation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The verdict on one run whose history is in memory: that which checkers.check() gives on its directory.

    plan: the content of plan.json; tables: by the names of spark_history.schema.TABLES, the pending appends in
    `operations` (MemoryRecorder.tables() or load_journal()); doubts: see verdict.Evidence; violation: the content of
    violation.json. Raises HistoryError.
    """
    faults = read_faults(tables["faults"])
    options = log_linearizability.Options.of(plan, verdict.first_effective(faults))
    operations = tables["operations"]
    origin = pc.min(operations["invoke"]).as_py() or 0
    until = max(pc.max(operations[name]).as_py() or 0 for name in ("invoke", "complete"))
    run = str(plan.get("run") or (operations["run"][0] if operations.num_rows else ""))

    judged: list[Anomalies] = []
    settled: list[Anomalies] = []
    matched: list[Anomalies] = []
    counts: Counter[str] = Counter()
    missing, replica_records, orphans = [], 0, 0
    logs = lay_out_run(tables)
    for log, laid_out, replica_logs in logs:
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
        )
        of_log, of_candidates, own = log_linearizability.judge_log(Segment(scope, laid_out.operations, laid_out.reads))
        judged.append(of_log)
        settled.append(of_candidates)
        counts.update(own)
        replicas = log_matching.compare(replica_logs)
        matched.append(Anomalies(run, log.topic, log.partition))
        log_matching.judge([replicas], matched[-1])
        replica_records += replica_logs.num_rows
        orphans += laid_out.orphans
        if not laid_out.final_reads.complete:
            missing.append(scope.log)
    found = [*judged, *settled, *matched]
    of_nodes = nodes.judge(run, tables["trace"], tables["metadata_log"], nodes.Options.of(plan))
    return verdict.judge(
        verdict.Evidence(
            run=run,
            plan=plan,
            tally=[*(entry for anomalies in found for entry in anomalies.tally), *of_nodes.tally],
            counts=counts,
            faults=faults,
            complete=bool(logs) and not missing,
            missing=missing,
            origin=origin,
            until=until,
            replica_records=replica_records,
            orphans=orphans,
            doubts=doubts,
            violation=None if violation is None else Violation.of(violation),
            examples=examples([*(row for anomalies in found for row in anomalies.rows), *of_nodes.rows]),
            nodes=of_nodes,
        )
    )
