"""A run that goes on, as far as it is on record: where it stands, what clients did, which faults are in force."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.errors import describe
from harness.record import results
from harness.record.catalog.facts import mapping, number, text, whole
from harness.record.results import PENDING
from spark_history.regular import open_regular

_PART: Final = re.compile(rf"(operations|{PENDING})-(\d{{1,9}})\.parquet")
_MOST_RUNS: Final = 32  # whose counts are remembered
_MOST_SECONDS: Final = 7 * 24 * 3600


@dataclass(frozen=True)
class Standing:
    """phases: (name, seconds) of those that are over. worked_s: since clients began, None: not yet, or not known.
    counts: operations by (kind, outcome), of what is flushed. in_flight: appends sent and not yet answered.
    a_second: acknowledged appends in each second since clients began. faults: rows as of results.read_faults, those in
    force first. problems: of the harness, and of what could not be read; sentences."""

    status: str
    phase: str
    phases: Sequence[tuple[str, float]]
    worked_s: float | None
    time_limit_s: float | None
    counts: Mapping[tuple[str, str], int]
    in_flight: int
    a_second: Sequence[int]
    faults: Sequence[Mapping[str, Any]]
    problems: Sequence[str]

    @property
    def in_force(self) -> Sequence[Mapping[str, Any]]:
        return [fault for fault in self.faults if fault["end"] is None and "skipped" not in fault["evidence"]]


@dataclass
class _Counted:
    """What the flushed files of one journal hold. They never change."""

    parts: set[int] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: Counter[int] = field(default_factory=Counter)  # acknowledged appends, by second of the clock


class Live:
    """Remembers what it has counted: each look reads only what was flushed since the last. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: OrderedDict[Path, _Counted] = OrderedDict()

    def look(self, directory: Path) -> Standing:
        record, plan = (results.read_json(directory / name) for name in ("run.json", "plan.json"))
        told = record.get("problems")
        problems = [text(each) for each in told if isinstance(each, str)] if isinstance(told, list) else []
        start = whole(record.get("workload_start_ns"))
        with self._lock:
            counted, in_flight = self._count(directory, problems)
            counts, seconds = dict(counted.counts), dict(counted.seconds)
        first = start // 10**9 if start is not None else min(seconds, default=0)
        phase = text(record.get("phase"))
        simulated = plan.get("on") == "simulation"  # whose clock is not ours
        worked = _worked_s(start, number(plan.get("time_limit"))) if phase == "workload" and not simulated else None
        # Seconds in which nothing was acknowledged are there, too.
        took = None if simulated else number(mapping(record.get("phases")).get("workload"))
        so_far = took if worked is None else worked
        last = max((second - first for second in seconds), default=-1)
        span = min(max(last + 1, int(so_far) if so_far is not None and so_far > 0 else 0), _MOST_SECONDS)
        return Standing(
            status=text(record.get("status")),
            phase=phase,
            phases=[(text(name), each) for name, value in mapping(record.get("phases")).items()
                    if (each := number(value)) is not None],
            worked_s=worked,
            time_limit_s=number(plan.get("time_limit")),
            counts=counts,
            in_flight=in_flight,
            a_second=[seconds.get(first + number_, 0) for number_ in range(span)],
            faults=_faults(directory, start, problems),
            problems=problems,
        )  # fmt: skip

    def _count(self, directory: Path, problems: list[str]) -> tuple[_Counted, int]:
        counted = self._counted.setdefault(directory, _Counted())
        self._counted.move_to_end(directory)
        while len(self._counted) > _MOST_RUNS:
            self._counted.popitem(last=False)
        parts: dict[str, set[int]] = {"operations": set(), PENDING: set()}
        try:
            for path in (directory / "journal").iterdir():
                if found := _PART.fullmatch(path.name):
                    parts[found[1]].add(int(found[2]))
        except OSError:
            return counted, 0
        newest = max(parts[PENDING], default=-1)
        if counted.parts and max(counted.parts) > newest:  # another run is in its place
            counted = self._counted[directory] = _Counted()
        for number_ in sorted(part for part in parts["operations"] - counted.parts if part <= newest):
            try:
                _add(directory / "journal" / f"operations-{number_:06}.parquet", counted)
            except Exception as error:  # whatever Arrow makes of a damaged file
                problems.append(f"operations-{number_:06}.parquet of the journal cannot be read: {describe(error)}")
            counted.parts.add(number_)
        try:
            return counted, _rows(directory / "journal" / f"{PENDING}-{newest:06}.parquet") if newest >= 0 else 0
        except Exception:  # the next flush has taken its place
            return counted, 0


def _worked_s(start: int | None, time_limit: float | None) -> float | None:
    """None: the clock that it was started by is none of this machine."""
    if start is None:
        return None
    worked = (time.monotonic_ns() - start) / 1e9
    return worked if 0 <= worked < 60 + 2 * (time_limit or 0) else None


def _add(path: Path, counted: _Counted) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        table = pq.ParquetFile(pa.BufferReader(file.read())).read(["kind", "outcome", "complete"], use_threads=False)
    table = pa.table({name: column.cast(pa.int64() if name == "complete" else pa.string())
                      for name, column in zip(table.column_names, table.columns, strict=True)})  # fmt: skip
    grouped = table.group_by(["kind", "outcome"]).aggregate([([], "count_all")])
    for row in grouped.to_pylist():
        counted.counts[str(row["kind"]), str(row["outcome"])] += row["count_all"]
    done = table.filter(pc.and_(pc.equal(table["kind"], "append"), pc.equal(table["outcome"], "ok")))
    for each in pc.value_counts(pc.divide(done["complete"].drop_null(), 10**9)).to_pylist():
        counted.seconds[each["values"]] += each["counts"]


def _rows(path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        return int(pq.ParquetFile(pa.BufferReader(file.read())).metadata.num_rows)


def _faults(directory: Path, start: int | None, problems: list[str]) -> list[dict[str, Any]]:
    try:
        found = results.read_faults(directory, start)
    except Exception as error:  # evidence that is no JSON, columns that are not there
        problems.append(f"the faults of the journal cannot be read: {describe(error)}")
        return []
    return sorted(found, key=lambda fault: (fault["end"] is not None, -fault["start"]))
