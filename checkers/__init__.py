"""Judge a run: journal to history to anomalies to verdict. `chaos run` and `chaos check` both call check()."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from checkers.groups import Groups
    from checkers.inside.log_matching import InSync
    from checkers.inside.violation import Violation
    from checkers.log import deletion
    from checkers.log.scope import Options
    from checkers.transactions.runs import OfTransactions
    from checkers.verdict.verdict import Evidence
    from spark_history.damage import Damage
    from spark_history.ingest import History, LogHistory, Segment
    from spark_history.spark.tasks import Engine


def check(run_directory: Path, engine: Engine) -> dict[str, Any]:
    """The verdict on the run in `run_directory` (see verdict.py), also written there as verdict.json, with the
    witnesses of what was found in anomalies.parquet and every lost append in lost.parquet. An earlier verdict is kept
    (see keeping.py).

    Ingests the journal first unless history/ is there and current. Files that are damaged are named, and the rest is
    judged (see salvage.py). Raises spark_history.errors.HistoryError if there is nothing to judge, or if the recorder
    is at fault.
    """
    from checkers import anomalies
    from checkers.verdict import keeping, verdict
    from spark_history.errors import HistoryError
    from spark_history.ingest import ingest, noted_beside
    from spark_history.spark.tasks import shared

    (run_directory,) = shared(engine, [run_directory])
    damaged: list[Damage] = []
    beside = noted_beside(run_directory)
    plan = _read_plan(run_directory, beside, damaged)
    violation = _read_violation(run_directory, damaged)
    record = _read_record(run_directory, beside, damaged)
    doubts, ended = [str(doubt) for doubt in record.get("doubts", [])], how_it_ended(record)
    try:
        history = ingest(run_directory, engine)
    except HistoryError as error:
        for file, why in damaged[:1]:  # which may be why
            raise HistoryError(f"{run_directory / file} is damaged ({why}), and {error}") from None
        raise
    damaged += history.damaged or _untold(history, violation, doubts, record)
    run = _Run(history, plan, violation, doubts, ended, damaged, record)
    try:
        evidence, witnesses, lost = _look_at_what_is_sound(run, engine)
        _write_table(run_directory / "anomalies.parquet", anomalies.ANOMALIES, witnesses)
        attribution = _write_lost(run_directory / "lost.parquet", lost, history, evidence)
        result = verdict.judge(evidence, attribution)
    finally:
        shutil.rmtree(history.path / "candidates", ignore_errors=True)
    return keeping.keep(run_directory, result)


@dataclass(frozen=True)
class _Run:
    """What is to be judged. plan: None: not known. ended: see verdict.Evidence. record: run.json."""

    history: History
    plan: dict[str, Any] | None
    violation: Violation | None
    doubts: list[str]
    ended: str
    damaged: list[Damage]
    record: Mapping[str, Any]


def _untold(
    history: History, violation: Violation | None, doubts: list[str], record: Mapping[str, Any]
) -> list[Damage]:  # fmt: skip
    """What is missing though nothing else shows it: the whole journal; where there are no checksums, final reads, with
    which a run ends that ended in order. record: run.json."""
    from spark_history.log import NOWHERE

    journal = history.directory / "journal"
    if not journal.is_dir() and record.get("status") in ("done", "interrupted"):
        return [("journal", "it is missing: what was laid out of it in history/ was judged")]
    checked = not journal.is_dir() or any(journal.glob("checks-*.json"))
    if checked or violation is not None or doubts or all(log.final_reads.end != NOWHERE for log in history.logs):
        return []
    why = "it is missing: the run ended in order, but its final reads are not on record"
    return [("journal/operations-?.parquet", why)] if record.get("status") == "done" else []


def _look_at_what_is_sound(run: _Run, engine: Engine) -> tuple[Evidence, list[pa.Table], list[Path]]:
    """As _look(), also if what is left makes no sense without what is damaged."""
    from checkers.verdict.verdict import nothing
    from spark_history.errors import HistoryError

    try:
        return _look(run, engine)
    except HistoryError as error:
        if not run.damaged:
            raise
        plan, history = run.plan or {}, run.history
        evidence = nothing(
            str(plan.get("run") or history.run), plan, str(error), damaged=run.damaged, violation=run.violation,
            doubts=run.doubts, ended=run.ended, origin=history.origin, until=history.until,
        )  # fmt: skip
        return evidence, [], []


def _look(run: _Run, engine: Engine) -> tuple[Evidence, list[pa.Table], list[Path]]:
    """All that the verdict rests on, the tables of witnesses, and the files of lost appends."""
    import pyarrow as pa

    from checkers import balance
    from checkers.anomalies import ANOMALIES, examples
    from checkers.inside import collected, nodes
    from checkers.log import availability, deletion
    from checkers.log.scope import Options, lasting_topic
    from checkers.log.segment import KINDS, OUTCOMES
    from checkers.properties import LOG_LINEARIZABILITY, LOST_APPEND
    from checkers.verdict import own, salvage, verdict
    from spark_history.damage import tables

    history, plan, violation, damaged = run.history, run.plan, run.violation, run.damaged
    known = plan or {"acks": "1"}  # what promises least
    missing = tables(damaged) | history.lost
    if plan is None:
        missing |= {salvage.PLAN, "operations", "reads"}  # what a log may lack, and why, is for the plan to say
    faults = history.faults()
    options = Options.of(known, verdict.first_effective(faults))
    of_nodes = nodes.check(history, nodes.Options.of(known, run.record), engine) if plan is not None else None
    if of_nodes is not None:
        damaged = [*damaged, *collected.changed_files(history.directory, of_nodes.collected)]
    recovered = not (run.doubts or damaged or violation is not None)
    in_sync = collected.in_sync(of_nodes, options) if of_nodes is not None and recovered else None
    logs = _look_at_logs(history, options, missing, in_sync, engine)
    counts = logs.counts
    operations = sum(counts.get(f"{kind} {outcome}", 0) for kind in KINDS for outcome in OUTCOMES)
    name = str(known.get("run") or history.run)
    witnesses, tally = [logs.anomalies], list(logs.tally)
    if of_nodes is not None:
        witnesses.append(of_nodes.anomalies)
        tally += of_nodes.tally
    of_run = [balance.check(name, faults, history.origin)]
    deleted = None
    if recovered and not missing and deletion.applies(known):
        deleted = deletion.check(known, name, _operations(history, options), faults)
        of_run.append(deleted.anomalies)
    of_groups = _look_at_groups(run, name, faults) if "group_events" not in missing else None
    if of_groups is not None:
        of_run += of_groups.anomalies
    of_own = own.look(
        plan or {}, missing, faults, (history.origin, history.until), lambda table: _whole_table(history, table),
        run=name, recovered=recovered,
    )  # fmt: skip
    if of_own is not None:
        of_run += of_own.anomalies
    witnesses += [anomalies.table for anomalies in of_run]
    tally += [entry for anomalies in of_run for entry in anomalies.tally]
    of_transactions = _look_at_transactions(run, name, missing)
    if of_transactions is not None:
        witnesses.append(pa.Table.from_pylist(of_transactions.rows, schema=ANOMALIES))
        tally += of_transactions.tally
    if violation is not None:
        witnesses.insert(0, violation.anomalies(name, history.origin).table)
    unfinished = [log.name for log in history.logs if not options.complete(log.final_reads)]
    unfinished += verdict.absent(known, [log.name for log in history.logs])
    evidence = verdict.Evidence(
        run=name,
        plan=plan or {},
        tally=tally,
        counts=counts,
        faults=faults,
        complete=bool(history.logs) and not unfinished,
        missing=unfinished,
        origin=history.origin,
        until=history.until,
        replica_records=sum(logs.replica_records.values()),
        gaps=collected.gaps_of(known, of_nodes, logs.replica_records, [log.name for log in history.logs]),
        ended=run.ended,
        orphans=history.orphans,
        doubts=run.doubts,
        violation=violation,
        examples=examples(row for table in witnesses for row in table.to_pylist()),
        nodes=of_nodes,
        lost_in=verdict.places_of(logs.anomalies.to_pylist(), "anomaly", LOST_APPEND),
        wrong_in=verdict.places_of(logs.anomalies.to_pylist(), "property", LOG_LINEARIZABILITY),
        damaged=damaged,
        not_judged=[
            *salvage.not_judged(missing, [log.name for log in history.logs if log.partial]),
            *(of_groups.undecided if of_groups is not None else ()),
            *(of_transactions.undecided if of_transactions is not None else ()),
            *(of_own.undecided if of_own is not None else ()),
        ],
        faults_known="faults" not in missing,
        availability=availability.of_history(history, faults, operations, engine, lasting_topic(known)),
        deletion=deleted,
        groups=of_groups,
        transactions=of_transactions,
        own=of_own,
    )
    return evidence, witnesses, logs.lost


def _whole_table(history: History, name: str) -> pa.Table:
    """For a checker of the user's own: see checkers.verdict.own.TABLES. Raises HistoryError."""
    import pyarrow as pa

    from spark_history.files import read_parquet
    from spark_history.schema import TABLES

    schema = TABLES[name]
    if name == "operations":
        return pa.concat_tables(
            [schema.empty_table(), *(_with_log(history, log, part) for log in history.logs for part in log.segments)]
        ).sort_by("op")
    path = history.table(name)
    return schema.empty_table() if path is None else read_parquet(path, schema).cast(schema)


