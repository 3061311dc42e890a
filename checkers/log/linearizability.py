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
    torn prefix          a read, or the final log, that returned a record without an earlier one of its range, where an
                         append is known to stand
    skipped offset       a read that left out offsets of its range at which nothing is known to stand, or did not
                         return each once and in order
    real-time inversion  (b) where the lower operation is an append
    stale end of log     (b) where the lower operation is a reading of the end, and the higher an acknowledged append
    non-monotonic read   two readings contradict each other, one of which was over when the other began: by (b) the
                         later one's end is below what the earlier had shown; or an offset of both has two values
    lagging watermark    a fetch's watermark that does not cover what had been proved before: weak, never a failure

A reading may contradict an append and a reading at once; then it has both names.

What else a plan may say (see Options)

* Truncated logs. What stood below the start of the log may be missing: it is not lost, reads need not return it, and
  no append need explain it. `log_start` is an offset, or "moves" where retention or DeleteRecords are at work: then the
  lowest record of a final read, or else its fetch offset, is taken for it. Of what lies between the start of the log
  and the lowest final fetch nothing is known: no loss is claimed there, and the final log is not complete.
* Compacted logs (`cleanup.policy` holds "compact"): reads and the final log may leave out any offset but the last one;
  an append is lost if the final log holds another value in its place, or nothing from there on. The end counts as
  known if a final read returned the record before it. Where keys are known (`keys` of the plan's `log`: a value's key
  is its remainder by that), of each key the last value that was acknowledged or read is lost unless the final log
  holds it, or a later one of the key.
