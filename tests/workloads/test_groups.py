"""Members of groups and their processes, without a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from harness.record.history import MemoryRecorder
from workloads.groups.group import Group, GroupSettings
from workloads.groups.recording import GroupRecorder


class SlowToClose:
    """A driver whose client takes a while to leave."""


    def __init__(self, name: str, opening: Callable[[], Any], up: dict[str, int]) -> None:
        self.name, self.is_up = name, True
        self.heard: Callable[[Mapping[str, Any]], None] = lambda said: None
        self.lost: Callable[[str], None] = lambda how: None
        self._opening, self._up = opening, up

    async def run(self) -> None:
        self._up[self.name] = self._up.get(self.name, 0) + 1
        assert self._up[self.name] == 1, "one process of a member at a time"
        self._opening()
        try:
            await asyncio.Event().wait()
        finally:
            self._up[self.name] -= 1

    def say(self, do: str, **fields: Any) -> None:
        if do == "close":
            asyncio.get_running_loop().call_later(0.5, self.heard, {"is": "closed"})

    def kill(self, why: str) -> None:
        pass


def test_a_member_that_is_about_to_leave_is_not_struck_again() -> None:
    """It would join twice: two processes, told apart by nobody, and one loses what it commits to the other."""

    async def story() -> None:
        up: dict[str, int] = {}
        loop = asyncio.get_running_loop()
        group = Group(
            GroupSettings("g", "after", "sync", members=2, churn_s=0.01, pause_s=0.1), "t",
            GroupRecorder(MemoryRecorder("r"), "t"), clock=lambda: round(loop.time() * 1e9),
            make_driver=lambda name, opening: SlowToClose(name, opening, up),  # type: ignore[arg-type, return-value]
            client_settings=lambda member: {}, next_process=iter(range(10_000)).__next__,
            unusable=lambda error, says: AssertionError(says),  # type: ignore[arg-type, return-value]
        )  # fmt: skip
        group.start()
        churning = asyncio.create_task(group.churn(Random(1)))
        await asyncio.sleep(3)
        churning.cancel()
        await asyncio.gather(churning, return_exceptions=True)
        for member in group.members:
            member.check()
        await group.stop()
        assert set(up.values()) == {0}

    asyncio.run(story())


def test_a_group_with_a_member_that_owns_nothing_yet_is_not_whole() -> None:
    group = Group(
        GroupSettings("g", "after", "sync", members=2, churn_s=0, pause_s=0), "t",
        GroupRecorder(MemoryRecorder("r"), "t"), clock=lambda: 0,
        make_driver=lambda name, opening: SlowToClose(name, opening, {}),  # type: ignore[arg-type, return-value]
        client_settings=lambda member: {}, next_process=lambda: 0, unusable=lambda error, says: AssertionError(says),
    )  # fmt: skip
    first, second = group.members
    first.driver = SlowToClose("first", lambda: None, {})  # type: ignore[assignment]
    first.owned = {0, 1, 2}
    assert group.is_whole(3), "the other is away"
    second.driver = SlowToClose("second", lambda: None, {})  # type: ignore[assignment]
    assert not group.is_whole(3), "it has just joined"
    first.owned = {0, 1}
    assert not group.is_whole(3), "nobody owns 2"
    second.owned = {2}
    assert group.is_whole(3)
    first.is_paused = True
    assert not group.is_whole(3)
    first.is_paused = False
    first.owned, second.owned = {0}, set()
    assert group.is_whole(1), "there are fewer partitions than members"
