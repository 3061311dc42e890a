"""Conditions on which a run is ended before its time, such as `unavailable > 60s`: looked at while it goes on, so that
whoever owns the machines knows how much harm a run can do to them.

| metric | in | what is held against the bound |
| --- | --- | --- |
| unavailable | time | for how long a partition, the longest of all, has acknowledged nothing while clients try |
| errors | % | the share of the appends of the last 10 s that failed, or of which nobody knows what became |
| under-replicated | time | for how long a partition, the longest of all, has had a replica out of its ISR |

Partitions are those of the run's topic. A condition is `METRIC > BOUND`, or with >=. Times are of the run's clock:
virtual in simulation.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.plan.durations import seconds

UNAVAILABLE: Final = "unavailable"
ERRORS: Final = "errors"
UNDER_REPLICATED: Final = "under-replicated"
#: Seconds over which errors are counted.
WINDOW_S: Final = 10.0
_METRICS: Final = (UNAVAILABLE, ERRORS, UNDER_REPLICATED)
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {">": operator.gt, ">=": operator.ge}
_FORM: Final = re.compile(
    r"\s*(?P<metric>[a-z-]+)\s*(?P<operator>>=?)\s*(?P<bound>\d+(\.\d+)?)\s*(?P<unit>%|[a-z]*)\s*"
)
_EXAMPLES: Final = "unavailable > 60s, errors > 50%, under-replicated > 2m"


@dataclass(frozen=True)
class Condition:
    """bound: seconds, or of errors a share in percent."""

    text: str
    metric: str
    operator: str
    bound: float

    def holds(self, value: float) -> bool:
        return _OPERATORS[self.operator](value, self.bound)


def parse(text: str) -> Condition:
    """Raises ValueError, a sentence."""
    match = _FORM.fullmatch(text)
    if match is None or match["metric"] not in _METRICS:
        raise ValueError(f"{text!r} is no condition; there are {', '.join(_METRICS)}, for example {_EXAMPLES}")
    metric, given = match["metric"], f"{match['bound']}{match['unit']}"
    words = f"{metric} {match['operator']} {given}"
    if metric == ERRORS:
        bound = float(match["bound"])
        if match["unit"] != "%" or not 0 <= bound <= 100:
            raise ValueError(f"{words!r} must name a share of at most 100%, for example errors > 50%")
        return Condition(words, metric, match["operator"], bound)
    try:
        if not match["unit"]:
            raise ValueError
        return Condition(words, metric, match["operator"], seconds(given))
    except ValueError:
        raise ValueError(f"{words!r} must name a time with its unit, ms, s, m or h, for example 60s") from None
