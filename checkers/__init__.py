"""Judge a run: journal to history to anomalies to verdict. `chaos run` and `chaos check` both call check()."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from checkers.invariants import Violation
    from checkers.log_scope import Options
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
    from spark_history.ingest import ingest, noted_beside
    from spark_history.tasks import shared

    (run_directory,) = shared(spark, [run_directory])
    damaged: list[Damage] = []
    beside = noted_beside(run_directory)
    plan = _read_plan(run_directory, beside, damaged)
    violation = _read_violation(run_directory, damaged)
    doubts = _read_doubts(run_directory, beside, damaged)
    try:
        history = ingest(run_directory, spark)
    except HistoryError as error:
        for file, why in damaged[:1]:  # which may be why
            raise HistoryError(f"{run_directory / file} is damaged ({why}), and {error}") from None
        raise
    damaged += history.damaged or _untold(run_directory, history, violation, doubts)
    try:
        evidence, witnesses, lost = _look_at_what_is_sound(history, plan, violation, doubts, damaged, spark)
        result = verdict.judge(evidence)
        _write_table(run_directory / "anomalies.parquet", anomalies.ANOMALIES, witnesses)
        _write_files(run_directory / "lost.parquet", anomalies.LOST, lost)
    finally:
        shutil.rmtree(history.path / "candidates", ignore_errors=True)
    return keeping.keep(run_directory, result)


def _untold(run_directory: Path, history: History, violation: Violation | None, doubts: list[str]) -> list[Damage]:
    """What is missing though nothing else shows it, where there are no checksums: a run that ended in order ends with
    final reads."""
    from spark_history.log import NOWHERE

    checked = not (run_directory / "journal").is_dir() or any((run_directory / "journal").glob("checks-*.json"))
    if checked or violation is not None or doubts or all(log.final_reads.end != NOWHERE for log in history.logs):
        return []
    try:
        status = json.loads((run_directory / "run.json").read_text()).get("status")
    except (OSError, ValueError, AttributeError, RecursionError):
        return []
    why = "it is missing: the run ended in order, but its final reads are not on record"
    return [("journal/operations-?.parquet", why)] if status == "done" else []


def _look_at_what_is_sound(
    history: History,
    plan: dict[str, Any] | None,
    violation: Violation | None,
    doubts: list[str],
    damaged: list[Damage],
    spark: SparkSession,
) -> tuple[Evidence, list[pa.Table], list[Path]]:
    """As _look(), also if what is left makes no sense without what is damaged."""
    from checkers.verdict import nothing
    from spark_history.files import HistoryError

    try:
        return _look(history, plan, violation, doubts, damaged, spark)
    except HistoryError as error:
        if not damaged:
            raise
        run = str((plan or {}).get("run") or history.run)
        evidence = nothing(
            run, plan or {}, str(error), damaged=damaged, violation=violation, doubts=doubts, origin=history.origin,
            until=history.until,
        )  # fmt: skip
        return evidence, [], []


def _look(
    history: History,
    plan: dict[str, Any] | None,
    violation: Violation | None,
    doubts: list[str],
    damaged: list[Damage],
    spark: SparkSession,
) -> tuple[Evidence, list[pa.Table], list[Path]]:
    """All that the verdict rests on, the tables of witnesses, and the files of lost appends. plan: None: not known."""
    from checkers import availability, nodes, salvage, verdict
    from checkers.anomalies import LOST_APPEND, examples
    from checkers.log_scope import Options
    from checkers.log_segment import KINDS, OUTCOMES
    from spark_history.damage import tables

    known = plan or {"acks": "1"}  # what promises least
    missing = tables(damaged) | history.lost
    if plan is None:
        missing |= {salvage.PLAN, "operations", "reads"}  # what a log may lack, and why, is for the plan to say
    faults = history.faults()
    options = Options.of(known, verdict.first_effective(faults))
    logs = _look_at_logs(history, options, missing, spark)
    of_nodes = nodes.check(history, nodes.Options.of(known), spark) if plan is not None else None
    counts = logs.counts
    operations = sum(counts.get(f"{kind} {outcome}", 0) for kind in KINDS for outcome in OUTCOMES)
    run = str(known.get("run") or history.run)
    witnesses, tally = [logs.anomalies], list(logs.tally)
    if of_nodes is not None:
        witnesses.append(of_nodes.anomalies)
        tally += of_nodes.tally
    if violation is not None:
        witnesses.insert(0, violation.anomalies(run, history.origin).table)
    unfinished = [log.name for log in history.logs if not options.complete(log.final_reads)]
    unfinished += verdict.absent(known, [log.name for log in history.logs])
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
        replica_records=logs.replica_records,
        orphans=history.orphans,
        doubts=doubts,
        violation=violation,
        examples=examples(row for table in witnesses for row in table.to_pylist()),
        nodes=of_nodes,
        lost_in=verdict.places_of(logs.anomalies.to_pylist(), LOST_APPEND),
        damaged=damaged,
        not_judged=salvage.not_judged(missing, [log.name for log in history.logs if log.partial]),
        faults_known="faults" not in missing,
        availability=availability.of_history(history, faults, operations, spark),
    )
    return evidence, witnesses, logs.lost


@dataclass(frozen=True)
class _Logs:
    """What was found in the logs of a run, as far as it counts."""

    anomalies: pa.Table  # ANOMALIES
    tally: list[tuple[str, str, int, int]]
    counts: Mapping[str, int]
    lost: list[Path]
    replica_records: int


def _look_at_logs(history: History, options: Options, missing: set[str], spark: SparkSession) -> _Logs:
    """missing: tables parts of which are missing, of whichever log. Of logs that are partial by themselves only that
    counts which counts with parts of them missing; it costs the others nothing."""
    import pyarrow as pa

    from checkers import log_linearizability, log_matching, salvage
    from checkers.anomalies import ANOMALIES

    rows: list[dict[str, Any]] = []
    tally: list[tuple[str, str, int, int]] = []
    counts: Counter[str] = Counter()
    lost: list[Path] = []
    records = 0
    for partial in (True, False):  # the whole ones last: their lost appends are kept where those of the others were
        logs = tuple(log for log in history.logs if log.partial == partial)
        if not logs:
            continue
        part, lacks = replace(history, logs=logs), missing | (salvage.OF_LOGS if partial else set())
        linearizability = log_linearizability.check([(part, options)], spark)
        matching = log_matching.check([part], spark)
        for found in (linearizability.found, matching.found):
            kept = salvage.keep(
                found.anomalies.to_pylist(), lambda row: (row["property"], row["anomaly"]), lacks
            )  # fmt: skip
            rows += kept
            entries = [entry[1:] for entry in found.tally]
            tally += salvage.keep(entries, lambda entry: (entry[0], entry[1]), lacks)
        counts.update(linearizability.counts[history.run])
        records += matching.records[history.run]
        lost += [] if lacks & {"operations", "reads"} else linearizability.lost
    return _Logs(pa.Table.from_pylist(rows, schema=ANOMALIES), tally, counts, lost, records)


def _read_plan(
    run_directory: Path, beside: Mapping[str, Any], damaged: list[Damage]
) -> dict[str, Any] | None:  # fmt: skip
    """plan.json as it stands: a run of another version is judged too. Raises HistoryError where there is no run.
    beside: what is noted of it (spark_history.damage.notes_beside)."""
    from spark_history.damage import differs
    from spark_history.files import HistoryError, first_line

    path = run_directory / "plan.json"
    try:
        plan = json.loads(path.read_text())
        if not isinstance(plan, dict):
            raise ValueError("it does not hold an object")
        int(plan.get("min_insync_replicas", 1))
        if (noted := beside.get(path.name)) and (why := differs(path, [(noted[0], noted[1])])):
            raise ValueError(why)
    except FileNotFoundError:
        if not (run_directory / "journal").is_dir() and not (run_directory / "history").is_dir():
            raise HistoryError(f"{run_directory} is not a run: it has no plan.json") from None
        damaged.append((path.name, "it is missing"))
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        damaged.append((path.name, first_line(error)))
        return None
    return plan


def _read_violation(run_directory: Path, damaged: list[Damage]) -> Violation | None:
    """Of the invariant that stopped a simulated run."""
    from checkers.invariants import Violation
    from spark_history.files import HistoryError, first_line

    path = run_directory / "violation.json"
    try:
        return Violation.of(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, HistoryError) as error:
        damaged.append((path.name, f"an invariant was violated, but it cannot be read which: {first_line(error)}"))
        return None


def _read_doubts(run_directory: Path, beside: Mapping[str, Any], damaged: list[Damage]) -> list[str]:
    """Why the harness itself would not call the run passed."""
    from spark_history.damage import is_sealed
    from spark_history.files import first_line

    path = run_directory / "run.json"
    try:
        record = json.loads(path.read_text())
        doubts = record.get("doubts", [])
        if not isinstance(doubts, list):
            raise ValueError("its doubts are no list")
        if not is_sealed(record) or (path.name in beside and "crc" not in record):
            raise ValueError("its content is not what was written")
    except FileNotFoundError:
        if path.name in beside:
            damaged.append((path.name, "it is missing"))
        return []
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        damaged.append((path.name, first_line(error)))
        return []
    return [str(doubt) for doubt in doubts]


def _write_table(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    import pyarrow as pa

    from spark_history.files import write_parquet

    write_parquet(path, pa.concat_tables([schema.empty_table(), *tables]))


def _write_files(path: Path, schema: pa.Schema, files: Iterable[Path]) -> None:
    """One file of many, a file at a time: all lost appends of a large run need not fit into memory."""
    import pyarrow.parquet as pq

    from spark_history.files import read_parquet, replacing

    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for file in files:
            writer.write_table(read_parquet(file, schema).cast(schema))
