"""From the journal of a run to its history: Parquet laid out by log, in the order of offsets.

    results/<run>/journal/<table>-<number>.parquet                           as recorded
    results/<run>/history/<table>/topic=T/partition=P/<first offset>.parquet  as judged
    results/<run>/history/<table>/<table>.parquet                             of the run as a whole: faults, trace, …
    results/<run>/history/manifest.json                                       what is where

A log longer than SEGMENT_OFFSETS is laid out as several segments, each the work of one task. The journal may be of a
run that was killed: the newest pending file says up to which flush it is whole (see harness/record/history.py). A
history that has no journal, because it was generated or the journal is gone, is read as it is laid out: segments of
which a file is damaged are left out.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_history import damage
from spark_history.errors import HistoryError, first_line
from spark_history.files import compact, integers, last_rows, read_parquet, write_parquet
from spark_history.lane import lay_out_lane
from spark_history.log import NOWHERE, FinalReads, Log
from spark_history.regular import read_object, require_regular
from spark_history.schema import FAULTS, OPERATIONS, TABLES
from spark_history.spark.tasks import Engine, Here, parallelism, run_tasks

SEGMENT_OFFSETS: Final = 1 << 22  # a task holds some 100 bytes an offset
ROWS_AT_ONCE: Final = 12_000_000  # operations that a lane in this process holds, some 110 bytes each with their reads
_FORMAT: Final = 3  # of history/; another one is laid out again
_PART: Final = re.compile(rf"({'|'.join(TABLES)}|pending)-(\d+)\.parquet")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LAID_OUT: Final = ("operations", "reads", "replica_logs")
#: Of the run as a whole, in one file each.
_OF_RUN: Final = tuple(table for table in TABLES if table not in (*_LAID_OUT, "faults"))


@dataclass(frozen=True)
class Segment:
    """A range of offsets of one log, and the files that hold it (relative to history/)."""

    low: int
    high: int | None
    paths: Mapping[str, str]


@dataclass(frozen=True)
class LogHistory:
    topic: str
    partition: int
    segments: tuple[Segment, ...]
    final_reads: FinalReads
    end: int  # how long the log once was, as far as any operation saw
    partial: bool = False  # segments are left out, because files of theirs are damaged

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class History:
    """The history of one run, laid out. Times are monotonic nanoseconds."""

    run: str
    directory: Path  # results/<run>
    logs: tuple[LogHistory, ...]
    origin: int  # the first invocation; 0: nothing was invoked
    until: int  # the last thing on record
    orphans: int  # records left out because their read is not on record
    damaged: tuple[damage.Damage, ...] = ()  # files (relative to `directory`) that were left out, and why
    lost: frozenset[str] = frozenset()  # tables of the run as a whole that are among these

    @property
    def path(self) -> Path:
        return self.directory / "history"

    def table(self, name: str) -> Path | None:
        """The file of a table of the run as a whole; None: it is damaged, or the history is older than the table."""
        path = self.path / name / f"{name}.parquet"
        return None if name in self.lost or not path.exists() else path

    def faults(self) -> list[dict[str, Any]]:
        """FAULTS rows in order, with `evidence` parsed; none if they are damaged. Raises HistoryError."""
        path = self.table("faults")
        return [] if path is None else read_faults(read_parquet(path, FAULTS))


def read_faults(table: pa.Table) -> list[dict[str, Any]]:
    """FAULTS rows with `evidence` parsed. Raises HistoryError."""
    faults: list[dict[str, Any]] = table.to_pylist()
    for fault in faults:
        try:
            fault["evidence"] = json.loads(fault["evidence"] or "{}")
        except ValueError:
            raise HistoryError(f"the evidence of fault {fault['fault']} is not JSON: {fault['evidence']}") from None
    return faults


@dataclass(frozen=True)
class Journal:
    files: Mapping[str, Sequence[Path]]  # by table
    pending: Path | None
    newest: int  # the last flush that counts
    damaged: tuple[damage.Damage, ...] = ()

    @property
    def paths(self) -> list[Path]:
        return [*(path for paths in self.files.values() for path in paths), *([self.pending] if self.pending else [])]

    @property
    def fingerprint(self) -> list[list[Any]]:
        """Changes whenever the journal does."""
        return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in self.paths]

    def without(self, damaged: Sequence[damage.Damage]) -> Journal:
        """Of trace and metadata log nothing is left where a part is damaged: what follows a gap may be misread."""
        names = {name for name, _ in damaged}
        tables = damage.tables(damaged)
        files = {
            table: [] if table in tables and table in _OF_RUN else [path for path in paths if path.name not in names]
            for table, paths in self.files.items()
        }
        pending = None if self.pending is None or self.pending.name in names else self.pending
        return replace(self, files=files, pending=pending, damaged=(*self.damaged, *damaged))


def ingest(directory: Path, engine: Engine, *, segment_offsets: int = SEGMENT_OFFSETS) -> History:
    """Lay out the journal of the run in `directory`, unless it is and has not changed since. Without a journal: see
    open_laid_out(). Raises HistoryError."""
    if (laid_out := open_laid_out(directory)) is not None:
        return laid_out
    manifest = _read_manifest(directory)
    journal = find_journal(directory)
    layout = {"format": _FORMAT, "segment_offsets": segment_offsets, "journal": journal.fingerprint}
    # Whatever history/ says: a file's size and time are not its content.
    damaged = (*journal.damaged, *damage.find(directory / "journal", journal.paths, journal.newest))
    if {key: manifest.get(key) for key in layout} == layout and _names(manifest.get("damaged")) >= _names(damaged):
        try:
            if not damage.changed(directory / "history", dict(manifest.get("files", {}))):
                return _history(directory, manifest)
        except (HistoryError, TypeError, ValueError):
            pass  # it is laid out again
    return _history(directory, _lay_out_what_is_sound(directory, journal, damaged, layout, engine))


def _names(damaged: Any) -> set[str]:
    """Of files; damaged: as a manifest has it."""
    return {str(name) for name, _ in damaged or ()}


def open_laid_out(directory: Path) -> History | None:
    """The history of a run without a journal: it was laid out from the start (write_manifest), or the journal is gone.
    None: there is a journal, or nothing. Raises HistoryError."""
    path = directory / "history" / "manifest.json"
    manifest = _read_manifest(directory)
    # The manifest of a history that was laid out from the start is believed whatever else lies there.
    generated = bool(manifest) and manifest.get("journal") is None
    if not generated and (_has_journal(directory) or not path.parent.is_dir()):
        return None
    if "tables" in manifest:  # as checkers/stored.py writes it
        raise HistoryError(f"{path} is of a history of {manifest.get('workload')}, not of a log")
    if not manifest:
        why = "it is damaged" if path.exists() else "it is missing"
        lost = frozenset({"operations", "reads", "replica_logs", "faults", *_OF_RUN})
        return History("", directory, (), 0, 0, 0, ((str(path.relative_to(directory)), why),), lost)
    if manifest.get("format") != _FORMAT:
        raise HistoryError(f"{path} is of another version, and there is no journal to lay the history out from")
    return _history(directory, manifest, _changed(directory, manifest))


def count_operations(directory: Path) -> int:
    """About how many operations are on record in a run, by the footers of its files; what cannot be read counts as
    nothing: who reads it says so."""
    paths = [*(directory / "journal").glob("operations-*.parquet")]
    if not paths or _read_manifest(directory).get("journal", ()) is None:
        paths = [*(directory / "history" / "operations").rglob("*.parquet")]
    rows = 0
    for path in paths:
        with suppress(OSError, pa.ArrowException):
            require_regular(path)
            rows += pq.read_metadata(path).num_rows
    return rows


def _has_journal(directory: Path) -> bool:
    return any(_PART.fullmatch(path.name) for path in (directory / "journal").glob("*.parquet"))


def _changed(directory: Path, manifest: Mapping[str, Any]) -> list[damage.Damage]:
    """Files of history/ that are not what was written."""
    root = directory / "history"
    try:
        if "files" in manifest:
            return damage.changed(root, manifest["files"])
        paths = [root / path for segment in manifest["segments"] for path in segment["paths"].values()]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []  # _history() says what is wrong
    whole = [path for table in ("faults", *_OF_RUN) if (path := root / table / f"{table}.parquet").parent.is_dir()]
    return damage.unreadable([*paths, *whole], root)


def noted_beside(directory: Path) -> Mapping[str, Any]:
    """What journal or history tell of plan.json and run.json: see damage.notes_beside()."""
    beside = damage.noted_beside(directory / "journal") or _read_manifest(directory).get("beside")
    return beside if isinstance(beside, dict) else {}


def _lay_out_what_is_sound(
    directory: Path, journal: Journal, found: Sequence[damage.Damage], layout: Mapping[str, Any], engine: Engine
) -> dict[str, Any]:
    journal = journal.without([each for each in found if each not in journal.damaged])
    try:
        return _lay_out(directory, journal, layout, engine)
    except HistoryError:
        damaged = damage.unreadable(journal.paths)
        if not damaged:
            raise
        return _lay_out(directory, journal.without(damaged), layout, engine)


def write_manifest(
    directory: Path, run: str, segments: Sequence[Mapping[str, Any]], *, origin: int, until: int
) -> None:
    """Of a history that was laid out by others: its segments as lay_out_lane() describes them. What is of the run as a
    whole (faults, trace, metadata log) is written empty, unless it is there; plan.json should be."""
    for table in ("faults", *_OF_RUN):
        if not (path := directory / "history" / table / f"{table}.parquet").exists():
            write_parquet(path, TABLES[table].empty_table())
    manifest: dict[str, Any] = {"format": _FORMAT, "journal": None, "run": run, "origin": origin, "until": until}
    manifest["segments"] = sorted(segments, key=_log_and_offset)
    manifest["beside"] = damage.notes_beside(directory)
    root = directory / "history"
    manifest = damage.seal({**manifest, "files": damage.checksums(root, root.rglob("*.parquet"))})
    (directory / "history" / "manifest.json").write_text(json.dumps(manifest) + "\n")


def find_journal(directory: Path) -> Journal:
    """Raises HistoryError if there is none."""
    files: dict[str, list[Path]] = {table: [] for table in TABLES}
    pending: list[tuple[int, Path]] = []
    numbered = []
    for path in sorted((directory / "journal").glob("*.parquet")):
        if match := _PART.fullmatch(path.name):
            if match[1] == "pending":
                pending.append((int(match[2]), path))
            else:
                numbered.append((match[1], int(match[2]), path))
    if not pending and not numbered:
        raise HistoryError(f"{directory} holds no history: there is nothing in its journal")
    # There is one from the first flush on; and without it, which of these were whole is not known.
    newest = max((number for number, _ in pending), default=max((number for _, number, _ in numbered), default=NOWHERE))
    for table, number, part in numbered:
        if number <= newest:  # what is newer belongs to a flush that was cut off
            files[table].append(part)
    if pending:
        return Journal(files, max(pending)[1], newest)
    return Journal(files, None, newest, ((f"pending-{newest:06}.parquet", "it is missing"),))


def _lay_out(directory: Path, journal: Journal, layout: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    surveyed = _survey(journal)
    history, fresh = directory / "history", directory / "history.new"
    shutil.rmtree(fresh, ignore_errors=True)
    base: dict[str, Any] = {
        "journal": {table: [str(path) for path in journal.files[table]] for table in _LAID_OUT},
        "pending": str(journal.pending) if journal.pending else None,
        "directory": str(fresh),
    }
    if isinstance(engine, Here):  # one lane has all of the memory, and all threads: so the journal is decoded once
        rows = sum(rows for *_, rows, _ in surveyed["logs"])
        lanes = _plan_lanes(surveyed["logs"], layout["segment_offsets"], -(-rows // ROWS_AT_ONCE))
        base["threads"], engine = engine.threads, Here(1)
    else:
        lanes = _plan_lanes(surveyed["logs"], layout["segment_offsets"], parallelism(engine))
    results = run_tasks(engine, lay_out_lane, [base | lane for lane in lanes])
    facts = [json.loads(row) for result in results for row in result["facts"].to_pylist()]
    damaged = (*journal.damaged, *_orphaned(journal, sum(fact["orphans"] for fact in facts)))
    _write_faults(journal.files["faults"], fresh)
    for table in _OF_RUN:
        rows = [read_parquet(path, TABLES[table]) for path in journal.files[table]]
        whole = pa.concat_tables([compact(TABLES[table]).empty_table(), *rows])
        whole = last_rows(whole, "op") if table == "calls" else whole
        write_parquet(fresh / table / f"{table}.parquet", whole)
    manifest = {**layout, **surveyed["run"], "segments": sorted(facts, key=_log_and_offset)}
    manifest |= {"damaged": damaged, "files": damage.checksums(fresh, fresh.rglob("*.parquet"))}
    manifest["beside"] = damage.noted_beside(directory / "journal")
    manifest = damage.seal(manifest)
    (fresh / "manifest.json").write_text(json.dumps(manifest) + "\n")
    shutil.rmtree(history, ignore_errors=True)
    fresh.rename(history)
    return manifest


def _orphaned(journal: Journal, orphans: int) -> list[damage.Damage]:
    """Files of operations that are missing, as far as nothing says so yet: reads are recorded with what they return."""
    if not orphans or "operations" in damage.tables(journal.damaged):
        return []
    numbers = [
        {path.stem.rpartition("-")[2] for path in journal.files[table]} for table in ("reads", "operations")
    ]  # fmt: skip
    names = [f"operations-{number}.parquet" for number in sorted(numbers[0] - numbers[1])] or ["operations-?.parquet"]
    return [(names[0], f"it is missing: {orphans:,} records are of reads that are not on record")]


def _log_and_offset(fact: Mapping[str, Any]) -> tuple[str, int, int]:
    return fact["topic"], fact["partition"], fact["low"]


def _survey(journal: Journal) -> dict[str, Any]:
    """Which logs there are, how long each is and how many operations concern it; when the run began and ended.

    Done here and not by tasks: a few columns of one table are read in less time than it takes to start them.
    """
    paths = [path for path in (*journal.files["operations"], journal.pending) if path is not None]
    with ThreadPoolExecutor() as threads:
        rows = pa.concat_tables([_SURVEY.empty_table(), *threads.map(_survey_operations, paths)])
    for topic in pc.unique(rows["topic"]).to_pylist():
        if not _TOPIC.fullmatch(topic or "") or topic in (".", ".."):
            raise HistoryError(f"the journal of {journal.pending} names a topic {topic!r}, which Kafka does not allow")
    logs = rows.group_by(["topic", "partition"]).aggregate([("rows", "sum"), ("end", "max")])
    columns = [logs[name].to_pylist() for name in ("topic", "partition", "rows_sum", "end_max")]
    runs = [run for run in pc.unique(rows["run"]).to_pylist() if run is not None]
    return {
        "logs": sorted(zip(*columns, strict=True)),
        "run": {
            "run": runs[0] if runs else "",
            "origin": pc.min(rows["since"]).as_py() or 0,
            "until": pc.max(rows["until"]).as_py() or 0,
        },
    }


_SURVEY: Final = pa.schema(
    [
        ("run", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.int64()),
        ("end", pa.int64()),  # one past the highest offset
        ("since", pa.int64()),
        ("until", pa.int64()),
    ]
)
_SURVEYED_COLUMNS: Final = ("run", "topic", "partition", "offset", "high_watermark", "invoke", "complete")


def _survey_operations(path: Path) -> pa.Table:
    """What a file of operations holds: a row (see _SURVEY) a log."""
    rows = read_parquet(path, pa.schema([OPERATIONS.field(name) for name in _SURVEYED_COLUMNS]))
    end = np.maximum(integers(rows, "offset", NOWHERE) + 1, integers(rows, "high_watermark", NOWHERE))
    rows = rows.append_column("end", pa.array(end))
    rows = rows.append_column("until", pc.max_element_wise(rows["invoke"], rows["complete"]))
    aggregates = [([], "count_all"), ("end", "max"), ("invoke", "min"), ("until", "max")]
    summed = rows.group_by(["run", "topic", "partition"], use_threads=False).aggregate(aggregates)
    summed = summed.select(["run", "topic", "partition", "count_all", "end_max", "invoke_min", "until_max"])
    return summed.rename_columns(_SURVEY.names).cast(_SURVEY)


def _plan_lanes(logs: Sequence[tuple[str, int, int, int]], segment_offsets: int, tasks: int) -> list[dict[str, Any]]:
    """Share the logs out to about as many lanes as tasks run at once, evenly by rows; each segment of a long log is
    a lane of its own."""
    lanes: list[dict[str, Any]] = []
    short: list[tuple[int, str, int]] = []
    for topic, partition, rows, end in logs:
        sparse = end > 16 * rows + segment_offsets  # offsets that no log of so few operations has: one segment
        cuts = range(0, 1 if sparse else max(end, 1), segment_offsets)
        if len(cuts) == 1:
            short.append((rows, topic, partition))
        for low in cuts if len(cuts) > 1 else ():
            high = low + segment_offsets if low + segment_offsets < end else None
            lanes.append({"logs": [[topic, partition]], "low": low, "high": high})
    shares: list[tuple[int, list[list[Any]]]] = [(0, []) for _ in range(min(tasks, len(short)))]
    for rows, topic, partition in sorted(short, reverse=True):
        lightest = min(range(len(shares)), key=lambda number: shares[number][0])
        load, mine = shares[lightest]
        shares[lightest] = (load + rows, [*mine, [topic, partition]])
    return lanes + [{"logs": mine, "low": 0, "high": None} for _, mine in shares]


def last_of_each(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """FAULTS rows: of each fault what was recorded last, in order. Raises HistoryError."""
    faults = {row["fault"]: row for path in paths for row in read_parquet(path, FAULTS).to_pylist()}
    return [faults[number] for number in sorted(faults)]


def _write_faults(paths: Sequence[Path], directory: Path) -> None:
    rows = last_of_each(paths)
    write_parquet(directory / "faults" / "faults.parquet", pa.Table.from_pylist(rows, schema=FAULTS))


def _read_manifest(directory: Path) -> dict[str, Any]:
    try:
        manifest = read_object(directory / "history" / "manifest.json")
    except (OSError, ValueError):
        return {}
    return manifest if damage.is_sealed(manifest) else {}


def _history(directory: Path, manifest: Mapping[str, Any], changed: Sequence[damage.Damage] = ()) -> History:
    """changed: files of history/ that must not be read. Raises HistoryError."""
    try:
        return _described(directory, manifest, changed)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else first_line(error)
        raise HistoryError(f"{directory / 'history' / 'manifest.json'} describes no history: {what}") from None


def _described(directory: Path, manifest: Mapping[str, Any], changed: Sequence[damage.Damage]) -> History:
    damaged = tuple((f"journal/{name}", why) for name, why in manifest.get("damaged", ()))
    bad = {name for name, _ in changed}
    # The last final read may be among what is missing, or the first.
    whole = not damage.tables(damaged) & {"operations", "reads"}
    by_log: dict[Log, list[Mapping[str, Any]]] = {}
    for fact in manifest["segments"]:
        by_log.setdefault(Log(fact["topic"], fact["partition"]), []).append(fact)
    logs = []
    for log, facts in by_log.items():
        reads = [FinalReads.of(part["final_reads"]) for part in facts]
        segments = [Segment(part["low"], part["high"], dict(part["paths"])) for part in facts]
        sound = tuple(segment for segment in segments if bad.isdisjoint(segment.paths.values()))
        partial = len(sound) < len(segments)
        final_reads = FinalReads.merge(reads) if whole and not partial else FinalReads()
        end = max(part["end"] for part in facts)
        logs.append(LogHistory(log.topic, log.partition, sound, final_reads, end, partial))
    return History(
        run=manifest["run"],
        directory=directory,
        logs=tuple(logs),
        origin=manifest["origin"],
        until=manifest["until"],
        orphans=sum(part["orphans"] for part in manifest["segments"]),
        damaged=(*damaged, *((f"history/{name}", why) for name, why in changed)),
        lost=frozenset(table for table in ("faults", *_OF_RUN) if f"{table}/{table}.parquet" in bad),
    )
