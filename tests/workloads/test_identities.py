"""A transactional.id and the processes that have it, without a client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from harness.record.history import MemoryRecorder
from workloads.clients.driven.process import DriverEnded
from workloads.transactions.identity import Identity, Incarnation
from workloads.transactions.recording import TransactionRecorder

Answer = Callable[[str], Awaitable[Mapping[str, Any]]]


class Fake:
    """A driver whose client answers as it is told to. ends: run() raises this."""

    def __init__(self, answer: Answer, ends: Exception | None = None) -> None:
        self.is_up = ends is None
        self.lost: Callable[[str], None] = lambda how: None
        self.asked: list[str] = []
        self._answer, self._ends = answer, ends

    async def run(self) -> None:
        if self._ends is not None:
            raise self._ends
        await asyncio.Event().wait()

    async def ask(self, do: str, **fields: Any) -> Mapping[str, Any]:
        self.asked.append(do)
        return await self._answer(do)

    def kill(self, why: str) -> None: ...

    def thaw(self) -> bool:
        return True


def identity(made: list[Fake], driver: Callable[[], Fake]) -> Identity:
    recorder = TransactionRecorder(MemoryRecorder("r"), "t")

    def make() -> Incarnation:
        made.append(driver())
        return Incarnation(
            len(made), made[-1], recorder, "t", positions={0: 0}, partitions=[0], patience_s=5,  # type: ignore[arg-type]
            clock=lambda: 0,
        )  # fmt: skip

    async def work(incarnation: Incarnation) -> None:
        await incarnation.transaction([("send", 0, 1)], "commit")
        await asyncio.sleep(0.01)

    return Identity(make, work)


async def right(do: str) -> Mapping[str, Any]:
    await asyncio.sleep(0)
    return {"complete": 1, "outcome": "ok", "sent": {"1": 0}, "polled": []}


def carry_out(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await story()

    asyncio.run(bounded())


def test_one_that_cannot_start_ends_all_the_same() -> None:
    async def refused(do: str) -> Mapping[str, Any]:
        return {"error": "KafkaError", "says": "no coordinator"}

    async def story() -> None:
        made: list[Fake] = []
        tried = identity(made, lambda: Fake(refused))
        running = asyncio.create_task(tried.run())
        await asyncio.sleep(0.7)
        tried.end()
        await running
        assert len(made) == 1 and made[0].asked.count("start") > 1, "it was tried again meanwhile"

    carry_out(story)


@pytest.mark.parametrize("why", [OSError("no such program"), ValueError("no such setting")])
def test_a_process_that_cannot_be_made_ends_it_with_the_reason(why: Exception) -> None:
    async def story() -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await identity([], lambda: Fake(right, ends=why)).run()
        assert raised.value.exceptions[0] is why

    carry_out(story)


def test_what_a_zombie_raises_is_not_lost() -> None:
    async def story() -> None:
        made: list[Fake] = []
        wrong = RuntimeError("a bug of ours")
        frozen = asyncio.Event()

        async def answer(do: str) -> Mapping[str, Any]:
            if do == "txn" and not frozen.is_set():
                await frozen.wait()
                raise wrong
            return await right(do)

        tried = identity(made, lambda: Fake(answer))
        running = asyncio.create_task(tried.run())
        await asyncio.sleep(0.1)
        assert tried.take_over() is not None
        await asyncio.sleep(0.1)
        assert len(made) == 2, "another has the id"
        frozen.set()
        with pytest.raises(ExceptionGroup) as raised:
            await running
        assert raised.value.exceptions[0] is wrong

    carry_out(story)


def test_one_whose_end_is_not_known_is_followed_by_another() -> None:
    async def story() -> None:
        made: list[Fake] = []

        async def answer(do: str) -> Mapping[str, Any]:
            if do == "txn" and len(made) == 1:
                return {**await right(do), "outcome": "info", "error": "TimeoutException"}
            if do == "txn" and len(made) == 2:
                raise DriverEnded("it was killed")
            return await right(do)

        tried = identity(made, lambda: Fake(answer))
        running = asyncio.create_task(tried.run())
        await asyncio.sleep(1.2)
        tried.end()
        await running
        assert [each.asked.count("start") for each in made] == [1, 1, 1]
        assert [each.asked.count("txn") for each in made[:2]] == [1, 1] and made[2].asked.count("txn") > 5

    carry_out(story)