def _look_at_groups(run: _Run, name: str, faults: Sequence[Mapping[str, Any]]) -> Groups | None:
    """Of a run whose plan has consumer groups."""
    from checkers import groups
    from spark_history.files import read_parquet
    from spark_history.schema import GROUP_EVENTS

    history, plan = run.history, run.plan
    if plan is None or not groups.applies(plan):
        return None
    path = history.table("group_events")
    events = GROUP_EVENTS.empty_table() if path is None else read_parquet(path, GROUP_EVENTS)
    logs = (
        (log.topic, log.partition, (read_parquet(history.path / part.paths["operations"], groups.COLUMNS)
                                    for part in log.segments)) for log in history.logs
    )  # fmt: skip
    facts = groups.Facts(name, plan, faults, history.origin, history.until, groups.healed_of(run.record))
    return groups.check(facts, events, groups.acknowledged(logs))


def _look_at_transactions(run: _Run, name: str, missing: Set[str]) -> OfTransactions | None:
    """Of a run whose plan has transactions."""
    from checkers.transactions import runs
    from spark_history.files import read_parquet
    from spark_history.schema import TABLES

    if run.plan is None or not runs.applies(run.plan) or missing & set(runs.NEEDED):
        return None
    tables = {}
    for table in runs.NEEDED:
        path = run.history.table(table)
        tables[table] = TABLES[table].empty_table() if path is None else read_parquet(path, TABLES[table])
    return runs.check(name, run.plan, tables, run.record)


