"""One run, readable top to bottom: plan → cluster → workload ∥ faults → heal → final reads → collect → verdict.

Tear-down comes last. Once the history is on disk nothing that fails can lose the verdict: it becomes a problem in
run.json and in the summary. A run that fails earlier tears down whatever it had started.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from harness import schedule as schedules
from harness.cluster import Cluster
from harness.console import Progress, live_line
from harness.errors import HarnessFailure, Stopped, describe
from harness.injector import Injector
from harness.interrupt import Interrupt
from harness.parts import Analysis, Parts
from harness.plan import Plan
from harness.replica_logs import record_replica_logs
from harness.results import RunRecord, utc_now
from harness.schedule import Schedule
from harness.threads import in_thread
from nemesis import Nemesis

READY_TIMEOUT_S = 60.0
RECOVERY_TIMEOUT_S = 60.0
FINAL_READ_TIMEOUT_S = 60.0
COLLECT_TIMEOUT_S = 60.0
TEAR_DOWN_TIMEOUT_S = 60.0
POLL_S = 0.2


async def run(
    plan: Plan,
    nemeses: Mapping[str, Nemesis],
    directory: Path,
    parts: Parts,
    progress: Progress,
    *,
    keep: bool = False,
    spark_ui_port: int | None = None,
) -> Mapping[str, Any]:
    """Carry out `plan` and return the verdict, which is also in directory/verdict.json.

    keep: leave the cluster up. Raises HarnessFailure or RuntimeUnavailable when there can be no verdict.
    """
    interrupt = Interrupt(progress.say)
    interrupt.watch()
    record = RunRecord(directory, facts={"command": plan.command(), "started_at": utc_now()})
    record.save()
    plan.save(directory)
    schedule = schedules.build(nemeses, plan.seed, plan.time_limit)
    schedules.save(schedule, directory)
    progress.say(f"run {plan.run}: {len(schedule)} faults planned")

    cluster: Cluster | None = None
    try:
        began = time.monotonic()
        with record.timed("start"):
            progress.update("starting the cluster")
            warm = asyncio.create_task(in_thread(parts.warm_up))
            cluster = await interrupt.cut_short(parts.runtime.start(plan, directory, progress.update))
            await warm
        history = History(plan, directory, parts, cluster, record, progress)
        with record.timed("ready"):
            await interrupt.cut_short(history.begin())
        record.facts["ready_s"] = round(time.monotonic() - began, 3)
        progress.say(f"cluster ready in {record.facts['ready_s']:.1f} s")

        analysis = asyncio.create_task(in_thread(parts.start_analysis, directory, spark_ui_port))
        await history.make(nemeses, schedule, interrupt.asked)
        await history.complete()
        verdict = await _judge(directory, parts, analysis, record, progress)
        record.facts["after_time_limit_s"] = round(time.monotonic() - history.workload_ended, 3)
        record.finish("interrupted" if interrupt.asked.is_set() else "done")
    except asyncio.CancelledError:
        record.finish("failed")
        raise Stopped(f"stopped at once; what had been recorded is in {directory}") from None
    except BaseException as error:
        record.problem(describe(error))
        record.finish("failed")
        raise
    finally:
        interrupt.begin_tear_down()
        await _tear_down(cluster, record, progress, keep=keep)
    if history.crash and verdict["verdict"] != "fail":
        # A violation that was found stands; anything else would vouch for a test that did not take place.
        raise HarnessFailure(f"{history.crash}; the history up to then: {verdict['verdict']}, {verdict['reason']}")
    return verdict


def check(directory: Path, parts: Parts, progress: Progress, *, spark_ui_port: int | None = None) -> Mapping[str, Any]:
    """Judge a saved run again, also one whose harness was killed. Raises HarnessFailure if it cannot be judged."""
    progress.update(f"checking {directory}")
    verdict = parts.start_analysis(directory, spark_ui_port).judge()
    progress.update("writing the report")
    try:
        parts.build_report(directory)
    except Exception as error:  # the verdict is what was asked for
        progress.say(f"the report could not be written: {describe(error)}")
    return verdict


class History:
    """The part of a run that makes its history: from a cluster that was started to a journal that is closed."""

    def __init__(
        self, plan: Plan, directory: Path, parts: Parts, cluster: Cluster, record: RunRecord, progress: Progress
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._cluster = cluster
        self._record = record
        self._progress = progress
        self._recorder = parts.make_recorder(directory, plan.run)
        self._observer = parts.make_observer(cluster, plan)
        self._workload = parts.make_workload(plan, cluster, self._recorder)
        self.workload_ended = 0.0  # time.monotonic()
        self.crash = ""  # why the workload or the faults ended before their time, if they did

    async def begin(self) -> None:
        """Topic made, every partition led and every replica in its ISR. Raises HarnessFailure."""
        self._progress.update("waiting until the cluster is ready")
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._workload.set_up()
                await self._in_sync()
        except TimeoutError:
            reason = (await self._observer.view()).out_of_sync or "the topic was not created"
            logs = await self._collect_logs()
            raise HarnessFailure(f"the cluster was not ready after {READY_TIMEOUT_S:g} s: {reason}{logs}") from None

    async def make(self, nemeses: Mapping[str, Nemesis], schedule: Schedule, asked: asyncio.Event) -> None:
        """Workload and faults side by side, until the time limit or until `asked` is set; then all faults healed."""
        over = asyncio.Event()
        injector = Injector(
            self._cluster, nemeses, schedule, targets=self._plan.targets, time_limit=self._plan.time_limit,
            observer=self._observer, recorder=self._recorder, stop=over,
        )  # fmt: skip
        self._record.facts["workload_start_ns"] = time.monotonic_ns()
        with self._record.timed("workload"):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._unless_it_crashes("the workload", self._workload.run(over), over))
                group.create_task(self._unless_it_crashes("the fault schedule", injector.run(), over))
                await self._until_over(injector, over, asked)
                over.set()
                self.workload_ended = time.monotonic()
                self._progress.update("healing, and waiting for what is in flight")
        with self._record.survived("heal"):
            await injector.heal_all()
            await self._cluster.heal()
            await self._restart_the_dead()

    async def complete(self) -> None:
        """Final reads and what lies on the replicas' disks; then the journal is closed, whatever failed before."""
        with self._record.survived("recover"):
            self._progress.update("waiting until every replica is back in its ISR")
            try:
                async with asyncio.timeout(RECOVERY_TIMEOUT_S):
                    await self._in_sync()
            except TimeoutError:
                reason = (await self._observer.view()).out_of_sync
                self._record.doubt(f"not recovered {RECOVERY_TIMEOUT_S:g} s after every fault was healed: {reason}")
        with self._record.survived("final reads"):
            self._progress.update("reading every partition from its start to its end")
            async with asyncio.timeout(FINAL_READ_TIMEOUT_S):
                await self._workload.final_read()
        with self._record.survived("collect"):
            self._progress.update("collecting logs and disks")
            async with asyncio.timeout(COLLECT_TIMEOUT_S):
                await self._cluster.collect(self._directory)
            disks = self._directory / "disks"
            for problem in await in_thread(record_replica_logs, disks, self._plan.topic, self._recorder):
                self._record.problem(problem)
        with self._record.survived("close workload"):
            await self._workload.close()
        with self._record.timed("close journal"):
            await in_thread(self._recorder.close)

    async def _until_over(self, injector: Injector, over: asyncio.Event, asked: asyncio.Event) -> None:
        began = time.monotonic()
        errors: Counter[str] = Counter()
        while not (over.is_set() or asked.is_set()):
            elapsed = time.monotonic() - began
            if elapsed >= self._plan.time_limit:
                return
            counts = self._workload.counts()
            errors.update(counts.errors)
            self._progress.tick(live_line(elapsed, self._plan.time_limit, counts, errors, injector.in_force))
            await asyncio.sleep(min(POLL_S, self._plan.time_limit - elapsed))

    async def _unless_it_crashes(self, name: str, work: Coroutine[Any, Any, None], over: asyncio.Event) -> None:
        """A crash ends workload and faults, not the run: what was recorded can still be judged."""
        try:
            await work
        except Exception as error:  # a bug, or the machine: either way the history so far is sound
            self.crash = self.crash or f"{name} failed: {describe(error)}"
            self._record.doubt(self.crash)
            over.set()

    async def _restart_the_dead(self) -> None:
        for node in self._cluster.nodes:
            if not await node.is_running():
                self._record.problem(f"{node.name} was not running though no fault held it down; started it again")
                await node.start()

    async def _in_sync(self) -> None:
        """Returns once every broker says that every replica is in its ISR."""
        while (await self._observer.view()).out_of_sync is not None:
            await asyncio.sleep(POLL_S)

    async def _collect_logs(self) -> str:
        """Save what the nodes have said, and tell where, as the end of a message."""
        with self._record.survived("collect"):
            async with asyncio.timeout(COLLECT_TIMEOUT_S):
                await self._cluster.collect(self._directory)
            return f"; what the nodes said is in {self._directory / 'logs'}"
        return ""


async def _judge(
    directory: Path, parts: Parts, analysis: asyncio.Task[Analysis], record: RunRecord, progress: Progress
) -> Mapping[str, Any]:
    with record.timed("check"):
        progress.update("checking the history")
        verdict = await in_thread((await analysis).judge)
    with record.survived("report"):
        progress.update("writing the report")
        await in_thread(parts.build_report, directory)
    return verdict


async def _tear_down(cluster: Cluster | None, record: RunRecord, progress: Progress, *, keep: bool) -> None:
    """Never raises: the verdict, or the reason why there is none, matters more."""
    if cluster is None:  # a start that fails takes down what it had started
        return
    if keep:
        progress.say("the cluster is left up; `chaos clean` removes it")
        return
    with record.survived("tear down"):
        progress.update("removing the cluster")
        async with asyncio.timeout(TEAR_DOWN_TIMEOUT_S):
            await cluster.stop()
