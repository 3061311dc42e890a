"""A run made of others: its schedule theirs, changed, joined or spliced, its settings mixed, what else is drawn new.

What was measured (docs/simulation.md) says why a run seldom keeps its parent's seed: all that comes before the first
change would only come again. What is left of a parent is what made its run rich: how many faults, how long, how close
together, and under which settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from harness.explore.guided.traits import Traits, of_plan, with_values
from harness.explore.workers import Job
from harness.plan import registry
from harness.plan.plan import Plan
from harness.plan.schedule import CALM_AT_END_S, Fault, Schedule

#: Of a schedule that is made of others: so many times the faults that a fresh one has.
_MOST_FAULTS: Final = 6
#: Of runs, those that keep the seed, and so repeat the parent's up to the first change.
_KEEP_SEED: Final = 0.03
#: Of schedules that are joined, fresh ones.
_OWN: Final = 0.5
#: Traits of a schedule that is made of others, and their values: of how many it is made, how much shorter or longer all
#: faults are, and whether they strike when they did. The first of each is what a fresh one has.
SCHEDULES: Final[Mapping[str, Sequence[Any]]] = {
    "joined": (1, 2, 3, 4), "pace": (1.0, 0.1, 0.3, 0.6, 2.0), "times": ("kept", "drawn"),
}  # fmt: skip
#: Seconds, of moves in time: a moment may decide, or the order of two faults.
_MOVES_S: Final = (0.02, 0.1, 0.5, 2.0, 8.0)
_STRETCHES: Final = (0.1, 0.3, 0.6, 1.5, 3.0)
_SHORTEST_S: Final = 0.1
#: Seconds before the first fault of a schedule whose times are drawn.
_FIRST_S: Final = 0.2
#: Of the changes of a schedule some of whose faults have steps, those of a step.
_INSIDE: Final = 0.4


def of_schedules() -> Traits:
    """All of SCHEDULES, and nothing of plans yet."""
    traits = Traits()
    for name, values in SCHEDULES.items():
        for value in values:
            traits.meet({name: value})
    return traits


class Mutation:
    """own: a fresh run, as a random exploration has it, of the seed that the new run gets; changes take from it what
    is new in them. traits: values of SCHEDULES that were chosen."""

    def __init__(self, own: Job, random: Random) -> None:
        assert own.schedule is not None
        self._own = own
        self._fresh: Schedule = own.schedule
        self._random = random
        self.traits: Mapping[str, Any] = {}

    def of(self, parent: Job, another: Callable[[], Job], traits: Traits) -> Job:
        """parent: with its schedule. another: draws one more. traits: of both plans and SCHEDULES."""
        assert parent.schedule is not None
        self.traits = {name: traits.choose(name, self._random) for name in SCHEDULES}
        schedule = parent.schedule
        for _ in range(self.traits["joined"] - 1):
            source = self._fresh if self._random.random() < _OWN else another().schedule or ()
            schedule = self._join(schedule, source)
        schedule = self._pace(schedule, self.traits["pace"])
        if self.traits["times"] == "drawn":
            schedule = self._spread(schedule)
        for _ in range(self._random.choice((0, 1, 1, 2))):
            schedule = self._changed(schedule, another().schedule or ())
        plan = self._plan(parent.plan, traits)
        return Job(plan, _in_order(schedule, plan.time_limit)[: _MOST_FAULTS * max(len(self._fresh), 4)])

    def _plan(self, parent: Plan, traits: Traits) -> Plan:
        if self._random.random() < _KEEP_SEED:
            return parent
        own = self._own.plan
        return with_values(own, {name: traits.choose(name, self._random) for name in of_plan(own)})

    def _changed(self, schedule: Schedule, other: Schedule) -> Schedule:
        if not schedule:
            return self._fresh
        if (inside := self._changed_inside(schedule)) is not None:
            return inside
        kind = self._random.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))[0]
        change: Callable[[Schedule, Schedule], Schedule] = getattr(self, f"_{kind}")
        return change(schedule, other)

    def _changed_inside(self, schedule: Schedule) -> Schedule | None:
        """One fault of several steps with another step, or one less. None: there is none, or something else is to be
        changed. Where no fault has steps nothing is drawn."""
        places = self._with_steps(schedule)
        if not places or self._random.random() >= _INSIDE:
            return None
        place = self._random.choice(places)
        fault = schedule[place]
        choice = registry.make_nemeses((fault.nemesis,))[fault.nemesis].changed(fault.choice, self._random)
        return _put(schedule, place, fault.model_copy(update={"choice": dict(choice)}))

    # -- of all faults ----------------------------------------------------------------------------------------

    def _join(self, schedule: Schedule, other: Schedule) -> Schedule:
        """The faults of both."""
        return (*schedule, *_apart(other, schedule))

    def _splice(self, schedule: Schedule, other: Schedule) -> Schedule:
        at = self._random.uniform(0.0, self._own.plan.time_limit)
        before = tuple(each for each in schedule if each.at < at)
        return (*before, *_apart(tuple(each for each in other if each.at >= at), before))

    def _pace(self, schedule: Schedule, by: float) -> Schedule:
        """All faults shorter, or longer; those of several steps last until these are done."""
        steps = self._with_steps(schedule)
        return tuple(
            fault if place in steps else _lasting(fault, fault.duration * by) for place, fault in enumerate(schedule)
        )

    def _with_steps(self, schedule: Schedule) -> Sequence[int]:
        """Places of faults that have several."""
        made = registry.make_nemeses({fault.nemesis for fault in schedule})
        return [place for place, fault in enumerate(schedule) if hasattr(made[fault.nemesis], "unfold")]

    def _spread(self, schedule: Schedule) -> Schedule:
        """All faults at other times, those of a composite together."""
        latest = max(self._own.plan.time_limit - CALM_AT_END_S, _FIRST_S)
        starts: dict[Any, float] = {}
        moved = []
        for fault in schedule:
            whole = fault.fault if fault.composite is None else (fault.composite, fault.occurrence)
            by = starts.setdefault(whole, self._random.uniform(_FIRST_S, latest) - fault.at)
            moved.append(_at(fault, fault.at + by))
        return tuple(moved)

    def _thin(self, schedule: Schedule, other: Schedule) -> Schedule:
        """Half of them."""
        return tuple(fault for fault in schedule if self._random.random() < 0.5)

    # -- of one fault -----------------------------------------------------------------------------------------

    def _move(self, schedule: Schedule, other: Schedule) -> Schedule:
        place = self._random.randrange(len(schedule))
        by = self._random.choice(_MOVES_S) * self._random.uniform(-1, 1)
        if self._random.random() < 0.3:  # with all that comes after it
            return (*schedule[:place], *(_at(fault, fault.at + by) for fault in schedule[place:]))
        return _put(schedule, place, _at(schedule[place], schedule[place].at + by))

    def _stretch(self, schedule: Schedule, other: Schedule) -> Schedule:
        place = self._random.randrange(len(schedule))
        fault = schedule[place]
        return _put(schedule, place, _lasting(fault, fault.duration * self._random.choice(_STRETCHES)))

    def _drop(self, schedule: Schedule, other: Schedule) -> Schedule:
        place = self._random.randrange(len(schedule))
        return (*schedule[:place], *schedule[place + 1 :])

    def _swap(self, schedule: Schedule, other: Schedule) -> Schedule:
        """Two faults strike at each other's time."""
        one, two = (self._random.randrange(len(schedule)) for _ in range(2))
        first, second = schedule[one], schedule[two]
        return _put(_put(schedule, one, _at(first, second.at)), two, _at(second, first.at))

    def _repeat(self, schedule: Schedule, other: Schedule) -> Schedule:
        """The same again, soon after or during another."""
        fault = self._random.choice(schedule)
        beside = self._random.choice(schedule)
        return (*schedule, _at(fault, beside.at + self._random.choice(_MOVES_S)))

    def _aim(self, schedule: Schedule, other: Schedule) -> Schedule:
        """As a fault of the same nemesis elsewhere."""
        place = self._random.randrange(len(schedule))
        choices = [each.choice for each in self._fresh if each.nemesis == schedule[place].nemesis]
        if not choices:
            return schedule
        return _put(schedule, place, schedule[place].model_copy(update={"choice": self._random.choice(choices)}))

    def _add(self, schedule: Schedule, other: Schedule) -> Schedule:
        """Soon after another has begun, or has ended."""
        if not self._fresh:
            return schedule
        fault = self._random.choice(self._fresh)
        beside = self._random.choice(schedule)
        at = beside.at + self._random.choice((0.0, beside.duration)) + self._random.choice(_MOVES_S)
        return (*schedule, _at(fault, at))


