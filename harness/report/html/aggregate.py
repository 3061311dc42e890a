"""What the report shows, computed from the tables of a run. Times come in as monotonic nanoseconds and leave as
seconds since the first operation was invoked.

An append counts where it completed, and one that never completed where it was invoked. Latency, gaps and recovery are
those of checkers/log/availability.py, which says what they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from checkers.log import availability
from checkers.log.streams import PERCENTILES, Part, Windows, of_times, percentiles
from harness.report.html.data import RunData
from harness.report.html.operations import OUTCOMES, Appends
from spark_history.log import NEVER

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Strings = NDArray[np.object_]

NICE_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
MOST_BUCKETS = 160
#: Columns here, by the names of checkers.log.streams.PERCENTILES.
QUANTILES: Final = {"p50": "p50", "p99": "p99", "p99.9": "p999", "max": "max"}


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
    whole_again: float | None = None  # from the heal to sustained acknowledgement on every partition; None: never

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
    by_partition: Mapping[str, Sequence[int]] = field(default_factory=dict)  # acknowledged appends, by bucket


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
    availability: dict[str, Any]  # see checkers.log.availability.summarise
    lost: pd.DataFrame  # ATTRIBUTED with second (acknowledged, else first read), partition_name and fault_name


def summarise(data: RunData) -> Summary:
    """Takes the appends out of `data`: of a long run they need not be held twice."""
    origin = _origin(data)
    seconds = _Seconds(origin or 0)
    measured, streams = _measure(data, origin or 0)

    lost = data.lost.sort_values(["topic", "partition", "offset"], ignore_index=True)
    lost = lost.assign(second=seconds(lost["complete"].fillna(lost["observed"])), partition_name=partition_names(lost))
    planned = _faults(data.faults, seconds)
    struck = [fault for fault in planned if not fault.skipped]
    faults = [_with_effects(fault, measured) for fault in struck]
    lost["fault_name"] = [None if pd.isna(number) else f"F{number}" for number in lost["fault"]]
    return Summary(
        origin=origin,
        duration=max((float(seconds.of(stream.last)) for stream in streams.values()), default=0.0),
        faults=faults,
        skipped=[fault for fault in planned if fault.skipped],
        timeline=_timeline(streams, seconds, lost["second"].to_numpy(), faults) if streams else None,
        counts={name: sum(s.counts[code] for s in streams.values()) for code, name in enumerate(OUTCOMES)},
        kinds=dict(data.operations.kinds),
        errors=_errors(data),
        conditions=_conditions(streams, seconds, faults, measured),
        partitions=_partitions(data, streams, measured, lost),
        longest_gap=_longest_gap(measured),
        availability=measured,
        lost=lost,
    )


@dataclass(frozen=True)
class _Stream:
    """The appends of one partition; times in ns. An acknowledged one is in `part`, sorted by completion."""

    part: Part
    others: Mapping[int, Ints]  # by position in OUTCOMES: when those ended, or began, that are not in `part`
    counts: Sequence[int]  # by position in OUTCOMES
    last: int  # when the last one ended

    @staticmethod
    def of(name: str, appends: Appends, windows: Windows) -> _Stream:
        invoke, complete, outcome = appends.invoke, appends.complete, appends.outcome
        answered = (outcome == 0) & (complete != NEVER)
        part = of_times(
            name, invoke[answered], complete[answered], windows, first=int(invoke.min()), last=int(invoke.max())
        )
        ended = np.where(complete == NEVER, invoke, complete)
        others = {code: ended[(outcome == code) & ~answered] for code in range(len(OUTCOMES))}
        counts = [len(others[code]) + (len(part.times) if code == 0 else 0) for code in range(len(OUTCOMES))]
        return _Stream(part, others, counts, int(ended.max()))


class _Seconds:
    """Nanoseconds to seconds since the origin; subtracted as integers, so a machine up for months loses nothing."""

    def __init__(self, origin: int) -> None:
        self.origin = origin

    def __call__(self, nanoseconds: pd.Series) -> Floats:
        since: Floats = (nanoseconds - self.origin).to_numpy("float64", na_value=np.nan)
        return since / 1e9

    def of(self, nanoseconds: Ints | int) -> Any:
        return (nanoseconds - self.origin) / 1e9


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
    if data.operations.origin is not None:
        return data.operations.origin
    starts = data.faults["start"]
    return int(starts.min()) if starts.notna().any() else None


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


def _measure(data: RunData, origin: int) -> tuple[dict[str, Any], dict[str, _Stream]]:
    """Availability, and the appends of each partition that has any."""
    known = data.faults.dropna(subset=["start", "fault"])
    windows = Windows.of(
        {
            "fault": int(row.fault), "nemesis": str(row.nemesis), "start": int(row.start),
            "targets": [] if row.targets is None else [str(target) for target in row.targets],
            "end": None if pd.isna(row.end) else int(row.end),
            "effective": row.effective is not None and bool(row.effective), "evidence": _evidence(row.evidence),
        }
        for row in known.itertuples()
    )  # fmt: skip
    with ThreadPoolExecutor() as threads:

        def stream(name: str) -> _Stream:
            # Once they are sorted, nobody needs them as they were read.
            return _Stream.of(name, Appends.joined(data.operations.appends.pop(name)), windows)

        names = list(data.operations.appends)
        streams = dict(zip(names, threads.map(stream, names), strict=True))
    return availability.summarise([each.part for each in streams.values()], windows, origin), streams


def _with_effects(fault: Fault, measured: Mapping[str, Any]) -> Fault:
    """Add what clients noticed of it: appends acknowledged, and the longest silence of a partition."""
    window = next((window for window in measured["windows"] if window["fault"] == fault.number), None)
    if window is None:
        return fault
    recovery = window["recovery"]["sustained_from_heal_ms"]
    return replace(
        fault,
        acknowledged=window["acknowledged"],
        gap=window["longest_gap_ms"] / 1e3,
        gap_at=window["gap_on"],
        whole_again=None if recovery is None else recovery / 1e3,
    )


def _timeline(streams: Mapping[str, _Stream], seconds: _Seconds, lost: Floats, faults: list[Fault]) -> Timeline:
    last = max(float(seconds.of(stream.last)) for stream in streams.values())
    end = max([last, *(fault.end or fault.start for fault in faults), 0.001])
    width = next((nice for nice in NICE_BUCKETS_S if end / nice <= MOST_BUCKETS), end / MOST_BUCKETS)
    number = int(end // width) + 1

    def bucket(of: Any) -> Ints:
        inside: Ints = np.clip((of // width).astype("int64"), 0, number - 1)
        return inside

    edges = np.arange(number + 1)
    with ThreadPoolExecutor() as threads:
        bounds = list(
            threads.map(lambda s: np.searchsorted(bucket(seconds.of(s.part.times)), edges).tolist(), streams.values())
        )

        def found(at: int) -> Any:
            parts = zip(streams.values(), bounds, strict=True)
            return percentiles(np.concatenate([s.part.latency[own[at] : own[at + 1]] for s, own in parts]))

        quantiles_ = list(threads.map(found, range(number)))
    buckets = pd.DataFrame({"start": np.arange(number) * width})
    for code, name in enumerate(OUTCOMES):
        ended = np.concatenate([stream.others[code] for stream in streams.values()])
        buckets[name] = np.bincount(bucket(seconds.of(ended)), minlength=number)
    buckets["ok"] += np.sum([np.diff(own) for own in bounds], axis=0)
    for at, name in enumerate(PERCENTILES):
        if name in QUANTILES:
            buckets[QUANTILES[name]] = [np.nan if row is None else row[at] / 1e9 for row in quantiles_]
    buckets["lost"] = np.bincount(bucket(lost[~np.isnan(lost)]), minlength=number)
    by_partition = {name: np.diff(own).tolist() for name, own in zip(streams, bounds, strict=True)}
    return Timeline(width=width, end=number * width, buckets=buckets, by_partition=by_partition)


def _errors(data: RunData) -> list[tuple[str, str, int]]:
    ordered = sorted(data.operations.errors.items(), key=lambda entry: (-entry[1], entry[0]))
    return [(error, outcome, count) for (error, outcome), count in ordered]


def _conditions(
    streams: Mapping[str, _Stream], seconds: _Seconds, faults: list[Fault], measured: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Rate and latency: the whole run, and, if there were faults, with and without one in force."""
    if not streams:
        return []
    calm, struck = measured["outside"], measured["in_force"]
    whole = {**measured, "seconds": calm["seconds"] + struck["seconds"]}
    cells = {"Whole run": whole, "No fault in force, recovery included": calm, "A fault in force": struck}
    rows: list[dict[str, Any]] = [
        {"name": name, "seconds": cell["seconds"], "ok": cell["acknowledged"], "cell": cell}
        for name, cell in cells.items()
    ][: 3 if faults else 1]
    for code, key in enumerate(OUTCOMES):
        if key == "ok":
            continue
        done = seconds.of(np.concatenate([stream.others[code] for stream in streams.values()]))
        in_force = np.zeros(len(done), dtype=bool)
        for fault in faults:
            in_force |= (done >= fault.start) & (done <= (np.inf if fault.end is None else fault.end))
        inside = int(np.count_nonzero(in_force))
        for row, count in zip(rows, (len(done), len(done) - inside, inside), strict=False):
            row[key] = count
    for row in rows:
        cell = row.pop("cell")
        row["rate"] = row["ok"] / cell["seconds"] if cell["seconds"] > 0 else None
        row |= quantiles(cell)
    return rows


