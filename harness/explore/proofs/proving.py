"""Of a bug that was found: the smallest run that shows it, if it repeats, and whether it passes without the bug."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from checkers.inside.contract import is_covered
from harness.errors import describe
from harness.explore.proofs.search import Found
from harness.explore.shrinking.shrink import NothingToShrink, Shrunk, shrink
from harness.explore.shrinking.witness import witness_of
from harness.explore.simulate import Simulated, simulate
from harness.explore.story import tell
from harness.plan.plan import Plan
from harness.plan.schedule import Schedule
from harness.record.timeline.story import Event

#: Of a run without the bug: its faults go beyond the contract, and clients saw no more than may come of that.
BEYOND: Final = "beyond the contract"
#: What a run without the bug may be.
SOUND: Final = ("pass", BEYOND)
#: Seconds by which the run without the bug is made longer if its clients came to nothing in so short a time.
_LONGER_S: Final = 20.0


@dataclass(frozen=True)
class Smallest:
    """A run that shows a bug. broken: what it breaks. story: numbered lines. repeats: a second run has the same trace
    hash. minimal: nothing more could go before the budget was spent. runs: that shrinking took. without: the verdict of
    the same run without the bug, or BEYOND, and why. seconds: by the wall clock, of the run itself."""

    plan: Plan
    schedule: Schedule
    broken: str
    story: Sequence[str]
    trace_hash: str
    repeats: bool
    minimal: bool
    runs: int
    seconds: float
    without: str
    reason: str


@dataclass(frozen=True)
class Proven:
    """clients_saw: what the histories of the runs that were found break when nothing stops them, by how many; in all
    `unwatched` runs. problem: why there is no smallest run."""

    smallest: Smallest | None
    clients_saw: Mapping[str, int]
    unwatched: int
    problem: str = ""


def prove(found: Sequence[Found], budget: int, workers: int = 1) -> Proven:
    """found: of several searches for one bug, at least one. budget: runs that shrinking may take. workers:
    processes for that."""
    back = [each for each in found if each.schedule is not None]
    if not back:
        return Proven(None, {}, 0, f"no run came to an end: {found[0].message}")
    saw: dict[str, int] = {}
    try:
        for seen in filter(None, map(_seen_by_clients, back)):
            saw[seen] = saw.get(seen, 0) + 1
        return Proven(_smallest(_shrunk(back, budget, workers)), saw, len(back))
    except NothingToShrink as nothing:
        return Proven(None, saw, len(back), str(nothing))
    except Exception as error:  # a bug of ours: it must not cost the other proofs
        return Proven(None, saw, len(back), describe(error))


def _shrunk(back: Sequence[Found], budget: int, workers: int) -> Shrunk:
    """Of that with the fewest faults. Raises NothingToShrink."""
    first = min(back, key=lambda each: (len(each.schedule or ()), each.seed))
    assert first.schedule is not None
    try:
        return shrink(first.plan, first.schedule, budget=budget, workers=workers)
    except NothingToShrink as nothing:
        raise NothingToShrink(f"seed {first.seed} breaks nothing when it is repeated: {nothing}") from None


def _smallest(shrunk: Shrunk) -> Smallest:
    nemesis = tuple(dict.fromkeys(fault.nemesis for fault in shrunk.schedule))
    plan = shrunk.plan.model_copy(update={"nemesis": nemesis})
    trace: list[Event] = []
    simulated = simulate(plan, shrunk.schedule, lambda *reported: trace.append(Event(*reported)))
    again = simulate(plan, shrunk.schedule)
    without, reason = without_bug(plan, shrunk.schedule)
    return Smallest(
        plan, shrunk.schedule, str(shrunk.broken), tell(simulated, simulated.judge(), trace), again.trace_hash,
        simulated.trace_hash == again.trace_hash, shrunk.minimal, shrunk.runs, again.wall_s,
        without, reason,
    )  # fmt: skip


def without_bug(plan: Plan, schedule: Schedule) -> tuple[str, str]:
    """The verdict of the same run of code that is right, or BEYOND, and why."""
    sound = plan.model_copy(update={"bug": None, "mutant": None})
    simulated = simulate(sound, schedule)
    verdict = simulated.judge()
    if verdict["verdict"] == "unknown":  # it may end too soon for its clients to have done anything
        longer = sound.model_copy(update={"time_limit": sound.time_limit + _LONGER_S})
        simulated = simulate(longer, schedule)
        verdict = simulated.judge()
    excused = verdict["verdict"] == "fail" and simulated.violation is None and not is_covered(verdict["contract"])
    return BEYOND if excused else str(verdict["verdict"]), str(verdict["reason"])


def _seen_by_clients(found: Found) -> str:
    """What the run's history breaks if no invariant stops it. Empty: nothing."""
    simulated: Simulated = simulate(found.plan, found.schedule, watched=False)
    witness = witness_of(simulated)
    return "" if witness is None else str(witness.broken)
