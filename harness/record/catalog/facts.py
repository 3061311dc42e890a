"""What an index keeps of a run: read from the small files of its directory, whatever has become of them.

Nothing here raises for what lies in a run's directory. What is missing or damaged is left out, and said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from harness.record.catalog.notes import read_note
from spark_history.regular import read_object

Kind = Literal["run", "exploration", "systematic exploration", "suite", "matrix"]
#: Is the harness that run.json names still at work?
Alive = Callable[[Mapping[str, Any]], bool]

RUNNING: Final = "running"
NOT_JUDGED: Final = "not judged"
JUDGED: Final = ("pass", "fail", "unknown")
VERDICTS: Final = (*JUDGED, RUNNING, NOT_JUDGED)
REPORT: Final = "report.html"
_STAMP: Final = re.compile(r"(\d{8}T\d{6})(?:-|$)")
#: SQLite's integers, and a plan's seeds.
_MOST: Final = 2**63 - 1


@dataclass(frozen=True)
class Facts:
    """One entry of a results directory.

    path: below the results directory, with slashes. parent: the path of the exploration, suite or matrix that it
    belongs to; "": none. verdict: one of VERDICTS. runs_on: Plan.on. settings: what was given by --set
    and --feature. started_at: seconds since 1970, of the directory where nothing else is known. throughput:
    acknowledged records a second of the time that clients worked. recovery_ms: from the heal of a fault until all
    partitions were served as before, the longest. unavailable_ms: the longest time for which a partition, or all,
    acknowledged nothing. None: not known. suite, plan_name: the suite that it belongs to, and its name there, which
    stays from one time to the next. live: whether its verdict may change by itself.
    """

    path: str
    kind: Kind = "run"
    parent: str = ""
    verdict: str = NOT_JUDGED
    reason: str = ""
    nemeses: tuple[str, ...] = ()
    workload: str = ""
    target: str = ""
    runs_on: str = ""
    seed: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    started_at: float = 0.0
    duration_s: float | None = None
    operations: int | None = None
    acknowledged: int | None = None
    lost: int | None = None
    throughput: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    recovery_ms: float | None = None
    unavailable_ms: float | None = None
    suite: str = ""
    plan_name: str = ""
    note: str = ""
    command: str = ""
    report: str = ""
    live: bool = False

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def of_run(
    directory: Path, path: str, alive: Alive, *, parent: str = "", suite: str = "", plan_name: str = ""
) -> Facts:
    """directory: of a run, or of what is left of one. path: as Facts has it."""
    damaged: list[str] = []
    plan, record, verdict = (_read(directory / f"{name}.json", damaged) for name in ("plan", "run", "verdict"))
    availability = mapping(verdict.get("availability"))
    latency = mapping(availability.get("latency_ms"))
    counts = mapping(verdict.get("operations"))
    acknowledged = whole(counts.get("acknowledged", availability.get("acknowledged")))
    word, reason, live = _state(record, verdict, alive)
    seconds = [number(mapping(availability.get(part)).get("seconds")) for part in ("outside", "in_force")]
    worked_s = sum(each for each in seconds if each is not None)
    if damaged:
        reason = "; ".join(filter(None, [reason, *damaged]))
    return Facts(
        path=path,
        parent=parent,
        verdict=word,
        reason=reason,
        nemeses=_names(plan.get("nemesis")),
        workload=text(plan.get("workload") or verdict.get("workload")),
        target=text(plan.get("target") or ("kraft" if "nemesis" in plan else "")),
        runs_on=text(plan.get("on")),
        seed=whole(plan.get("seed")),
        settings={str(name): text(value) for part in ("settings", "features")
                  for name, value in mapping(plan.get(part)).items()},
        started_at=started_at(record, directory),
        duration_s=_duration(record),
        operations=_operations(counts),
        acknowledged=acknowledged,
        lost=whole(verdict.get("lost")),
        throughput=acknowledged / worked_s if acknowledged is not None and worked_s > 0 else None,
        p50_ms=number(latency.get("p50")),
        p99_ms=number(latency.get("p99")),
        recovery_ms=_recovery_ms(availability),
        unavailable_ms=_unavailable_ms(availability),
        suite=suite,
        plan_name=plan_name,
        note=read_note(directory),
        command=text(record.get("command")),
        report=REPORT if (directory / REPORT).is_file() else "",
        live=live,
    )  # fmt: skip


def started_at(record: Mapping[str, Any], directory: Path) -> float:
    """By what is on record, else by the directory's name, else by its age. Seconds since 1970."""
    if (moment := instant(record.get("started_at"))) is not None:
        return moment
    if found := _STAMP.match(directory.name):
        try:
            return datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()
        except ValueError:
            pass
    try:
        return directory.stat().st_mtime
    except OSError:
        return 0.0


