"""What the report shows, computed from the tables of a run. Times come in as monotonic nanoseconds and leave as
seconds since the first operation was invoked.

An append counts where it completed, and one that never completed where it was invoked. Latency, gaps and recovery are
those of checkers/availability.py, which says what they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from checkers import availability
from checkers.streams import PERCENTILES, Windows, of_times, percentiles
from harness.report.data import RunData
from spark_history.log import NEVER

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int8]  # positions in OUTCOMES
Strings = NDArray[np.object_]

NICE_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
MOST_BUCKETS = 160
OUTCOMES = ("ok", "fail", "info")
#: Columns here, by the names of checkers.streams.PERCENTILES.
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
    availability: dict[str, Any]  # see checkers.availability.summarise
    lost: pd.DataFrame  # LOST with second (acknowledged, else first read), partition_name, fault and lead (see blame)


def summarise(data: RunData) -> Summary:
    appends = data.operations[data.operations["kind"] == "append"]
    origin = _origin(data)
    seconds = _Seconds(origin or 0)
    done = seconds(appends["complete"].fillna(appends["invoke"]))
    complete = appends["complete"].to_numpy("int64", na_value=NEVER)
    invoke = appends["invoke"].to_numpy("int64", na_value=0)
    outcome = pd.Categorical(appends["outcome"], categories=OUTCOMES).codes
    names = partition_names(appends)
    measured = _measure(data.faults, names, invoke, complete, (outcome == 0) & (complete != NEVER), origin or 0)

    lost = data.lost.sort_values(["topic", "partition", "offset"], ignore_index=True)
    lost = lost.assign(second=seconds(lost["complete"].fillna(lost["observed"])), partition_name=partition_names(lost))
    planned = _faults(data.faults, seconds)
    struck = [fault for fault in planned if not fault.skipped]
    faults = [_with_effects(fault, measured) for fault in struck]
    duration = float(done.max()) if len(done) else 0.0
    blamed = [blame(second, faults) for second in lost["second"]]
    lost["fault"], lost["lead"] = [name for name, _ in blamed], [lead for _, lead in blamed]
    return Summary(
        origin=origin,
        duration=duration,
        faults=faults,
        skipped=[fault for fault in planned if fault.skipped],
        timeline=_timeline(done, complete - invoke, outcome, lost["second"].to_numpy(), faults) if len(done) else None,
        counts=_counts(outcome),
        kinds={str(kind): int(count) for kind, count in data.operations["kind"].value_counts().items() if count},
        errors=_errors(appends),
        conditions=_conditions(done, outcome, faults, measured),
        partitions=_partitions(data, names, outcome, measured, lost),
        longest_gap=_longest_gap(measured),
        availability=measured,
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


def _measure(
    faults: pd.DataFrame, names: Strings, invoke: Ints, complete: Ints, ok: NDArray[np.bool_], origin: int
) -> dict[str, Any]:
    """Of the appends, whose columns these are."""
    known = faults.dropna(subset=["start", "fault"])
    windows = Windows.of(
        {
            "fault": int(row.fault), "nemesis": str(row.nemesis), "start": int(row.start),
            "targets": [] if row.targets is None else [str(target) for target in row.targets],
            "end": None if pd.isna(row.end) else int(row.end),
            "effective": row.effective is not None and bool(row.effective), "evidence": _evidence(row.evidence),
        }
        for row in known.itertuples()
    )  # fmt: skip
    parts = []
    codes, labels = pd.factorize(names)
    for code, name in enumerate(labels):
        mine = codes == code
        invoked, answered = invoke[mine], ok[mine]
        part = of_times(
            str(name), invoked[answered], complete[mine][answered], windows,
            first=int(invoked.min()), last=int(invoked.max()),
        )  # fmt: skip
        parts.append(part)
    return availability.summarise(parts, windows, origin)


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


def _timeline(done: Floats, latency: Ints, outcome: Codes, lost: Floats, faults: list[Fault]) -> Timeline:
    """latency: ns."""
    end = max([float(done.max()), *(fault.end or fault.start for fault in faults), 0.001])
    width = next((nice for nice in NICE_BUCKETS_S if end / nice <= MOST_BUCKETS), end / MOST_BUCKETS)
    number = int(end // width) + 1
    index = np.clip((done // width).astype("int64"), 0, number - 1)
    buckets = pd.DataFrame({"start": np.arange(number) * width})
    for code, name in enumerate(OUTCOMES):
        buckets[name] = np.bincount(index[outcome == code], minlength=number)
    answered = np.flatnonzero(outcome == 0)
    answered = answered[np.argsort(index[answered], kind="stable")]
    bounds = np.searchsorted(index[answered], np.arange(number + 1))
    found = [percentiles(latency[answered[low:high]]) for low, high in pairwise(bounds.tolist())]
    for at, name in enumerate(PERCENTILES):
        if name in QUANTILES:
            buckets[QUANTILES[name]] = [np.nan if row is None else row[at] / 1e9 for row in found]
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


def _conditions(done: Floats, outcome: Codes, faults: list[Fault], measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rate and latency: the whole run, and, if there were faults, with and without one in force."""
    if not len(done):
        return []
    in_force = np.zeros(len(done), dtype=bool)
    for fault in faults:
        in_force |= (done >= fault.start) & (done <= (np.inf if fault.end is None else fault.end))
    calm, struck = measured["outside"], measured["in_force"]
    whole = {**measured, "seconds": calm["seconds"] + struck["seconds"]}
    parts = [("Whole run", np.ones(len(done), dtype=bool), whole)]
    if faults:
        parts += [("No fault in force", ~in_force, calm), ("A fault in force", in_force, struck)]
    rows = []
    for name, chosen, cell in parts:
        row: dict[str, Any] = {"name": name, "seconds": cell["seconds"], "ok": cell["acknowledged"]}
        row |= {key: int((outcome[chosen] == code).sum()) for code, key in enumerate(OUTCOMES) if key != "ok"}
        row["rate"] = row["ok"] / cell["seconds"] if cell["seconds"] > 0 else None
        rows.append(row | quantiles(cell))
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
    data: RunData, names: Strings, outcome: Codes, measured: Mapping[str, Any], lost: pd.DataFrame
) -> list[dict[str, Any]]:
    frame = pd.DataFrame({"name": names, "outcome": outcome})
    appends = frame.groupby(["name", "outcome"]).size().unstack(fill_value=0)
    p99 = {entry["partition"]: quantiles(entry)["p99"] for entry in measured["partitions"]}
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
                "p99": p99.get(name),
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