#: By the method's name, how often.
_WEIGHTS: Final[Mapping[str, int]] = {
    "splice": 2, "thin": 1, "move": 2, "stretch": 2, "drop": 1, "swap": 1, "repeat": 1, "aim": 1, "add": 2,
}  # fmt: skip


def _apart(faults: Schedule, others: Schedule) -> Schedule:
    """With occurrences of composites that are none of the others'."""
    first = max((fault.occurrence + 1 for fault in others), default=0)
    return tuple(
        fault if fault.composite is None else fault.model_copy(update={"occurrence": fault.occurrence + first})
        for fault in faults
    )


def _at(fault: Fault, at: float) -> Fault:
    return fault.model_copy(update={"at": max(round(at, 3), 0.0)})


def _lasting(fault: Fault, seconds: float) -> Fault:
    """A part of a composite is as long as it is."""
    if fault.composite is not None:
        return fault
    return fault.model_copy(update={"duration": max(round(seconds, 3), _SHORTEST_S)})


def _put(schedule: Schedule, place: int, fault: Fault) -> Schedule:
    return (*schedule[:place], fault, *schedule[place + 1 :])


def _in_order(schedule: Schedule, time_limit: float) -> Schedule:
    """By time and numbered; what could not be healed before the end is made shorter, or goes."""
    end = time_limit - CALM_AT_END_S
    kept = []
    for fault in sorted(schedule, key=lambda each: (each.at, each.fault)):
        duration = min(fault.duration, round(end - fault.at, 3))
        if duration >= _SHORTEST_S:
            kept.append(fault.model_copy(update={"duration": duration}))
    return tuple(fault.model_copy(update={"fault": number}) for number, fault in enumerate(kept))
