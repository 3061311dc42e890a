"""Carries runs out, of a suite or a matrix: each in a process of its own, several at once if that is asked for.

A run's process records only (`chaos run --no-check`) and this one judges, so that one Spark session is enough for all
of them, and a run that crashes costs nobody else anything. In the directory of the suite or matrix, each run has its
plan (plans/<run>.toml), its own directory (runs/<run>/), and what it said meanwhile (runs/<run>.log).
"""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

from harness.errors import BadArguments, describe
from harness.record.results import MOST_OF_A_NAME
from harness.run.order import Order
from harness.suites import artifacts, child_runs, stories
from harness.suites.parts import Planned
from harness.suites.results import Ran, judged, not_judged, not_run

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Called with what happens, as documents: {"event": "started" | "finished", …}.
Tell = Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True)
class Wishes:
    """How runs are carried out. jobs: at once. time_limit: seconds for all of them. artifacts: see artifacts.py.
    stories: of a simulated run that breaks a property, how many smaller ones are tried before its story is told; 0:
    none is told."""

    jobs: int = 1
    fail_fast: bool = False
    time_limit: float | None = None
    artifacts: artifacts.Keep = field(default_factory=artifacts.Keep)
    stories: int = 0


@dataclass
class Runner:
    """One carrying out of them. directory: of the suite or matrix, made already. save: called before the first run and
    after each, to write down what became of them."""

    runs: Sequence[Planned]
    directory: Path
    wishes: Wishes
    tell: Tell
    save: Callable[[Runner], None]
    untold: Mapping[Planned, Ran] = field(default_factory=dict)  # judged before: only their stories are left
    results: dict[Planned, Ran] = field(default_factory=dict)
    over: str = ""  # why no more runs begin, if so

    def __post_init__(self) -> None:
        self._token = secrets.token_hex(2)  # so that runs of two suites on one engine never have one name
        self._processes: dict[Planned, asyncio.subprocess.Process] = {}
        self._judging = asyncio.Lock()
        self._stopping = False

    async def carry_out(self) -> list[Ran]:
        """What became of each run, in their order. Raises what save raises."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        limit = self.wishes.time_limit
        timer = None if limit is None else loop.call_later(limit, self._end, f"its time limit of {limit:g} s was over")
        try:
            self.save(self)
            waiting = iter(enumerate(self.runs, start=1))
            await asyncio.gather(*(self._worker(waiting) for _ in range(min(self.wishes.jobs, len(self.runs)))))
        finally:
            if timer is not None:
                timer.cancel()
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        return self.ran

    @property
    def ran(self) -> list[Ran]:
        return [
            self.results.get(planned) or not_run(planned, f"not run: {self.over or 'its turn has not come yet'}")
            for planned in self.runs
        ]

    async def _worker(self, waiting: Any) -> None:
        for number, planned in waiting:
            if self.over:
                return
            name = run_name(planned, f"{self._token}-{number}")
            self.tell({"event": "started", "name": planned.name, "seed": planned.seed, "directory": f"runs/{name}"})
            self.results[planned] = ran = await self._run(planned, name)
            artifacts.tidy(self.directory, self.results.values(), self.wishes.artifacts)
            self.tell({"event": "finished", **vars(ran)})
            self.save(self)
            if self.wishes.fail_fast and ran.outcome != "passed":
                self._end(f"{ran.title} {'failed' if ran.outcome == 'failed' else 'could not be judged'}", stop=False)

    async def _run(self, planned: Planned, name: str) -> Ran:
        if (before := self.untold.get(planned)) is not None:
            return await self._with_story(planned, before)
        began = time.monotonic()
        directory, log = self.directory / "runs" / name, self.directory / "runs" / f"{name}.log"
        try:
            said = await self._record(planned, name, log)
            async with self._judging:
                verdict = None if not (directory / "journal").exists() else await asyncio.to_thread(_judge, directory)
        except OSError as error:
            return not_judged(planned, describe(error), "", time.monotonic() - began)
        except Exception as error:  # also a mistake of ours costs the other runs nothing
            return not_judged(planned, describe(error), f"runs/{name}", time.monotonic() - began)
        took_s = time.monotonic() - began
        where = f"runs/{name}" if directory.is_dir() else ""
        if verdict is None or (said and verdict["verdict"] != "fail"):  # a violation that was found stands
            return not_judged(planned, said or "it left no history", where, took_s)
        report = f"{where}/report.html" if (directory / "report.html").is_file() else ""
        return await self._with_story(planned, judged(planned, verdict, where, took_s, report))

    async def _with_story(self, planned: Planned, ran: Ran) -> Ran:
        """If one is wanted, and the time suffices to make the run smaller."""
        if not self.wishes.stories or not stories.can_be_told(planned, ran) or self.over:
            return ran
        story = await self._shrink(planned, self.directory / ran.directory)
        return ran if self._stopping else replace(ran, story=story)

    async def _record(self, planned: Planned, name: str, log: Path) -> str:
        """The run itself. Returns why it did not come to its end, a sentence; "": it did. Raises OSError."""
        plan = self.directory / "plans" / f"{name}.toml"
        plan.parent.mkdir(exist_ok=True)
        log.parent.mkdir(exist_ok=True)
        plan.write_text(child_runs.plan_toml({**planned.fields, "seed": planned.seed}))
        command = child_runs.command(
            "run", "--plan", str(plan), "--results", str(log.parent), "--run-name", name, "--no-check"
        )
        with log.open("wb") as output:
            code = await self._process(planned, command, output, output)
        if code == 0:
            return ""
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return child_runs.last_words(log) or f"its process ended with status {code}"

    async def _shrink(self, planned: Planned, directory: Path) -> stories.Story | None:
        """None: it came to no end."""
        said = directory.with_name(f"{directory.name}{stories.SUFFIX}")
        command = child_runs.command(
            "shrink", str(directory), "--budget", str(self.wishes.stories), "--workers", "1", "--json"
        )
        try:
            with said.open("wb") as output, said.with_suffix(".log").open("wb") as errors:
                await self._process(planned, command, output, errors)
            return stories.read(said, self.directory)
        except OSError:
            return None

    async def _process(self, planned: Planned, command: Sequence[str], output: IO[bytes], errors: IO[bytes]) -> int:
        """Its exit code; below 0 the number of the signal that ended it. Raises OSError."""
        # A session of its own: it gets signals from here, and each of them once.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        self._processes[planned] = process
        if self._stopping:  # while it began
            _interrupt(process)
        try:
            return await process.wait()
        finally:
            del self._processes[planned]

    def _signalled(self, number: signal.Signals) -> None:
        self._end(f"it was stopped by {number.name}")

    def _end(self, why: str, *, stop: bool = True) -> None:
        """No more runs begin; and those that go on are asked to end, as Ctrl-C asks them. Twice: to end at once."""
        self.over = self.over or why
        self._stopping = self._stopping or stop
        for process in self._processes.values() if stop else ():
            _interrupt(process)


def check_plans(runs: Sequence[Planned], results: Path) -> None:
    """All that can be known to be wrong before the first begins. Raises BadArguments, RuntimeUnavailable."""
    for planned in {(each.name, each.expect): each for each in runs}.values():  # seeds differ in nothing else
        try:
            Order({**planned.fields, "seed": planned.seed}, results).prepared()
        except BadArguments as error:
            raise BadArguments(f"{planned.name}: {error}") from None


def _interrupt(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        process.send_signal(signal.SIGINT)


def run_name(planned: Planned, token: str) -> str:
    """token: unlike that of any other run."""
    tail = f"-s{planned.seed}-{token}"
    stem = re.sub(r"[^a-z0-9.]+", "-", planned.name.lower()).strip("-.") or "run"
    return stem[: MOST_OF_A_NAME - len(tail)].rstrip("-.") + tail


def _judge(directory: Path) -> Mapping[str, Any]:
    from harness.report.console import Progress
    from harness.report.terminal import silent
    from harness.run.components import Verification
    from harness.run.run import check

    return check(directory, Verification(), Progress(silent()))  # what it says meanwhile is of no interest here
