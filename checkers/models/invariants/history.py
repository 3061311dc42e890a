"""The history of one object: its operations with their values, and what is told of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkers import witness
from checkers.anomalies import Anomalies, seconds
from checkers.models.bounds import Budget
from checkers.models.objects import freeze
from checkers.naming import short
from spark_history.errors import HistoryError

Row = Mapping[str, Any]  # of CALLS


def property_of(workload: str) -> str:
    return f"{workload} invariant"


def allowed_of(workload: str) -> str:
    """The property of what is reported, and never a reason to fail: see checkers.properties.WEAK."""
    return f"{workload}, allowed"


@dataclass(frozen=True)
class Told:
    """An anomaly: a sentence, which the operations that it is of are added to. count: of how many records or reads."""

    anomaly: str
    message: str
    rows: Sequence[Row]
    allowed: bool = False
    count: int = 1


@dataclass
class Found:
    """What a checker found of one object. counts: e.g. how many elements are stable; measured: values of which
    quantiles are told; doubt: why it is not decided, if it is not."""

    told: list[Told] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    measured: dict[str, list[float]] = field(default_factory=dict)
    doubt: str | None = None


#: Of values, for a unit of work.
_LETTERS = 16


@dataclass(frozen=True)
class History:
    """rows: of CALLS, in the order of their invocations."""

    workload: str
    key: str | None
    rows: Sequence[Row]
    plan: Mapping[str, Any]
    budget: Budget
    origin: int

    @property
    def called(self) -> str:
        return self.workload if self.key is None else f"{self.workload} {short(self.key)}"

    def of(self, *kinds: str) -> Iterator[Row]:
        """The operations of these kinds."""
        return (row for row in self.rows if row["kind"] in kinds)

    def only(self, *kinds: str) -> None:
        """Raises HistoryError if there is an operation of another kind."""
        for row in self.rows:
            if row["kind"] not in kinds:
                raise HistoryError(
                    f"operation {row['op']} is a {row['kind']!r}, which a {self.workload} does not have: it has "
                    f"{', '.join(kinds)}"
                )

    def ok(self, *kinds: str) -> list[Row]:
        """Those of these kinds that are ok, in the order of their completions."""
        found = [row for row in self.of(*kinds) if row["outcome"] == "ok"]
        return sorted(found, key=lambda row: (row["complete"], row["op"]))

    def value(self, row: Row, name: str) -> Any:
        """Its argument or result, as JSON decodes it. Raises HistoryError."""
        text = row[name]
        self.budget.spend(1 + len(text or "") // _LETTERS)
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            raise HistoryError(f"the {name} of operation {row['op']} is not JSON: {short(text)}") from None

    def frozen(self, row: Row, name: str) -> Any:
        """The same, hashable."""
        return freeze(self.value(row, name))

    def listed(self, row: Row) -> Sequence[Any]:
        """The result of an operation that lists what it found, each hashable; nil is nothing. Raises HistoryError."""
        found = self.value(row, "result")
        if not isinstance(found, list | None):
            raise self.must_be(row, "result", "a list")
        self.budget.hold(8 * len(found or ()))
        listed: Sequence[Any] = freeze(found or [])
        return listed

    def must_be(self, row: Row, name: str, what: str) -> HistoryError:
        return HistoryError(
            f"operation {row['op']}: the {name} of a {row['kind']} of a {self.workload} must be {what}, not "
            f"{short(str(row[name]))}"
        )

    def option(self, name: str, type_: type, what: str, default: Any) -> Any:
        """An entry of the plan. Raises HistoryError if it is of another type."""
        given = self.plan.get(name)
        if given is None:
            return default
        if type(given) is not type_:
            raise HistoryError(f"the plan's {name} must be {what}, not {short(json.dumps(given, default=str))}")
        return given

    # --- what is told ---------------------------------------------------------------------------------------------

    def add(self, anomalies: Anomalies, told: Told) -> None:
        property_ = allowed_of(self.workload) if told.allowed else property_of(self.workload)
        if not anomalies.wanted(property_, told.anomaly):
            anomalies.add_unlisted(property_, told.anomaly, 1, records=told.count)
            return
        rows = sorted({row["op"]: row for row in told.rows}.values(), key=lambda row: (row["invoke"], row["op"]))
        steps = [
            witness.Step(row["op"], row["process"], self._what(row), row["invoke"], row["complete"], row["outcome"])
            for row in rows
        ]
        listed = f": {witness.listing(rows, self._say)}" if rows else ""
        anomalies.add(
            property_,
            told.anomaly,
            f"{self.called}: {told.message}{listed}",
            ops=[row["op"] for row in rows],
            count=told.count,
            witness=witness.encode(steps),
        )

    def _what(self, row: Row) -> str:
        text = str(row["kind"])
        if row["argument"] not in (None, "null"):
            text += f" {short(row['argument'])}"
        if row["outcome"] == "ok" and row["result"] not in (None, row["argument"]):
            text += f" -> {short(row['result'])}"
        return text

    def _say(self, row: Row) -> str:
        end = "?" if row["complete"] is None else seconds(row["complete"], self.origin)
        return f"{self._what(row)} (operation {row['op']}, {seconds(row['invoke'], self.origin)} to {end})"


def shown(value: Any) -> str:
    """A frozen value as sentences have it."""
    return short(json.dumps(_thawed(value), ensure_ascii=False, default=str))


def _thawed(value: Any) -> Any:
    if isinstance(value, tuple):
        return value[1] if len(value) == 2 and value[0] == "bool" else [_thawed(each) for each in value]
    if isinstance(value, frozenset):
        return {key: _thawed(each) for key, each in value}
    return value


def few(values: Sequence[Any], most: int = 5) -> str:
    """Values as a sentence lists them."""
    listed = ", ".join(map(shown, values[:most]))
    return listed if len(values) <= most else f"{listed} and {len(values) - most:,} more"