def quantiles(cell: Mapping[str, Any]) -> dict[str, float | None]:
    """Those of QUANTILES in seconds, None where nothing was acknowledged."""
    latency = cell["latency_ms"]
    return {key: None if latency is None else latency[name] / 1e3 for name, key in QUANTILES.items()}


def _longest_gap(measured: Mapping[str, Any]) -> tuple[float, float] | None:
    if measured["acknowledged"] < 2:
        return None
    return measured["gaps"]["longest_ms"] / 1e3, measured["gaps"]["longest_at_s"]


def _partitions(
    data: RunData, streams: Mapping[str, _Stream], measured: Mapping[str, Any], lost: pd.DataFrame
) -> list[dict[str, Any]]:
    p99 = {entry["partition"]: quantiles(entry)["p99"] for entry in measured["partitions"]}
    read = dict(zip(partition_names(data.records_read), data.records_read["records"], strict=True))
    lost_there = lost["partition_name"].value_counts()
    replicas: dict[str, dict[str, dict[str, int]]] = {}
    for name, row in zip(partition_names(data.replicas), data.replicas.itertuples(), strict=True):
        replicas.setdefault(name, {})[str(row.node)] = {"records": int(row.records), "end": int(row.last) + 1}
    rows = []
    for name in sorted({*streams, *read, *replicas}, key=_natural):
        counts = streams[name].counts if name in streams else [0] * len(OUTCOMES)
        rows.append(
            {
                "name": name,
                **dict(zip(OUTCOMES, counts, strict=True)),
                "p99": p99.get(name),
                "read": int(read.get(name, 0)),
                "final_end": data.operations.ends.get(name),
                "lost": int(lost_there.get(name, 0)),
                "replicas": dict(sorted(replicas.get(name, {}).items(), key=lambda item: _natural(item[0]))),
            }
        )
    return rows


def _natural(name: str) -> tuple[str, int]:
    """broker-10 after broker-9."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, -1)


def operations_by_id(chosen: pd.DataFrame, faults: list[Fault], origin: int) -> Mapping[int, dict[str, Any]]:
    """Operations (OPERATIONS) as the violation tables show them; `fault` and `lead` as in `blame`, at completion."""
    seconds = _Seconds(origin)
    if chosen.empty:
        return {}
    frame = chosen.astype("object").where(chosen.notna(), None)
    frame["invoked"], frame["completed"] = seconds(chosen["invoke"]), seconds(chosen["complete"])
    rows: dict[int, dict[str, Any]] = {}
    for row in frame.to_dict("records"):
        row["completed"] = None if np.isnan(row["completed"]) else row["completed"]
        row["fault"], row["lead"] = blame(row["invoked"] if row["completed"] is None else row["completed"], faults)
        rows[int(row["op"])] = row
    return rows
