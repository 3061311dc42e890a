"""Checkers of the user's own: found by the entry points `chaos.checkers`, asked of each run to which they apply.

A checker judges what no other looks at, most often the operations of a workload of the user's own (the table `calls`).
What it finds is an anomaly as all others are: in the verdict, in the report, in what is printed. docs/example-workload/
has one.

A plan names the checkers that applied when the run was made (`checkers` of plan.json), so that a run is never passed
where they are not installed. One that is not there, raises, or returns what makes no sense leaves the run `unknown`,
with the reason; what others find stands.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, Protocol

from checkers import properties as ours

if TYPE_CHECKING:
    import pyarrow as pa

    from checkers.anomalies import Anomalies

GROUP: Final = "chaos.checkers"
#: Tables that a checker may ask for: those of which a history in memory and one that is laid out hold the same.
TABLES: Final = (
    "calls", "operations", "group_events", "transactions", "micro_operations", "stable_offsets", "trace",
    "metadata_log", "disk_state", "collected",
)  # fmt: skip


@dataclass(frozen=True)
class Given:
    """What a checker is given. Times are monotonic ns.

    plan: plan.json. faults: rows of FAULTS, `evidence` parsed. origin: the first invocation of an operation of a log;
    until: the last thing on record of these. recovered: the run came to its end, all faults healed: else what should
    have happened by then may be missing. tables: those that the checker asked for, by the names of
    spark_history.schema.TABLES, whose columns that module describes; of `operations` and `calls` in the order of
    invocation.
    """

    run: str
    plan: Mapping[str, Any]
    faults: Sequence[Mapping[str, Any]]
    origin: int
    until: int
    recovered: bool
    tables: Mapping[str, pa.Table]

    def anomalies(self, topic: str | None = None, partition: int | None = None) -> Anomalies:
        """For what will be found in a log, or in none in particular."""
        from checkers.anomalies import Anomalies

        return Anomalies(self.run, topic, partition)


@dataclass
class Section:
    """A section of the report: sentences, and then a table with these columns."""

    text: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()


@dataclass
class Findings:
    """What a checker found. undecided: why something was not decided, a sentence each: then the run is not passed.
    facts: for verdict.json, whatever JSON can hold."""

    anomalies: Sequence[Anomalies] = ()
    undecided: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    section: Section | None = None


class Checker(Protocol):
    """Made without arguments. What it says must depend on nothing but what it is given."""

    #: What it judges: names of its own, each with what it means, in a sentence.
    properties: Mapping[str, str]
    #: Of TABLES, which it needs.
    tables: Sequence[str]

    def applies(self, plan: Mapping[str, Any]) -> bool:
        """plan: plan.json, e.g. with `workload` and `workload_settings`. Asked of every run there is."""
        ...

    def check(self, given: Given) -> Findings:
        """May raise anything, such as spark_history.errors.HistoryError: the run is `unknown` then."""
        ...


@dataclass
class Own:
    """What all of them found. checked: names of properties; told: by checker, for verdict.json."""

    anomalies: list[Anomalies] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)


def installed() -> Mapping[str, EntryPoint]:
    return _looked_up(entry_points, tuple(sys.path))


@cache
def _looked_up(look: Callable[..., Iterable[EntryPoint]], path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """path: where packages are. Once for each: it reads the metadata of all installed packages."""
    return {entry.name: entry for entry in look(group=GROUP)}


def applicable(plan: Mapping[str, Any]) -> list[str]:
    """The checkers that apply to a run of this plan, or fail when they are asked."""
    return sorted(name for name in installed() if _applies(name, plan))


def _applies(name: str, plan: Mapping[str, Any]) -> bool:
    try:
        return bool(_make(name).applies(plan))
    except Exception:  # check() says why
        return True


def _make(name: str) -> Checker:
    checker: Checker = installed()[name].load()()
    return checker


def look(
    plan: Mapping[str, Any],
    missing: Set[str],
    faults: Sequence[Mapping[str, Any]],
    span: tuple[int, int],
    load: Callable[[str], pa.Table],
    *,
    run: str,
    recovered: bool,
) -> Own | None:
    """What the checkers that apply to a run, or that its plan names, find. None: there is no such checker.

    plan: {}: it is not known. missing: tables parts of which are. span: the origin, and the last thing on record. load:
    from the name of a table to its rows, all of them.
    """
    planned = plan.get("checkers")
    named = [name for name in planned if isinstance(name, str)] if isinstance(planned, list) else []
    own = Own()
    for name in sorted({*named, *(applicable(plan) if plan else ())}):
        if name not in installed():
            own.undecided.append(f"checker {name} is not installed here, so what it judges is not known")
            continue
        tables: dict[str, pa.Table] = {}

        def given(wanted: Sequence[str], tables: dict[str, pa.Table] = tables) -> Given:
            tables |= {each: load(each) for each in wanted}
            return Given(run, plan, faults, *span, recovered, tables)

        try:
            _ask(name, plan, missing, given, own)
        except Exception as error:  # a user's own may fail in any way
            own.undecided.append(f"checker {name} failed: {_said(error)}")
    return own if own.told or own.undecided else None


def _ask(
    name: str, plan: Mapping[str, Any], missing: Set[str], given: Callable[[Sequence[str]], Given], own: Own
) -> None:
    """Raises whatever the checker does, and ValueError for what makes no sense."""
    checker = _make(name)
    checker.applies(plan)  # where that raises, the reason is told
    properties, wanted = dict(checker.properties), list(checker.tables)
    if wrong := _wrong(properties, wanted, own):
        raise ValueError(wrong)
    if lacking := sorted(missing & set(wanted)):
        own.undecided.append(f"checker {name} was not asked, as not all of {' and '.join(lacking)} is on record")
        return
    findings = checker.check(given(wanted))
    found = list(findings.anomalies)
    for property_, anomaly, *_ in (entry for anomalies in found for entry in anomalies.tally):
        if property_ not in properties:
            raise ValueError(f"it reports {anomaly!r} of {property_!r}, which is none of its properties")
    undecided = [str(each) for each in findings.undecided]
    told = {
        "package": _package(name), "properties": properties, "undecided": undecided,
        "facts": dict(findings.facts), "section": _told(findings.section),
    }  # fmt: skip
    own.told[name] = json.loads(json.dumps(told, allow_nan=False))
    own.anomalies += found
    own.checked += properties
    own.undecided += undecided


def _wrong(properties: Mapping[Any, Any], tables: Sequence[Any], own: Own) -> str:
    for name, meaning in properties.items():
        if not (isinstance(name, str) and name.strip() and isinstance(meaning, str) and meaning.strip()):
            return f"its properties are to be names with a sentence each, and there is {name!r}: {meaning!r}"
        if name in _OURS or name in own.checked:
            return f"its property {name!r} is that of another checker"
    if not properties:
        return "it has no property"
    if unknown := [each for each in tables if each not in TABLES]:
        return f"it asks for the table {unknown[0]!r}; there are {', '.join(TABLES)}"
    return ""


def _all_of(names: Iterable[Any]) -> Iterable[str]:
    for each in names:
        yield from (each,) if isinstance(each, str) else each


#: All names that checkers.properties has.
_OURS: Final = frozenset(_all_of(value for name, value in vars(ours).items() if name.isupper()))


def _told(section: Section | None) -> dict[str, Any] | None:
    """As JSON. Raises ValueError."""
    if section is None:
        return None
    columns, rows = [str(each) for each in section.columns], [list(row) for row in section.rows]
    if any(len(row) != len(columns) for row in rows):
        raise ValueError(f"a row of its section has not as many entries as there are columns ({len(columns)})")
    return {
        "text": [str(each) for each in section.text], "columns": columns,
        "rows": [[each if type(each) in (int, str) else str(each) for each in row] for row in rows[:MOST_ROWS]],
        "unlisted": max(len(rows) - MOST_ROWS, 0),
    }  # fmt: skip


#: Of a section, in verdict.json and on the page.
MOST_ROWS: Final = 200


def _package(name: str) -> str:
    """Which one it is of, with its version; "": it does not say."""
    of = installed()[name].dist
    return "" if of is None else f"{of.name} {of.version}"


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return text if kind in ("HistoryError", "ValueError") and text else f"{kind}: {text}".rstrip(": ")


def definitions() -> dict[str, str]:
    """By property, what it means, of all checkers that are installed and can be loaded."""
    found: dict[str, str] = {}
    for name in installed():
        try:
            found |= {str(key): str(value) for key, value in dict(_make(name).properties).items()}
        except Exception:  # where it is asked, that is told
            continue
    return found
