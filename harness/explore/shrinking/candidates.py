"""Smaller runs than the one at hand: generators, each of which yields candidates in the order in which they are tried,
those first that gain most."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations, takewhile
from typing import Any, Final, get_args

from harness.plan import registry
from harness.plan.plan import Plan, Producers
from harness.plan.schedule import CALM_AT_END_S, Fault, Schedule

#: A run ends so long after what it is about: seconds.
AFTERMATH_S: Final = 0.2
#: Nothing is made shorter than that, and gaps are no shorter: seconds.
MOMENT_S: Final = 0.1
#: So much between the beginnings of two faults lets the first one have its effects before the second comes: seconds.
#: Longer and shorter than it takes by default to notice that a broker is gone.
APART_S: Final = (5.0, 2.0)
#: The faults of a story that can be told in every order.
MAX_IN_TURN: Final = 3
_LADDER: Final = (0.1, 0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Candidate:
    plan: Plan
    schedule: Schedule

    @property
    def key(self) -> str:
        return json.dumps([self.plan.model_dump(mode="json"), [fault.model_dump() for fault in self.schedule]])


def _with(candidate: Candidate, **changes: Any) -> Candidate:
    """Another plan, validated, with those of its faults that still have a node to strike."""
    plan = Plan(**candidate.plan.model_dump() | changes)
    gone = set(candidate.plan.node_names) - set(plan.node_names)
    schedule = [_without(fault, gone) for fault in candidate.schedule]
    return Candidate(plan, tuple(fault for fault in schedule if fault.choice.get("targets") != []))


def _if_valid(candidate: Candidate, **changes: Any) -> Iterator[Candidate]:
    """None where there can be no such plan: settings may need each other."""
    try:
        changed = _with(candidate, **changes)
    except ValueError:
        return
    yield changed


def _without(fault: Fault, nodes: set[str]) -> Fault:
    if not nodes.intersection(fault.choice.get("targets", ())):
        return fault
    return _strikes_only(fault, [name for name in fault.choice["targets"] if name not in nodes])


def _strikes_only(fault: Fault, targets: Sequence[str]) -> Fault:
    return fault.model_copy(update={"choice": fault.choice | {"targets": list(targets)}})


def _put(candidate: Candidate, place: int, fault: Fault) -> Candidate:
    schedule = candidate.schedule
    return replace(candidate, schedule=(*schedule[:place], fault, *schedule[place + 1 :]))


def fewer_nodes(candidate: Candidate) -> Iterator[Candidate]:
    plan = candidate.plan
    for controllers in range(1, plan.controllers, 2):  # an even number survives no more than one less
        yield from _if_valid(candidate, controllers=controllers)
    for brokers in range(plan.replication_factor, plan.brokers):
        yield from _if_valid(candidate, brokers=brokers)


def fewer_targets(candidate: Candidate) -> Iterator[Candidate]:
    for place, fault in enumerate(candidate.schedule):
        targets = fault.choice.get("targets", ())
        if len(targets) > 1:
            for name in targets:
                yield _put(candidate, place, _without(fault, {name}))


def smaller_faults(candidate: Candidate) -> Iterator[Candidate]:
    """What a nemesis itself can leave out of one fault: a step, say."""
    for place, fault in enumerate(candidate.schedule):
        (nemesis,) = registry.make_nemeses([fault.nemesis]).values()
        for choice in getattr(nemesis, "smaller", _nothing)(fault.choice):  # a user's own may be older
            yield _put(candidate, place, fault.model_copy(update={"choice": dict(choice)}))


def _nothing(choice: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from ()


def simpler_producers(candidate: Candidate) -> Iterator[Candidate]:
    plan = candidate.plan
    for producers in takewhile(lambda kind: kind != plan.producers, get_args(Producers)):
        yield from _if_valid(candidate, producers=producers)


def lower_rate(candidate: Candidate) -> Iterator[Candidate]:
    plan = candidate.plan
    for part in _LADDER:
        rate = max(float(f"{plan.rate * part:.1g}"), 1.0)
        if rate < plan.rate:
            yield from _if_valid(candidate, rate=rate)


def fewer_partitions(candidate: Candidate) -> Iterator[Candidate]:
    for partitions in _below(candidate.plan.partitions):
        yield from _if_valid(candidate, partitions=partitions)


def fewer_producers(candidate: Candidate) -> Iterator[Candidate]:
    for concurrency in _below(candidate.plan.concurrency):
        yield from _if_valid(candidate, concurrency=concurrency)


#: What a run has by default, and what it may be that someone, or its seed, has given it.
_DEFAULTS: Final = (
    "settings", "latency_ms", "task_order", "delete_records", "short_lived_topics", "workload_settings",
    "encode_messages", "racks", "records_per_batch",
)  # fmt: skip


def defaults(candidate: Candidate) -> Iterator[Candidate]:
    """All at once, then each alone; of the settings of nodes all, each half, each one. Those that mend what a target is
    known for stay: without them the run would break what it breaks, and more, for that."""
    plan = candidate.plan
    mends = registry.make_target(plan.target).mends
    mending = {name: value for name, value in plan.settings.items() if name in mends}
    given = {name: _default(name) for name in _DEFAULTS if getattr(plan, name) != _default(name)}
    if plan.settings == mending:
        given.pop("settings", None)
    elif "settings" in given:
        given["settings"] = mending
    if len(given) > 1:
        yield from _if_valid(candidate, **given)
    for name, default in given.items():
        yield from _if_valid(candidate, **{name: default})
    names = [name for name in plan.settings if name not in mends]
    size = len(names) // 2
    while size:
        for start in range(0, len(names), size):
            left = {name: plan.settings[name] for name in (*names[:start], *names[start + size :])}
            yield from _if_valid(candidate, settings=mending | left)
        size //= 2


def _default(name: str) -> Any:
    return Plan.model_fields[name].get_default(call_default_factory=True)


def _below(number: int) -> Iterator[int]:
    """1, 2, 4 …, and one less."""
    powers = [2**n for n in range(number.bit_length()) if 2**n < number]
    yield from powers
    if powers and number - 1 not in powers:
        yield number - 1


def shorter(candidate: Candidate, violated_s: float | None) -> Iterator[Candidate]:
    """Without what comes after `violated_s`; if the run was not stopped, with less time."""
    limit = candidate.plan.time_limit
    if violated_s is None:
        for shorter in (_round_up(limit * part) for part in _LADDER):
            fits = tuple(fault for fault in candidate.schedule if fault.at + fault.duration + CALM_AT_END_S <= shorter)
            if shorter < limit:
                yield _with(replace(candidate, schedule=fits), time_limit=shorter)
        return
    end = _round_up(violated_s + AFTERMATH_S)
    schedule = tuple(
        fault.model_copy(update={"duration": min(fault.duration, max(_round_up(end - fault.at), MOMENT_S))})
        for fault in candidate.schedule
        if fault.at < end
    )
    healed = max((fault.at + fault.duration for fault in schedule), default=0.0)
    # A fault strikes only if it can also be healed in time (harness.run.injector), and may have to wait.
    in_time = max(end, _round_up(healed + CALM_AT_END_S + AFTERMATH_S))
    for shorter in (end, in_time):
        if shorter < limit or schedule != candidate.schedule:
            yield _with(replace(candidate, schedule=schedule), time_limit=min(shorter, limit))


def shorter_faults(candidate: Candidate) -> Iterator[Candidate]:
    for part in _LADDER[:-1]:
        shorter = tuple(_last(fault, fault.duration * part) for fault in candidate.schedule)
        yield replace(candidate, schedule=shorter)
    for place, fault in enumerate(candidate.schedule):
        for part in _LADDER[:-1]:
            yield _put(candidate, place, _last(fault, fault.duration * part))


def _last(fault: Fault, seconds: float) -> Fault:
    """For so long, or as long as it does if that is not more."""
    return fault.model_copy(update={"duration": min(fault.duration, max(_round_up(seconds), MOMENT_S))})


def earlier_faults(candidate: Candidate) -> Iterator[Candidate]:
    """The gap before a fault made smaller, for all faults after it as well."""
    schedule = tuple(sorted(candidate.schedule, key=lambda fault: (fault.at, fault.fault)))
    starts = [0.0, *(fault.at for fault in schedule)]
    for place, (before, at) in enumerate(pairwise(starts)):
        for part in (0.0, *_LADDER[1:-1]):
            gap = max(_round_up((at - before) * part), MOMENT_S if place == 0 else 0.0)
            sooner = round(at - before - gap, 3)
            if sooner >= MOMENT_S:
                moved = tuple(
                    fault.model_copy(update={"at": round(fault.at - sooner, 3)}) for fault in schedule[place:]
                )
                yield replace(candidate, schedule=schedule[:place] + moved)


def in_turn(candidate: Candidate) -> Iterator[Candidate]:
    """The same faults one by one, in whatever order, each lasting until all have struck. It takes longer, so this is no
    step of shrinking."""
    schedule = candidate.schedule
    starts = sorted(fault.at for fault in schedule)
    if not 2 <= len(schedule) <= MAX_IN_TURN or all(b - a >= APART_S[-1] for a, b in pairwise(starts)):
        return
    for apart in APART_S:
        for order in permutations(schedule):
            last = MOMENT_S + apart * (len(order) - 1)
            end = last + order[-1].duration + max(APART_S)
            in_turn = [
                fault.model_copy(update={"at": round(MOMENT_S + apart * place, 3)}) for place, fault in enumerate(order)
            ]
            lasting = [fault.model_copy(update={"duration": round(end - fault.at, 3)}) for fault in in_turn[:-1]]
            limit = _round_up(end + CALM_AT_END_S + AFTERMATH_S)
            yield _with(replace(candidate, schedule=(*lasting, in_turn[-1])), time_limit=limit)


def _round_up(seconds: float) -> float:
    """To a tenth, so that people can read it."""
    return math.ceil(round(seconds * 10, 6)) / 10


#: In the order in which they are tried: what makes all further runs cheaper comes first.
KINDS: Final[Sequence[Callable[[Candidate], Iterator[Candidate]]]] = (
    smaller_faults, lower_rate, fewer_partitions, fewer_producers, simpler_producers, fewer_nodes, defaults,
    fewer_targets, shorter_faults, earlier_faults,
)  # fmt: skip
