"""What the runs of an exploration differ by, and what each value has gained: the more, the more often it is chosen.

A single run tells little, for what it reaches depends on its seed. But each tells of all its traits, so that after some
dozens it is known which settings, latencies and kinds of schedules reach what none before has.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from harness.plan import registry
from harness.plan.plan import Plan

#: The chance of a value is its gain to this power: of one that gains twice as much, 64 times the chance.
_POWER: Final = 6
#: Of the chance of one that gains what runs do on average, that of the poorest: it may be rich again later.
_LEAST: Final = 0.02
#: With each run, so much of what was known before is kept: what once gained much may have nothing new left. The average
#: of some fifty runs is known so well that it can be trusted much, that of twenty was not.
_KEPT: Final = 0.98
#: Of a plan, what a seed draws beside settings and schedule.
_DRAWN: Final = ("latency_ms", "task_order", "producers", "records_per_batch")

#: By name of a trait, its value.
Values = Mapping[Any, Any]


@dataclass
class _Value:
    gained: float = 0.0
    runs: float = 0.0

    @property
    def weight(self) -> float:
        """Of one that nothing is known of, 1, as of one that gains what runs do on average."""
        return float(max(((1 + self.gained) / (1 + self.runs)) ** _POWER, _LEAST))


class Traits:
    def __init__(self) -> None:
        self._known: dict[Hashable, dict[Any, _Value]] = {}

    def meet(self, values: Values) -> None:
        """They may be chosen from now on."""
        for name, value in values.items():
            self._known.setdefault(name, {}).setdefault(value, _Value())

    def learn(self, values: Values, gain: float) -> None:
        """gain: of a run that had these, in multiples of the average. Values that were not met are none of this
        exploration's: the run is of an earlier one."""
        for name, value in values.items():
            if (known := self._known.get(name, {}).get(value)) is None:
                continue
            known.gained = _KEPT * known.gained + gain
            known.runs = _KEPT * known.runs + 1

    def choose(self, name: Hashable, random: Random) -> Any:
        """Of the values that were met."""
        known = self._known[name]
        return random.choices(tuple(known), [each.weight for each in known.values()])[0]


def of_plan(plan: Plan) -> Values:
    """Settings that are drawn together are one trait, by their names; its value is what a plan has of them."""
    settings = {
        names: tuple((name, plan.settings[name]) for name in names if name in plan.settings)
        for names in _drawn_together(plan.target)
    }
    return {**{name: getattr(plan, name) for name in _DRAWN}, **settings}


def with_values(plan: Plan, values: Values) -> Plan:
    """values: as of of_plan()."""
    settings = dict(plan.settings)
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(name, tuple):
            settings = {each: settings[each] for each in settings if each not in name} | dict(value)
        elif name in _DRAWN:
            changes[str(name)] = value
    return plan.model_copy(update={**changes, "settings": settings})


def _drawn_together(target: str) -> Iterable[tuple[str, ...]]:
    draws = registry.make_target(target).draws()
    for choices in (*draws.together, *draws.apart):
        yield tuple(sorted({name for choice in choices for name in choice}))