* Logs with transactions (`markers` of the plan's `log`): markers of commits and aborts take offsets that no read
  returns. So reads may leave out offsets at which no append is known to stand, and no append need explain these; what
  was acknowledged is lost wherever the final log lacks it.
* Batches are as many appends of one invocation, each with an offset of its own.
* Idempotent producers: a retry is the same operation. If it is answered DUPLICATE_SEQUENCE_NUMBER, it is ok without an
  offset: it stands where a read returned it, and is lost if the final log is known from its start and does not hold it;
  otherwise it is as if indeterminate.
* Producers that retry without idempotence (`idempotence` false) may write a record more than once: a copy at an offset
  at which no other append stands is a duplicate by retry, a weak anomaly of its own, and not held against the order.
  So is one below which all was deleted before the append was over, for its age or by DeleteRecords: a replica that has
  begun anew above it knows nothing of its producer, and takes the retry for a first batch (KIP-360).

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
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.anomalies import ANOMALIES, Anomalies, Found
from checkers.log.candidates import ALL_CANDIDATES, GAPS, settle, settle_tables
from checkers.log.real_time import NOTHING, Carry, Timeline, check_real_time, deadlines
from checkers.log.scope import Options, Scope
from checkers.log.segment import INFO, KINDS, OUTCOMES, Contents, Segment, check_contents
from checkers.witness import OF_STEPS, Step, explain, named_operations, steps_of
from spark_history.files import Ints, read_parquet, write_parquet
from spark_history.ingest import History, LogHistory
from spark_history.log import NEVER
from spark_history.prefix import scan_after
from spark_history.spark.tasks import Engine, Unit, run_tasks


@dataclass(frozen=True)
class Linearizability:
    found: Found
    lost: Sequence[Path]  # LOST, all of them
    counts: Mapping[str, Mapping[str, int]]  # by run: see count_operations


def check(histories: Sequence[tuple[History, Options]], engine: Engine) -> Linearizability:
    """All logs of all runs in one Spark job, and one more each for what is odd: segments that later ones contradict,
    candidates, and the operations of the witnesses.

    Candidates and lost appends are written below each run's history/. Raises HistoryError.
    """
    for history, _ in histories:
        shutil.rmtree(history.path / "candidates", ignore_errors=True)
    logs = [_units(history, log, options) for history, options in histories for log in history.logs]
    results = iter(_run(engine, judge_segment, [unit for units in logs for unit in units]))
    outcomes = [(units, [next(results) for _ in units]) for units in logs]
    _judge_with_later(outcomes, engine)
    disputed = []
    for units, judged in outcomes:
        candidates = {kind: [path for segment in judged for path in segment[kind]] for kind in ALL_CANDIDATES}
        if any(candidates.values()):
            disputed.append(units[0] | {"segments": [unit["paths"] for unit in units], "candidates": candidates})
    settled = _run(engine, settle_log, disputed)
    everything = [segment for _, judged in outcomes for segment in judged] + settled
    counts: dict[str, dict[str, int]] = {history.run: {} for history, _ in histories}
    for segment in everything:
        mine = counts[segment["run"]]
        for name, count in segment["counts"].items():
            mine[name] = mine.get(name, 0) + count
    rows = [row for segment in everything for row in segment["anomalies"]]
    _witness(rows, logs, histories, engine)
    return Linearizability(
        Found(
            pa.Table.from_pylist(rows, schema=ANOMALIES),
            [(segment["run"], *tally) for segment in everything for tally in segment["tally"]],
        ),
        [Path(path) for log in settled for path in log["lost"]],
        counts,
    )


def _units(history: History, log: LogHistory, options: Options) -> list[Unit]:
    return [
        {
            "history": str(history.path),
            "scope": asdict(
                Scope(
                    history.run, log.topic, log.partition, part.low, part.high, options.final(log.final_reads), log.end,
                    history.origin, options,
                )
            ),
            "paths": dict(part.paths),
            "carry": None,
        }
        for part in log.segments
    ]  # fmt: skip


def _judge_with_later(outcomes: Sequence[tuple[list[Unit], list[dict[str, Any]]]], engine: Engine) -> None:
    """Judge again, with the first evidence from beyond it, each segment of which something was invoked after that, or
    which has gaps that something beyond it must be later than. In a log that works there is none."""
    again: list[tuple[list[dict[str, Any]], int, Unit]] = []
    for units, judged in outcomes:
        carries = scan_after([Carry.of(each["summary"]) for each in judged], Carry.earlier, NOTHING)
        for number, carry in enumerate(carries):
            if judged[number]["latest"] > carry.time or (judged[number]["gaps"] and carry.time != NEVER):
                again.append((judged, number, units[number] | {"carry": carry}))
    results = _run(engine, judge_segment, [unit for *_, unit in again])
    for (judged, number, _), result in zip(again, results, strict=True):
        judged[number] = result


def _witness(
    rows: Sequence[dict[str, Any]],
    logs: Sequence[list[Unit]],
    histories: Sequence[tuple[History, Options]],
    engine: Engine,
) -> None:
    """Put the operations of each anomaly, and the faults in force, into its `witness`."""
    named: dict[tuple[str, str, int], set[int]] = {}
    for row in rows:
        named.setdefault((row["run"], row["topic"], row["partition"]), set()).update(row["ops"])
    units: list[Unit] = [
        {"path": f"{unit['history']}/{unit['paths']['operations']}", "ops": sorted(named[log]), "log": log}
        for segments in logs
        for unit in segments
        if (log := (unit["scope"]["run"], unit["scope"]["topic"], unit["scope"]["partition"])) in named
    ]
    steps: dict[tuple[str, str, int], dict[int, Step]] = {}
    for unit, table in zip(units, run_tasks(engine, read_steps, units), strict=True):
        steps.setdefault(unit["log"], {}).update(steps_of(table))
    faults = {history.run: history.faults() for history, _ in histories if history.run in {row["run"] for row in rows}}
    for row in rows:
        explain(row, steps[row["run"], row["topic"], row["partition"]], faults[row["run"]])


def read_steps(unit: Unit) -> pa.Table:
    """Some operations of a segment, for steps_of()."""
    return named_operations(read_parquet(unit["path"], OF_STEPS), unit["ops"])


def _run(engine: Engine, work: Any, units: Sequence[Unit]) -> list[dict[str, Any]]:
    """Many small logs share a task; a row of JSON a unit comes back."""
    return [json.loads(result["facts"][0].as_py()) for result in run_tasks(engine, work, units)]


def _facts(facts: Mapping[str, Any]) -> pa.Table:
    return pa.table({"facts": [json.dumps(facts)]})


def _load(unit: Unit) -> tuple[Segment, Anomalies]:
    scope = Scope.of(unit["scope"])
    return Segment.load(scope, Path(unit["history"]), unit["paths"]), Anomalies(scope.run, scope.topic, scope.partition)


def judge_segment(unit: Unit) -> pa.Table:
    segment, anomalies = _load(unit)
    judged = judge(segment, Carry.of(unit["carry"]), anomalies)
    facts: dict[str, Any] = {
        "run": segment.scope.run,
        "anomalies": anomalies.rows,
        "tally": anomalies.tally,
        "counts": count_operations(segment, judged.contents),
        "summary": None if segment.scope.whole else judged.timeline.summary(),
        "latest": judged.timeline.latest,
    }
    for kind, table in judged.candidates.items():
        path = Path(unit["history"]) / "candidates" / kind / f"{segment.scope.log}-{segment.scope.low}.parquet"
        facts[kind] = [str(path)] if table.num_rows else []
        if table.num_rows:
            write_parquet(path, table)
    return _facts(facts)


@dataclass(frozen=True)
class JudgedSegment:
    contents: Contents
    timeline: Timeline
    candidates: Mapping[str, pa.Table]  # ALL_CANDIDATES: what takes the whole log to decide


def judge(segment: Segment, carry: Carry, anomalies: Anomalies) -> JudgedSegment:
    """What one segment can tell by itself goes to `anomalies`."""
    contents = check_contents(segment, anomalies)
    timeline = Timeline.of(segment, contents)
    check_real_time(timeline, carry, anomalies)
    first, count = _gaps(segment, timeline)
    gaps = pa.table([first, count, deadlines(timeline, carry, first)], schema=GAPS)
    return JudgedSegment(contents, timeline, {**contents.candidates, "gaps": gaps})


def judge_log(segment: Segment) -> tuple[Anomalies, Anomalies, dict[str, int]]:
    """A log of one segment, in memory: what judge_segment() and settle_log() find of it, and the counts of both."""
    scope = segment.scope
    anomalies, settled = (Anomalies(scope.run, scope.topic, scope.partition) for _ in range(2))
    judged = judge(segment, NOTHING, anomalies)
    counts = count_operations(segment, judged.contents)
    if any(table.num_rows for table in judged.candidates.values()):
        counts.update(_count_lost(settle_tables(scope, [segment], judged.candidates, settled)))
    return anomalies, settled, counts


def _gaps(segment: Segment, timeline: Timeline) -> tuple[Ints, Ints]:
    """(first offset, how many) of each range of offsets at which nothing is known to stand, and within which no reading
    of the end stands: what must have been invoked by when is one for all of it."""
    scope = segment.scope
    if scope.options.markers:  # one may stand there
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low = max(scope.low, scope.asked_from)
    end = min(scope.end, NEVER if scope.high is None else scope.high)
    position, read = segment.column("position")[segment.appends], segment.read_column("offset")
    # In a log that works each append is one offset on from the one before.
    covers = len(position) and position[0] <= low and position[-1] >= end - 1
    if covers and bool((np.diff(position) == 1).all()):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    known = np.union1d(position, read)
    known = known[(known >= low) & (known < end)]
    before, after = np.append(low - 1, known), np.append(known, max(end, low))
    first, last = (before + 1)[after - before > 1], (after - 1)[after - before > 1]
    if not len(first):
        return first, first
    cuts = np.unique(timeline.position[~timeline.is_append])
    inside = np.searchsorted(first, cuts, "right") - 1
    cuts = cuts[(inside >= 0) & (cuts > first[inside]) & (cuts <= last[inside])]
    starts = np.sort(np.concatenate((first, cuts)))
    ends = np.append(starts[1:], NEVER) - 1
    last = np.minimum(ends, last[np.searchsorted(first, starts, "right") - 1])
    return starts, last - starts + 1


def _count_lost(lost: pa.Table) -> dict[str, int]:
    """lost: LOST. `lost unacknowledged`: those that only a read is evidence of."""
    only_read = lost["complete"].null_count
    return {"lost": lost.num_rows, **({"lost unacknowledged": only_read} if only_read else {})}


def count_operations(segment: Segment, contents: Contents) -> dict[str, int]:
    """`<kind> <outcome>` for each, and what became of the acknowledged appends."""
    kinds, outcomes = len(KINDS), len(OUTCOMES)
    pairs = segment.kind * np.int8(outcomes) + segment.outcome
    pairs[(segment.kind < 0) | (segment.outcome < 0)] = kinds * outcomes
    each = np.bincount(pairs, minlength=kinds * outcomes)
    names = (f"{kind} {outcome}" for kind in KINDS for outcome in OUTCOMES)
    counts = dict(zip(names, each.tolist(), strict=False))
    appends, unsure, lost = segment.appends, segment.unsure, contents.lost
    known = contents.in_final_log | contents.seen
    known[lost] = known[unsure] = True
    if segment.scope.options.compacted and segment.scope.final_known:
        known[appends] = True  # one that is not there was replaced
    final = segment.read_column("offset")[segment.final]
    acknowledged = counts["append ok"]
    untold = acknowledged - (len(appends) - len(unsure)) - int(np.count_nonzero(lost < segment.placed))
    since = segment.scope.options.since
    struck = segment.column("complete")[pairs == 0] >= since if since != NEVER else np.empty(0, bool)
    returned = segment.at("records", segment.readings)
    return counts | {
        "acknowledged": acknowledged,
        "acknowledged since": int(np.count_nonzero(struck)),
        "undecided": len(appends) - int(np.count_nonzero(known[appends])) + untold,
        "indeterminate found": int(np.count_nonzero(segment.outcome[unsure] == INFO)),
        "records read": int(returned[returned > 0].sum()),
        "records in final log": _distinct(final),
    }


def _distinct(ordered: Ints) -> int:
    return int(np.count_nonzero(np.diff(ordered))) + bool(len(ordered))


def settle_log(unit: Unit) -> pa.Table:
    """What takes the whole log to decide: the candidates of its segments."""
    scope = Scope.of(unit["scope"])
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
            "counts": _count_lost(lost),
            "lost": [str(path)] if lost.num_rows else [],
        }
    )
