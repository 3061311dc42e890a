"""One simulated run in this process, with nothing on disk: what explore, replay and shrink are made of."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from checkers.inside.violation import Violation
from harness.cluster import Cluster
from harness.errors import HarnessFailure, describe
from harness.plan import registry
from harness.plan import schedule as schedules
from harness.plan.plan import Plan
from harness.plan.schedule import Schedule
from harness.record.collected import record_collected
from harness.record.history import MemoryRecorder
from harness.record.results import RunRecord
from harness.report.console import Progress
from harness.run.components import Recorder
from harness.run.interrupt import Interrupt
from harness.run.phases import Phases
from harness.run.simulated import SimulationComponents
from harness.runtimes.simulation.cluster import Observe, SimulatedCluster
from harness.runtimes.simulation.unwatched import Unwatched


@dataclass(frozen=True)
class Simulated:
    """What became of a run. virtual_s, wall_s: seconds. crash: why the harness itself failed, if it did."""

    plan: Plan
    schedule: Schedule
    tables: Mapping[str, Any]  # pyarrow tables, by the names of spark_history.schema.TABLES
    violation: Violation | None
    doubts: tuple[str, ...]
    problems: tuple[str, ...]
    trace_hash: str
    steps: int
    virtual_s: float
    wall_s: float
    crash: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)  # as of run.json
    states: frozenset[int] = frozenset()  # abstract ones that the cluster has been in, see Invariants.count_states
    under_faults: frozenset[int] = frozenset()  # these with the faults in force then

    def judge(self) -> dict[str, Any]:
        """verdict.json of this run, without Spark."""
        from checkers.dataset import check_tables

        violation = None if self.violation is None else self.violation.as_dict()
        ended = str(self.facts.get("ended_early", ""))
        return check_tables(self.plan.model_dump(mode="json"), self.tables, self.doubts, violation, ended=ended)


class _MemoryComponents(SimulationComponents):
    def __init__(self, plan: Plan, traced: bool) -> None:
        super().__init__(registry.make_target(plan.target))
        self.recorder = MemoryRecorder(plan.run)
        self.traced = traced
        self.states: tuple[Set[int], Set[int]] = (frozenset(), frozenset())

    def make_recorder(self, directory: Path, run: str) -> MemoryRecorder:
        return self.recorder

    def free_room(self, directory: Path) -> None:
        """Nothing is written."""

    async def collect(self, cluster: Cluster, directory: Path, plan: Plan, recorder: Recorder) -> list[str]:
        """From memory to memory. Of members alone: a broker that was taken out may have logs still, and without the
        metadata log, which says who is in an ISR, whoever has one counts as in it."""
        assert isinstance(cluster, SimulatedCluster)
        traces = None if cluster.traces is None else self.target.read_traces(cluster.traces.texts())
        disks = {node.name: node.disk for node in cluster.machines if node.member}
        return record_collected(self.target.collect(disks, plan, recorder, traces), recorder)


class _Silent(Progress):
    def say(self, line: str) -> None: ...
    def tick(self, line: str) -> bool:
        return True

    def update(self, line: str) -> None: ...


@dataclass
class _Unsaved(RunRecord):
    """A record of a run that has no directory."""

    directory: Path = field(default=Path())

    def save(self) -> None: ...


def _reschedule(patience: asyncio.Timeout, seconds: float) -> None:
    patience.reschedule(asyncio.get_running_loop().time() + seconds)


def simulate(
    plan: Plan,
    schedule: Schedule | None = None,
    observe: Observe | None = None,
    *,
    traced: bool = False,
    watched: bool = True,
    until_s: float | None = None,
) -> Simulated:
    """Carry out `plan`, with the faults of its seed unless others are given. Never raises for what the run does.

    observe: called with everything that the nodes trace; it must change nothing. traced: the history has the tables
    `trace` and `metadata_log`, which are empty otherwise where the invariants have seen all of it already. watched: the
    invariants are checked; without them the run goes on to its end, and its history tells what clients saw. until_s: it
    is given up (`crash` says so) if no invariant is violated by so many seconds after the cluster was ready."""
    nemeses = registry.make_nemeses(plan.nemesis, plan.acks, plan.timing)
    if schedule is None:
        schedule = schedules.build(nemeses, plan.seed, plan.time_limit, plan.pace)
    nemeses = registry.make_nemeses((fault.nemesis for fault in schedule), plan.acks, plan.timing)
    traced = traced or registry.make_target(plan.target).simulated(plan).judged_by_traces
    components, record, progress = _MemoryComponents(plan, traced), _Unsaved(), _Silent()

    async def make_history() -> Violation | None:
        cluster = await components.runtime.start(plan, record.directory, progress.update)
        assert isinstance(cluster, SimulatedCluster)
        cluster.observe = observe
        if not watched:
            cluster.invariants = Unwatched()
        components.states = cluster.invariants.count_states(cluster.faults_in_force)
        phases = Phases(plan, nemeses, schedule, record.directory, components, cluster, record, progress)
        async with asyncio.timeout(None) as patience:
            ready = (lambda: None) if until_s is None else partial(_reschedule, patience, until_s)
            violation = await phases.run(Interrupt(progress.say), ready)
        if phases.crash:
            raise HarnessFailure(phases.crash)
        return violation

    loop = components.runtime.loop
    began = time.perf_counter()
    crash, violation = "", None
    logging.disable(logging.CRITICAL)
    try:
        violation = components.runtime.run(make_history())
    except Exception as error:  # a bug of ours: it must not cost the other runs
        crash = describe(error)
    finally:
        logging.disable(logging.NOTSET)
    return Simulated(
        plan=plan,
        schedule=schedule,
        tables=components.recorder.tables(),
        violation=violation,
        doubts=tuple(record.facts.get("doubts", ())),
        problems=tuple(record.problems),
        trace_hash=record.facts.get("trace_hash", ""),
        steps=loop.step,
        virtual_s=loop.time(),
        wall_s=time.perf_counter() - began,
        crash=crash,
        facts=dict(record.facts),
        states=frozenset(components.states[0]),
        under_faults=frozenset(components.states[1]),
    )
