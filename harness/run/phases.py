"""The part of a run that makes its history: workload ∥ faults → heal → final reads → collect.

(Jepsen calls it the case, jepsen.core/run-case!.) The same in every runtime: time is the loop's, real or virtual.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from checkers.inside.violation import Violation
from harness.cluster import Cluster, ClusterLost, Node
from harness.errors import HarnessFailure, HistoryLost, describe
from harness.plan.plan import Plan
from harness.plan.schedule import Schedule
from harness.record import room
from harness.record.results import RunRecord
from harness.report.console import Progress, live_line
from harness.report.live import Moment
from harness.run.aborting import Aborting
from harness.run.calm import Calm
from harness.run.components import Components
from harness.run.injector import HEAL_TIMEOUT_S, Injector
from harness.run.interrupt import Interrupt
from harness.run.starting import Starting, in_sync, why_ended
from harness.run.threads import in_thread
from harness.run.watching import Watching
from nemesis import Nemesis

#: Once the time is over: for what is in flight, and for faults to be healed and recovered from.
DRAIN_TIMEOUT_S = 180.0
RECOVERY_TIMEOUT_S = 60.0
BROKEN_RECOVERY_TIMEOUT_S = 10.0
FINAL_READ_TIMEOUT_S = 60.0
#: Where logs lose their begin: so that followers have taken over what their leaders deleted last, as it is judged
#: (checkers/inside/kraft/start_trace.py, SETTLED_S).
LOG_STARTS_SETTLE_S = 4.0
COLLECT_TIMEOUT_S = 60.0
#: And so much more for each record, on a busy machine: of a final read, and of a replica that is collected.
READ_A_SECOND = 50_000
COLLECT_A_SECOND = 100_000
POLL_S = 0.2
#: From one look at the leaders to the next, for a terminal.
LOOK_S = 1.0


class Phases:
    """From a cluster that was started to a history that is closed. directory: the run's own."""

    def __init__(
        self,
        plan: Plan,
        nemeses: Mapping[str, Nemesis],
        schedule: Schedule,
        directory: Path,
        components: Components,
        cluster: Cluster,
        record: RunRecord,
        progress: Progress,
    ) -> None:
        self._plan = plan
        self._nemeses = nemeses
        self._schedule = schedule
        self._directory = directory
        self._components = components
        self._cluster = cluster
        self._record = record
        self._progress = progress
        self._recorder = components.make_recorder(directory, plan.run)
        self._observer = components.make_observer(cluster, plan)
        self._watching = Watching(components.make_watch(cluster, plan), directory / "trace", components.clock_ns)
        self._workload = components.make_workload(plan, cluster, self._recorder)
        self._violated: asyncio.Future[Violation] = cluster.violated or asyncio.get_running_loop().create_future()
        self._leaders: Mapping[str, int] | None = None  # by node, of how many partitions, where that is shown
        self.workload_ended = 0.0  # time.monotonic()
        self.crash = ""  # why the workload or the faults ended before their time, if they did
        self.unhealed = ""  # what of the faults could not be undone, if anything
        self._awaits_cluster = False  # it is the cluster alone that would have to do it

    async def run(self, interrupt: Interrupt, ready: Callable[[], None]) -> Violation | None:
        """Make the history, until the time limit or the user's word. `ready` is called once the cluster is.

        Returns the violation that stopped the cluster, if one did: only a simulated one is stopped. Raises
        HarnessFailure."""
        work: asyncio.Future[Any] = asyncio.ensure_future(self._run(interrupt, ready))
        try:
            await asyncio.wait((work, self._violated), return_when=asyncio.FIRST_COMPLETED)
            if not self._violated.done():
                await work
                return None
            await self._collect()  # nothing else can be done: nobody answers any more
            await self._close_history()  # before the clients are told to stop, which is no part of it
            return self._violated.result()
        finally:
            self._record.facts |= {**self._components.facts(), **self._cluster.facts()}
            self._record.facts |= getattr(self._workload, "facts", dict)()  # a user's own may not tell
            for problem in self._components.problems():
                self._record.problem(problem)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _run(self, interrupt: Interrupt, ready: Callable[[], None]) -> None:
        with self._record.timed("ready"):
            starting = Starting(
                self._plan, self._components, self._cluster, self._observer, self._workload, self._progress,
                self._collect_logs,
            )  # fmt: skip
            await interrupt.cut_short(starting.run())
        ready()
        for name in await self._components.ignored_settings(self._cluster, self._plan):
            self._record.problem(f"no node knows the setting {name}: --set {name} changes nothing")
        self._watching.start()
        await self._make(interrupt)
        await self._complete()

    async def _make(self, interrupt: Interrupt) -> None:
        """Workload and faults side by side, until the time limit or the user's word; then all faults healed."""
        over = asyncio.Event()
        injector = Injector(
            self._cluster, self._nemeses, self._schedule, strike=self._plan.strike, time_limit=self._plan.time_limit,
            observer=self._observer, recorder=self._recorder, stop=over, restart_the_dead=self._restart_the_dead,
            now_ns=self._components.clock_ns,
            calm=Calm(self._plan.timing, getattr(self._workload, "served", None)),  # a user's own may not tell
        )  # fmt: skip
        aborting = Aborting(self._plan.abort_if, self._plan.topic, self._components.served(self._workload))
        self._record.facts["workload_start_ns"] = self._components.clock_ns()
        with self._record.timed("workload"):
            try:
                async with asyncio.timeout(None) as patience, asyncio.TaskGroup() as group:
                    group.create_task(self._unless_it_crashes("the workload", self._workload.run(over), over))
                    group.create_task(self._unless_it_crashes("the fault schedule", injector.run(), over))
                    async with self._watched(aborting):
                        await self._until_over(injector, over, interrupt, aborting)
                    over.set()
                    patience.reschedule(asyncio.get_running_loop().time() + DRAIN_TIMEOUT_S)
                    self.workload_ended = time.monotonic()
                    self._progress.update("healing, and waiting for what is in flight")
            except TimeoutError:
                self.crash = self.crash or f"workload or faults did not end within {DRAIN_TIMEOUT_S:g} s of their time"
                self._record.doubt(self.crash)
        with self._record.timed("heal"):
            await self._heal(injector)
        self._record.facts["healed_ns"] = self._components.clock_ns()

    async def _heal(self, injector: Injector) -> None:
        """Every fault undone, and looked that nothing is left of any. What is left is tried once more, all faults in
        reverse order, before it is given up."""
        for heal in (injector.heal_all, injector.heal_again):
            hanging: list[str] = []
            left: list[str] = []

            async def look(left: list[str] = left) -> None:
                left += await self._cluster.leftovers()

            try:
                await self._as_far_as_it_goes("", heal, hanging, is_bounded=True)  # gives each fault its time
                await self._as_far_as_it_goes("mending the network", self._cluster.heal, left)
                await self._as_far_as_it_goes("starting what does not run", self._restart_the_dead, left)
                await self._as_far_as_it_goes("looking what is left", look, left)
            except ClusterLost as error:
                left.append(describe(error))
            for each in injector.in_force:
                why = each.evidence.get("heal_failed") or "its healing came to no end"
                hanging.append(f"{each.nemesis} on {', '.join(each.targets)}: {why}")
            self._awaits_cluster = not left and injector.awaits_cluster
            left = [*hanging, *left]
            if not left:
                return
        self.unhealed = f"not everything could be healed: {'; '.join(dict.fromkeys(left))}"
        self._record.doubt(self.unhealed)

    async def _as_far_as_it_goes(
        self, what: str, step: Callable[[], Awaitable[None]], left: list[str], *,
        is_bounded: bool = False,
    ) -> None:  # fmt: skip
        """What cannot be healed of one node, or hangs there, is no reason to leave the others as they are."""
        try:
            async with asyncio.timeout(None if is_bounded else HEAL_TIMEOUT_S) as patience:
                await step()
        except ClusterLost:
            raise
        except TimeoutError as error:
            left.append(f"{what} did not end within {HEAL_TIMEOUT_S:g} s" if patience.expired() else describe(error))
        except Exception as error:  # whatever a runtime raises
            left.append(describe(error))

    async def _complete(self) -> None:
        """Final reads and what lies on the replicas' disks; then the journal is closed, whatever failed before."""
        with self._record.survived("recover"):
            self._progress.update("waiting until every replica is back in its ISR")
            try:
                # Of a cluster that is still broken nothing is asked; but it may be whole enough to be read.
                broken = self.unhealed and not self._awaits_cluster
                async with asyncio.timeout(BROKEN_RECOVERY_TIMEOUT_S if broken else RECOVERY_TIMEOUT_S):
                    await in_sync(self._observer)
                    while self._cluster.unsettled() is not None:
                        await asyncio.sleep(POLL_S)
            except TimeoutError:
                if not broken:
                    reason = (await self._observer.view()).out_of_sync or self._cluster.unsettled()
                    reason = f"{reason}{await self._who_is_down()}"
                    what = f"{RECOVERY_TIMEOUT_S:g} s after every fault was healed: {reason}"
                    self._record.doubt(f"not recovered {what}")
                    self._cluster.not_recovered(what)
        with self._record.survived("final reads"):
            self._progress.update("reading every partition from its start to its end")
            patience = FINAL_READ_TIMEOUT_S + self._workload.counts().acknowledged / READ_A_SECOND
            patience += getattr(self._workload, "final_read_s", 0.0)  # a user's own may not tell
            try:
                async with asyncio.timeout(patience):
                    await self._workload.final_read()
            except TimeoutError:
                if not self.unhealed:
                    self._cluster.not_recovered(f"the final reads did not end within {patience:g} s, and all is healed")
                raise
        if self._plan.log_start == "moves":
            await asyncio.sleep(LOG_STARTS_SETTLE_S)
        await self._collect()
        with self._record.survived("close workload"):
            await self._workload.close()
        await self._close_history()

    async def _who_is_down(self) -> str:
        """Of nodes that do not stay up, each with what it says of the reason: as the end of a sentence."""
        if not self._components.watches_start:
            return ""
        down = [node for node in self._cluster.nodes if not await node.is_running()]
        reasons = [await why_ended(node, self._components.target) for node in down]
        return "".join(
            f"; {node.name} does not run{why and f': {why}'}" for node, why in zip(down, reasons, strict=True)
        )

    async def _collect(self) -> None:
        problems: Sequence[str] | None = None
        if self._watching.goes_on:
            try:
                async with asyncio.timeout(COLLECT_TIMEOUT_S):
                    await self._watching.stop()
            except Exception as error:  # whatever a node may have answered
                self._record.doubt(f"not all that the nodes tell while they run is on record: {describe(error)}")
        with self._record.survived("collect"):
            self._progress.update("collecting logs and disks")
            records = self._workload.counts().acknowledged * self._plan.replication_factor
            async with asyncio.timeout(COLLECT_TIMEOUT_S + records / COLLECT_A_SECOND):
                problems = await self._components.collect(self._cluster, self._directory, self._plan, self._recorder)
        if problems is None:
            self._record.doubt("what the nodes left (logs, traces, disks) was not collected as a whole")
            return
        for problem in problems:
            self._record.problem(problem)

    async def _close_history(self) -> None:
        """What cannot be written any more is lost, and what was written before can be judged."""
        try:
            with self._record.timed("close journal"):
                await in_thread(self._recorder.close)
        except Exception as error:  # a volume that is full, say
            del self._record.phases["close journal"]  # whose being there says that the history is complete
            self._record.end_early(f"the history was not written to its end: {describe(error)}")

    async def _until_over(
        self, injector: Injector, over: asyncio.Event, interrupt: Interrupt, aborting: Aborting
    ) -> None:
        loop = asyncio.get_running_loop()
        limit = self._plan.time_limit
        end = loop.time() + limit
        errors: Counter[str] = Counter()
        shown_until = 0  # ns: faults that were healed before have been shown
        while not over.is_set():
            left = end - loop.time()  # exact near the end, so that this much sleep does arrive there
            if left <= 0:
                return
            if interrupt.asked.is_set():
                self._end_early(f"cut short by {interrupt.signal}", limit - left)
                return
            counts = self._workload.counts()
            if (full := self._no_room(counts.acknowledged)) is not None:
                self._progress.say(f"ending early: {full}")
                self._end_early(f"ended, for {full},", limit - left)
                return
            if (reason := aborting.reason(counts)) is not None:
                self._progress.say(f"aborted: {reason.told}; healing, then judging what there is")
                # Not at a moment that no seed tells: a simulated run is aborted again when it is repeated.
                self._record.facts["aborted"] = reason.as_facts(limit - left)
                after = f"after {limit - left:.1f} s of {limit:g} s"
                self._record.end_early(f"the run was aborted {after}: {reason.told}")
                return
            errors.update(counts.errors)
            faults = [fault for fault in injector.injected if fault.in_force or (fault.end or 0) > shown_until]
            struck = [fault for fault in faults if not fault.skipped]
            moment = Moment(limit - left, limit, counts, errors, struck, self._leaders)
            if self._progress.moment(moment, live_line(limit - left, limit, counts, errors, struck)):
                shown_until = self._components.clock_ns()
            await asyncio.sleep(min(POLL_S, left))

    @asynccontextmanager
    async def _watched(self, aborting: Aborting) -> AsyncIterator[None]:
        """Leaders, for whoever looks on (a simulated run, whose steps must not depend on that, is not asked), and what
        a condition to abort on needs to know."""
        looking: list[asyncio.Task[None]] = []
        if self._progress.redraws and self._components.watches_start:
            looking.append(asyncio.create_task(self._watch_leaders()))
        if aborting.wants_views:
            looking.append(asyncio.create_task(aborting.look(self._observer)))
        try:
            yield
        finally:
            for task in looking:
                task.cancel()
            if looking:
                await asyncio.gather(*looking, return_exceptions=True)

    async def _watch_leaders(self) -> None:
        names = {node.id: node.name for node in self._cluster.machines}
        while True:
            leaders = (await self._observer.view()).leaders
            self._leaders = {names.get(leader, "none"): count for leader, count in leaders.items()}
            await asyncio.sleep(LOOK_S)

    def _no_room(self, acknowledged: int) -> str | None:
        """Why the run must end now for its results to be written, as a clause."""
        left = self._components.free_room(self._directory)
        needed = room.needed_now(self._recorder.written, acknowledged, self._plan.replication_factor)
        if left is None or left >= needed:
            return None
        return f"{self._directory} has {room.megabytes(left)} left and needs {room.megabytes(needed)} to end"

    def _end_early(self, how: str, after_s: float) -> None:
        """At a moment that no seed tells."""
        self._record.facts["ended_at_s"] = round(after_s, 3)
        self._record.end_early(f"the run was {how} after {after_s:.1f} s of {self._plan.time_limit:g} s")

    async def _unless_it_crashes(self, name: str, work: Coroutine[Any, Any, None], over: asyncio.Event) -> None:
        """A crash ends workload and faults, not the run: what was recorded can still be judged."""
        try:
            await work
        except HistoryLost as error:
            self._record.end_early(f"the run was ended: {describe(error)}")
            over.set()
        except Exception as error:  # a bug, or the machine: either way the history so far is sound
            self.crash = self.crash or f"{name} failed: {describe(error)}"
            self._record.doubt(self.crash)
            over.set()

    async def _restart_the_dead(self) -> None:
        failed = []
        for node in self._cluster.nodes:
            try:
                await self._restart_if_dead(node)
            except ClusterLost:
                raise
            except Exception as error:  # whatever a runtime raises
                failed.append(describe(error))
        if failed:
            raise HarnessFailure("; ".join(failed))

    async def _restart_if_dead(self, node: Node) -> None:
        if not await node.is_running():
            why = await why_ended(node, self._components.target)
            problem = "was not running though no fault held it down"
            self._record.problem(f"{node.name} {problem}{why and f' ({why})'}; started it again")
            await node.start()

    async def _collect_logs(self) -> str:
        """Save what the nodes have said, and tell where, as the end of a message."""
        with self._record.survived("collect"):
            async with asyncio.timeout(COLLECT_TIMEOUT_S):
                await self._cluster.collect(self._directory)
            return f"; what the nodes said is in {self._directory / 'logs'}"
        return ""
