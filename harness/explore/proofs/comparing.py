"""Guided exploring against random: how many runs a bug takes, and how many abstract states are reached."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.explore.coverage import States
from harness.explore.proofs.search import RUN_LIMIT_S, Search
from harness.explore.simulate import simulate
from harness.explore.source import Numbered, Source
from harness.explore.workers import simulate_all

#: Guidance is for bugs that random exploring needs more runs for than these: of others none can take half.
FEW_RUNS: Final = 5
#: What guidance aims at: of the runs to a bug at most, of the states at least so much.
OF_RUNS: Final = 0.5
OF_STATES: Final = 1.5


class Figure(NamedTuple):
    """more: it is more than `value`; by how much is not known."""

    value: float
    more: bool = False

    def __str__(self) -> str:
        return f"more than {self.value:,.0f}" if self.more else f"{self.value:,.0f}"


@dataclass(frozen=True)
class Compared:
    """what: a bug's id, or which states. random, guided: medians of runs, or states. aim: None where none applies. met:
    None also where that cannot be told."""

    what: str
    random: Figure
    guided: Figure
    aim: str | None
    met: bool | None

    @property
    def holds(self) -> bool:
        return self.aim is None or bool(self.met)

    def as_dict(self) -> dict[str, Any]:
        told = {"random": self.random, "guided": self.guided}
        return {
            "what": self.what, "aim": self.aim, "met": self.met,
            **{name: None if figure.more else figure.value for name, figure in told.items()},
            **{f"{name}_more_than": figure.value if figure.more else None for name, figure in told.items()},
        }  # fmt: skip


def of_bug(id_: str, random: Sequence[Search], guided: Sequence[Search]) -> Compared:
    """Searches that have ended."""
    before, now = _median(random), _median(guided)
    if before.value <= FEW_RUNS and not before.more:
        return Compared(id_, before, now, None, None)
    # More than half of what random exploring takes at least may still be half of what it takes.
    missed = None if before.more else False
    met = now.value <= OF_RUNS * before.value and not now.more
    return Compared(id_, before, now, "at most half the runs", met or missed)


def _median(searches: Sequence[Search]) -> Figure:
    """Of a search that has found nothing only a bound is known."""
    found = statistics.median_low(each.runs if each.found else math.inf for each in searches)
    return Figure(statistics.median_low(each.runs for each in searches), more=math.isinf(found))


def of_states(random: Mapping[str, int], guided: Mapping[str, int], runs: int) -> Iterator[Compared]:
    """random, guided: see coverage.States."""
    for name, what in (("distinct", "states"), ("under_faults", "states under faults")):
        met = guided[name] >= OF_STATES * random[name]
        figures = Figure(random[name]), Figure(guided[name])
        yield Compared(f"{what} after {runs} runs", *figures, f"at least {OF_STATES:g} times", met)


def states_of(source: Source, workers: int, logs: Path) -> Mapping[str, int]:
    """What its runs reach. logs: a directory that is made. Raises HarnessFailure if workers cannot start."""
    states, jobs = States(), Numbered(source)
    outcomes = simulate_all(jobs, workers, simulate, logs, limit_s=RUN_LIMIT_S, histories=False)
    with closing(outcomes):
        for outcome in outcomes:
            if outcome is not None:
                states.take(jobs.take(outcome), outcome)
    return states.as_dict()


def markdown(compared: Sequence[Compared]) -> Iterator[str]:
    """Lines."""
    yield "| | random | guided | guided / random | aim |"
    yield "| --- | --- | --- | --- | --- |"
    for each in compared:
        share = "" if each.random.more or each.guided.more else f"{each.guided.value / each.random.value:.2f}"
        aim = f"none: at most {FEW_RUNS} runs" if each.aim is None else f"{each.aim}: {_MET[each.met]}"
        yield f"| {each.what} | {each.random} | {each.guided} | {share} | {aim} |"


_MET: Final = {True: "met", False: "missed", None: "cannot be told"}