def instant(value: Any) -> float | None:
    """A moment in ISO 8601, in seconds since 1970; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def number(value: Any) -> float | None:
    """None also for what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) < float("inf") else None


def whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and -_MOST <= value <= _MOST else None


def text(value: Any) -> str:
    """Of halves of what UTF-8 has no half of, and of what is no text, something that can be kept."""
    given = "" if value is None else value if isinstance(value, str) else str(value)
    return given.encode("utf-8", "backslashreplace").decode()


def read(path: Path) -> tuple[dict[str, Any], str]:
    """The object of a JSON file, and why there is none, a clause; "": it is there, or no such file is."""
    try:
        return read_object(path), ""
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, error.strerror or str(error)
    except ValueError as error:
        return {}, str(error)


def _read(path: Path, damaged: list[str]) -> Mapping[str, Any]:
    found, why = read(path)
    if why:
        damaged.append(f"{path.name} is damaged: {why}")
    return found


def _state(record: Mapping[str, Any], verdict: Mapping[str, Any], alive: Alive) -> tuple[str, str, bool]:
    """(verdict, reason, whether it goes on)"""
    word, status = verdict.get("verdict"), record.get("status")
    if status == RUNNING and alive(record):
        phase = text(record.get("phase"))
        return RUNNING, f"in the phase {phase}" if phase else "it has just begun", True
    if word in JUDGED:
        return str(word), text(verdict.get("reason")), False
    if status == RUNNING:
        return NOT_JUDGED, "its harness was killed; chaos check judges what was recorded until then", False
    problems = record.get("problems")
    first = text(problems[0]) if isinstance(problems, list) and problems else ""
    if status == "failed":
        return NOT_JUDGED, first or "the harness failed", False
    return NOT_JUDGED, first or "there is no verdict", False


def _names(value: Any) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return tuple(dict.fromkeys(text(each) for each in given))


def _operations(counts: Mapping[str, Any]) -> int | None:
    """Of the counts `<kind> <outcome>`; the others count something else."""
    found = [whole(count) for name, count in counts.items() if str(name).rpartition(" ")[2] in ("ok", "fail", "info")]
    return sum(each for each in found if each is not None) if found else None


def _duration(record: Mapping[str, Any]) -> float | None:
    begun, ended = instant(record.get("started_at")), instant(record.get("finished_at"))
    return max(ended - begun, 0.0) if begun is not None and ended is not None else None


def windows(availability: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One a fault; see checkers/log/availability.py."""
    lists = (availability.get(name) for name in ("windows", "further_windows"))
    return [each for found in lists if isinstance(found, list) for each in found if isinstance(each, Mapping)]


def _recovery_ms(availability: Mapping[str, Any]) -> float | None:
    values = [number(mapping(each.get("recovery")).get("sustained_from_heal_ms")) for each in windows(availability)]
    return max((each for each in values if each is not None), default=None)


def _unavailable_ms(availability: Mapping[str, Any]) -> float | None:
    gaps = [number(each.get("longest_gap_ms")) for each in windows(availability)]
    gaps.append(number(mapping(availability.get("gaps")).get("longest_ms")))
    return max((each for each in gaps if each is not None), default=None)
