"""Tries out the faults of a schedule, in their order, on a stand-in that notes what is asked of it (recording.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from harness.cluster import Node
from harness.errors import describe
from harness.plan.plan import Plan
from harness.plan.schedule import Fault, Schedule
from harness.run.dry.recording import Call, RecordingCluster
from harness.run.dry.whom import Whom, whom
from harness.runtimes.simulation.loop import VirtualLoop
from nemesis import Nemesis

#: By so much later than planned a fault may end: what healing takes; and where it may have had to wait itself.
_HEALING_S: Final = 1.0
_LATE_S: Final = 10.0


@dataclass(frozen=True)
class Done:
    """What a fault would do. if_ended: what healing does besides if the process of who was struck has ended by itself.
    not_told: why it is not known as a whole, a clause."""

    inject: Sequence[Call] = ()
    heal: Sequence[Call] = ()
    if_ended: Sequence[Call] = ()
    not_told: str = ""


@dataclass(frozen=True)
class Planned:
    """overlaps: may another fault hold nodes when it strikes, by what is planned and how late that may be?"""

    fault: Fault
    whom: Whom
    overlaps: bool
    done: Done = field(default_factory=Done)


class Rehearsal:
    """Of one schedule. There are two stand-ins: of one all processes run when they are healed, of the other those that
    were struck have ended."""

    def __init__(self, plan: Plan, nemeses: Mapping[str, Nemesis]) -> None:
        self._plan = plan
        self._nemeses = nemeses
        self._alive, self._dead = RecordingCluster(plan), RecordingCluster(plan)

    def of(self, faults: Schedule) -> list[Planned]:
        planned: list[Planned] = []
        struck: dict[str, Counter[str]] = {name: Counter() for name in self._nemeses}
        for fault in sorted(faults, key=lambda fault: (fault.at, fault.fault)):
            nemesis = self._nemeses[fault.nemesis]
            others = [each for each in planned if self._holds(each, fault)]
            near = [each for each in planned if self._holds(each, fault, _LATE_S if each.overlaps else _HEALING_S)]
            held = {name for each in others if not each.whom.depends_on for name in each.whom.names}
            free = {node.name for node in self._alive.machines} - held
            found = whom(nemesis, fault.choice, self._alive, self._plan, free, struck[fault.nemesis])
            if found.why_nobody and held:  # it waits, and strikes once they are free again
                free = {node.name for node in self._alive.machines}
                found = whom(nemesis, fault.choice, self._alive, self._plan, free, struck[fault.nemesis])
            if any(each.whom.depends_on for each in planned if each.fault.nemesis == fault.nemesis):
                as_the_first = whom(nemesis, fault.choice, RecordingCluster(self._plan), self._plan, free, {})
                if as_the_first.names != found.names:
                    found = found.after_others()
            struck[fault.nemesis].update(found.names)
            done = Done() if found.why_nobody else self._tried(nemesis, fault, found.names)
            planned.append(Planned(fault, found, bool(near), done))
        return planned

    def _holds(self, earlier: Planned, fault: Fault, late_s: float = 0.0) -> bool:
        """Is it still in force when this fault is to strike, and in its way, if it ends so much later than planned?"""
        both = all(getattr(self._nemeses[each.nemesis], "exclusive", True) for each in (earlier.fault, fault))
        return both and earlier.fault.at + earlier.fault.duration + late_s > fault.at

    def _tried(self, nemesis: Nemesis, fault: Fault, names: Sequence[str]) -> Done:
        loop = VirtualLoop()
        try:
            done = loop.run_until_complete(loop.create_task(self._try(nemesis, fault, names)))
        except Exception as error:  # a user's own may need more than a stand-in; nor is any other worth a crash
            done = Done(not_told=describe(error))
        finally:
            loop.bury()
        if done.not_told:  # whatever state they are in
            self._alive, self._dead = RecordingCluster(self._plan), RecordingCluster(self._plan)
        return done

    async def _try(self, nemesis: Nemesis, fault: Fault, names: Sequence[str]) -> Done:
        inject, heal, not_told = await _injected_and_healed(nemesis, fault, self._alive, names, ends=False)
        _, dead, why = await _injected_and_healed(nemesis, fault, self._dead, names, ends=True)
        return Done(inject, heal, [call for call in dead if call not in heal], not_told or why)


async def _injected_and_healed(
    nemesis: Nemesis, fault: Fault, cluster: RecordingCluster, names: Sequence[str], *, ends: bool
) -> tuple[list[Call], list[Call], str]:
    """And why not all of it is known. ends: have the processes ended by the time of healing?"""
    struck = [next(node for node in cluster.machines if node.name == name) for name in names]
    nodes, not_told = cast(Sequence[Node], struck), ""

    async def noted(work: Awaitable[Any]) -> list[Call]:
        nonlocal not_told
        began = len(cluster.calls)
        try:
            await work
        except Exception as error:
            not_told = not_told or describe(error)
        return cluster.calls[began:]

    inject = await noted(nemesis.inject(cluster.as_cluster(), nodes, fault.choice))
    for node in struck if ends else ():
        node.running = False
    return inject, await noted(nemesis.heal(cluster.as_cluster(), nodes)), not_told
