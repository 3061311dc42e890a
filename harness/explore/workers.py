"""Worker processes, one simulated run at a time each. One that dies or does not end costs its own seed alone.

Why not concurrent.futures or multiprocessing.Pool: the first gives up all its workers when one dies, the second waits
for ever for what a dead one had in hand, and neither has a time limit. Workers are spawned, not forked: the parent has
threads (Arrow's, Spark's).
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from harness.errors import HarnessFailure, describe
from harness.explore.simulate import Simulated
from harness.plan.plan import Plan
from harness.plan.schedule import Schedule

POLL_S = 0.5
#: For a worker to import what it needs.
START_LIMIT_S = 120.0
#: For a worker to say where it stands before it is ended.
LAST_WORDS_S = 1.0
#: For one that has hung up to be gone: on a busy machine its end takes longer.
END_S = 10.0
#: What may go to every process of a group, from a terminal or by `timeout`: it is for the parent to end its workers.
TO_ALL = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)

Simulate = Callable[..., Simulated]  # of a plan, and a schedule if there is one


class Job(NamedTuple):
    """A run. schedule: its faults; None: those of its seed."""

    plan: Plan
    schedule: Schedule | None = None


_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Outcome:
    """What became of one seed.

    result: `judged`, or `crashed` or `hang` where the harness could not do its part, and why in `reason`.
    simulated: the run, as far as it came back. verdict: by checkers.dataset.check_tables.
    """

    plan: Plan
    result: Literal["judged", "crashed", "hang"]
    reason: str = ""
    simulated: Simulated | None = None
    verdict: Mapping[str, Any] | None = None

    @property
    def failed(self) -> bool:
        """So that someone should look at it."""
        return self.verdict is None or self.result != "judged" or self.verdict["verdict"] == "fail"

    def without_tables(self) -> Self:
        return self if self.simulated is None else replace(self, simulated=replace(self.simulated, tables={}))

    def without_history(self) -> Self:
        """Nor the states that it was in."""
        bare = self.without_tables()
        if bare.simulated is None:
            return bare
        return replace(bare, simulated=replace(bare.simulated, states=frozenset(), under_faults=frozenset()))


def simulate_all(
    jobs: Iterable[Job | None], workers: int, simulate: Simulate, logs: Path, *, limit_s: float, histories: bool = True
) -> Generator[Outcome | None, None, None]:
    """The outcome of every job as it comes, and None at least every POLL_S, so that the caller may do something else.

    jobs: None is no job: the next one depends on outcomes that are still to come. simulate: importable. logs: directory
    for what workers say. limit_s: seconds, by the wall clock, that one run may take. histories: outcomes have the
    tables of their runs. Whoever stops iterating ends the workers. Raises HarnessFailure if workers cannot start.
    """
    logs.mkdir()
    todo = _Todo(jobs)
    names = count()
    team: list[_Worker] = []
    try:
        while True:
            for worker in team:
                if worker.idle and (job := todo.take()) is not None:
                    worker.begin(job)
            while len(team) < workers and (job := todo.take()) is not None:
                team.append(_Worker(job, simulate, logs / f"{next(names)}.log", limit_s, histories))
            if todo.over:
                for worker in team:
                    if worker.idle:
                        worker.end()
                team = [worker for worker in team if worker.alive]
            if not team:
                return
            ready = wait([worker.connection for worker in team if not worker.idle], POLL_S)
            if not ready:
                yield None
            for worker in team:
                outcome = None if worker.idle else worker.look(worker.connection in ready)
                if outcome is not None:
                    yield outcome
            team = [worker for worker in team if worker.alive]
    finally:
        for worker in team:
            worker.end()
        for log in logs.iterdir():
            if not log.stat().st_size:
                log.unlink()
        with suppress(OSError):  # some had something to say
            logs.rmdir()


class _Todo:
    """What is still to be simulated. over: nothing is."""

    def __init__(self, jobs: Iterable[Job | None]) -> None:
        self._jobs = iter(jobs)
        self.over = False

    def take(self) -> Job | None:
        if self.over:
            return None
        try:
            return next(self._jobs)
        except StopIteration:
            self.over = True
            return None


class _Worker:
    """One process, from here. It simulates `job`, or will once it has started; idle: it has, and has nothing to do."""

    def __init__(self, job: Job, simulate: Simulate, log: Path, limit_s: float, histories: bool) -> None:
        self.alive = True
        self.idle = False
        self._job = job
        self._log = log
        self._limit_s = limit_s
        self._deadline = time.monotonic() + START_LIMIT_S
        self._started = False
        self.connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(theirs, simulate, log, histories), daemon=True)
        try:
            with undisturbed():
                self._process.start()
        except BaseException:  # nobody else knows of it yet
            self.end()
            raise
        theirs.close()

    def begin(self, job: Job) -> None:
        self.idle = False
        self._job = job
        self._deadline = time.monotonic() + self._limit_s
        with suppress(OSError):  # it has died just now: look() will tell
            self.connection.send(job)

    def look(self, spoke: bool) -> Outcome | None:
        """The outcome of its run, if there is one by now. spoke: it has sent something, or died."""
        if not spoke:
            return self._give_up() if time.monotonic() > self._deadline else None
        try:
            said: Outcome | None = self.connection.recv()
        except (EOFError, OSError):
            self._process.join(END_S)
            code = self._process.exitcode
            how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with status {code}"
            return self._lost("crashed", f"the worker process ended {how}")
        if not self._started:
            self._started = True
            self.begin(self._job)
            return None
        self.idle = True
        return said

    def _give_up(self) -> Outcome:
        assert self._process.pid is not None  # it was started
        os.kill(self._process.pid, signal.SIGUSR1)  # not reaped yet, so the number is still its own
        self._process.join(LAST_WORDS_S)
        limit_s = self._limit_s if self._started else START_LIMIT_S
        return self._lost("hang", f"not over after {limit_s:g} s by the wall clock")

    def _lost(self, result: Literal["crashed", "hang"], reason: str) -> Outcome:
        self.end()
        if last_words := _last_words(self._log):
            reason += f" ({last_words}; {self._log} says more)"
        if not self._started:
            raise HarnessFailure(f"workers cannot start: {reason}")
        return Outcome(self._job.plan, result, reason)

    def end(self) -> None:
        self.alive = False
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self.connection.close()


@contextmanager
def undisturbed() -> Iterator[None]:
    """For the start of a process: what is meant for all of a group comes here after it, and never to that process."""
    resource_tracker.ensure_running()  # otherwise a start would run it, and unblock SIGINT after that
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, TO_ALL)  # which a new process inherits
    came: list[int] = []
    # Blocked in this thread it may still be delivered to another (Arrow's, BLAS's): Python's handler then runs here.
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # no other gets one
        handlers = {number: signal.signal(number, lambda number, _: came.append(number)) for number in TO_ALL}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for each in came:
            signal.raise_signal(each)


def _last_words(log: Path) -> str:
    """The line that tells most: of an exception the last, of a dump by faulthandler where the thread was."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    for number, line in reversed(list(enumerate(lines[:-1]))):
        if "most recent call first" in line:
            return lines[number + 1].strip()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _work(connection: Connection, simulate: Simulate, log: Path, histories: bool) -> None:
    """The life of a worker process."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)  # whatever writes there: also C code that aborts
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    # Once, and not in the middle of the first run, whose time is limited. pyarrow looks for pandas when it first
    # converts a value.
    import pandas  # noqa: F401

    import checkers.dataset  # noqa: F401

    with collected_between_runs(), suppress(EOFError, ConnectionError):  # the parent is gone
        connection.send(None)
        while True:
            outcome = _outcome(connection.recv(), simulate)
            connection.send(outcome if histories else outcome.without_tables())
            gc.collect()


@contextmanager
def collected_between_runs() -> Iterator[None]:
    """No garbage is collected but by gc.collect(). A run is short and leaves cycles of moderate size, so one collection
    after it will do: that makes runs faster by a sixth, and what was imported need not be looked through each time."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _outcome(job: Job, simulate: Simulate) -> Outcome:
    plan = job.plan
    try:
        simulated = simulate(plan) if job.schedule is None else simulate(plan, job.schedule)
    except Exception as error:  # a bug of ours: it must not cost the other runs
        return Outcome(plan, "crashed", describe(error))
    try:
        verdict = simulated.judge()
    except Exception as error:  # likewise; what the run has recorded is kept
        return Outcome(plan, "crashed", f"its history could not be judged: {describe(error)}", simulated)
    if simulated.crash and verdict["verdict"] != "fail":  # a violation that was found stands
        return Outcome(plan, "crashed", simulated.crash, simulated, verdict)
    return Outcome(plan, "judged", "", simulated, verdict)
