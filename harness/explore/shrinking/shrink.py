"""One run made smaller: see the package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from harness.explore.proofs.pool import processes
from harness.explore.shrinking import candidates as smaller
from harness.explore.shrinking.candidates import Candidate
from harness.explore.shrinking.witness import Broken, Witness, attempt, witness_of
from harness.explore.simulate import simulate
from harness.plan.plan import Plan
from harness.plan.schedule import Schedule
from harness.report import words


@dataclass(frozen=True)
class Shrunk:
    """plan, schedule: what is left. minimal: nothing more can go; else the budget was spent. runs: simulated.
    faults_before: how many there were."""

    plan: Plan
    schedule: Schedule
    broken: Broken
    minimal: bool
    runs: int
    faults_before: int


class NothingToShrink(Exception):
    """The run breaks nothing when it is repeated. The message says what it does."""


def shrink(
    plan: Plan, schedule: Schedule, *, budget: int, workers: int = 1, say: Callable[[str], object] = lambda line: None
) -> Shrunk:
    """budget: how many runs may be simulated. workers: processes; the outcome does not depend on how many. say: is told
    how far it is, a line each time. Raises NothingToShrink."""
    simulated = simulate(plan, schedule)
    witness = witness_of(simulated)
    if witness is None:
        raise NothingToShrink(simulated.crash or str(simulated.judge()["reason"]))
    shrinker = _Shrinker(Candidate(plan, schedule), witness, budget - 1, workers, say)
    try:
        with processes(workers) if workers > 1 else nullcontext() as shrinker.pool:
            minimal = shrinker.run()
    except KeyboardInterrupt:
        minimal = False  # what was found so far is worth keeping
    best = shrinker.best
    return Shrunk(best.plan, best.schedule, witness.broken, minimal, 1 + shrinker.runs, len(schedule))


class _Spent(Exception):
    """The budget."""


@dataclass
class _Shrinker:
    """best: the smallest that was found to break what is sought, and `witness` what it did."""

    best: Candidate
    witness: Witness
    budget: int
    workers: int
    say: Callable[[str], object]
    pool: ProcessPoolExecutor | None = None
    runs: int = 0
    failed: set[str] = field(default_factory=set)  # keys of candidates that did not
    settings: Mapping[str, str] = field(init=False)  # of the run that is to be made smaller

    def __post_init__(self) -> None:
        self.settings = self.best.plan.settings

    def run(self) -> bool:
        """Returns whether nothing more can go."""
        try:
            self._pin()
            while True:
                before = self.best
                self._cut_time()
                self._remove_faults()
                self._cut_time()
                for kind in smaller.KINDS:
                    self._exhaust(kind)
                if self.best == before:
                    break
            if self._first(smaller.in_turn(self.best)) is not None:
                self._cut_time()
                self._remove_faults()
                self._exhaust(smaller.shorter_faults)
            return True
        except _Spent:
            return False

    def _pin(self) -> None:
        """Faults with the nodes that they struck, and when. First those that were skipped go."""
        strikes, plan = self.witness.strikes, self.best.plan
        named = tuple(
            fault.model_copy(update={"choice": fault.choice | {"targets": list(strikes[fault.fault].targets)}})
            for fault in self.best.schedule
            if fault.fault in strikes and not strikes[fault.fault].skipped
        )
        at_once = tuple(f.model_copy(update={"at": round(f.at + strikes[f.fault].deferred_s, 3)}) for f in named)
        struck = tuple(f for f in self.best.schedule if f.fault in {fault.fault for fault in named})
        self._first(Candidate(plan, schedule) for schedule in (at_once, named, struck))

    def _remove_faults(self) -> None:
        size = len(self.best.schedule)
        while size:
            start = 0
            while start < len(self.best.schedule):
                schedule = self.best.schedule
                places = range(start, len(schedule), size)
                removed = self._first(
                    replace(self.best, schedule=schedule[:place] + schedule[place + size :]) for place in places
                )
                if removed is None:
                    break
                start = places[removed]
            size //= 2

    def _cut_time(self) -> None:
        """The run ends soon after what it is about. What comes later goes with it."""
        while self._first(smaller.shorter(self.best, self.witness.violated_s)) is not None:
            pass

    def _exhaust(self, kind: Callable[[Candidate], Iterator[Candidate]]) -> None:
        """Until nothing of the kind is left to be taken. Each time that something was, it goes on from there: what came
        before has its turn in the next round, and does not cost a run for each that follows."""
        taken: int | None = 0
        while (taken := self._first(kind(self.best), taken or 0)) is not None:
            self._cut_time()

    def _first(self, candidates: Iterable[Candidate], start: int = 0) -> int | None:
        """Take the first candidate from number `start` on that breaks what is sought for the best; its number, or None.
        Raises _Spent."""
        numbered = (
            (n, c) for n, c in enumerate(candidates) if n >= start and c != self.best and c.key not in self.failed
        )
        for number, candidate, witness in self._attempts(numbered):
            self.runs += 1
            if witness is not None:
                self.best, self.witness = candidate, witness
            else:
                self.failed.add(candidate.key)
            self._tell()
            if witness is not None:
                return number
        return None

    def _attempts(self, candidates: Iterator[tuple[int, Candidate]]) -> Iterator[tuple[int, Candidate, Witness | None]]:
        """In order, whichever is simulated first. Raises _Spent rather than more than the budget allows."""
        begun: list[tuple[int, Candidate, Future[Witness | None]]] = []
        while True:
            while self.pool is not None and len(begun) < self.workers and (entry := next(candidates, None)):
                begun.append((*entry, self.pool.submit(attempt, *self._asked(entry[1]))))
            entry = begun[0][:2] if begun else next(candidates, None)
            if entry is None:
                return
            if self.runs >= self.budget:
                raise _Spent
            number, candidate = entry
            witness = begun.pop(0)[2].result() if begun else attempt(*self._asked(candidate))
            yield number, candidate, witness

    def _asked(self, candidate: Candidate) -> tuple[Candidate, Broken, bool, bool]:
        """See attempt()."""
        violated_s = self.witness.violated_s
        at_work = violated_s is not None and violated_s < self.best.plan.time_limit
        return candidate, self.witness.broken, self._may_hide(candidate), at_work

    def _may_hide(self, candidate: Candidate) -> bool:
        """May it break what is sought without its bug as well? Settings may keep the code from flaws of its own (those
        of target v2 do); where one is gone, whatever else is made smaller may have such a flaw show."""
        plan = candidate.plan
        return (plan.bug is not None or plan.mutant is not None) and plan.settings != self.settings

    def _tell(self) -> None:
        plan, plural = self.best.plan, words.plural
        self.say(
            f"{plural(self.runs, 'run')}: {plural(len(self.best.schedule), 'fault')}, {plan.time_limit:g} s, "
            f"{plural(plan.brokers, 'broker')}, {plural(plan.controllers, 'controller')}, "
            f"{plural(plan.partitions, 'partition')}, {plan.rate:g} records a second of "
            f"{plural(plan.concurrency, 'producer')}"
        )
