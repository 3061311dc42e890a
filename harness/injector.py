"""Carries out a fault schedule against a live cluster, and records what each fault did.

Every nemesis works through its own faults in order, side by side with the others. Two rules bind them together:
a node is held by one fault at a time (but for faults that hold none, Nemesis.exclusive), and a nemesis that may lose
data (`waits_for_isr`) strikes only once the brokers of the last such fault are back in every ISR. A fault that may not
strike yet waits (`deferred_s` in its evidence); one that cannot strike and heal before the time limit is skipped, and
says so.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.cluster import Cluster, Evidence, Node
from harness.errors import describe
from harness.observer import Observer
from harness.schedule import CALM_AT_END_S, Fault, Schedule
from nemesis import Nemesis, Situation, Targets, merge

POLL_S = 0.25
#: After stop: longest wait for the replicas of a power cut to be back in their ISRs.
RESYNC_TIMEOUT_S = 30.0


class FaultRecorder(Protocol):
    """The part of history.Recorder used here."""

    def record_fault(
        self,
        fault: int,
        nemesis: str,
        targets: Sequence[str],
        start: int,
        end: int | None,
        *,
        effective: bool,
        evidence: str,
    ) -> None: ...


@dataclass
class InjectedFault:
    """A fault and what has been observed of it so far. Times are monotonic nanoseconds."""

    fault: int
    nemesis: str
    targets: list[str]
    start: int
    end: int | None = None
    effective: bool = False
    evidence: Evidence = field(default_factory=dict)

    @property
    def skipped(self) -> bool:
        return "skipped" in self.evidence

    @property
    def in_force(self) -> bool:
        return self.end is None


class Injector:
    """Runs one schedule once: run() returns when every fault is healed and, for power cuts, recovered from.

    stop: set when the run is over, early or not. Faults in force are then healed at once and no more are begun.
    """

    def __init__(
        self,
        cluster: Cluster,
        nemeses: Mapping[str, Nemesis],
        schedule: Schedule,
        *,
        targets: Targets,
        time_limit: float,
        observer: Observer,
        recorder: FaultRecorder,
        stop: asyncio.Event,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._cluster = cluster
        self._nemeses = nemeses
        self._schedule = schedule
        self._targets = targets
        self._time_limit = time_limit
        self._observer = observer
        self._recorder = recorder
        self._stop = stop
        self._now_ns = now_ns
        self._started_at = 0.0
        self._held: dict[str, int] = {}  # node name: the fault that holds it
        self._unsynced: dict[int, Sequence[Node]] = {}  # struck by faults that may have lost data, and not back yet
        self.injected: list[InjectedFault] = []

    @property
    def in_force(self) -> list[InjectedFault]:
        return [fault for fault in self.injected if fault.in_force]

    async def run(self) -> None:
        self._started_at = asyncio.get_running_loop().time()
        streams: dict[str, list[Fault]] = defaultdict(list)
        for fault in sorted(self._schedule, key=lambda fault: (fault.at, fault.fault)):  # one edited by hand may not be
            streams[fault.nemesis].append(fault)
        async with asyncio.TaskGroup() as group:
            for name, faults in streams.items():
                group.create_task(self._work_through(self._nemeses[name], faults))

    async def _work_through(self, nemesis: Nemesis, faults: Sequence[Fault]) -> None:
        for fault in faults:
            await self._pause_until(fault.at)
            if self._stop.is_set():
                return
            nodes, deferred_s, obstacle = await self._await_turn(nemesis, fault)
            if nodes:
                try:
                    await self._strike(nemesis, fault, nodes, deferred_s)
                finally:
                    self._release(fault)
            elif not self._stop.is_set():
                self._skip(fault, deferred_s, obstacle)

    async def _await_turn(self, nemesis: Nemesis, fault: Fault) -> tuple[Sequence[Node], float, str]:
        """(nodes now held for this fault, seconds it waited, what it last waited for). No nodes: never its turn."""
        latest = self._time_limit - CALM_AT_END_S - fault.duration
        while True:
            view = await self._observer.view()
            situation = Situation(
                self._cluster,
                free=self._free_for(nemesis),
                targets=self._targets,
                leaders=view.leaders,
                active_controller=view.active_controller,
                isrs=view.isrs,
                struck=Counter(name for each in self.injected if each.nemesis == nemesis.name for name in each.targets),
            )
            nodes = nemesis.choose(fault.choice, situation)
            waited = round(self._elapsed() - fault.at, 3)
            if nemesis.waits_for_isr and self._unsynced:
                struck = [node for fault_ in self._unsynced.values() for node in fault_]
                obstacle = view.not_back(struck) or "another fault that may lose data is still in force"
            elif not nodes:
                obstacle = "nobody whom it strikes is there and free of other faults"
            else:
                obstacle = ""
            if self._stop.is_set() or self._elapsed() > latest:
                late = "an earlier fault took too long" if fault.at <= latest else "it was planned too late"
                return (), waited, obstacle or late
            if not obstacle:
                self._hold(nemesis, fault, nodes)
                return nodes, waited, ""
            await self._pause(POLL_S)

    async def _strike(self, nemesis: Nemesis, fault: Fault, nodes: Sequence[Node], deferred_s: float) -> None:
        injected = InjectedFault(fault.fault, nemesis.name, [node.name for node in nodes], self._now_ns())
        if deferred_s >= POLL_S:
            injected.evidence["deferred_s"] = deferred_s
        self.injected.append(injected)
        self._record(injected)  # at once: a harness that dies in the middle of a fault leaves it on record
        await self._observe(injected, "inject", nemesis.inject(self._cluster, nodes, fault.choice))
        injected.effective = nemesis.effective(injected.evidence)
        self._record(injected)
        await self._pause(fault.duration)
        await self._heal(injected)
        if nemesis.waits_for_isr:
            await self._resync(injected)
            del self._unsynced[fault.fault]

    async def heal_all(self) -> None:
        """Heal what is still in force: only after run() failed."""
        for injected in self.in_force:
            await self._heal(injected)

    async def _heal(self, injected: InjectedFault) -> None:
        nemesis = self._nemeses[injected.nemesis]
        nodes = [node for node in self._cluster.nodes if node.name in injected.targets]
        await self._observe(injected, "heal", nemesis.heal(self._cluster, nodes))
        injected.end = self._now_ns()
        injected.effective = nemesis.effective(injected.evidence)
        self._record(injected)

    async def _resync(self, injected: InjectedFault) -> None:
        """Note when its brokers are back in every ISR: until then what they lost counts against MinISR - 1."""
        patience = RESYNC_TIMEOUT_S
        nodes = self._unsynced[injected.fault]
        while (obstacle := (await self._observer.view()).not_back(nodes)) is not None:
            if self._stop.is_set():
                patience -= POLL_S
            if patience <= 0:
                injected.evidence["not_in_sync"] = obstacle
                break
            await asyncio.sleep(POLL_S)
        else:
            injected.evidence["in_sync_at"] = self._now_ns()
        self._record(injected)

    async def _observe(self, injected: InjectedFault, step: str, action: Any) -> None:
        """Await the action and add its evidence. A failure is evidence too: the run goes on and says so."""
        try:
            injected.evidence = merge(injected.evidence, await action)
        except Exception as error:  # whatever a runtime or a user's nemesis raises
            injected.evidence[f"{step}_failed"] = describe(error)

    def _skip(self, fault: Fault, deferred_s: float, obstacle: str) -> None:
        now = self._now_ns()
        evidence = {"skipped": f"no time left: {obstacle}", "deferred_s": deferred_s}
        self.injected.append(InjectedFault(fault.fault, fault.nemesis, [], now, now, False, evidence))
        self._record(self.injected[-1])

    def _free_for(self, nemesis: Nemesis) -> frozenset[str]:
        everybody = frozenset(node.name for node in self._cluster.nodes)
        return everybody - self._held.keys() if _is_exclusive(nemesis) else everybody

    def _hold(self, nemesis: Nemesis, fault: Fault, nodes: Sequence[Node]) -> None:
        if _is_exclusive(nemesis):
            self._held |= {node.name: fault.fault for node in nodes}
        if nemesis.waits_for_isr:
            self._unsynced[fault.fault] = nodes

    def _release(self, fault: Fault) -> None:
        for name in [name for name, holder in self._held.items() if holder == fault.fault]:
            del self._held[name]

    def _record(self, injected: InjectedFault) -> None:
        self._recorder.record_fault(
            injected.fault,
            injected.nemesis,
            injected.targets,
            injected.start,
            injected.end,
            effective=injected.effective,
            evidence=json.dumps(injected.evidence),
        )

    def _elapsed(self) -> float:
        """Seconds since the workload started."""
        return asyncio.get_running_loop().time() - self._started_at

    async def _pause_until(self, at: float) -> None:
        await self._pause(at - self._elapsed())

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not past stop."""
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._stop.wait()
            except TimeoutError:
                pass


def _is_exclusive(nemesis: Nemesis) -> bool:
    return getattr(nemesis, "exclusive", True)  # a user's own may be older
