"""Maps numbers back to the keys and values that they stand for, where a history's are not integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from spark_history.errors import HistoryError

#: Stands for nil in int64 columns of values.
NIL: Final = int(np.iinfo(np.int64).min)


_SHOWN: Final = 60


def short(text: str) -> str:
    """A value as it stands in a sentence: of at most _SHOWN characters and a sign that some are left out."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"


@dataclass(frozen=True)
class Naming:
    """How sentences call keys and values: by number, `names` and `key_names` of the plan."""

    values: Mapping[str, Any]
    keys: Mapping[str, Any]

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Self:
        """Raises HistoryError."""
        return cls(_mapping(plan, "names"), _mapping(plan, "key_names"))

    def value(self, value: int) -> str:
        return "nil" if value == NIL else short(str(self.values.get(str(value), value)))

    def key(self, key: int) -> str:
        return short(str(self.keys.get(str(key), key)))


def _mapping(plan: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    names = plan.get(name) or {}
    if isinstance(names, Mapping):
        return names
    if not isinstance(names, list | tuple):
        raise HistoryError(f"the plan's {name} must be a map of numbers to names, or a list of these, not {names!r}")
    return {str(number): each for number, each in enumerate(names)}
