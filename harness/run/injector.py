"""Carries out a fault schedule against a live cluster, and records what each fault did.

Every nemesis works through its own faults in order, side by side with the others. Two rules bind them together:
a node is held by one fault at a time (but for faults that hold none, Nemesis.exclusive), and a nemesis that may lose
data (`waits_for_isr`) strikes only once the brokers of the last such fault are back in every ISR. A fault that may not
strike yet waits (`deferred_s` in its evidence); one that cannot strike and heal before the time limit is skipped, and
says so.

What is in force when the run stops is healed in reverse order, as a stack is unwound. A fault that cannot be healed
keeps its nodes, stays in force on record, and is tried again when all others are healed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from tenacity import AsyncRetrying, retry_if_not_exception_type, stop_after_attempt, wait_fixed

from harness.cluster import Cluster, ClusterLost, Evidence, Node
from harness.errors import HarnessFailure, HistoryLost, describe
from harness.plan.schedule import CALM_AT_END_S, Fault, Schedule
from harness.run.calm import Calm
from harness.targets.view import Observer
from nemesis import Nemesis, Situation, Targets, merge

POLL_S = 0.25
#: After stop: longest wait for the replicas of a power cut to be back in their ISRs.
RESYNC_TIMEOUT_S = 30.0
#: A fault is healed at the third attempt or not at all, as far as its nemesis goes.
HEAL_ATTEMPTS = 3
#: At the end of a run: for one fault to be healed, and for each other step after which nothing is left of any.
HEAL_TIMEOUT_S = 90.0
HEAL_WAIT_S = 0.5
#: Nodes that are cut off let the harness wait for what they see: a fault is not late for that.
LATE_S = 4.0


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
    given_up: asyncio.Event = field(default_factory=asyncio.Event, compare=False)  # healed, or it cannot be

    @property
    def skipped(self) -> bool:
        return "skipped" in self.evidence

    @property
    def in_force(self) -> bool:
        return self.end is None


class Injector:
    """Runs one schedule once: run() returns when every fault is healed and, for power cuts, recovered from.

    stop: set when the run is over, early or not. Faults in force are then healed at once and no more are begun.
    restart_the_dead: called then, before what needs the whole cluster to be healed, for nodes that ended by themselves.
    """

    def __init__(
        self,
        cluster: Cluster,
        nemeses: Mapping[str, Nemesis],
        schedule: Schedule,
        *,
        strike: Targets,
        time_limit: float,
        observer: Observer,
        recorder: FaultRecorder,
        stop: asyncio.Event,
        restart_the_dead: Callable[[], Awaitable[None]] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        calm: Calm | None = None,
    ) -> None:
        self._cluster = cluster
        self._nemeses = nemeses
        self._schedule = schedule
        self._whom = strike
        self._time_limit = time_limit
        self._observer = observer
        self._recorder = recorder
        self._stop = stop
        self._restart_the_dead = restart_the_dead
        self._now_ns = now_ns
        self._calm = calm
        self._started_at = 0.0
        self._held: dict[str, int] = {}  # node name: the fault that holds it
        self._unsynced: dict[int, Sequence[Node]] = {}  # struck by faults that may have lost data, and not back yet
        self.injected: list[InjectedFault] = []

    @property
    def in_force(self) -> list[InjectedFault]:
        return [fault for fault in self.injected if fault.in_force]

    async def run(self) -> None:
        """Raises ClusterLost once nothing can be broken or mended any more."""
        self._started_at = asyncio.get_running_loop().time()
        streams: dict[str, list[Fault]] = defaultdict(list)
        for fault in sorted(self._schedule, key=lambda fault: (fault.at, fault.fault)):  # one edited by hand may not be
            streams[fault.nemesis].append(fault)
        try:
            async with asyncio.TaskGroup() as group:
                for name, faults in streams.items():
                    group.create_task(self._work_through(self._nemeses[name], faults))
        except BaseExceptionGroup as errors:  # one is enough to end it, and the reason can be read
            lost, others = errors.split(ClusterLost)
            raise (lost or others or errors).exceptions[0] from None

    async def _work_through(self, nemesis: Nemesis, faults: Sequence[Fault]) -> None:
        for fault in faults:
            await self._pause_until(fault.at)
            if self._stop.is_set():
                return
            nodes, deferred_s, reason = await self._await_turn(nemesis, fault)
            if reason is None:
                return
            if nodes:
                await self._strike(nemesis, fault, nodes, deferred_s)
                self._release(fault)
            elif not self._stop.is_set():
                self._skip(fault, deferred_s, reason)

    async def _await_turn(self, nemesis: Nemesis, fault: Fault) -> tuple[Sequence[Node], float, str | None]:
        """(nodes now held for this fault, seconds it waited, ""). No nodes: never its turn, and why; None: nothing is
        left to do for its nemesis."""
        latest = self._time_limit - CALM_AT_END_S - fault.duration
        began = self._elapsed()
        in_time = began + LATE_S if began <= latest + POLL_S else 0.0
        hindered = False
        while True:
            view = await self._observer.view()
            situation = Situation(
                self._cluster,
                free=self._free_for(nemesis),
                targets=self._whom,
                leaders=view.leaders,
                active_controller=view.active_controller,
                isrs=view.isrs,
                struck=Counter(name for each in self.injected if each.nemesis == nemesis.name for name in each.targets),
            )
            waited = round(self._elapsed() - fault.at, 3)
            try:
                if getattr(nemesis, "finished", _never)(situation):  # a user's own may be older
                    return (), waited, None
                nodes = nemesis.choose(fault.choice, situation)
            except Exception as error:  # whatever a user's nemesis raises: it costs this fault and no other
                return (), waited, f"whom it strikes cannot be told: {describe(error)}"
            if nemesis.waits_for_isr and self._unsynced:
                struck = [node for fault_ in self._unsynced.values() for node in fault_]
                obstacle = view.not_back(struck) or "another fault that may lose data is still in force"
            elif not nodes:
                obstacle = "nobody whom it strikes is there and free of other faults"
            else:
                obstacle = self._not_calm(nemesis, fault)
            hindered = hindered or bool(obstacle)
            if self._stop.is_set() or self._elapsed() > (latest if hindered else max(latest, in_time)):
                why = "earlier faults of its nemesis took too long" if fault.at <= latest else "it was planned too late"
                return (), waited, f"no time left: {obstacle or ('the run is over' if self._stop.is_set() else why)}"
            if not obstacle:
                self._hold(nemesis, fault, nodes)
                return nodes, waited, ""
            await self._pause(POLL_S)

    def _not_calm(self, nemesis: Nemesis, fault: Fault) -> str:
        """Of the parts of a composite the first waits until the cluster is calm, and the others go on as planned; so
        does what its schedule has strike into outages."""
        begun = fault.composite is not None and any(
            each.evidence.get("part_of", {}).get("occurrence") == fault.occurrence
            and each.evidence["part_of"]["composite"] == fault.composite and not each.skipped
            for each in self.injected
        )  # fmt: skip
        return "" if self._calm is None or begun or fault.into_outages else self._calm.obstacle(nemesis)

    async def _strike(self, nemesis: Nemesis, fault: Fault, nodes: Sequence[Node], deferred_s: float) -> None:
        injected = InjectedFault(fault.fault, nemesis.name, [node.name for node in nodes], self._now_ns())
        injected.evidence |= self._part(fault)
        if deferred_s >= POLL_S:
            injected.evidence["deferred_s"] = deferred_s
        self.injected.append(injected)
        self._record(injected)  # at once: a harness that dies in the middle of a fault leaves it on record
        if (unfold := getattr(nemesis, "unfold", None)) is not None:
            await self._unfold(injected, nemesis, unfold(self._cluster, nodes, fault.choice), fault.duration)
        else:
            await self._observe(injected, "inject", lambda: nemesis.inject(self._cluster, nodes, fault.choice))
            injected.effective = nemesis.effective(injected.evidence)
            self._record(injected)
            await self._pause(fault.duration)
        if self._stop.is_set():
            for later in self._healed_before(injected):
                await later.given_up.wait()
        await self._heal(injected)
        if nemesis.waits_for_isr and not injected.in_force:
            await self._resync(injected)
            del self._unsynced[fault.fault]

    async def _unfold(
        self, injected: InjectedFault, nemesis: Nemesis, steps: AsyncGenerator[Evidence, None], seconds: float
    ) -> None:
        """Step by step, each on record at once, to the last one, or as long as the fault and the run may last."""
        end = self._elapsed() + seconds
        over = False

        async def step() -> Evidence:
            nonlocal over
            seen = await anext(steps, None)
            over = seen is None
            return seen or {}

        while not (over or "inject_failed" in injected.evidence or self._stop.is_set() or self._elapsed() >= end):
            known = injected.evidence
            await self._observe(injected, "inject", step)
            injected.effective = nemesis.effective(injected.evidence)
            if injected.evidence != known:
                self._record(injected)
        await steps.aclose()
        if not over and "inject_failed" not in injected.evidence:
            injected.evidence["cut_short"] = True

    def _healed_before(self, injected: InjectedFault) -> Sequence[InjectedFault]:
        """Faults in force that are to be healed before this one."""
        order = self._last_first(self.in_force)
        return order[: order.index(injected)]

    def _heals_last(self, injected: InjectedFault) -> bool:
        return getattr(self._nemeses[injected.nemesis], "heals_last", False)  # a user's own may be older

    @property
    def awaits_cluster(self) -> bool:
        """Is all that is still in force what the cluster itself has to undo?"""
        return bool(self.in_force) and all(map(self._heals_last, self.in_force))

    async def heal_all(self) -> None:
        """Heal what is still in force: after run() failed, or could not heal it. Raises HarnessFailure that names what
        did not end."""
        await self._heal_each(self.in_force)

    async def heal_again(self) -> None:
        """Heal every fault that there was, the last one first, whether or not it is healed. Raises as heal_all()."""
        await self._heal_each([injected for injected in self.injected if not injected.skipped])

    async def _heal_each(self, faults: Sequence[InjectedFault]) -> None:
        """One whose healing hangs keeps no other in force."""
        hanging = []
        for injected in self._last_first(faults):
            try:
                async with asyncio.timeout(HEAL_TIMEOUT_S):
                    await self._heal(injected)
            except TimeoutError:
                injected.evidence["heal_failed"] = why = f"it did not end within {HEAL_TIMEOUT_S:g} s"
                hanging.append(f"{injected.nemesis} on {', '.join(injected.targets)}: {why}")
                with suppress(HistoryLost):
                    self._record(injected)
        if hanging:
            raise HarnessFailure("; ".join(hanging))

    def _last_first(self, faults: Sequence[InjectedFault]) -> Sequence[InjectedFault]:
        """In the order in which they are to be healed: those that need the cluster for it once all others are."""
        return sorted(faults, key=lambda fault: (self._heals_last(fault), -self.injected.index(fault)))

    async def _heal(self, injected: InjectedFault) -> None:
        nemesis = self._nemeses[injected.nemesis]
        nodes = [node for node in self._cluster.machines if node.name in injected.targets]
        known = injected.evidence

        async def heal() -> Evidence:
            if self._stop.is_set() and self._restart_the_dead and self._heals_last(injected):
                await self._restart_the_dead()
            return await nemesis.heal(self._cluster, nodes)

        try:
            await self._observe(injected, "heal", heal, attempts=HEAL_ATTEMPTS)
        finally:
            injected.given_up.set()
        if "heal_failed" not in injected.evidence:
            if not injected.in_force:  # what is seen of a fault that was healed before is no evidence of it
                injected.evidence = known
            injected.end = injected.end or self._now_ns()
        injected.effective = nemesis.effective(injected.evidence)
        with suppress(HistoryLost):  # which must not keep the next one in force; whoever ends the run learns of it
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

    async def _observe(
        self, injected: InjectedFault, step: str, action: Callable[[], Awaitable[Evidence]], *, attempts: int = 1
    ) -> None:
        """Await the action and add its evidence. A failure is evidence too: the run goes on and says so."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(attempts), wait=wait_fixed(HEAL_WAIT_S), reraise=True,
            retry=retry_if_not_exception_type((ClusterLost, asyncio.CancelledError)),
        )  # fmt: skip
        failed = f"{step}_failed"
        injected.evidence.pop(failed, None)
        try:
            async for attempt in retrying:
                with attempt:
                    injected.evidence = merge(injected.evidence, await action())
        except Exception as error:  # whatever a runtime or a user's nemesis raises
            injected.evidence[failed] = describe(error)
            if isinstance(error, ClusterLost):
                self._record(injected)
                raise

    def _skip(self, fault: Fault, deferred_s: float, reason: str) -> None:
        now = self._now_ns()
        evidence = {"skipped": reason, "deferred_s": deferred_s, **self._part(fault)}
        self.injected.append(InjectedFault(fault.fault, fault.nemesis, [], now, now, False, evidence))
        self._record(self.injected[-1])

    def _part(self, fault: Fault) -> Evidence:
        """Of which composite it is a part, which of its times that is, and how many parts that time has."""
        if fault.composite is None:
            return {}
        parts = [each for each in self._schedule
                 if (each.composite, each.occurrence) == (fault.composite, fault.occurrence)]  # fmt: skip
        return {"part_of": {"composite": fault.composite, "occurrence": fault.occurrence, "parts": len(parts)}}

    def _free_for(self, nemesis: Nemesis) -> frozenset[str]:
        everybody = frozenset(node.name for node in self._cluster.machines)
        return everybody - self._held.keys() if _is_exclusive(nemesis) else everybody

    def _hold(self, nemesis: Nemesis, fault: Fault, nodes: Sequence[Node]) -> None:
        if _is_exclusive(nemesis):
            self._held |= {node.name: fault.fault for node in nodes}
        if nemesis.waits_for_isr:
            self._unsynced[fault.fault] = nodes

    def _release(self, fault: Fault) -> None:
        """What could not be healed keeps its nodes."""
        if any(each.fault == fault.fault for each in self.in_force):
            return
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


def _never(situation: Situation) -> bool:
    return False


def _is_exclusive(nemesis: Nemesis) -> bool:
    return getattr(nemesis, "exclusive", True)  # a user's own may be older
