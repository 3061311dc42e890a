"""Two runs side by side: plan, settings, verdict, counts, availability, faults; and what of it differs.

`chaos diff` and the page both show this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from harness.record.catalog.facts import Facts, mapping, number, windows
from harness.record.results import read_json

#: Fields of a plan that name the run, follow from the rest, or have a section of their own.
_NOT_OF_THE_PLAN: Final = frozenset({"run", "promise", "inside", "log", "settings", "features"})
_DIRECTIONS: Final = {"ok": "ok", "fail": "failed", "info": "indeterminate"}


@dataclass(frozen=True)
class Row:
    """a, b: as JSON has them; None: it is not on record. change: in words, where both are numbers that differ."""

    name: str
    a: Any
    b: Any
    change: str = ""

    @property
    def differs(self) -> bool:
        return bool(self.a != self.b)


@dataclass(frozen=True)
class Section:
    name: str
    rows: Sequence[Row]

    @property
    def differing(self) -> int:
        return sum(row.differs for row in self.rows)


@dataclass(frozen=True)
class Comparison:
    """a, b: the names of the runs."""

    a: str
    b: str
    sections: Sequence[Section]

    @property
    def differing(self) -> int:
        return sum(section.differing for section in self.sections)

    def as_dict(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "b": self.b,
            "differing": self.differing,
            "sections": [
                {"name": section.name, "rows": [asdict(row) | {"differs": row.differs} for row in section.rows]}
                for section in self.sections
            ],
        }


@dataclass(frozen=True)
class _Side:
    facts: Facts
    plan: Mapping[str, Any]
    verdict: Mapping[str, Any]


def compare(directories: tuple[Path, Path], facts: tuple[Facts, Facts]) -> Comparison:
    """Whatever is missing or damaged is a row without a value. facts: of the same runs."""
    a, b = (
        _Side(of, read_json(directory / "plan.json"), read_json(directory / "verdict.json"))
        for directory, of in zip(directories, facts, strict=True)
    )
    sections = [
        Section("verdict", _rows(_verdict(a), _verdict(b))),
        Section("plan", _rows(_plan(a), _plan(b), measured=False)),
        Section("settings", _rows(a.facts.settings, b.facts.settings, measured=False)),
        Section("operations", _rows(_operations(a), _operations(b))),
        Section("availability", _rows(_availability(a), _availability(b))),
        Section("faults", _rows(_faults(a), _faults(b))),
        Section("violations", _rows(_violations(a), _violations(b))),
    ]
    return Comparison(a.facts.path, b.facts.path, [section for section in sections if section.rows])


def shown(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={shown(each)}" for name, each in value.items()) or "none"
    return str(value)


def _rows(a: Mapping[str, Any], b: Mapping[str, Any], *, measured: bool = True) -> list[Row]:
    """measured: whether it says something by how much a number differs."""
    names = [*a, *(name for name in b if name not in a)]
    return [
        Row(name, a.get(name), b.get(name), _change(a.get(name), b.get(name)) if measured else "") for name in names
    ]


def _change(a: Any, b: Any) -> str:
    first, second = number(a), number(b)
    if first is None or second is None or first == second:
        return ""
    if first <= 0 or second <= 0:
        return f"{second - first:+,.6g}"
    factor = second / first
    return f"×{factor:,.3g}" if factor >= 2 or factor <= 0.5 else f"{factor - 1:+.1%}"


def _verdict(side: _Side) -> dict[str, Any]:
    contract = mapping(side.verdict.get("contract"))
    return {
        "verdict": side.facts.verdict,
        "reason": side.facts.reason,
        "acknowledged records lost": side.facts.lost,
        "faults stayed within the contract": contract.get("within"),
        "evidence complete": side.verdict.get("complete"),
        "checkers": mapping(side.verdict.get("checkers")).get("source"),
    }


def _plan(side: _Side) -> dict[str, Any]:
    return {name.replace("_", " "): value for name, value in side.plan.items() if name not in _NOT_OF_THE_PLAN}


def _operations(side: _Side) -> dict[str, Any]:
    counts = mapping(side.verdict.get("operations"))
    return {_count_name(str(name)): count for name, count in counts.items()}


def _count_name(name: str) -> str:
    kind, _, outcome = name.rpartition(" ")
    return f"{kind.replace('_', ' ')} {_DIRECTIONS[outcome]}" if kind and outcome in _DIRECTIONS else name


def _availability(side: _Side) -> dict[str, Any]:
    found = mapping(side.verdict.get("availability"))
    if not found:
        return {}
    latency = mapping(found.get("latency_ms"))
    known = {
        "acknowledged a second": _rounded(side.facts.throughput),
        **{
            f"latency {name}, ms": _rounded(number(latency.get(name))) for name in ("p50", "p90", "p99", "p99.9", "max")
        },
        "longest time without any acknowledgement, ms": _rounded(number(mapping(found.get("gaps")).get("longest_ms"))),
        "longest time a partition acknowledged nothing, ms": _rounded(side.facts.unavailable_ms),
        "slowest recovery after a heal, ms": _rounded(side.facts.recovery_ms),
        "faults not recovered from before the end": _unrecovered(found) if windows(found) else None,
    }
    return known


def _unrecovered(availability: Mapping[str, Any]) -> int:
    return sum(
        mapping(each.get("recovery")).get("sustained_from_heal_ms") is None
        for each in windows(availability)
        if each.get("until_s") is not None
    )


def _faults(side: _Side) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for nemesis, counts in mapping(side.verdict.get("faults")).items():
        for what, count in mapping(counts).items():
            found[f"{nemesis}: {str(what).replace('_', ' ')}"] = count
    return found


def _violations(side: _Side) -> dict[str, Any]:
    """Those that were found in one of the two, weak ones too."""
    return {
        f"{property_}: {anomaly}": count
        for property_, each in mapping(side.verdict.get("anomalies")).items()
        for anomaly, count in mapping(mapping(each).get("anomalies")).items()
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def lines(found: Comparison, *, everything: bool) -> Iterable[tuple[str, str, str, str]]:
    """(name, a, b, change) for a table; the name of a section stands alone. everything: also what is the same."""
    for section in found.sections:
        rows = [row for row in section.rows if everything or row.differs]
        if rows:
            yield section.name, "", "", ""
        for row in rows:
            yield f"  {row.name}", shown(row.a), shown(row.b), row.change
