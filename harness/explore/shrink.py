"""Makes a run that fails as small as it can be, while it goes on to break the same property.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over the faults, and
a ladder of smaller values for everything else: nodes, partitions, producers and what they do, rate, durations and time.
Each kind in turn, again and again, until a whole round changes nothing. Then taking any single fault away makes the run
pass. What is left may be a few faults within a moment: if the run also fails when they come one by one, that is what is
kept.

A fault strikes whom the live cluster has at a fraction of its free nodes, so with one fault less the next might strike
another node. Before anything goes, every fault is given the names of the nodes that it struck (nemesis.pinned).

Why not hypothesis, which shrinks too: it shrinks what its own strategies drew, and a run comes from elsewhere.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations, takewhile
from typing import Any, Final, get_args

import pyarrow.compute as pc

from checkers.properties import LOST_APPEND, VIOLATION
from harness.explore.simulate import Simulated, simulate
from harness.plan import registry
from harness.plan.plan import Plan, Producers
from harness.plan.schedule import CALM_AT_END_S, Fault, Schedule
from harness.report import words

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
class Broken:
    """What a run broke. property, anomaly: an invariant of anomaly `violation`, or what the history breaks. within: did
    the faults stay within the contract."""

    property: str
    anomaly: str
    within: bool

    def __str__(self) -> str:
        return self.property if self.anomaly == VIOLATION else f"{self.property} ({self.anomaly})"


@dataclass(frozen=True)
class Strike:
    """What became of a fault. deferred_s: how much later than planned it struck."""

    targets: tuple[str, ...]
    deferred_s: float
    skipped: bool


@dataclass(frozen=True)
class Candidate:
    plan: Plan
    schedule: Schedule

    @property
    def key(self) -> str:
        return json.dumps([self.plan.model_dump(mode="json"), [fault.model_dump() for fault in self.schedule]])


@dataclass(frozen=True)
class Witness:
    """A run that broke something. violated_s: when an invariant stopped it, in seconds of the workload; None: it was
    not stopped."""

    broken: Broken
    violated_s: float | None
    strikes: Mapping[int, Strike]


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
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _leave_signals) if workers > 1 else None
    try:
        shrinker = _Shrinker(Candidate(plan, schedule), witness, budget - 1, workers, pool, say)
        minimal = shrinker.run()
    except KeyboardInterrupt:
        minimal = False  # what was found so far is worth keeping
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
    best = shrinker.best
    return Shrunk(best.plan, best.schedule, witness.broken, minimal, 1 + shrinker.runs, len(schedule))


def _leave_signals() -> None:
    """Of a worker: Ctrl-C is for the process that shrinks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def witness_of(simulated: Simulated) -> Witness | None:
    """None: nothing is broken, or the harness itself could not do its part."""
    if simulated.crash:
        return None
    verdict = simulated.judge()
    if verdict.get("safety", verdict["verdict"]) != "fail":  # a threshold that was not met breaks no property
        return None
    within, violation = bool(verdict["contract"]["within"]), simulated.violation
    strikes = {fault["fault"]: _strike(fault) for fault in simulated.tables["faults"].to_pylist()}
    if violation is not None:
        origin = pc.min(simulated.tables["operations"]["invoke"]).as_py()
        violated_s = 0.0 if origin is None else max(violation.time_ns - origin, 0) / 1e9
        return Witness(Broken(violation.property, VIOLATION, within), violated_s, strikes)
    property_, anomaly = _worst(verdict["anomalies"])
    return Witness(Broken(property_, anomaly, within), None, strikes)


