"""Runs a plan in simulation: the event loop in virtual time, and the cluster on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from checkers.inside.violation import Violated
from harness.cluster import Cluster
from harness.errors import HarnessFailure
from harness.plan.plan import Plan
from harness.runtimes.simulation.cluster import SimulatedCluster
from harness.runtimes.simulation.loop import Hang, VirtualLoop
from harness.runtimes.simulation.mutants import switch as mutants
from harness.runtimes.simulation.output.logs import NodeLogs
from harness.runtimes.simulation.output.traces import NodeTraces
from harness.runtimes.simulation.task_order import awaits_may_yield, make_order
from harness.runtimes.simulation.tripwire import OutsideSimulation, Tripwire
from harness.targets.target import Target

T = TypeVar("T")


class SimulationRuntime:
    """Implements harness.cluster.Runtime. Good for one run. traced: what nodes tell of themselves is kept."""

    def __init__(self, target: Target, *, traced: bool = False) -> None:
        self.loop = VirtualLoop()
        self._target = target
        self._traced = traced
        self._entered = ExitStack()  # for as long as the run goes on
        self.cluster: SimulatedCluster | None = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """To its end, in virtual time. A violation stops the cluster, and `main` is left to deal with it."""
        task = self.loop.create_task(main)
        try:
            with self._entered, Tripwire() as self.loop.tripwire:
                while True:
                    try:
                        return self.loop.run_until_complete(task)
                    except (Violated, Hang) as error:
                        if self.cluster is None or self.cluster.violated.done():
                            raise
                        self.cluster.stop_at(error)
                    except OutsideSimulation as error:
                        if self.cluster is None or self.cluster.violated.done():
                            raise
                        self.cluster.give_up(HarnessFailure(f"this run cannot be repeated: {error}"))
        finally:
            self.loop.bury()

    async def start(
        self, plan: Plan, run_directory: Path, progress: Callable[[str], None], *, needs: Collection[str] = ()
    ) -> Cluster:
        simulated = self._target.simulated(plan)
        self._entered.enter_context(simulated.switched_on())
        self._entered.enter_context(mutants.switched_on(plan.mutant))
        self.loop.order = make_order(plan.task_order, plan.seed)
        self._entered.enter_context(awaits_may_yield(self.loop.order))
        logs = self._entered.enter_context(NodeLogs(self.loop, simulated))
        self.cluster = SimulatedCluster(self.loop, plan, self._target, simulated, logs)
        if self._traced:
            self.cluster.traces = NodeTraces(simulated, self.cluster.clock_ns)
        self.cluster.start()
        return self.cluster

    async def lacks(self, needs: Collection[str]) -> Mapping[str, str]:
        return {}
