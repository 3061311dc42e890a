"""Guided exploring against random: how many runs a bug takes, and how many abstract states are reached."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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


@dataclass(frozen=True)
class Compared:
    """what: a bug's id, or which states. random, guided: medians of runs (infinite: most searches have not found it),
    or states. aim: None where none applies."""

    what: str
    random: float
    guided: float
    aim: str | None
    met: bool | None

    def as_dict(self) -> dict[str, Any]:
        told = {"random": self.random, "guided": self.guided}
        return {
            "what": self.what, "aim": self.aim, "met": self.met,
            **{name: None if math.isinf(value) else value for name, value in told.items()},
        }  # fmt: skip


def of_bug(id_: str, random: Sequence[Search], guided: Sequence[Search]) -> Compared:
    """Searches that have ended."""
    before, now = _median(random), _median(guided)
    if before <= FEW_RUNS:
        return Compared(id_, before, now, None, None)
    met = now <= OF_RUNS * before and not math.isinf(now)
    return Compared(id_, before, now, "at most half the runs", met)


def _median(searches: Sequence[Search]) -> float:
    return statistics.median_low(each.runs if each.found else math.inf for each in searches)


def of_states(random: Mapping[str, int], guided: Mapping[str, int], runs: int) -> Iterator[Compared]:
    """random, guided: see coverage.States."""
    for name, what in (("distinct", "states"), ("under_faults", "states under faults")):
        met = guided[name] >= OF_STATES * random[name]
        yield Compared(f"{what} after {runs} runs", random[name], guided[name], f"at least {OF_STATES:g} times", met)


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
        ratio = each.guided / each.random if not math.isinf(each.guided + each.random) else math.inf
        met = "" if each.met is None else f": {'met' if each.met else 'missed'}"
        numbers = " | ".join("not found" if math.isinf(n) else f"{n:,.0f}" for n in (each.random, each.guided))
        share = "" if math.isinf(ratio) else f"{ratio:.2f}"
        yield f"| {each.what} | {numbers} | {share} | {each.aim or f'none: at most {FEW_RUNS} runs'}{met} |"
