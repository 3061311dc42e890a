"""Runs a plan in simulation: the loop, the cluster on it, and the parts of a run that live in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from checkers.inside.kraft.simulated import Violation
from cluster_image import bugs
from harness.cluster import Cluster
from harness.errors import HarnessFailure
from harness.plan import registry
from harness.plan.plan import Plan
from harness.report.console import Counts
from harness.run.components import Parts, Recorder, Workload
from harness.runtimes.simulation.clock import WALL_CLOCK_ORIGIN
from harness.runtimes.simulation.cluster import SimulatedCluster
from harness.runtimes.simulation.logs import NodeLogs
from harness.runtimes.simulation.loop import Hang, Process, VirtualLoop
from harness.runtimes.simulation.traces import NodeTraces
from harness.runtimes.simulation.tripwire import OutsideSimulation, Tripwire
from harness.targets.kafka_api.observer import KafkaObserver, Observer

T = TypeVar("T")


class SimulationRuntime:
    """Implements harness.cluster.Runtime. Good for one run. traced: what nodes tell of themselves is kept."""

    def __init__(self, *, traced: bool = False) -> None:
        self.loop = VirtualLoop()
        self._traced = traced
        self._logs = NodeLogs(self.loop)
        self._bug = ExitStack()
        self.cluster: SimulatedCluster | None = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """To its end, in virtual time. What must not happen halts the cluster, and `main` is left to deal with it."""
        task = self.loop.create_task(main)
        try:
            with self._bug, self._logs, Tripwire() as self.loop.tripwire:
                while True:
                    try:
                        return self.loop.run_until_complete(task)
                    except (Violation, Hang) as error:
                        if self.cluster is None or self.cluster.halted.done():
                            raise
                        self.cluster.halt(error)
                    except OutsideSimulation as error:
                        if self.cluster is None or self.cluster.halted.done():
                            raise
                        self.cluster.give_up(HarnessFailure(f"this run cannot be repeated: {error}"))
        finally:
            self.loop.bury()

    async def start(
        self, plan: Plan, run_directory: Path, progress: Callable[[str], None], *, needs: Collection[str] = ()
    ) -> Cluster:
        self._bug.enter_context(bugs.switched_on(plan.bug))
        self.cluster = SimulatedCluster(self.loop, plan, self._logs)
        if self._traced:
            self.cluster.traces = NodeTraces(self.cluster.clock_ns)
        self.cluster.start()
        return self.cluster

    async def lacks(self, needs: Collection[str]) -> Mapping[str, str]:
        return {}

    async def clean(self, wish: Any = None, tell: Callable[[str], object] = lambda _: None) -> Sequence[str]:
        return ()

    def doctor(self) -> Sequence[Any]:
        return ()


class SimulationParts(Parts):
    """The parts of one run in simulation."""

    traced = True

    @cached_property
    def runtime(self) -> SimulationRuntime:  # type: ignore[override]
        return SimulationRuntime(traced=self.traced)

    def clock_ns(self) -> int:
        return round(self.runtime.loop.time() * 1e9)

    def facts(self) -> Mapping[str, Any]:
        loop, cluster = self.runtime.loop, self.runtime.cluster
        losses = cluster.invariants.losses if cluster is not None else ()
        return {
            "trace_hash": loop.trace_hash, "steps": loop.step, "virtual_s": round(loop.time(), 3),
            **({"losses_beyond_the_contract": list(losses)} if losses else {}),
        }  # fmt: skip

    def problems(self) -> Sequence[str]:
        return [f"at {at:.3f} s in {where}: {what}" for at, where, what in self.runtime.loop.errors]

    def warm_up(self) -> None:
        """Nothing waits for it."""

    def make_recorder(self, directory: Path, run: str) -> Recorder:
        from harness.record.history import Recorder as JournalRecorder

        return JournalRecorder(directory, run, flush_interval=None)

    async def collect(self, cluster: Cluster, directory: Path, topic: str, recorder: Recorder) -> Sequence[str]:
        assert isinstance(cluster, SimulatedCluster) and cluster.traces is not None
        cluster.traces.save(directory / "trace")
        return await super().collect(cluster, directory, topic, recorder)

    def make_observer(self, cluster: Cluster, plan: Plan) -> Observer:
        assert isinstance(cluster, SimulatedCluster)
        return KafkaObserver(
            cluster, cluster.network.endpoint(cluster.loop.new_process("harness"), "harness"), plan.topic
        )

    def make_workload(self, plan: Plan, cluster: Cluster, recorder: Recorder) -> Workload:
        assert isinstance(cluster, SimulatedCluster)
        process = cluster.loop.new_process("clients")
        workload: Workload = registry.load(registry.WORKLOADS, plan.workload)(
            plan, cluster, recorder,
            network=cluster.network.endpoint(process, "clients"),
            clock=self.clock_ns,
            wall_clock=lambda: WALL_CLOCK_ORIGIN + cluster.loop.time(),
        )  # fmt: skip
        return _InProcess(workload, process, cluster.loop)


class _InProcess:
    """A workload whose code runs in a simulated process, where the tripwire watches it."""

    def __init__(self, workload: Workload, process: Process, loop: VirtualLoop) -> None:
        self._workload = workload
        self._process = process
        self._loop = loop

    async def set_up(self) -> None:
        await self._loop.spawn(self._process, self._workload.set_up())

    async def run(self, stop: Any) -> None:
        await self._loop.spawn(self._process, self._workload.run(stop))

    async def final_read(self) -> None:
        await self._loop.spawn(self._process, self._workload.final_read())

    async def close(self) -> None:
        await self._loop.spawn(self._process, self._workload.close())

    def counts(self) -> Counts:
        return self._workload.counts()
