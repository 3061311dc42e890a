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
    from checkers.verdict import Evidence
    from spark_history.damage import Damage
    from spark_history.ingest import History


def check(run_directory: Path, spark: SparkSession) -> dict[str, Any]:
    """The verdict on the run in `run_directory` (see verdict.py), also written there as verdict.json, with the
    witnesses of what was found in anomalies.parquet and every lost append in lost.parquet. An earlier verdict is kept
    (see keeping.py).

    Ingests the journal first unless history/ is there and current. Files that are damaged are named, and the rest is
    judged (see salvage.py). Raises spark_history.files.HistoryError if there is nothing to judge, or if the recorder
    is at fault.
    """
    from checkers import anomalies, keeping, verdict
    from spark_history.files import HistoryError
    from spark_history.ingest import ingest
    from spark_history.tasks import shared

    (run_directory,) = shared(spark, [run_directory])
    damaged: list[Damage] = []
    plan = _read_plan(run_directory, damaged)
    violation = _read_violation(run_directory, damaged)
    doubts = _read_doubts(run_directory, damaged)
    history = ingest(run_directory, spark)
    damaged += [(f"journal/{name}", why) for name, why in history.damaged]
    try:
        evidence, witnesses, lost = _look(history, plan, violation, doubts, damaged, spark)
    except HistoryError as error:
        if not damaged:
            raise
        evidence, witnesses, lost = _nothing(history, plan, violation, doubts, damaged, str(error)), [], []
    result = verdict.judge(evidence)
    _write_table(run_directory / "anomalies.parquet", anomalies.ANOMALIES, witnesses)
    _write_files(run_directory / "lost.parquet", anomalies.LOST, lost)
    shutil.rmtree(history.path / "candidates", ignore_errors=True)
    return keeping.keep(run_directory, result)


def _look(
    history: History,
    plan: dict[str, Any] | None,
    violation: Violation | None,
    doubts: list[str],
    damaged: list[Damage],
    spark: SparkSession,
) -> tuple[Evidence, list[pa.Table], list[Path]]:
    """All that the verdict rests on, the tables of witnesses, and the files of lost appends. plan: None: not known."""
    import pyarrow as pa

    from checkers import availability, log_linearizability, log_matching, nodes, salvage, verdict
    from checkers.anomalies import ANOMALIES, LOST_APPEND, examples
    from spark_history.damage import tables

    known = plan or {"acks": "1"}  # what promises least
    missing = tables(damaged)
    if plan is None:
        missing |= {salvage.PLAN, "operations", "reads"}  # what a log may lack, and why, is for the plan to say
    faults = history.faults()
    options = log_linearizability.Options.of(known, verdict.first_effective(faults))
    linearizability = log_linearizability.check([(history, options)], spark)
    matching = log_matching.check([history], spark)
    of_nodes = nodes.check(history, nodes.Options.of(known), spark) if plan is not None else None
    counts = linearizability.counts[history.run]
    run = str(known.get("run") or history.run)
    found = (linearizability.found, matching.found)
    rows = [row for each in found for row in each.anomalies.to_pylist()]
    rows = salvage.keep(rows, lambda row: (row["property"], row["anomaly"]), missing)
    tally = [entry[1:] for each in found for entry in each.tally]
    tally = salvage.keep(tally, lambda entry: (entry[0], entry[1]), missing)
    witnesses = [pa.Table.from_pylist(rows, schema=ANOMALIES)]
    if of_nodes is not None:
        witnesses.append(of_nodes.anomalies)
        tally += of_nodes.tally
    if violation is not None:
        witnesses.insert(0, violation.anomalies(run, history.origin).table)
    unfinished = [f"{log.topic}-{log.partition}" for log in history.logs if not options.complete(log.final_reads)]
    evidence = verdict.Evidence(
        run=run,
        plan=plan or {},
        tally=tally,
        counts=counts,
        faults=faults,
        complete=bool(history.logs) and not unfinished,
        missing=unfinished,
        origin=history.origin,
        until=history.until,
        replica_records=matching.records[history.run],
        orphans=history.orphans,
        doubts=doubts,
        violation=violation,
        examples=examples(row for table in witnesses for row in table.to_pylist()),
        nodes=of_nodes,
        lost_in=verdict.places_of(rows, LOST_APPEND),
        damaged=damaged,
        not_judged=salvage.not_judged(missing),
        faults_known="faults" not in missing,
        availability=availability.of_history(history, faults, sum(counts.values()), spark),
    )
    return evidence, witnesses, list(linearizability.lost) if not missing & {"operations", "reads"} else []


def _nothing(
    history: History,
    plan: dict[str, Any] | None,
    violation: Violation | None,
    doubts: list[str],
    damaged: list[Damage],
    why: str,
) -> Evidence:
    """Of a history the rest of which cannot be judged either."""
    from checkers.verdict import Evidence

    return Evidence(
        run=str((plan or {}).get("run") or history.run), plan=plan or {}, tally=[], counts={}, faults=[],
        complete=False, missing=[], origin=history.origin, until=history.until, replica_records=0, doubts=doubts,
        violation=violation, damaged=damaged, not_judged=[f"nothing could be judged: {why}"], faults_known=False,
    )  # fmt: skip


def _read_plan(run_directory: Path, damaged: list[Damage]) -> dict[str, Any] | None:
    """plan.json as it stands: a run of another version is judged too. Raises HistoryError where there is no run."""
    from spark_history.files import HistoryError

    path = run_directory / "plan.json"
    try:
        plan = json.loads(path.read_text())
        if not isinstance(plan, dict):
            raise ValueError("it does not hold an object")
        int(plan.get("min_insync_replicas", 1))
    except FileNotFoundError:
        if not (run_directory / "journal").is_dir():
            raise HistoryError(f"{run_directory} is not a run: it has no plan.json") from None
        damaged.append((path.name, "it is missing"))
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        damaged.append((path.name, _first_line(error)))
        return None
    return plan


def _read_violation(run_directory: Path, damaged: list[Damage]) -> Violation | None:
    """Of the invariant that stopped a simulated run."""
    from checkers.invariants import Violation
    from spark_history.files import HistoryError

    path = run_directory / "violation.json"
    try:
        return Violation.of(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, HistoryError) as error:
        damaged.append((path.name, f"an invariant was violated, but it cannot be read which: {_first_line(error)}"))
        return None


def _read_doubts(run_directory: Path, damaged: list[Damage]) -> list[str]:
    """Why the harness itself would not call the run passed."""
    path = run_directory / "run.json"
    try:
        doubts = json.loads(path.read_text()).get("doubts", [])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        damaged.append((path.name, _first_line(error)))
        return []
    return [str(doubt) for doubt in doubts] if isinstance(doubts, list) else []


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


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
