"""Workload `consumer-group`: producers append as in `append`, and the members of groups poll, process and commit what
they wrote, while members crash, leave, join and pause longer than max.poll.interval.ms.

Processes of the history: those of workload `append`, and from FIRST_MEMBER on one for each incarnation of a member.
What members are handed over is read as by every other consumer, and judged with the log; what they are given and do is
judged by `checkers/groups`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final

from harness.plan.plan import Plan
from workloads import settings
from workloads.append import READERS, AppendWorkload
from workloads.clients.driven.access import DrivenAccess
from workloads.clients.driven.kind import GroupMembership
from workloads.clients.kio.client import CannotSend, Link
from workloads.clients.kio.reading import Reader
from workloads.groups.group import LEAVE_S, Group, GroupSettings
from workloads.groups.recording import GroupRecorder
from workloads.settings import Setting, number, one_of

FIRST_MEMBER: Final = 1000
#: How groups commit: relative to processing, and how.
ORDERS: Final = ("after-sync", "after-async", "after-auto", "before-sync")
_POLL_S: Final = 0.5
#: A group that was whole for so long is taken for settled.
_WHOLE_S: Final = 3.0


def _orders(text: str) -> Sequence[tuple[str, str]]:
    found = [each.strip() for each in text.split("+")]
    if not found or any(each not in ORDERS for each in found):
        raise ValueError(f"valid: one of {', '.join(ORDERS)} a group, joined by +, e.g. after-sync+before-sync")
    return [(order, mode) for order, _, mode in (each.partition("-") for each in found)]


class ConsumerGroupWorkload(AppendWorkload):
    """Consumer groups process what is appended: members crash, leave, join and pause, and commit what they did."""

    can_delete_records: ClassVar[bool] = False
    can_have_short_lived_topics: ClassVar[bool] = False
    takes_producers: ClassVar[bool] = False
    settings: ClassVar[Mapping[str, Setting]] = {
        "commits": Setting(
            "after-sync+before-sync", f"{', '.join(ORDERS)}, joined by +", "how each group commits: there are as many",
            _orders,
        ),
        "members": number(3, 1, 20, "of each group"),
        "protocol": one_of("classic", "classic", "consumer", help="of groups; consumer: KIP-848"),
        "assignor": one_of(
            "default", "default", "range", "roundrobin", "cooperative-sticky", "uniform",
            help="default: the client's, or of protocol consumer the broker's",
        ),
        "static": one_of("false", "true", "false", help="members with a group.instance.id (KIP-345)"),
        "churn": number(4, 0, 3600, "seconds from one member that crashes, leaves or pauses to the next; 0: none does"),
        "session": number(6, 1, 300, "seconds: session.timeout.ms of protocol classic, max.poll.interval.ms of both"),
        "settle": number(45, 1, 3600, "seconds after all faults were healed in which a group must be whole again"),
    }  # fmt: skip

    def __init__(self, plan: Plan, *given: Any, **named: Any) -> None:
        super().__init__(plan, *given, **named)
        self._wishes = settings.read(self.settings, plan.workload_settings, plan.workload)
        self._groups_recorder = GroupRecorder(self._recorder, plan.topic)
        self._processes = itertools.count(FIRST_MEMBER)
        self._drivers: list[Any] = []
        self._groups = [self._group(name, *order) for name, order in _named(self._wishes)]
        self._watching: asyncio.Future[Any] | None = None

    @classmethod
    def impossible(cls, plan: Plan) -> str | None:
        """Why a plan cannot be carried out with it, as a clause."""
        groups = getattr(plan.client_kind, "groups", None)
        if groups is None:
            others = "librdkafka, java, kafka-python or aiokafka"
            return f"client {plan.client} has no consumer groups; give --client {others}"
        wishes = settings.read(cls.settings, plan.workload_settings, plan.workload)
        found = [groups.impossible(_membership(wishes, name, mode, 0)) for name, (_, mode) in _named(wishes)]
        return next((why for why in found if why is not None), None)

    @property
    def final_read_s(self) -> float:
        """What final_read() may take beside reading: groups settle, and their members leave."""
        return float(self._wishes["settle"]) + LEAVE_S

    @classmethod
    def groups(cls, plan: Plan) -> Mapping[str, Any]:
        """As checkers.groups has it."""
        wishes = settings.read(cls.settings, plan.workload_settings, plan.workload)
        return {
            name: {
                "commit": order, "mode": mode, "protocol": wishes["protocol"], "assignor": wishes["assignor"],
                "static": wishes["static"] == "true", "settle_s": wishes["settle"],
            }
            for name, (order, mode) in _named(wishes)
        }  # fmt: skip

    async def run(self, stop: asyncio.Event) -> None:
        """As append; members churn meanwhile, and go on afterwards, until final_read()."""
        for group in self._groups:
            group.start()
        self._watching = watching = asyncio.gather(*(group.watch() for group in self._groups))
        churning = [
            asyncio.create_task(group.churn(Random(f"{self._plan.seed}/{group.settings.name}")))
            for group in self._groups
        ]
        working = asyncio.create_task(super().run(stop))
        try:
            both: list[asyncio.Future[Any]] = [working, watching]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                watching.result()  # a member cannot even be made
            await working
        finally:
            for task in (*churning, working):
                task.cancel()
            await asyncio.gather(*churning, working, return_exceptions=True)

    async def final_read(self) -> None:
        """Once each group has committed all there is, or its time to settle is over, its members leave; then all is
        read as ever."""
        await asyncio.gather(*(self._drain(group) for group in self._groups))
        await self._end()
        await super().final_read()

    async def close(self) -> None:
        await self._end()
        await super().close()

    def facts(self) -> Mapping[str, Any]:
        members = {
            driver.name: {"starts": driver.starts, "ended": driver.ends} for driver in self._drivers
        }  # fmt: skip
        return {**super().facts(), "group_members": members}

    async def _drain(self, group: Group) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._wishes["settle"]
        ends = await self._ends()
        whole_since = loop.time()
        while loop.time() < end:
            await asyncio.sleep(_POLL_S)
            if not group.is_whole(self._plan.partitions):
                whole_since = loop.time()
            if loop.time() - whole_since < _WHOLE_S:
                continue
            found = await group.ask_committed(self._plan.partitions)
            if found is not None and all((found[p] or 0) >= ends[p] for p in ends):
                return

    async def _ends(self) -> Mapping[int, int]:
        """Of all logs, now that nothing is appended any more. Retries until cancelled."""
        reader = Reader(self._client, self._recorder, self._tally, self._plan.concurrency + READERS, clock=self._clock)
        found: dict[int, int] = {}
        link = Link(self._client)
        try:
            while len(found) < self._plan.partitions:
                for partition, known in list(self._client.metadata.partitions.items()):
                    if partition in found:
                        continue
                    try:
                        connection = await link.to(known.leader)
                    except CannotSend:
                        self._client.metadata.ask_again()
                        await asyncio.sleep(_POLL_S)
                        continue
                    found |= await reader.end_offsets(connection, {partition: known.leader_epoch})
                await asyncio.sleep(0)
        finally:
            link.close()
        return found

    async def _end(self) -> None:
        if self._watching is None:
            return
        watching, self._watching = self._watching, None
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await asyncio.gather(*(group.stop() for group in self._groups))

    def _group(self, name: str, order: str, mode: str) -> Group:
        plan, kind, wishes = self._plan, self._plan.client_kind, self._wishes
        churn_s, pause_s = wishes["churn"], wishes["session"] + 3
        access = self._access
        assert isinstance(access, DrivenAccess), "as impossible() has it"
        made = GroupSettings(name, order, mode, round(wishes["members"]), churn_s, pause_s)

        def client_settings(member: int) -> Mapping[str, str]:
            membership = _membership(wishes, f"{plan.topic}-{name}", mode, member)
            return {**access.settings("member"), **kind.groups.settings(membership), **plan.client_settings}

        def make_driver(driver: str, opening: Callable[[], list[Mapping[str, Any]]]) -> Any:
            made = access.driver(driver, opening)
            self._drivers.append(made)
            return made

        return Group(
            made, plan.topic, self._groups_recorder, clock=self._clock, make_driver=make_driver,
            client_settings=client_settings, next_process=lambda: next(self._processes), unusable=kind.unusable,
        )  # fmt: skip


def _named(wishes: Mapping[str, Any]) -> Sequence[tuple[str, tuple[str, str]]]:
    return [(f"group-{number}", order) for number, order in enumerate(wishes["commits"], start=1)]


def _membership(wishes: Mapping[str, Any], group: str, mode: str, member: int) -> GroupMembership:
    instance = f"{group}-{member}" if wishes["static"] == "true" else None
    return GroupMembership(group, wishes["protocol"], wishes["assignor"], mode, wishes["session"], instance)