def _with_log(history: History, log: LogHistory, part: Segment) -> pa.Table:
    """Operations of a segment, as they were recorded: its directory says of which log they are."""
    import pyarrow as pa

    from spark_history.files import read_parquet
    from spark_history.schema import OPERATIONS

    of_all = {"run": history.run, "topic": log.topic, "partition": log.partition}
    columns = pa.schema([each for each in OPERATIONS if each.name not in of_all])
    rows = read_parquet(history.path / part.paths["operations"], columns)
    for name, value in of_all.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, OPERATIONS.field(name).type), rows.num_rows))
    return rows.select(OPERATIONS.names).cast(OPERATIONS)


@dataclass(frozen=True)
class _Logs:
    """What was found in the logs of a run, as far as it counts."""

    anomalies: pa.Table  # ANOMALIES
    tally: list[tuple[str, str, int, int]]
    counts: Mapping[str, int]
    lost: list[Path]
    replica_records: Mapping[tuple[str, str], int]  # by (node, partition)


def _operations(history: History, options: Options) -> Iterator[deletion.Log]:
    """One segment after the other is read."""
    from checkers.log import deletion
    from spark_history.files import read_parquet

    for log in history.logs:
        tables = (read_parquet(history.path / part.paths["operations"], deletion.COLUMNS) for part in log.segments)
        yield deletion.Log(log.topic, log.partition, tables, options.final(log.final_reads))


def _look_at_logs(
    history: History, options: Options, missing: set[str], in_sync: InSync | None, engine: Engine
) -> _Logs:
    """missing: tables parts of which are missing, of whichever log. Of logs that are partial by themselves only that
    counts which counts with parts of them missing; it costs the others nothing."""
    import pyarrow as pa

    from checkers.anomalies import ANOMALIES
    from checkers.inside import log_matching
    from checkers.log import linearizability as log_linearizability
    from checkers.verdict import salvage

    rows: list[dict[str, Any]] = []
    tally: list[tuple[str, str, int, int]] = []
    counts: Counter[str] = Counter()
    lost: list[Path] = []
    records: Counter[tuple[str, str]] = Counter()
    for partial in (True, False):  # the whole ones last: their lost appends are kept where those of the others were
        logs = tuple(log for log in history.logs if log.partial == partial)
        if not logs:
            continue
        part, lacks = replace(history, logs=logs), missing | (salvage.OF_LOGS if partial else set())
        linearizability = log_linearizability.check([(part, options)], engine)
        matching = log_matching.check(part, engine, in_sync, sparse=options.sparse)
        for found in (linearizability.found, matching.found):
            kept = salvage.keep(
                found.anomalies.to_pylist(), lambda row: (row["property"], row["anomaly"]), lacks
            )  # fmt: skip
            rows += kept
            entries = [entry[1:] for entry in found.tally]
            tally += salvage.keep(entries, lambda entry: (entry[0], entry[1]), lacks)
        counts.update(linearizability.counts[history.run])
        records.update(matching.records)
        lost += [] if lacks & {"operations", "reads"} else linearizability.lost
    return _Logs(pa.Table.from_pylist(rows, schema=ANOMALIES), tally, counts, lost, records)


