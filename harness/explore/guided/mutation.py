"""A run changed a little: a fault moved, made longer or shorter, added, dropped, exchanged, aimed at another node, or
repeated, or one of its steps changed; two schedules spliced; a setting, the latency, the order of tasks or the seed
drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from harness.explore.workers import Job
from harness.plan import registry
from harness.plan.plan import Plan
from harness.plan.schedule import CALM_AT_END_S, Fault, Schedule

#: Of a schedule that is made of others: so many times the faults that a fresh one has.
_MOST_FAULTS: Final = 3
#: Seconds, of moves in time: a moment may decide, or the order of two faults.
_MOVES_S: Final = (0.02, 0.1, 0.5, 2.0, 8.0)
_STRETCHES: Final = (0.1, 0.5, 0.8, 1.25, 2.0, 4.0)
_SHORTEST_S: Final = 0.1
#: Of the changes of a schedule some of whose faults have steps, those of a step.
_INSIDE: Final = 0.4


class Mutation:
    """fresh: a run of this seed as a random exploration has it; changes take from such what is new in them."""

    def __init__(self, fresh: Callable[[int], Job], random: Random) -> None:
        self._fresh = fresh
        self._random = random

    def of(self, parent: Job, other: Job) -> Job:
        """parent, other: with their schedules."""
        assert parent.schedule is not None and other.schedule is not None
        job = parent
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 4))):
            job = self._changed(job, other)
        assert job.schedule is not None
        return Job(job.plan, _in_order(job.schedule, job.plan.time_limit))

    def _changed(self, job: Job, other: Job) -> Job:
        assert job.schedule is not None and other.schedule is not None
        if (inside := self._changed_inside(job.schedule)) is not None:
            return job._replace(schedule=inside)
        kind = self._random.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))[0]
        if kind == "splice":
            return job._replace(schedule=self._spliced(job.plan, job.schedule, other.schedule))
        if kind in ("settings", "latency", "order", "seed"):
            return job._replace(plan=self._replanned(kind, job.plan))
        if kind == "add" or not job.schedule:
            return job._replace(schedule=self._added(job.plan, job.schedule))
        change = {
            "move": self._moved, "stretch": self._stretched, "drop": self._dropped, "swap": self._swapped,
            "aim": self._aimed, "repeat": self._repeated,
        }[kind]  # fmt: skip
        return job._replace(schedule=change(job.plan, job.schedule))

    def _changed_inside(self, schedule: Schedule) -> Schedule | None:
        """One fault of several steps with another step, or one less. None: there is none, or something else is to be
        changed. Where no fault has steps nothing is drawn."""
        made = registry.make_nemeses({fault.nemesis for fault in schedule})
        places = [place for place, fault in enumerate(schedule) if hasattr(made[fault.nemesis], "unfold")]
        if not places or self._random.random() >= _INSIDE:
            return None
        place = self._random.choice(places)
        fault = schedule[place]
        choice = made[fault.nemesis].changed(fault.choice, self._random)
        return _put(schedule, place, fault.model_copy(update={"choice": dict(choice)}))

    def _moved(self, plan: Plan, schedule: Schedule) -> Schedule:
        place = self._random.randrange(len(schedule))
        by = self._random.choice(_MOVES_S) * self._random.uniform(-1, 1)
        if self._random.random() < 0.3:  # with all that comes after it
            return (*schedule[:place], *(_at(fault, fault.at + by) for fault in schedule[place:]))
        return _put(schedule, place, _at(schedule[place], schedule[place].at + by))

    def _stretched(self, plan: Plan, schedule: Schedule) -> Schedule:
        place = self._random.randrange(len(schedule))
        longer = schedule[place].duration * self._random.choice(_STRETCHES)
        fault = schedule[place].model_copy(update={"duration": max(round(longer, 3), _SHORTEST_S)})
        return _put(schedule, place, fault)

    def _dropped(self, plan: Plan, schedule: Schedule) -> Schedule:
        place = self._random.randrange(len(schedule))
        return (*schedule[:place], *schedule[place + 1 :])

    def _swapped(self, plan: Plan, schedule: Schedule) -> Schedule:
        """Two faults strike at each other's time."""
        one, other = (self._random.randrange(len(schedule)) for _ in range(2))
        first, second = schedule[one], schedule[other]
        return _put(_put(schedule, one, _at(first, second.at)), other, _at(second, first.at))

    def _repeated(self, plan: Plan, schedule: Schedule) -> Schedule:
        """The same again, soon after or during another."""
        fault = self._random.choice(schedule)
        beside = self._random.choice(schedule)
        return (*schedule, _at(fault, beside.at + self._random.choice(_MOVES_S)))

    def _aimed(self, plan: Plan, schedule: Schedule) -> Schedule:
        """As a fault of the same nemesis elsewhere."""
        place = self._random.randrange(len(schedule))
        choices = [each.choice for each in self._drawn(plan) if each.nemesis == schedule[place].nemesis]
        if not choices:
            return schedule
        return _put(schedule, place, schedule[place].model_copy(update={"choice": self._random.choice(choices)}))

    def _added(self, plan: Plan, schedule: Schedule) -> Schedule:
        drawn = self._drawn(plan)
        if not drawn:
            return schedule
        fault = self._random.choice(drawn)
        if schedule and self._random.random() < 0.7:  # where something happens already
            beside = self._random.choice(schedule)
            at = beside.at + self._random.choice((0.0, beside.duration)) + self._random.choice(_MOVES_S)
        else:
            at = self._random.uniform(0.0, plan.time_limit)
        return (*schedule, _at(fault, at))

    def _spliced(self, plan: Plan, schedule: Schedule, other: Schedule) -> Schedule:
        at = self._random.uniform(0.0, plan.time_limit)
        return (*(each for each in schedule if each.at < at), *(each for each in other if each.at >= at))

    def _replanned(self, kind: str, plan: Plan) -> Plan:
        fresh = self._fresh(self._random.randrange(1 << 32)).plan
        if kind == "seed":
            return plan.model_copy(update={"seed": fresh.seed})
        if kind == "latency":
            return plan.model_copy(update={"latency_ms": fresh.latency_ms})
        if kind == "order":
            return plan.model_copy(update={"task_order": fresh.task_order})
        names = sorted({*plan.settings, *fresh.settings})
        if not names:
            return plan
        name = self._random.choice(names)
        settings: Mapping[str, str] = {each: value for each, value in plan.settings.items() if each != name}
        if name in fresh.settings:
            settings = {**settings, name: fresh.settings[name]}
        return plan.model_copy(update={"settings": dict(settings)})

    def _drawn(self, plan: Plan) -> Sequence[Fault]:
        schedule = self._fresh(self._random.randrange(1 << 32)).schedule
        assert schedule is not None
        return schedule


_WEIGHTS: Final[Mapping[str, int]] = {
    "move": 5, "stretch": 3, "add": 4, "drop": 2, "swap": 2, "aim": 3, "repeat": 2, "splice": 2, "settings": 1,
    "latency": 1, "order": 1, "seed": 2,
}  # fmt: skip


def most_faults(fresh: Schedule) -> int:
    return _MOST_FAULTS * max(len(fresh), 4)


def _at(fault: Fault, at: float) -> Fault:
    return fault.model_copy(update={"at": max(round(at, 3), 0.0)})


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
