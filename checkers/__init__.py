"""Judge a run: journal to history to anomalies to verdict. `chaos run` and `chaos check` both call check()."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from checkers.invariants import Violation


def check(run_directory: Path, spark: SparkSession) -> dict[str, Any]:
    """The verdict on the run in `run_directory` (see verdict.py), also written there as verdict.json, with the
    witnesses of what was found in anomalies.parquet and every lost append in lost.parquet.

    Ingests the journal first unless history/ is there and current. Raises spark_history.files.HistoryError.
    """
    from checkers import anomalies, log_linearizability, log_matching, nodes, verdict
    from checkers.anomalies import examples
    from spark_history.ingest import ingest

    plan = _read_plan(run_directory)
    history = ingest(run_directory, spark)
    faults = history.faults()
    options = log_linearizability.Options.of(plan, verdict.first_effective(faults))
    linearizability = log_linearizability.check([(history, options)], spark)
    matching = log_matching.check([history], spark)
    of_nodes = nodes.check(history, nodes.Options.of(plan), spark)
    violation = _read_violation(run_directory)
    run = str(plan.get("run") or history.run)
    witnesses = [linearizability.found.anomalies, matching.found.anomalies, of_nodes.anomalies]
    if violation is not None:
        witnesses.insert(0, violation.anomalies(run, history.origin).table)
    missing = [f"{log.topic}-{log.partition}" for log in history.logs if not log.final_reads.complete]
    result = verdict.judge(
        verdict.Evidence(
            run=run,
            plan=plan,
            tally=[
                *(entry[1:] for found in (linearizability.found, matching.found) for entry in found.tally),
                *of_nodes.tally,
            ],
            counts=linearizability.counts[history.run],
            faults=faults,
            complete=bool(history.logs) and not missing,
            missing=missing,
            origin=history.origin,
            until=history.until,
            replica_records=matching.records[history.run],
            orphans=history.orphans,
            doubts=_read_doubts(run_directory),
            violation=violation,
            examples=examples(row for table in witnesses for row in table.to_pylist()),
            nodes=of_nodes,
        )
    )
    _write_table(run_directory / "anomalies.parquet", anomalies.ANOMALIES, witnesses)
    _write_files(run_directory / "lost.parquet", anomalies.LOST, linearizability.lost)
    shutil.rmtree(history.path / "candidates", ignore_errors=True)
    _replace(run_directory / "verdict.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return result


def _read_plan(run_directory: Path) -> dict[str, Any]:
    """plan.json as it stands: a run of another version is judged too. Raises HistoryError."""
    from spark_history.files import HistoryError

    path = run_directory / "plan.json"
    try:
        plan = json.loads(path.read_text())
    except FileNotFoundError:
        raise HistoryError(f"{run_directory} is not a run: it has no plan.json") from None
    except (OSError, ValueError) as error:
        raise HistoryError(f"{path} cannot be read as a plan: {error}") from None
    if not isinstance(plan, dict):
        raise HistoryError(f"{path} cannot be read as a plan: it does not hold an object")
    return plan


def _read_violation(run_directory: Path) -> Violation | None:
    """Of the invariant that stopped a simulated run. Raises HistoryError if it cannot be told which that was."""
    from checkers.invariants import Violation
    from spark_history.files import HistoryError

    path = run_directory / "violation.json"
    try:
        return Violation.of(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, HistoryError) as error:
        raise HistoryError(f"{path} cannot be read as a violation: {error}") from None


def _read_doubts(run_directory: Path) -> list[str]:
    """Why the harness itself would not call the run passed; run.json may be missing or half there."""
    try:
        doubts = json.loads((run_directory / "run.json").read_text()).get("doubts", [])
    except (OSError, ValueError, AttributeError):
        return []
    return [str(doubt) for doubt in doubts] if isinstance(doubts, list) else []


def _write_table(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    import pyarrow as pa

    from spark_history.files import write_parquet

    write_parquet(path, pa.concat_tables([schema.empty_table(), *tables]))


def _write_files(path: Path, schema: pa.Schema, files: Iterable[Path]) -> None:
    """One file of many, a file at a time: all lost appends of a large run need not fit into memory."""
    import pyarrow.parquet as pq

    from spark_history.files import read_parquet

    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with pq.ParquetWriter(temporary, schema) as writer:
        for file in files:
            writer.write_table(read_parquet(file, schema).cast(schema))
    temporary.replace(path)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)
