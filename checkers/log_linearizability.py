"""Log linearizability: is there one order of all operations on a partition that explains everything seen of it?

The object is a log that only grows. `append(v)` takes effect at one instant between its invocation and its
completion, and then v stands at the offset that was the log's length. What is visible is the committed log: with
acks=all an acknowledgement says that the record is committed. Offsets give the order, so the check is exact, and
near-linear in time (docs: design, section 6). Times are compared strictly: operations that touch are concurrent.

What each operation proves

| operation                | its position                     | what it proves of the log's length L            |
| ------------------------ | -------------------------------- | ----------------------------------------------- |
| append, ok, offset o     | o, exact                         | L went from o to o+1 between invoke and complete |
| append, info, observed   | the offset it was read at, exact | the same, but at any time after invoke          |
| append, info, unobserved | any free offset, or none         | may have filled a gap, at any time after invoke |
| append, fail             | none                             | it had no effect, ever                          |
| list_offsets, ok, end e  | e - 1/2, exact                   | L = e at an instant between invoke and complete |
| read, ok                 | a bound b                        | L >= b by complete                              |
| final_read, ok           | a bound; the end exact           | see below                                       |

b is the read's high watermark, or one past the last record returned if that is more. A fetch may be answered by a
leader whose watermark lags, so b may be too low, but never too high; nor may a read return what was not appended
yet. list_offsets must not be answered before the leader knows the true watermark ("Applied HWM monotonicity",
section 6.4.2 of the KIP-966 description; KIP-207), so its answer is exact. Operations that failed or are
indeterminate and are not appends prove nothing.

The final log of a partition is what its final reads returned. It counts as known (`complete`) if the ranges of the
fetches cover everything from the lowest fetch offset to the highest bound E of a final read; that bound is exact,
because it is read when the cluster is whole and idle.

The history of a partition is linearizable if and only if

(a) offset and value agree everywhere: in acknowledgements, reads and the final log; every read returns all offsets
    of its range; no offset has two values and no value two offsets; no failed append is visible; and, if the final
    log is known, it holds what was acknowledged or observed before it was read;
(b) no exact operation was invoked after an operation at a higher position had completed: a running minimum of
    completions from the end of the position order; and
(c) every offset below the highest known length at which no append is known to stand can be given an append of
    unknown outcome that was invoked early enough, one each.

Sufficiency: give every exact operation the running maximum of the invocations up to its position; by (b) that is no
later than its completion, it does not decrease with position, and reads take effect when they complete.

Anomalies, by name

    lost append          acknowledged, or returned by a read, and not in the final log. Each is named.
    phantom              a value that was never appended, or more log than the appends can fill (c)
    failed but visible   a failed append that a read returned
    inconsistent offset  one offset with two values, or a record read elsewhere than where it was acknowledged
    duplicate            one value at two offsets
    skipped offset       a read that left out offsets of its range, or returned one twice
    real-time inversion  (b) where the lower operation is an append
    stale end of log     (b) where the lower operation is a reading of the end
    lagging watermark    a fetch's watermark that does not cover what had been proved before: weak, never a failure

Where the final log is not known (a run that was killed), an acknowledged append that no read returned is undecided.
With acks=1 or acks=0 an acknowledgement does not say that the record is committed, so a later reading of the end
need not cover it; everything else holds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from checkers.anomalies import ANOMALIES, Anomalies, Found
from checkers.log_candidates import settle, settle_tables
from checkers.log_segment import Contents, Scope, Segment, check_contents
from checkers.real_time import NOTHING, Carry, Timeline, check_real_time, deadlines
from spark_history.files import Ints, write_parquet
from spark_history.ingest import History, LogHistory
from spark_history.lane import NEVER
from spark_history.prefix import scan_after
from spark_history.tasks import Unit, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS: Final = ("append", "read", "list_offsets", "final_read")
OUTCOMES: Final = ("ok", "fail", "info")

#: Offsets at which no append is known to stand, and by when one must have been invoked to stand there.
GAPS: Final = pa.schema([("offset", pa.int64()), ("deadline", pa.int64())])


@dataclass(frozen=True)
class Options:
    """What the check needs to know of a run, apart from its history."""

    acks_all: bool = True
    since: int = NEVER  # acknowledgements from here on are counted apart, monotonic ns

    @staticmethod
    def of(plan: Mapping[str, Any], struck: int | None) -> Options:
        """plan: the content of plan.json; struck: when the first fault took effect, monotonic ns."""
        return Options(str(plan.get("acks", "all")) in ("all", "-1"), NEVER if struck is None else struck)


@dataclass(frozen=True)
class Linearizability:
    found: Found
    lost: Sequence[Path]  # LOST, all of them
    counts: Mapping[str, Mapping[str, int]]  # by run: see count_operations


def check(histories: Sequence[tuple[History, Options]], spark: SparkSession) -> Linearizability:
    """All logs of all runs in two Spark jobs, three if one log has several segments, fewer if nothing is odd.

    Candidates and lost appends are written below each run's history/. Raises HistoryError.
    """
    for history, _ in histories:
        shutil.rmtree(history.path / "candidates", ignore_errors=True)
    logs = [(history, log, _units(history, log, options)) for history, options in histories for log in history.logs]
    _carry_between_segments([units for _, _, units in logs], spark)
    results = iter(_run(spark, judge_segment, [unit for _, _, units in logs for unit in units]))
    outcomes = [(units, [next(results) for _ in units]) for _, _, units in logs]
    disputed = [
        units[0] | {"segments": [unit["paths"] for unit in units], "candidates": candidates}
        for units, judged in outcomes
        if any((candidates := {kind: [path for seg in judged for path in seg[kind]] for kind in _CANDIDATES}).values())
    ]
    settled = _run(spark, settle_log, disputed)
    everything = [segment for _, judged in outcomes for segment in judged] + settled
    counts: dict[str, dict[str, int]] = {history.run: {} for history, _ in histories}
    for segment in everything:
        mine = counts[segment["run"]]
        for name, count in segment["counts"].items():
            mine[name] = mine.get(name, 0) + count
    rows = [row for segment in everything for row in segment["anomalies"]]
    return Linearizability(
        Found(
            pa.Table.from_pylist(rows, schema=ANOMALIES),
            [(segment["run"], *tally) for segment in everything for tally in segment["tally"]],
        ),
        [Path(path) for log in settled for path in log["lost"]],
        counts,
    )


_CANDIDATES: Final = ("lost", "misplaced", "gaps")


def _units(history: History, log: LogHistory, options: Options) -> list[Unit]:
    common = {
        "history": str(history.path),
        "run": history.run,
        "topic": log.topic,
        "partition": log.partition,
        "final_reads": asdict(log.final_reads),
        "end": log.end,
        "origin": history.origin,
        "carry": None,
        **asdict(options),
    }
    return [common | {"low": part.low, "high": part.high, "paths": dict(part.paths)} for part in log.segments]


def _carry_between_segments(logs: Sequence[list[Unit]], spark: SparkSession) -> None:
    """Give each segment of the logs that have several the first evidence from beyond it."""
    several = [units for units in logs if len(units) > 1]
    summaries = iter(_run(spark, summarise_segment, [unit for units in several for unit in units]))
    for units in several:
        of_log = [Carry.of(next(summaries)["summary"]) for _ in units]
        for unit, carry in zip(units, scan_after(of_log, Carry.earlier, Carry()), strict=True):
            unit["carry"] = carry


def _run(spark: SparkSession, work: Any, units: Sequence[Unit]) -> list[dict[str, Any]]:
    """Many small logs share a task; a row of JSON a unit comes back."""
    return [json.loads(result["facts"][0].as_py()) for result in run_tasks(spark, work, units)]


def _facts(facts: Mapping[str, Any]) -> pa.Table:
    return pa.table({"facts": [json.dumps(facts)]})


def _load(unit: Unit) -> tuple[Segment, Anomalies]:
    scope = Scope.of(unit)
    return Segment.load(scope, Path(unit["history"]), unit["paths"]), Anomalies(scope.run, scope.topic, scope.partition)


def summarise_segment(unit: Unit) -> pa.Table:
    segment, scratch = _load(unit)
    return _facts({"summary": Timeline.of(segment, check_contents(segment, scratch)).summary()})


def judge_segment(unit: Unit) -> pa.Table:
    segment, anomalies = _load(unit)
    contents, gaps = judge(segment, Carry.of(unit["carry"]), anomalies)
    candidates = {"lost": contents.lost_rows, "misplaced": contents.misplaced, "gaps": gaps}
    facts: dict[str, Any] = {
        "run": segment.scope.run,
        "anomalies": anomalies.rows,
        "tally": anomalies.tally,
        "counts": count_operations(segment, contents),
    }
    for kind, table in candidates.items():
        path = Path(unit["history"]) / "candidates" / kind / f"{segment.scope.log}-{segment.scope.low}.parquet"
        facts[kind] = [str(path)] if table.num_rows else []
        if table.num_rows:
            write_parquet(path, table)
    return _facts(facts)


def judge(segment: Segment, carry: Carry, anomalies: Anomalies) -> tuple[Contents, pa.Table]:
    """What one segment can tell by itself goes to `anomalies`; the rest is in the Contents and the GAPS returned."""
    contents = check_contents(segment, anomalies)
    timeline = Timeline.of(segment, contents)
    check_real_time(segment, timeline, carry, anomalies)
    gaps = _gaps(segment)
    return contents, pa.table([gaps, deadlines(timeline, carry, gaps)], schema=GAPS)


def judge_log(segment: Segment) -> tuple[Anomalies, Anomalies, dict[str, int]]:
    """A log of one segment, in memory: what judge_segment() and settle_log() find of it, and the counts of both."""
    scope = segment.scope
    anomalies, settled = (Anomalies(scope.run, scope.topic, scope.partition) for _ in range(2))
    contents, gaps = judge(segment, NOTHING, anomalies)
    counts = count_operations(segment, contents)
    candidates = {"lost": contents.lost_rows, "misplaced": contents.misplaced, "gaps": gaps}
    if any(table.num_rows for table in candidates.values()):
        counts["lost"] = settle_tables(scope, [segment], **candidates, anomalies=settled).num_rows
    return anomalies, settled, counts


def _gaps(segment: Segment) -> Ints:
    scope = segment.scope
    end = min(scope.end, NEVER if scope.high is None else scope.high)
    free = np.ones(max(end - scope.low, 0), bool)
    for offsets in (segment.appends.position, segment.read_column("offset")):
        free[offsets[offsets < end] - scope.low] = False
    return np.flatnonzero(free) + scope.low


def count_operations(segment: Segment, contents: Contents) -> dict[str, int]:
    """`<kind> <outcome>` for each, and what became of the acknowledged appends."""
    counts = {
        f"{kind} {name}": int(np.count_nonzero(segment.kind(kind) & segment.outcome(name)))
        for kind in KINDS
        for name in OUTCOMES
    }
    appends = segment.appends
    known = contents.in_final_log | contents.lost | contents.seen
    acknowledged_at = segment.column("complete")[segment.kind("append") & segment.outcome("ok")]
    return counts | {
        "acknowledged": counts["append ok"],
        "acknowledged since": int(np.count_nonzero(acknowledged_at >= segment.scope.since)),
        "undecided": int(np.count_nonzero(appends.acknowledged & ~known)),
        "indeterminate found": int(np.count_nonzero(~appends.acknowledged & ~appends.failed)),
        "records read": len(segment.final),
        "records in final log": _distinct(segment.read_column("offset")[segment.final]),
    }


def _distinct(ordered: Ints) -> int:
    return int(np.count_nonzero(np.diff(ordered))) + bool(len(ordered))


def settle_log(unit: Unit) -> pa.Table:
    """What takes the whole log to decide: the candidates of its segments."""
    scope = Scope.of(unit)
    anomalies = Anomalies(scope.run, scope.topic, scope.partition)
    segments = (Segment.load(scope, Path(unit["history"]), paths) for paths in unit["segments"])
    lost = settle(scope, segments, unit["candidates"], anomalies)
    path = Path(unit["history"]) / "candidates" / "settled" / f"{scope.log}.parquet"
    if lost.num_rows:
        write_parquet(path, lost)
    return _facts(
        {
            "run": scope.run,
            "anomalies": anomalies.rows,
            "tally": anomalies.tally,
            "counts": {"lost": lost.num_rows},
            "lost": [str(path)] if lost.num_rows else [],
        }
    )
