"""Is a history linearizable, by a model of the user's own? For checkers of the user's (checkers/verdict/own.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from checkers.anomalies import Anomalies
from checkers.models import OneObject, rows_of
from checkers.models.bounds import Bounds, Budget, judge_each
from checkers.models.calls import Call
from checkers.models.objects import MODELS, UNKNOWN, Model, freeze
from checkers.naming import short
from spark_history.errors import HistoryError


def judge_by(
    name: str, model: Model, calls: pa.Table, anomalies: Anomalies, origin: int, bounds: Bounds | None = None
) -> list[str]:
    """Adds an anomaly `not linearizable` of the property `NAME linearizability` for each object (key) whose operations
    cannot be put into one order that fits the model and real time (see the package, and search.py, which searches).

    calls: the table. The model's step() gets actions (kind, argument, result) with what the JSON decodes to, made
    hashable by freeze(); UNKNOWN is the result of what is `info`, and None that of what returned nothing. bounds: of
    each object. Returns why objects are undecided, a sentence each. Raises HistoryError.
    """
    if name in MODELS:
        raise ValueError(f"there is a model {name!r} already; call yours otherwise")
    within = bounds or Bounds()
    objects: dict[str | None, list[dict[str, Any]]] = {}
    for row in rows_of(calls):
        objects.setdefault(row["key"], []).append(row)

    def judge_one(key: str | None, within: Bounds) -> str | None:
        return _Own(name, model, key, objects[key], anomalies, origin).judge(within)

    return judge_each(list(objects), within, judge_one, lambda: bool(anomalies.tally))


class _Own(OneObject):
    def _calls(self, budget: Budget) -> tuple[list[Call], Model]:
        calls = []
        for number, row in enumerate(self.rows):
            if row["kind"] not in self.model.operations:
                there_are = ", ".join(sorted(self.model.operations))
                raise HistoryError(f"operation {row['op']} is a {row['kind']!r}; a {self.name} has {there_are}")
            if row["outcome"] == "fail":
                continue
            budget.spend()
            done = row["outcome"] == "ok"
            action = (row["kind"], _value(row, "argument"), _value(row, "result") if done else UNKNOWN)
            calls.append(Call(number, action, row["invoke"], row["complete"] if done else None))
        return calls, self.model

    def _directly(self, calls: Sequence[Call], model: Model, budget: Budget) -> None:
        return None

    def _what(self, row: Mapping[str, Any]) -> str:
        text = row["kind"] if row["argument"] is None else f"{row['kind']} {short(row['argument'])}"
        return text if row["result"] is None else f"{text} -> {short(row['result'])}"


def _value(row: Mapping[str, Any], name: str) -> Any:
    text = row[name]
    try:
        return None if text is None else freeze(json.loads(text))
    except (ValueError, RecursionError):
        raise HistoryError(f"the {name} of operation {row['op']} is not JSON: {short(text)}") from None
