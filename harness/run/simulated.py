"""The components of a simulated run that differ from those of a run in containers (see components.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.cluster import Cluster
from harness.plan import registry
from harness.plan.plan import Plan
from harness.report.console import Counts
from harness.run.components import Components, Recorder, Workload
from harness.runtimes.simulation.clock import WALL_CLOCK_ORIGIN
from harness.runtimes.simulation.cluster import SimulatedCluster
from harness.runtimes.simulation.loop import Process, VirtualLoop
from harness.runtimes.simulation.runtime import SimulationRuntime


class SimulationComponents(Components):
    """Of one run in simulation."""

    traced = True
    watches_start = False
    #: There is nothing in it but what the run has made and waited for, and whoever asks adds messages to the trace.
    looks_first = False

    @cached_property
    def runtime(self) -> SimulationRuntime:  # type: ignore[override]
        return SimulationRuntime(self.target, traced=self.traced)

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

    async def collect(self, cluster: Cluster, directory: Path, plan: Plan, recorder: Recorder) -> Sequence[str]:
        assert isinstance(cluster, SimulatedCluster) and cluster.traces is not None
        cluster.traces.save(directory / "trace")
        return await super().collect(cluster, directory, plan, recorder)

    def network(self, cluster: Cluster) -> Any:
        assert isinstance(cluster, SimulatedCluster)
        return cluster.network.endpoint(cluster.loop.new_process("harness"), "harness")

    def make_watch(self, cluster: Cluster, plan: Plan) -> None:
        """Simulated nodes leave traces."""

    async def ignored_settings(self, cluster: Cluster, plan: Plan) -> tuple[str, ...]:
        """Simulated nodes have refused what they do not know. Another client to ask them would make another trace."""
        return ()

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

    def served(self, workload: Workload) -> Callable[[], Mapping[str, tuple[float, float]]] | None:
        """Of the workload itself: faults of a simulated run wait for no calm (harness/run/calm.py)."""
        return super().served(workload.workload if isinstance(workload, _InProcess) else workload)


class _InProcess:
    """A workload whose code runs in a simulated process, where the tripwire watches it."""

    def __init__(self, workload: Workload, process: Process, loop: VirtualLoop) -> None:
        self.workload = workload
        self._process = process
        self._loop = loop

    async def set_up(self) -> None:
        await self._loop.spawn(self._process, self.workload.set_up())

    async def run(self, stop: Any) -> None:
        await self._loop.spawn(self._process, self.workload.run(stop))

    async def final_read(self) -> None:
        await self._loop.spawn(self._process, self.workload.final_read())

    async def close(self) -> None:
        await self._loop.spawn(self._process, self.workload.close())

    def counts(self) -> Counts:
        return self.workload.counts()

    def facts(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = getattr(self.workload, "facts", dict)()  # a user's own may not tell
        return facts
