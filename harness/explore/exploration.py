"""Explore: simulate seeds, judge their histories in one Spark job, and say which failed and how to repeat them."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from checkers.dataset import check_dataset
from checkers.verdict.vacuous import is_vacuous
from harness.errors import BadArguments, ExitCode, HarnessFailure, describe
from harness.explore import coverage, failures, parts
from harness.explore.failures import Failure
from harness.explore.simulate import simulate
from harness.explore.source import Numbered, Source
from harness.explore.workers import Outcome, Simulate, simulate_all
from harness.plan.plan import Plan
from harness.record import results
from harness.report.browse.exploration import ranges, smallest_seeds, write_page
from harness.report.html import page
from spark_history.dataset import DatasetWriter
from spark_history.spark.session import SparkUnavailable, find_java, start_in_background

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds by the wall clock that a run may take, and as many more for each second of its time limit. A run takes a
#: fraction of its simulated time; this is for one that never ends, and for a machine that has much else to do.
RUN_LIMIT_S = 120.0
RUN_LIMIT_FACTOR = 2.0
#: Of failing seeds, in their order; each takes half a second.
MOST_REPORTS: Final = 20


@dataclass(frozen=True)
class Standing:
    """How far an exploration has come."""

    done: int
    total: int
    failing: int
    elapsed_s: float
    judging: bool = False  # all that is to be simulated has been

    @property
    def seeds_an_hour(self) -> float:
        return 3600 * self.done / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True)
class Exploration:
    """plan: of every run, but for seed and name. asked: how many seeds were to be simulated; runs: how many were.

    unknown: seeds by the reason why nothing can be said of them. simulate_s, judge_s: seconds by the wall clock.
    problems: what went wrong in the harness besides, a sentence each. without_effect: nemeses that took effect in no
    run, each with why not in the first of them. passed_seeds: as ranges. coverage: see coverage.of_faults. checked:
    properties that were looked at. states: see coverage.States. guided: runs were made of others, see the package of
    that name.
    """

    directory: Path
    plan: Plan
    asked: int
    runs: int
    passed: int
    failing: tuple[Failure, ...]
    unknown: Mapping[str, tuple[int, ...]]
    simulated_s: float
    simulate_s: float
    judge_s: float
    problems: tuple[str, ...]
    without_effect: Mapping[str, str] = field(default_factory=dict)
    passed_seeds: str = ""
    coverage: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    checked: tuple[str, ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    guided: bool = False

    @property
    def wall_s(self) -> float:
        return self.simulate_s + self.judge_s

    @property
    def seeds_an_hour(self) -> float:
        """That were simulated; as Standing has it. Judging takes as long for few as for many."""
        return 3600 * self.runs / self.simulate_s

    def count(self, result: str) -> int:
        """Of the failing: `fail`, `crashed` or `hang`."""
        return sum(failure.result == result for failure in self.failing)

    @property
    def exit_code(self) -> ExitCode:
        """A violation that was found stands, whatever else happened."""
        if self.count("fail"):
            return ExitCode.FAIL
        if self.failing or self.problems:
            return ExitCode.HARNESS_FAILURE
        undecided = any(not is_vacuous(reason) for reason in self.unknown)
        proven = self.passed and self.runs == self.asked and not undecided
        return ExitCode.PASS if proven and not self.lacking_effect else ExitCode.UNKNOWN

    @property
    def lacking_effect(self) -> Collection[str]:
        """Nemeses that should have taken effect in some run, and did in none: so nothing is proven of them."""
        return () if self.plan.must_take_effect == "none" else self.without_effect.keys()

    def with_problems(self, more: Sequence[str]) -> Exploration:
        return replace(self, problems=(*self.problems, *more))

    def as_dict(self) -> dict[str, Any]:
        unknown = [{"reason": reason, "seeds": list(seeds)} for reason, seeds in self.unknown.items()]
        return {
            "directory": str(self.directory),
            "exit_code": int(self.exit_code),
            "totals": {
                "asked": self.asked,
                "runs": self.runs,
                "passed": self.passed,
                "failed": self.count("fail"),
                "crashed": self.count("crashed"),
                "hang": self.count("hang"),
                "unknown": sum(map(len, self.unknown.values())),
                "simulated_s": round(self.simulated_s, 3),
                "simulate_s": round(self.simulate_s, 3),
                "judge_s": round(self.judge_s, 3),
                "wall_s": round(self.wall_s, 3),
                "seeds_an_hour": round(self.seeds_an_hour),
            },
            "failing": [failure.as_dict() for failure in self.failing],
            "unknown": unknown,
            "passed_seeds": self.passed_seeds,
            "without_effect": dict(self.without_effect),
            "coverage": {fault: dict(counts) for fault, counts in self.coverage.items()},
            "states": dict(self.states),
            "guided": self.guided,
            "checked": list(self.checked),
            "problems": list(self.problems),
            "plan": self.plan.model_dump(mode="json", exclude={"run", "seed"}),
        }


def explore(
    plan: Plan,
    source: Source,
    results_directory: Path,
    *,
    workers: int | None = None,
    until_failure: bool = False,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[Standing], None] = lambda standing: None,
    simulate: Simulate = simulate,
    run_limit_s: float | None = None,
    of: Sequence[int] | None = None,
    drawn: Collection[str] = (),
) -> Exploration:
    """Simulate the runs of `source`, and judge what there is. plan: what they have in common. of: the seeds of which
    those of the source are a part; by default there are no others. drawn: fields of the plan that each seed draws.

    workers: how many processes; by default as many as there are processors. until_failure: no new seeds once one has
    failed. stop: asked now and then; True ends the simulating. watch: told now and then how far it has come. simulate:
    importable, as the workers import it. run_limit_s: by the wall clock, by default of the plan's time limit.

    Raises HarnessFailure where it cannot begin, and OSError where the results cannot be written.
    """
    try:
        find_java()  # hours of work should not end in this
    except SparkUnavailable as error:
        raise HarnessFailure(str(error)) from error
    seeds = source.seeds
    workers = min(workers or os.cpu_count() or 1, len(seeds))
    run_limit_s = run_limit_s or RUN_LIMIT_S + RUN_LIMIT_FACTOR * plan.time_limit
    directory = results.create(results_directory, ("explore", *plan.nemesis), seeds[0])
    parts.part(directory, plan, seeds, seeds if of is None else of, source.guided, drawn).write()
    jobs = Numbered(source)
    states = coverage.States()

    began = time.monotonic()
    spark: Future[SparkSession] | None = None
    done: list[Outcome] = []
    failing = 0
    outcomes = simulate_all(jobs, workers, simulate, directory / "workers", limit_s=run_limit_s)
    with DatasetWriter(directory / "dataset", 0) as dataset, closing(outcomes):
        for outcome in outcomes:
            if outcome is not None:
                _keep(outcome, directory, dataset)
                states.take(jobs.take(outcome), outcome)
                done.append(outcome.without_history())
                failing += outcome.failed
            watch(Standing(len(done), len(seeds), failing, time.monotonic() - began))
            if spark is None and len(seeds) - len(done) < workers:  # a core has become free
                spark = _start_spark(directory)
            if stop() or (until_failure and failing):
                break
    simulated_at = time.monotonic()
    watch(Standing(len(done), len(seeds), failing, simulated_at - began, judging=True))
    done, problems = _judge(done, directory, spark)
    exploration = _sum_up(
        done, directory, plan, asked=len(seeds), problems=problems, states=states.as_dict(), guided=source.guided,
        simulate_s=simulated_at - began, judge_s=time.monotonic() - simulated_at,
    )  # fmt: skip
    return _kept(_with_reports(exploration))


def _with_reports(exploration: Exploration) -> Exploration:
    """Of each of the first failing seeds, and of the smallest of what broke. What goes wrong with them is a problem of
    the harness."""
    problems = []
    first = [failure.directory for failure in exploration.failing[:MOST_REPORTS]]
    smallest = smallest_seeds(exploration.as_dict())
    first += [failure.directory for failure in exploration.failing[MOST_REPORTS:] if failure.seed in smallest]
    for directory in filter(None, first):
        try:
            page.build(directory)
        except (BadArguments, OSError) as error:
            problems.append(f"there is no report of {directory}: {describe(error)}")
    return exploration.with_problems(problems)


def _kept(exploration: Exploration) -> Exploration:
    """In a file, and in the page that is made of it. Raises OSError if there can be no file."""
    directory = exploration.directory
    _write(exploration)
    try:
        write_page(directory)
    except OSError as error:
        exploration = exploration.with_problems([f"there is no page of {directory}: {describe(error)}"])
        _write(exploration)
    return exploration


def _write(exploration: Exploration) -> None:
    path = exploration.directory / results.EXPLORATION_FILE
    path.write_text(json.dumps(exploration.as_dict(), indent=2) + "\n")


def _start_spark(directory: Path) -> Future[SparkSession]:
    return start_in_background(log=directory / "spark.log")


def _keep(outcome: Outcome, directory: Path, dataset: DatasetWriter) -> None:
    """The history, if there is one that can be judged, and a directory for a run that failed."""
    simulated = outcome.simulated
    if simulated is not None and outcome.verdict is not None:
        violation = None if simulated.violation is None else simulated.violation.as_dict()
        dataset.add(
            outcome.plan.model_dump(mode="json"),
            simulated.tables,
            doubts=failures.doubts(outcome),
            violation=violation,
        )
    if outcome.failed:
        failures.save(outcome, _run_directory(outcome, directory))


def _run_directory(outcome: Outcome, directory: Path) -> Path:
    return directory / "runs" / outcome.plan.run


def _judge(
    done: list[Outcome], directory: Path, spark: Future[SparkSession] | None
) -> tuple[list[Outcome], tuple[str, ...]]:
    """The outcomes with the verdicts of the whole dataset, and what went wrong."""
    if all(outcome.verdict is None for outcome in done):
        return done, ()
    dataset, session = directory / "dataset", spark or _start_spark(directory)
    try:
        verdicts = {verdict["run"]: verdict for verdict in check_dataset(dataset.resolve(), session.result())}
    except Exception as error:  # whatever it is: the workers have judged each run by itself, by the same checkers
        return done, (f"Spark could not judge {dataset}: {describe(error)}; so each run was judged alone",)
    alone = [o.plan.run for o in done if o.verdict is not None and verdicts.get(o.plan.run, _LACKING)["not_judged"]]
    problems: tuple[str, ...] = ()
    if alone:
        why = "; ".join(verdicts.get(alone[0], _LACKING)["not_judged"])
        problems = (f"{len(alone)} runs of {dataset} were judged alone, by the workers, such as {alone[0]}: {why}",)
    kept = {*alone, *(o.plan.run for o in done if o.verdict is None)}
    return [o if o.plan.run in kept else replace(o, verdict=verdicts[o.plan.run]) for o in done], problems


_LACKING: Final = {"not_judged": ["the dataset does not hold it"]}  # the verdict on a run that is not there


def _sum_up(
    done: list[Outcome],
    directory: Path,
    plan: Plan,
    *,
    asked: int,
    problems: tuple[str, ...],
    simulate_s: float,
    judge_s: float,
    states: Mapping[str, int] = MappingProxyType({}),
    guided: bool = False,
) -> Exploration:
    failing, unknown, passed = [], [], list[int]()
    # Not as they came; those of a guided exploration may have the same seed.
    done = sorted(done, key=lambda each: (each.plan.seed, len(each.plan.run), each.plan.run))
    for outcome in done:
        if outcome.failed:
            of_its_own = _run_directory(outcome, directory)
            failing.append(Failure.of(outcome, of_its_own if of_its_own.is_dir() else None))
        elif outcome.verdict is not None and outcome.verdict["verdict"] == "pass":
            passed.append(outcome.plan.seed)
        else:
            unknown.append(outcome)
    return Exploration(
        directory=directory,
        plan=plan,
        asked=asked,
        runs=len(done),
        passed=len(passed),
        failing=tuple(failing),
        unknown=_by_reason(unknown),
        simulated_s=sum(outcome.simulated.virtual_s for outcome in done if outcome.simulated is not None),
        simulate_s=simulate_s,
        judge_s=judge_s,
        problems=problems,
        without_effect=_without_effect(done),
        passed_seeds=ranges(passed),
        coverage=coverage.of_faults(done),
        checked=coverage.checked(done),
        states=states,
        guided=guided,
    )


def _without_effect(done: Sequence[Outcome]) -> dict[str, str]:
    """The nemeses that took effect in no run, with why not in the first of them that says."""
    took: dict[str, str | None] = {}
    for outcome in done:
        for each in (outcome.verdict or {}).get("nemeses", ()):
            name, why = each["nemesis"], each["why_not"]
            took[name] = None if why is None or (name in took and took[name] is None) else took.get(name) or why
    return {name: why for name, why in took.items() if why is not None}


def _by_reason(unknown: Sequence[Outcome]) -> dict[str, tuple[int, ...]]:
    """Reasons that differ in their numbers alone are one; the most frequent first."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in unknown:
        groups.setdefault(re.sub(r"\d+", "", _reason(outcome)), []).append(outcome)
    by_size = sorted(groups.values(), key=len, reverse=True)
    return {_reason(group[0]): tuple(outcome.plan.seed for outcome in group) for group in by_size}


def _reason(outcome: Outcome) -> str:
    return "" if outcome.verdict is None else str(outcome.verdict["reason"])
