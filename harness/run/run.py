"""One run, readable top to bottom: plan → cluster → workload ∥ faults → heal → final reads → collect → verdict.

Tear-down comes last. Once the history is on disk nothing that fails can lose the verdict: it becomes a problem in
run.json and in the summary. A run that fails earlier tears down whatever it had started.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from harness.cluster import Cluster
from harness.errors import HarnessFailure, Stopped, describe
from harness.plan import plan_file, registry, schedule_file
from harness.plan import schedule as schedules
from harness.plan.plan import Plan
from harness.plan.schedule import Schedule
from harness.record import machine as machine_of
from harness.record.results import NOT_JUDGED, RunRecord, utc_now
from harness.record.timeline import clock
from harness.report.console import Progress
from harness.run.components import Analysis, Components, Verification
from harness.run.interrupt import Interrupt
from harness.run.phases import Phases
from harness.run.threads import in_thread
from harness.runtimes.owner import machine, owner
from harness.targets.security import PLAINTEXT
from nemesis import Nemesis

TEAR_DOWN_TIMEOUT_S = 60.0
#: What stands for the verdict of a run that is judged later.
RECORDED: Final[Mapping[str, Any]] = {"verdict": NOT_JUDGED, "reason": "recorded, to be judged later"}


def components_of(plan: Plan) -> Components:
    """Those of the target and the runtime that the plan names."""
    target = registry.make_target(plan.target)
    if plan.on == "simulation":
        from harness.run.simulated import SimulationComponents

        return SimulationComponents(target)
    return Components(target, plan.on)


async def run(
    plan: Plan,
    nemeses: Mapping[str, Nemesis],
    directory: Path,
    components: Components,
    progress: Progress,
    *,
    schedule: Schedule | None = None,
    keep: bool = False,
    judges: bool = True,
    spark_ui_port: int | None = None,
    said_of_it: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """Carry out `plan` and return the verdict, which is also in directory/verdict.json.

    schedule: None: as the plan's seed draws it. keep: leave the cluster up. judges: else what is returned is RECORDED,
    and check() judges the history, wherever and whenever. said_of_it: further facts for run.json. Raises HarnessFailure
    or RuntimeUnavailable when there can be no verdict.
    """
    interrupt = Interrupt(progress.say)
    interrupt.watch()
    harness = {"process": owner(), "machine": machine()}
    facts = {
        "command": plan.command(), "started_at": utc_now(), "clock": clock.now(), "harness": harness,
        "chaos": machine_of.chaos(), "host": machine_of.host(), **(said_of_it or {}),
    }  # fmt: skip
    record = RunRecord(directory, facts=facts)
    record.save()
    with suppress(OSError):
        record.reserve()
    plan.save(directory)
    plan_file.save(plan, directory)
    if schedule is None:
        schedule = schedules.build(nemeses, plan.seed, plan.time_limit, plan.pace)
    schedule_file.save(schedule, directory)
    struck_by = {fault.nemesis for fault in schedule}
    parts_of_composites = registry.make_nemeses(struck_by - nemeses.keys(), plan.acks, plan.timing)
    nemeses = {**parts_of_composites, **nemeses}
    progress.say(f"run {plan.run}: {len(schedule)} fault{'s' * (len(schedule) != 1)} planned")

    cluster: Cluster | None = None
    try:
        with record.timed("start"):
            named = {name: nemeses[name] for name in plan.nemesis if name in nemeses}
            asked = frozenset[str]().union(*(registry.needs(nemesis) for nemesis in named.values()))
            if asked:
                progress.update(f"trying what this machine can do: {', '.join(sorted(asked))}")
                registry.check_lacks(named, await interrupt.cut_short(components.runtime.lacks(asked)))
            progress.update("starting the cluster")
            warm = asyncio.create_task(in_thread(components.warm_up))
            began = asyncio.get_running_loop().time()
            needs = frozenset[str]().union(*(registry.needs(nemesis) for nemesis in nemeses.values()))
            starting = components.runtime.start(plan, directory, progress.update, needs=needs)
            cluster = await interrupt.cut_short(starting)
            registry.check_lacks(named, cluster.lacks)
            await warm
        phases = Phases(plan, nemeses, schedule, directory, components, cluster, record, progress)
        judgement = Judgement(directory, components, record, progress, spark_ui_port)

        def ready() -> None:
            ready_s = asyncio.get_running_loop().time() - began
            record.facts["ready_s"] = round(ready_s, 3)
            progress.say(f"cluster ready in {ready_s:.1f} s")
            if judges:
                judgement.prepare()

        violation = await phases.run(interrupt, ready)
        if violation is not None:
            progress.say(f"stopped: {violation.property} does not hold")
            violation.save(directory)
        workload_ended = phases.workload_ended or time.monotonic()
        record.status = "interrupted" if "ended_early" in record.facts else "done"  # the report says so
        verdict = await judgement.judge() if judges else RECORDED
        if interrupt.asked.is_set():
            record.facts["stopped_by"] = interrupt.signal
        record.facts["after_time_limit_s"] = round(time.monotonic() - workload_ended, 3)
        record.finish(record.status)
    except asyncio.CancelledError:
        record.finish("failed")
        raise Stopped(f"stopped at once; what had been recorded is in {directory}") from None
    except BaseException as error:
        record.problem(describe(error))
        record.finish("failed")
        raise
    finally:
        interrupt.begin_tear_down()
        record.release()
        torn_down = await _tear_down(cluster, record, progress, keep=keep)
        if record.unsaved:
            progress.say(record.unsaved)
    if (failure := phases.crash or phases.unhealed) and verdict["verdict"] != "fail":
        # A violation that was found stands; anything else would vouch for a test that did not take place.
        judged = f"the history up to then: {verdict['verdict']}, {verdict['reason']}"
        left = "" if torn_down else "; `chaos clean` removes what is left of the cluster"
        raise HarnessFailure(f"{failure}; {judged}; the report is {directory / 'report.html'}{left}")
    return verdict


def check(
    directory: Path, verification: Verification, progress: Progress, *, spark_ui_port: int | None = None
) -> Mapping[str, Any]:
    """Judge a saved run again, also one whose harness was killed. Raises HarnessFailure if it cannot be judged."""
    verdict = verification.start_analysis(directory, spark_ui_port).judge()
    if "unsaved" in verdict:  # the report would be of the verdict that is there
        return verdict
    progress.update("writing the report")
    try:
        verification.build_report(directory)
    except Exception as error:  # the verdict is what was asked for
        progress.say(f"the report could not be written: {describe(error)}")
    return verdict


class Judgement:
    """The verdict and the report, once there is a history."""

    def __init__(
        self, directory: Path, components: Components, record: RunRecord, progress: Progress, spark_ui_port: int | None
    ) -> None:
        self._directory = directory
        self._components = components
        self._record = record
        self._progress = progress
        self._spark_ui_port = spark_ui_port
        self._analysis: asyncio.Task[Analysis] | None = None

    def prepare(self) -> None:
        """Let the engine start while there is nothing to judge yet."""
        if self._analysis is None:
            start = in_thread(self._components.start_analysis, self._directory, self._spark_ui_port)
            self._analysis = asyncio.create_task(start)

    async def judge(self) -> Mapping[str, Any]:
        self.prepare()
        assert self._analysis is not None
        with self._record.timed("check"):
            self._progress.update("checking the history")
            verdict = await in_thread((await self._analysis).judge)
        with self._record.survived("report"):
            self._progress.update("writing the report")
            await in_thread(self._components.build_report, self._directory)
        return verdict


async def _tear_down(cluster: Cluster | None, record: RunRecord, progress: Progress, *, keep: bool) -> bool:
    """Is nothing left of the cluster? Never raises: the verdict, or the reason why there is none, matters more."""
    if cluster is None:  # a start that fails takes down what it had started
        return True
    if keep:
        addresses = ",".join("{}:{}".format(*node.address) for node in cluster.brokers)
        ca = getattr(cluster, "security", PLAINTEXT).ca
        vouched = f", and who vouches for them is {ca}" if ca is not None else ""
        progress.say(f"the cluster is left up, its brokers at {addresses}{vouched}; `chaos clean` removes it")
        return False
    progress.update("removing the cluster")
    with record.survived("tear down"):
        async with asyncio.timeout(TEAR_DOWN_TIMEOUT_S):
            await cluster.stop()
            return True
    progress.say("the cluster could not be removed; `chaos clean` removes what is left of it")
    return False
