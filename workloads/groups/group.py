"""One consumer group: members that join, leave, crash and pause, as the plan's seed has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from workloads.clients.driven.process import Driver, DriverEnded
from workloads.groups.recording import GroupRecorder

#: From a member's leaving to its joining again, in seconds.
AWAY_S: Final = (1.0, 5.0)
CLOSE_S: Final = 10.0
OFFSETS_S: Final = 5.0
_GRACE_S: Final = 15.0
LEAVE_S: Final = CLOSE_S + _GRACE_S  # at most
#: Of what strikes a member, how often each.
CHURN: Final[Mapping[str, int]] = {"crash": 3, "leave": 3, "pause": 2}


@dataclass(frozen=True)
class GroupSettings:
    """commit: "after" or "before" processing. mode: "sync", "async" or "auto". churn_s: from one member that crashes,
    leaves or pauses to the next, on average; 0: none does. pause_s: how long one pauses."""

    name: str
    commit: str
    mode: str
    members: int
    churn_s: float
    pause_s: float


class Member:
    """One place in the group: as long as nobody has it leave, a process of it runs. Each process is another
    incarnation, and another process of the history."""

    def __init__(self, group: Group, number: int) -> None:
        self._group = group
        self.number = number
        self.process = -1
        self.owned: set[int] = set()  # partitions, as its client has told
        self.is_paused = False
        self.driver: Driver | None = None
        self._running: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._is_leaving = False

    @property
    def is_there(self) -> bool:
        """Neither away nor about to be: leaving takes its time on a cluster in trouble."""
        return self.driver is not None and not self._is_leaving

    def join(self) -> None:
        group, settings = self._group, self._group.settings
        self._closed.clear()
        self._is_leaving = False
        opening: list[Mapping[str, Any]] = [
            {"do": "open", "client": 0, "role": "member", "settings": group.client_settings(self.number)},
            {"do": "join", "client": 0, "topic": group.topic, "commit": settings.commit, "mode": settings.mode},
        ]

        def open_one() -> list[Mapping[str, Any]]:
            self.process = group.next_process()
            return opening

        self.driver = group.make_driver(f"{settings.name}-member-{self.number}", open_one)
        self.driver.heard, self.driver.lost = self._heard, self._lost
        self._running = asyncio.get_running_loop().create_task(self.driver.run())

    async def leave(self) -> None:
        """Close it, and wait until it has."""
        if self.driver is None or self._running is None:
            return
        invoke = self._group.clock()
        self._is_leaving = True
        try:
            self.driver.say("close", client=0, seconds=CLOSE_S)
            async with asyncio.timeout(LEAVE_S):
                await self._closed.wait()
            kind = "leave"
        except (DriverEnded, TimeoutError):
            kind = "crash"
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._group.recorder.member(self._group.settings.name, self.process, kind, invoke, self._group.clock())
        self.driver, self.owned, self.is_paused = None, set(), False

    def pause(self, seconds: float) -> None:
        if self.driver is not None and self.driver.is_up:
            self.driver.say("pause", client=0, seconds=seconds)

    def crash(self) -> None:
        """It is started again, as another incarnation."""
        if self.driver is not None:
            self.driver.kill("was killed, as the plan has it")

    def check(self) -> None:
        """Raises what its process came to an end by, if that is no end of a member."""
        if self._running is not None and self._running.done() and not self._is_leaving:
            self._running.result()

    def _heard(self, said: Mapping[str, Any]) -> None:
        if said["is"] == "member":
            self._follow(said)
            self._group.recorder.told(self._group.settings.name, self.process, said)
        elif said["is"] == "closed":
            self._closed.set()
        elif said["is"] == "failed":
            assert self.driver is not None
            self.driver.cannot_start(self._group.unusable(said["error"], said["says"]))

    def _follow(self, said: Mapping[str, Any]) -> None:
        kind = said["kind"]
        if kind == "assign":
            self.owned |= set(said["partitions"])
        elif kind in ("revoke", "lose"):
            self.owned -= set(said["partitions"])
        elif kind in ("pause", "resume"):
            self.is_paused = kind == "pause"

    def _lost(self, how: str) -> None:
        now = self._group.clock()
        self.owned, self.is_paused = set(), False
        self._group.recorder.member(self._group.settings.name, self.process, "crash", now, now)


class Group:
    """make_driver: from a name and what each process is told first. client_settings: of the member with that number.
    next_process: of the history. unusable: what to raise if a member cannot even be made."""

    def __init__(
        self,
        settings: GroupSettings,
        topic: str,
        recorder: GroupRecorder,
        *,
        clock: Callable[[], int],
        make_driver: Callable[[str, Callable[[], list[Mapping[str, Any]]]], Driver],
        client_settings: Callable[[int], Mapping[str, str]],
        next_process: Callable[[], int],
        unusable: Callable[[str, str], Exception],
    ) -> None:
        self.settings = settings
        self.topic = topic
        self.recorder = recorder
        self.clock = clock
        self.make_driver = make_driver
        self.client_settings = client_settings
        self.next_process = next_process
        self.unusable: Any = unusable
        self.members = [Member(self, number) for number in range(settings.members)]

    def start(self) -> None:
        for member in self.members:
            member.join()

    async def churn(self, random: Random) -> None:
        """Until cancelled."""
        if not self.settings.churn_s:
            return
        away: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(self.settings.churn_s * random.uniform(0.5, 1.5))
                what = random.choices(list(CHURN), list(CHURN.values()))[0]
                member = random.choice(self.members)
                away_s = random.uniform(*AWAY_S)
                if not member.is_there:
                    continue
                if what == "crash":
                    member.crash()
                elif what == "pause":
                    member.pause(self.settings.pause_s)
                else:
                    task = asyncio.create_task(self._away(member, away_s))
                    away.add(task)
                    task.add_done_callback(away.discard)
        finally:
            await asyncio.gather(*away, return_exceptions=True)  # each is bounded, and joins again

    async def _away(self, member: Member, seconds: float) -> None:
        await member.leave()
        await asyncio.sleep(seconds)
        member.join()

    async def watch(self) -> None:
        """Until cancelled. Raises if a member cannot be made."""
        while True:
            await asyncio.sleep(0.5)
            for member in self.members:
                member.check()
            self.recorder.flush()

    def is_whole(self, partitions: int) -> bool:
        """Every partition has one owner, every member owns some, if there are enough, and nobody is paused, as members
        have told. (Who has just joined owns nothing yet, and others are to give it some.)"""
        there = [member for member in self.members if member.driver is not None]
        owned = sorted(partition for member in there for partition in member.owned)
        idle = partitions >= len(there) and any(not member.owned for member in there)
        return owned == list(range(partitions)) and not idle and not any(member.is_paused for member in there)

    async def ask_committed(self, partitions: int) -> Mapping[int, int | None] | None:
        """Of each partition, as a member tells it; None: none does now."""
        for member in self.members:
            if member.driver is None or not member.driver.is_up:
                continue
            try:
                said = await member.driver.ask(
                    "committed", patience=OFFSETS_S + _GRACE_S, client=0, topic=self.topic,
                    partitions=list(range(partitions)), seconds=OFFSETS_S,
                )  # fmt: skip
            except (DriverEnded, TimeoutError):
                continue
            if "offsets" in said:
                found = {int(partition): offset for partition, offset in said["offsets"].items()}
                for partition, offset in found.items():
                    self.recorder.committed(self.settings.name, partition, offset, said["invoke"], said["complete"])
                return found
        return None

    async def stop(self) -> None:
        """All members leave."""
        await asyncio.gather(*(member.leave() for member in self.members))
        self.recorder.flush()