def _read_plan(
    run_directory: Path, beside: Mapping[str, Any], damaged: list[Damage]
) -> dict[str, Any] | None:  # fmt: skip
    """plan.json as it stands: a run of another version is judged too. Raises HistoryError where there is no run.
    beside: what is noted of it (spark_history.damage.notes_beside)."""
    from checkers.inside.contract import check_promise
    from spark_history.damage import differs
    from spark_history.errors import HistoryError, first_line
    from spark_history.regular import read_object

    path = run_directory / "plan.json"
    try:
        plan = read_object(path)
        int(plan.get("min_insync_replicas", 1))
        check_promise(plan.get("promise"))
        if (noted := beside.get(path.name)) and (why := differs(path, [(noted[0], noted[1])])):
            raise ValueError(why)
    except FileNotFoundError:
        if not (run_directory / "journal").is_dir() and not (run_directory / "history").is_dir():
            raise HistoryError(f"{run_directory} is not a run: it has no plan.json") from None
        damaged.append((path.name, "it is missing"))
        return None
    except (OSError, ValueError, TypeError) as error:
        damaged.append((path.name, first_line(error)))
        return None
    return plan


def _read_violation(run_directory: Path, damaged: list[Damage]) -> Violation | None:
    """Of the invariant that stopped a simulated run."""
    from checkers.inside.violation import VIOLATION_FILE, Violation
    from spark_history.errors import HistoryError, first_line
    from spark_history.regular import read_object

    path = run_directory / VIOLATION_FILE
    try:
        return Violation.of(read_object(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, HistoryError) as error:
        damaged.append((path.name, f"an invariant was violated, but it cannot be read which: {first_line(error)}"))
        return None


def _read_record(run_directory: Path, beside: Mapping[str, Any], damaged: list[Damage]) -> dict[str, Any]:
    """run.json: what the harness says of the run, `doubts` why it would not call it passed. Empty: it does not say."""
    from spark_history.damage import is_sealed
    from spark_history.errors import first_line
    from spark_history.regular import read_object

    path = run_directory / "run.json"
    try:
        record = read_object(path)
        if not isinstance(record.get("doubts", []), list) or not isinstance(record.get("phases", {}), dict):
            raise ValueError("its doubts are no list, or its phases no object")
        if not is_sealed(record) or (path.name in beside and "crc" not in record):
            raise ValueError("its content is not what was written")
    except FileNotFoundError:
        if path.name in beside:
            damaged.append((path.name, "it is missing"))
        return {}
    except (OSError, ValueError) as error:
        damaged.append((path.name, first_line(error)))
        return {}
    return record


def how_it_ended(record: Mapping[str, Any]) -> str:
    """Of a run that ended before its time, how; nothing of any other, or if its record does not say."""
    if reported := record.get("ended_early"):
        return str(reported)
    if record.get("status") in ("running", "failed") and "close journal" not in record.get("phases", {}):
        phase = record.get("phase") or "start"
        if record["status"] == "failed":
            return "the run failed before its history was complete"
        return f"the harness was killed, or is still at work, in the phase {phase!r} of the run"
    return ""


def _write_table(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    import pyarrow as pa

    from spark_history.files import write_parquet

    write_parquet(path, pa.concat_tables([schema.empty_table(), *tables]))


def _write_lost(path: Path, files: Iterable[Path], history: History, evidence: Evidence) -> list[dict[str, Any]]:
    """One file of many, a file at a time: all lost appends of a large run need not fit into memory. Returns what took
    them, see Attribution.summary()."""
    import pyarrow.parquet as pq

    from checkers.anomalies import ATTRIBUTED, LOST
    from checkers.inside.attribution import Attribution
    from spark_history.files import read_parquet
    from spark_history.regular import replacing

    held = evidence.nodes.who_held_what if evidence.nodes is not None else None
    attribution = Attribution(history, evidence.faults, held, acks=str(evidence.plan.get("acks", "all")))
    with replacing(path) as temporary, pq.ParquetWriter(temporary, ATTRIBUTED) as writer:
        for file in files:
            writer.write_table(attribution.of(read_parquet(file, LOST).cast(LOST)))
    return attribution.summary()
