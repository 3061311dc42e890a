"""The model's client in any order that asyncio allows its tasks."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from cluster_image.network import Address
from cluster_image.v2.zookeeper import Event, EventType
from harness.targets.v2.zookeeper.messages import Answer, Connected, Numbered
from harness.targets.v2.zookeeper.server import foreign
from harness.targets.v2.zookeeper.session import ModelZooKeeper

PATH = "/brokers/state/1"
FIRST, SECOND = "first", "second"


Answers = list[asyncio.Future[Answer]]


class _Connection:
    """answers: of each call, in their order, what it will be answered."""

    closed = False

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def request(self, entity: Any, *, timeout: float) -> Any:
        content = entity.content
        if not hasattr(content, "asked"):
            return foreign(Connected(1, 1, 0))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if type(content.asked).__name__ != "Wait":
            self._answers.append(answer)
        return foreign(await answer)

    def close(self) -> None: ...


class _Network:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def connect(self, address: Address, *, client_id: str, timeout: float) -> _Connection:
        return _Connection(self._answers)


def test_an_event_waits_for_the_answer_to_the_call_that_set_its_watch() -> None:
    """Found by `chaos explore --target v2` (seed 53): a broker had two answers at once, took that of the later call
    first, and with it an event that came after the earlier one: nobody watched yet, and nobody was told later."""
    asyncio.run(_hears_it())


async def _hears_it() -> None:
    answers: Answers = []
    heard = asyncio.Event()
    client = ModelZooKeeper([Address("zookeeper-1", 2181)], _Network(answers), Random(0), 6.0)  # type: ignore[arg-type]
    await client.start()

    def hear(event: Event) -> None:
        heard.set()

    first = asyncio.create_task(client.children(PATH, hear))
    await asyncio.sleep(0)
    second = asyncio.create_task(client.get(PATH))
    while len(answers) < 2:
        await asyncio.sleep(0)
    event = Numbered(1, 1, Event(EventType.CHILD, PATH))  # after the first call, before the second
    answers[1].set_result(Answer(SECOND, None, 1, (event,)))
    assert await second == SECOND
    answers[0].set_result(Answer(FIRST, None, 1, ()))
    assert await first == FIRST
    async with asyncio.timeout(1):
        await heard.wait()
