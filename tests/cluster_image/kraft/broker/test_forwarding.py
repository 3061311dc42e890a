"""What a broker passes on to the controller: several at a time, and not before there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.create_topics.v5.request import CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.channel import ControllerChannel, NoController
from cluster_image.kraft.broker.forwarding import LINES, LINES_OF_ONE, Forwarding
from cluster_image.wire.messages import NO_THROTTLE, make, response_module
from cluster_image.wire.unanswered import error_answer


def request(name: str = "t", seconds: float = 1.0) -> CreateTopicsRequest:
    topic: Any = make(
        CreatableTopic, name=name, num_partitions=1, replication_factor=1, assignments=(), configs=(),
    )  # fmt: skip
    return CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=seconds), validate_only=False)  # type: ignore[arg-type]


class Controller:
    """answer: to a request; raises NoController while there is none."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.lines = 0

    def line(self) -> ControllerChannel:
        self.lines += 1
        return self  # type: ignore[return-value]

    async def request(self, entity: Any, timeout: float | None = None) -> Any:
        answer = self.answer(entity)
        return await answer if asyncio.iscoroutine(answer) else answer

    def close(self) -> None: ...


def error_of(answer: Any) -> tuple[ErrorCode, str | None]:
    (topic,) = answer.topics
    return topic.error_code, topic.error_message


def done(entity: Any) -> Any:
    return make(response_module(entity).CreateTopicsResponse, throttle_time=NO_THROTTLE, topics=())


def test_a_request_waits_for_a_controller_as_long_as_it_allows() -> None:
    asked: list[float] = []

    async def run() -> Any:
        start = asyncio.get_running_loop().time()

        def answer(entity: Any) -> Any:
            asked.append(asyncio.get_running_loop().time() - start)
            if asked[-1] < 0.2:
                raise NoController("none is known")
            return error_answer(entity, ErrorCode.not_controller) if asked[-1] < 0.3 else done(entity)

        return await Forwarding(Controller(answer).line, 3.0).pass_on(request(seconds=5))

    assert asyncio.run(run()).topics == ()
    assert 0.3 <= asked[-1] < 1.5


def test_who_waited_in_vain_is_told_that_nothing_was_carried_out() -> None:
    def answer(entity: Any) -> Any:
        raise NoController("no active controller is known")

    error, message = error_of(asyncio.run(Forwarding(Controller(answer).line, 3.0).pass_on(request(seconds=0.2))))
    assert error is ErrorCode.request_timed_out
    assert message == "no active controller is known: the request was not carried out"


def test_an_answer_that_does_not_come_leaves_it_open() -> None:
    def answer(entity: Any) -> Any:
        raise ConnectionError("lost")

    error, message = error_of(asyncio.run(Forwarding(Controller(answer).line, 3.0).pass_on(request())))
    assert error is ErrorCode.request_timed_out and "may or may not" in (message or "")


def test_one_that_takes_long_holds_up_no_other() -> None:
    async def run() -> None:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def forever() -> Any:
            return await never

        def answer(entity: Any) -> Any:
            return forever() if entity.topics[0].name == "slow" else done(entity)

        controller = Controller(answer)
        forwarding = Forwarding(controller.line, 3.0)
        hosts = (f"host {n // LINES_OF_ONE}" for n in range(LINES))
        slow = [
            asyncio.create_task(forwarding.pass_on(request("slow", 60), host=next(hosts))) for _ in range(LINES - 1)
        ]
        for _ in range(5):
            assert (await asyncio.wait_for(forwarding.pass_on(request()), 1)).topics == ()
        assert controller.lines == LINES
        slow.append(asyncio.create_task(forwarding.pass_on(request("slow", 60), host=next(hosts))))
        await asyncio.sleep(0)
        _, message = error_of(await forwarding.pass_on(request(seconds=0.1)))
        assert message is not None and message.endswith("the request was not carried out")
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert (await forwarding.pass_on(request())).topics == ()

    asyncio.run(run())


def test_one_address_has_not_all_lines() -> None:
    async def run() -> None:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def forever() -> Any:
            return await never

        forwarding = Forwarding(
            Controller(lambda entity: forever() if entity.topics[0].name == "slow" else done(entity)).line, 3.0
        )
        slow = [asyncio.create_task(forwarding.pass_on(request("slow", 60), host="one")) for _ in range(3 * LINES)]
        await asyncio.sleep(0)
        assert (await asyncio.wait_for(forwarding.pass_on(request(), host="other"), 1)).topics == ()
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(run())
