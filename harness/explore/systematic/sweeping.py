"""Runs each point of a sweep over worker processes, and sums up what became of them."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from harness.errors import BadArguments, ExitCode
from harness.explore import failures
from harness.explore.exploration import MOST_REPORTS, RUN_LIMIT_FACTOR, RUN_LIMIT_S
from harness.explore.failures import Failure
from harness.explore.parts import differing
from harness.explore.simulate import simulate
from harness.explore.systematic.points import Point, Sweep, deeper, evidence_of, points_of, thinned
from harness.explore.workers import Outcome, Simulate, simulate_all
from harness.plan import registry
from harness.record import results
from harness.report.browse.systematic import write_page
from harness.report.html import page
from spark_history.regular import replacing


@dataclass(frozen=True)
class Ran:
    """What became of a point. struck: the operation, {operation, path, number}; None: the run did not come to it."""

    point: Point
    result: str  # pass, fail, unknown, crashed or hang
    reason: str
    struck: Mapping[str, Any] | None
    counted_again: int  # operations of the start after the strike
    failure: Failure | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "node": self.point.node, "operation": self.point.operation, "again": self.point.again or None,
            "result": self.result, "reason": self.reason, "struck": self.struck, "counted_again": self.counted_again,
            "failure": None if self.failure is None else self.failure.as_dict(),
        }  # fmt: skip


@dataclass(frozen=True)
class Swept:
    """counted: operations by node. again: how many there were after first strikes. ran: in the order of the points.
    wall_s: seconds that it took; None: it has not come to its end."""

    sweep: Sweep
    directory: Path
    counted: Mapping[str, int]
    again: int
    planned: int
    ran: Sequence[Ran]
    wall_s: float | None = None

    @property
    def struck(self) -> int:
        return sum(each.struck is not None for each in self.ran)

    @property
    def results(self) -> Counter[str]:
        return Counter(each.result for each in self.ran)

    @property
    def failing(self) -> list[Ran]:
        return [each for each in self.ran if each.failure is not None]

    @property
    def exit_code(self) -> ExitCode:
        if self.results["fail"]:
            return ExitCode.FAIL
        if self.failing:
            return ExitCode.HARNESS_FAILURE
        proven = self.results["pass"] == self.planned == len(self.ran) and self.ran
        return ExitCode.PASS if proven else ExitCode.UNKNOWN

    def as_dict(self) -> dict[str, Any]:
        return {
            "directory": str(self.directory), "exit_code": int(self.exit_code), "seed": self.sweep.plan.seed,
            **_asked(self.sweep), "counted": dict(self.counted), "counted_again": self.again, "planned": self.planned,
            "runs": len(self.ran), "struck": self.struck, "results": dict(sorted(self.results.items())),
            "wall_s": self.wall_s, "ran": [each.as_dict() for each in self.ran],
        }  # fmt: skip

    def write(self) -> None:
        """Raises OSError."""
        with replacing(self.directory / results.SWEEP_FILE) as new:  # its process may end at any moment
            new.write_text(json.dumps(self.as_dict(), indent=2) + "\n")


def _asked(sweep: Sweep) -> dict[str, Any]:
    plan = sweep.plan.model_dump(mode="json", exclude={"run"})
    return {"every": sweep.every, "of": sweep.of, "depth": sweep.depth, "plan": plan}


def _compared(asked: Mapping[str, Any]) -> dict[str, Any]:
    """As one mapping. Raises KeyError, TypeError."""
    return {**asked["plan"], **{name: asked[name] for name in ("every", "of", "depth")}}


def before(directory: Path, sweep: Sweep) -> dict[Point, Ran]:
    """What an earlier one, of the same operations, has found; but for runs that failed, which are kept beside it alone.
    Raises BadArguments."""
    path = directory / results.SWEEP_FILE
    try:
        told = json.loads(path.read_text())
        if (other := differing(_compared(_asked(sweep)), _compared(told))) is not None:
            raise BadArguments(f"--resume: {directory} is another exploration: {other}")
        first = 0 if sweep.depth == 2 else None
        ran = [
            Ran(
                Point(str(each["node"]), int(each["operation"]), each["again"] or first), str(each["result"]),
                str(each["reason"]), each["struck"], int(each["counted_again"]),
            )
            for each in told["ran"]
            if each["failure"] is None
        ]  # fmt: skip
    except FileNotFoundError:
        raise BadArguments(f"--resume: {directory} has no {results.SWEEP_FILE}") from None
    except OSError as error:
        raise BadArguments(f"--resume: {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadArguments(f"--resume: {path} is not what chaos explore --every writes") from None
    return {each.point: each for each in ran}


def carry_out(
    sweep: Sweep,
    results_directory: Path,
    *,
    step: int = 1,
    most: int | None = None,
    done: Mapping[Point, Ran] = MappingProxyType({}),
    workers: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    watch: Callable[[int, int, int], None] = lambda done, total, failing: None,
    simulate: Simulate = simulate,
) -> Swept:
    """Count the operations, then strike in each of them, or in every step-th and at most so many, and so again at the
    second depth. done: what need not be run again.

    watch: told now and then how many runs are done, of how many, and how many failed. simulate: importable. Raises
    HarnessFailure, and OSError where the results cannot be written."""
    began = time.monotonic()
    counted = sweep.counted(registry.make_target(sweep.plan.target))
    directory = results.create(results_directory, ("systematic", sweep.every, sweep.of), sweep.plan.seed)
    first = thinned(points_of(counted, 0 if sweep.depth == 2 else None), step, most)

    def keep(ran: Sequence[Ran], planned: int, wall_s: float | None = None) -> Swept:
        """What is known so far: this may take hours."""
        again = sum(each.counted_again for each in ran if not each.point.again)
        swept = Swept(sweep, directory, counted, again, planned, tuple(ran), wall_s)
        swept.write()
        return swept

    asked = _Asked(sweep, directory, workers or os.cpu_count() or 1, stop, watch, simulate, done)
    ran = asked.run(first, "workers", lambda ran: keep(ran, len(first)))
    second: list[Point] = []
    if sweep.depth == 2:
        second = thinned(deeper((each.point, each.counted_again) for each in ran), step, most)
        planned = len(first) + len(second)
        ran += asked.run(second, "workers-again", lambda deep: keep([*ran, *deep], planned))
    return _with_reports(keep(ran, len(first) + len(second), round(time.monotonic() - began, 3)))


def _with_reports(swept: Swept) -> Swept:
    """And its page, as explorations of seeds have them. Raises OSError."""
    first = [each.failure.directory for each in swept.ran if each.failure is not None][:MOST_REPORTS]
    for directory in filter(None, first):
        with suppress(BadArguments, OSError):  # the run's directory is there, and `chaos report` says what is wrong
            page.build(directory)
    write_page(swept.directory)
    return swept


#: Runs, after which what is known is written.
_KEPT_EVERY: Final = 50


@dataclass
class _Asked:
    sweep: Sweep
    directory: Path
    workers: int
    stop: Callable[[], bool]
    watch: Callable[[int, int, int], None]
    simulate: Simulate
    before: Mapping[Point, Ran]
    failing: int = 0
    done: int = 0

    def run(self, points: Sequence[Point], logs: str, keep: Callable[[Sequence[Ran]], object]) -> list[Ran]:
        """In the order of the points, whichever ends first. keep: is given those that there are now and then."""
        ran = {point: self.before[point] for point in points if point in self.before}
        jobs = {point: self.sweep.job(point) for point in points if point not in ran}
        total = self.done + len(points)
        self.done += len(ran)
        if not jobs or self.stop():
            return [ran[point] for point in points if point in ran]
        by_run = {job.plan.run: point for point, job in jobs.items()}
        limit_s = RUN_LIMIT_S + RUN_LIMIT_FACTOR * self.sweep.plan.time_limit
        workers = min(self.workers, len(jobs))
        outcomes = simulate_all(jobs.values(), workers, self.simulate, self.directory / logs, limit_s=limit_s)
        with closing(outcomes):
            for outcome in outcomes:
                if outcome is not None:
                    point = by_run[outcome.plan.run]
                    ran[point] = self._keep(point, outcome)
                    self.failing += ran[point].failure is not None
                    self.done += 1
                    if len(ran) % _KEPT_EVERY == 0:
                        keep([ran[point] for point in points if point in ran])
                self.watch(self.done, total, self.failing)
                if self.stop():
                    break
        return [ran[point] for point in points if point in ran]

    def _keep(self, point: Point, outcome: Outcome) -> Ran:
        failure = None
        if outcome.failed:
            directory = self.directory / "runs" / outcome.plan.run
            failures.save(outcome, directory)
            failure = Failure.of(outcome, directory)
        evidence: Mapping[str, Any] = {}
        if outcome.simulated is not None and not outcome.simulated.crash:
            evidence = evidence_of(outcome.simulated).get(point.node, {})
        result, reason = outcome.result, outcome.reason
        if outcome.result == "judged" and outcome.verdict is not None:
            result, reason = outcome.verdict["verdict"], str(outcome.verdict["reason"])
        again = evidence.get("again", {})
        struck = (again if point.again else evidence).get("struck")
        return Ran(point, result, reason, struck, int(again.get("counted_operations", 0)), failure)