def _worst(anomalies: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """(property, anomaly) of what a history breaks: what was lost before all else."""
    broken = [(p, a) for p, found in anomalies.items() if not found["weak"] for a in found["anomalies"]]
    return min(broken, key=lambda entry: (entry[1] != LOST_APPEND, entry))


def _strike(row: Mapping[str, Any]) -> Strike:
    evidence = json.loads(row["evidence"])
    return Strike(tuple(row["targets"]), float(evidence.get("deferred_s", 0.0)), "skipped" in evidence)


def attempt(candidate: Candidate, sought: Broken) -> Witness | None:
    """What the candidate broke, if that is what is sought: else None. A promise that is broken within the contract is
    not exchanged for one that was never given."""
    witness = witness_of(simulate(candidate.plan, candidate.schedule))
    if witness is None or witness.broken.within < sought.within:
        return None
    same = (witness.broken.property, witness.broken.anomaly) == (sought.property, sought.anomaly)
    return witness if same else None


class _Spent(Exception):
    """The budget."""


@dataclass
class _Shrinker:
    """best: the smallest that was found to break what is sought, and `witness` what it did."""

    best: Candidate
    witness: Witness
    budget: int
    workers: int
    pool: ProcessPoolExecutor | None
    say: Callable[[str], object]
    runs: int = 0
    failed: set[str] = field(default_factory=set)  # keys of candidates that did not

    def run(self) -> bool:
        """Returns whether nothing more can go."""
        try:
            self._pin()
            while True:
                before = self.best
                self._cut_time()
                self._remove_faults()
                self._cut_time()
                for smaller in (
                    _less_of_faults, _fewer_nodes, _fewer_targets, _less_work, _shorter_faults, _earlier_faults,
                ):  # fmt: skip
                    while self._first(smaller(self.best)) is not None:
                        self._cut_time()
                if self.best == before:
                    break
            if self._first(_in_turn(self.best)) is not None:
                self._cut_time()
                self._remove_faults()
                while self._first(_shorter_faults(self.best)) is not None:
                    self._cut_time()
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
        while self._first(_shorter(self.best, self.witness.violated_s)) is not None:
            pass

    def _first(self, candidates: Iterable[Candidate]) -> int | None:
        """Take the first candidate that breaks what is sought for the best; its number, or None. Raises _Spent."""
        numbered = ((n, c) for n, c in enumerate(candidates) if c != self.best and c.key not in self.failed)
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
        sought = self.witness.broken
        begun: list[tuple[int, Candidate, Future[Witness | None]]] = []
        while True:
            while self.pool is not None and len(begun) < self.workers and (entry := next(candidates, None)):
                begun.append((*entry, self.pool.submit(attempt, entry[1], sought)))
            entry = begun[0][:2] if begun else next(candidates, None)
            if entry is None:
                return
            if self.runs >= self.budget:
                raise _Spent
            yield *entry, begun.pop(0)[2].result() if begun else attempt(entry[1], sought)

    def _tell(self) -> None:
        plan, plural = self.best.plan, words.plural
        self.say(
            f"{plural(self.runs, 'run')}: {plural(len(self.best.schedule), 'fault')}, {plan.time_limit:g} s, "
            f"{plural(plan.brokers, 'broker')}, {plural(plan.controllers, 'controller')}, "
            f"{plural(plan.partitions, 'partition')}, {plan.rate:g} records a second of "
            f"{plural(plan.concurrency, 'producer')}"
        )


def _with(candidate: Candidate, **changes: Any) -> Candidate:
    """Another plan, validated, with those of its faults that still have a node to strike."""
    plan = Plan(**candidate.plan.model_dump() | changes)
    gone = set(candidate.plan.node_names) - set(plan.node_names)
    schedule = [_without(fault, gone) for fault in candidate.schedule]
    return Candidate(plan, tuple(fault for fault in schedule if fault.choice.get("targets") != []))


def _without(fault: Fault, nodes: set[str]) -> Fault:
    if not nodes.intersection(fault.choice.get("targets", ())):
        return fault
    return _strikes_only(fault, [name for name in fault.choice["targets"] if name not in nodes])


def _strikes_only(fault: Fault, targets: Sequence[str]) -> Fault:
    return fault.model_copy(update={"choice": fault.choice | {"targets": list(targets)}})


def _put(candidate: Candidate, place: int, fault: Fault) -> Candidate:
    schedule = candidate.schedule
    return replace(candidate, schedule=(*schedule[:place], fault, *schedule[place + 1 :]))


def _fewer_nodes(candidate: Candidate) -> Iterator[Candidate]:
    plan = candidate.plan
    for controllers in range(1, plan.controllers, 2):  # an even number survives no more than one less
        yield _with(candidate, controllers=controllers)
    for brokers in range(plan.replication_factor, plan.brokers):
        yield _with(candidate, brokers=brokers)


def _fewer_targets(candidate: Candidate) -> Iterator[Candidate]:
    for place, fault in enumerate(candidate.schedule):
        targets = fault.choice.get("targets", ())
        if len(targets) > 1:
            for name in targets:
                yield _put(candidate, place, _without(fault, {name}))


def _less_of_faults(candidate: Candidate) -> Iterator[Candidate]:
    """What a nemesis itself can leave out of one fault: a step, say."""
    for place, fault in enumerate(candidate.schedule):
        (nemesis,) = registry.make_nemeses([fault.nemesis]).values()
        for choice in getattr(nemesis, "smaller", _nothing)(fault.choice):  # a user's own may be older
            yield _put(candidate, place, fault.model_copy(update={"choice": dict(choice)}))


def _nothing(choice: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from ()


def _less_work(candidate: Candidate) -> Iterator[Candidate]:
    plan = candidate.plan
    for producers in takewhile(lambda kind: kind != plan.producers, get_args(Producers)):
        yield _with(candidate, producers=producers)
    for partitions in _powers_below(plan.partitions):
        yield _with(candidate, partitions=partitions)
    for concurrency in _powers_below(plan.concurrency):
        yield _with(candidate, concurrency=concurrency)
    for part in _LADDER:
        rate = max(float(f"{plan.rate * part:.1g}"), 1.0)
        if rate < plan.rate:
            yield _with(candidate, rate=rate)


def _powers_below(number: int) -> Iterator[int]:
    """1, 2, 4 …"""
    return (2**n for n in range(number.bit_length()) if 2**n < number)


def _shorter(candidate: Candidate, violated_s: float | None) -> Iterator[Candidate]:
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


def _shorter_faults(candidate: Candidate) -> Iterator[Candidate]:
    for part in _LADDER[:-1]:
        shorter = tuple(_last(fault, fault.duration * part) for fault in candidate.schedule)
        yield replace(candidate, schedule=shorter)
    for place, fault in enumerate(candidate.schedule):
        for part in _LADDER[:-1]:
            yield _put(candidate, place, _last(fault, fault.duration * part))


def _last(fault: Fault, seconds: float) -> Fault:
    """For so long, or as long as it does if that is not more."""
    return fault.model_copy(update={"duration": min(fault.duration, max(_round_up(seconds), MOMENT_S))})


def _earlier_faults(candidate: Candidate) -> Iterator[Candidate]:
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


def _in_turn(candidate: Candidate) -> Iterator[Candidate]:
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
