"""What the report shows, computed from the tables of a run. Times come in as monotonic nanoseconds and leave as
seconds since the first operation was invoked.

An append counts where it completed, and one that never completed where it was invoked. Latency is from invocation
to completion of acknowledged appends, so a slow append shows up when it was answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.report.data import RunData

Floats = NDArray[np.float64]
Codes = NDArray[np.int8]  # positions in OUTCOMES
Strings = NDArray[np.object_]

NICE_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
MOST_BUCKETS = 160
OUTCOMES = ("ok", "fail", "info")
QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


@dataclass(frozen=True)
class Fault:
    """A fault as it was seen; `end` is None for one that never healed."""

    number: int  # in the schedule and in the faults table
    nemesis: str
    targets: list[str]
    start: float
    end: float | None
    effective: bool
    evidence: dict[str, Any]
    in_sync: float | None = None  # when every replica was back in its ISR, where the harness waited for that
    acknowledged: int = 0  # appends acknowledged while it was in force
    gap: float = 0.0  # longest time, within the fault, that some partition acknowledged nothing
    gap_at: str = ""  # that partition

    @property
    def name(self) -> str:
        return f"F{self.number}"

    @property
    def skipped(self) -> bool:
        """Planned, but it never got to strike."""
        return "skipped" in self.evidence

    def overlaps(self, second: float) -> bool:
        return self.start <= second and (self.end is None or second <= self.end)


@dataclass(frozen=True)
class Timeline:
    """Per-bucket series. `buckets` has columns start, ok, fail, info (appends, not a rate), p50, p99, p999,
    max (seconds; NaN where nothing was acknowledged) and lost (records later lost, by their acknowledgement)."""

    width: float  # of a bucket, seconds
    end: float  # of the time axis, seconds
    buckets: pd.DataFrame


@dataclass(frozen=True)
class Summary:
    """Everything the page shows that takes computing."""

    origin: int | None  # nanoseconds: second 0 of the report
    duration: float
    faults: list[Fault]  # those that struck
    skipped: list[Fault]
    timeline: Timeline | None  # None when no append was recorded
    counts: dict[str, int]  # appends by outcome
    kinds: dict[str, int]  # operations by kind
    errors: list[tuple[str, str, int]]  # error, outcome, appends
    conditions: list[dict[str, Any]]  # rate and latency with and without a fault in force
    partitions: list[dict[str, Any]]
    longest_gap: tuple[float, float] | None  # seconds, and when it began, without any acknowledgement
    lost: pd.DataFrame  # LOST with second (acknowledged, else first read), partition_name, fault and lead (see blame)


def summarise(data: RunData) -> Summary:
    appends = data.operations[data.operations["kind"] == "append"]
    origin = _origin(data)
    seconds = _Seconds(origin or 0)
    done = seconds(appends["complete"].fillna(appends["invoke"]))
    latency = (appends["complete"] - appends["invoke"]).to_numpy("float64", na_value=np.nan) / 1e9
    outcome = pd.Categorical(appends["outcome"], categories=OUTCOMES).codes
    names = partition_names(appends)
    acknowledged = outcome == 0

    lost = data.lost.sort_values(["topic", "partition", "offset"], ignore_index=True)
    lost = lost.assign(
        second=seconds(lost["complete"].fillna(lost["observed"])), partition_name=partition_names(lost)
    )
    planned = _faults(data.faults, seconds)
    struck = [fault for fault in planned if not fault.skipped]
    faults = _with_effects(struck, done[acknowledged], names[acknowledged])
    duration = float(done.max()) if len(done) else 0.0
    blamed = [blame(second, faults) for second in lost["second"]]
    lost["fault"], lost["lead"] = [name for name, _ in blamed], [lead for _, lead in blamed]
    return Summary(
        origin=origin,
        duration=duration,
        faults=faults,
        skipped=[fault for fault in planned if fault.skipped],
        timeline=_timeline(done, latency, outcome, lost["second"].to_numpy(), faults) if len(done) else None,
        counts=_counts(outcome),
        kinds={str(kind): int(count) for kind, count in data.operations["kind"].value_counts().items() if count},
        errors=_errors(appends),
        conditions=_conditions(done, latency, outcome, faults, duration),
        partitions=_partitions(data, names, outcome, latency, lost),
        longest_gap=_longest_gap(done[acknowledged]),
        lost=lost,
    )


class _Seconds:
    """Nanoseconds to seconds since the origin; subtracted as integers, so a machine up for months loses nothing."""

    def __init__(self, origin: int) -> None:
        self.origin = origin

    def __call__(self, nanoseconds: pd.Series) -> Floats:
        since: Floats = (nanoseconds - self.origin).to_numpy("float64", na_value=np.nan)
        return since / 1e9


def partition_names(frame: pd.DataFrame) -> Strings:
    """Kafka's name of each row's partition, topic-partition, as an object array."""
    if frame.empty:
        return np.empty(0, dtype=object)
    pairs = frame.groupby(["topic", "partition"], observed=True, dropna=False)
    labels = np.empty(pairs.ngroups, dtype=object)
    labels[:] = [f"{topic}-{partition}" for topic, partition in pairs.size().index]
    named: Strings = labels[pairs.ngroup().to_numpy()]
    return named


def blame(second: float, faults: list[Fault]) -> tuple[str, float]:
    """The faults in force at `second` and 0; else the next to strike, which is the one that takes what is still in the
    page cache, and the seconds until then; else "" and NaN."""
    in_force = [fault.name for fault in faults if fault.overlaps(second)]
    if in_force:
        return ", ".join(in_force), 0.0
    following = min((fault for fault in faults if fault.start > second), key=lambda fault: fault.start, default=None)
    return (following.name, following.start - second) if following else ("", float("nan"))


def _origin(data: RunData) -> int | None:
    for times in (data.operations["invoke"], data.faults["start"]):
        if times.notna().any():
            return int(times.min())
    return None


def _faults(table: pd.DataFrame, seconds: _Seconds) -> list[Fault]:
    table = table.dropna(subset=["start"]).sort_values(["start", "fault"], ignore_index=True)
    faults: list[Fault] = []
    for row, start, end in zip(table.itertuples(), seconds(table["start"]), seconds(table["end"]), strict=True):
        evidence = _evidence(row.evidence)
        in_sync_at = evidence.get("in_sync_at")
        faults.append(
            Fault(
                number=int(row.fault) if pd.notna(row.fault) else len(faults),
                nemesis=str(row.nemesis),
                targets=[] if row.targets is None else [str(target) for target in row.targets],
                start=float(start),
                end=None if np.isnan(end) else float(end),
                effective=row.effective is not None and bool(row.effective),
                evidence=evidence,
                in_sync=(in_sync_at - seconds.origin) / 1e9 if isinstance(in_sync_at, int) else None,
            )
        )
    return faults


def _evidence(text: object) -> dict[str, Any]:
    try:
        evidence = json.loads(str(text)) if isinstance(text, str) and text else {}
    except ValueError:
        return {"evidence": text}
    return evidence if isinstance(evidence, dict) else {"evidence": evidence}


def _with_effects(faults: list[Fault], done: Floats, names: Strings) -> list[Fault]:
    """Add what clients noticed of each fault: appends acknowledged, and the longest silence of a partition."""
    if not len(done):
        return faults
    order = np.argsort(done, kind="stable")
    times = done[order]
    by_partition = {str(name): done_there for name, done_there in pd.Series(times).groupby(names[order])}
    last = float(times[-1])
    result = []
    for fault in faults:
        end = min(fault.end if fault.end is not None else last, last)
        gaps = {name: _gap_within(there.to_numpy(), fault.start, end) for name, there in by_partition.items()}
        worst = max(gaps, key=lambda name: gaps[name])
        inside = int(np.searchsorted(times, end, "right") - np.searchsorted(times, fault.start, "left"))
        result.append(replace(fault, acknowledged=max(inside, 0), gap=gaps[worst], gap_at=worst))
    return result


def _gap_within(times: Floats, start: float, end: float) -> float:
    """The longest gap between sorted `times` that overlaps [start, end], not counted beyond the run of `times`."""
    if end <= start:
        return 0.0
    first = max(int(np.searchsorted(times, start, "left")) - 1, 0)
    last = int(np.searchsorted(times, end, "right")) + 1
    around = times[first:last]
    if len(around) > 1:
        return float(np.diff(around).max())
    return end - start


def _timeline(
    done: Floats, latency: Floats, outcome: Codes, lost: Floats, faults: list[Fault]
) -> Timeline:
    end = max([float(done.max()), *(fault.end or fault.start for fault in faults), 0.001])
    width = next((nice for nice in NICE_BUCKETS_S if end / nice <= MOST_BUCKETS), end / MOST_BUCKETS)
    number = int(end // width) + 1
    index = np.clip((done // width).astype("int64"), 0, number - 1)
    buckets = pd.DataFrame({"start": np.arange(number) * width})
    for code, name in enumerate(OUTCOMES):
        buckets[name] = np.bincount(index[outcome == code], minlength=number)
    grouped = pd.Series(latency[outcome == 0]).groupby(index[outcome == 0])
    for name, quantile in QUANTILES.items():
        buckets[name] = grouped.quantile(quantile).reindex(range(number))
    lost = lost[~np.isnan(lost)]
    buckets["lost"] = np.bincount(np.clip((lost // width).astype("int64"), 0, number - 1), minlength=number)
    return Timeline(width=width, end=number * width, buckets=buckets)


def _counts(outcome: Codes) -> dict[str, int]:
    return {name: int((outcome == code).sum()) for code, name in enumerate(OUTCOMES)}


def _errors(appends: pd.DataFrame) -> list[tuple[str, str, int]]:
    failed = appends[appends["outcome"].isin(["fail", "info"])]
    names = failed["error"].astype("object").fillna("never answered").astype(str)
    counts = failed.groupby([names, failed["outcome"].astype(str)]).size().sort_values(ascending=False)
    return [(error, outcome, int(count)) for (error, outcome), count in counts.items()]


def _conditions(
    done: Floats, latency: Floats, outcome: Codes, faults: list[Fault], duration: float
) -> list[dict[str, Any]]:
    """Rate and latency: the whole run, and, if there were faults, with and without one in force."""
    in_force = np.zeros(len(done), dtype=bool)
    for fault in faults:
        in_force |= (done >= fault.start) & (done <= (np.inf if fault.end is None else fault.end))
    spent = _covered(faults, duration)
    parts = [("Whole run", np.ones(len(done), dtype=bool), duration)]
    if faults:
        parts += [("No fault in force", ~in_force, duration - spent), ("A fault in force", in_force, spent)]
    rows = []
    for name, chosen, seconds in parts:
        answered = latency[chosen & (outcome == 0)]
        row: dict[str, Any] = {"name": name, "seconds": seconds}
        row |= {key: int((outcome[chosen] == code).sum()) for code, key in enumerate(OUTCOMES)}
        row["rate"] = row["ok"] / seconds if seconds > 0 else None
        row |= dict.fromkeys(QUANTILES)
        if len(answered):
            row |= dict(zip(QUANTILES, np.quantile(answered, list(QUANTILES.values())).tolist(), strict=True))
        rows.append(row)
    return rows


def _covered(faults: list[Fault], duration: float) -> float:
    """Seconds of [0, duration] during which some fault was in force."""
    covered, reached = 0.0, 0.0
    for fault in sorted(faults, key=lambda fault: fault.start):
        start, end = max(fault.start, reached), min(duration if fault.end is None else fault.end, duration)
        covered += max(end - start, 0.0)
        reached = max(reached, end)
    return covered


def _longest_gap(done: Floats) -> tuple[float, float] | None:
    if len(done) < 2:
        return None
    times = np.sort(done)
    gaps = np.diff(times)
    worst = int(gaps.argmax())
    return float(gaps[worst]), float(times[worst])


def _partitions(
    data: RunData, names: Strings, outcome: Codes, latency: Floats, lost: pd.DataFrame
) -> list[dict[str, Any]]:
    frame = pd.DataFrame({"name": names, "outcome": outcome, "latency": np.where(outcome == 0, latency, np.nan)})
    appends = frame.groupby(["name", "outcome"]).size().unstack(fill_value=0)
    p99 = frame.groupby("name")["latency"].quantile(0.99)
    read = dict(zip(partition_names(data.records_read), data.records_read["records"], strict=True))
    lost_there = lost["partition_name"].value_counts()
    final = data.operations[(data.operations["kind"] == "final_read") & (data.operations["outcome"] == "ok")]
    ends = final["high_watermark"].groupby(partition_names(final)).max()
    replicas: dict[str, dict[str, dict[str, int]]] = {}
    for name, row in zip(partition_names(data.replicas), data.replicas.itertuples(), strict=True):
        replicas.setdefault(name, {})[str(row.node)] = {"records": int(row.records), "end": int(row.last) + 1}
    rows = []
    for name in sorted({*appends.index, *read, *replicas}, key=_natural):
        by_outcome = appends.loc[name] if name in appends.index else {}
        rows.append(
            {
                "name": name,
                **{key: int(by_outcome.get(code, 0)) for code, key in enumerate(OUTCOMES)},
                "p99": float(p99[name]) if name in p99.index and not np.isnan(p99[name]) else None,
                "read": int(read.get(name, 0)),
                "final_end": int(ends[name]) if name in ends.index and pd.notna(ends[name]) else None,
                "lost": int(lost_there.get(name, 0)),
                "replicas": dict(sorted(replicas.get(name, {}).items(), key=lambda item: _natural(item[0]))),
            }
        )
    return rows


def _natural(name: str) -> tuple[str, int]:
    """broker-10 after broker-9."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, -1)


def operations_by_id(
    operations: pd.DataFrame, wanted: set[int], faults: list[Fault], origin: int
) -> Mapping[int, dict[str, Any]]:
    """The wanted operations as the violation tables show them; `fault` and `lead` as in `blame`, at completion."""
    seconds = _Seconds(origin)
    chosen = operations[operations["op"].isin(wanted)]
    frame = chosen.astype("object").where(chosen.notna(), None)
    frame["invoked"], frame["completed"] = seconds(chosen["invoke"]), seconds(chosen["complete"])
    rows: dict[int, dict[str, Any]] = {}
    for row in frame.to_dict("records"):
        row["completed"] = None if np.isnan(row["completed"]) else row["completed"]
        row["fault"], row["lead"] = blame(row["invoked"] if row["completed"] is None else row["completed"], faults)
        rows[int(row["op"])] = row
    return rows
