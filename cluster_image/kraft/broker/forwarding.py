"""What a broker passes on to the active controller, for administrators (Apache Kafka: ForwardingManager).

Several at a time, each on a line of its own: one that the quorum is slow to commit holds up no other. While no
controller is known, and while one has lost its office, a request waits for the next as long as it allows itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Aside, Entity, here
from cluster_image.network.shares import Shares
from cluster_image.wire.unanswered import error_answer, says

from .channel import ControllerChannel, NoController

#: Requests at a time, and of one address.
LINES: Final = 8
LINES_OF_ONE: Final = 4
#: Between looks for a controller.
LOOK_S: Final = 0.05
#: However long a request allows.
MOST_S: Final = 120.0


class Forwarding:
    """channel: makes a line to the controller. timeout: seconds, of requests that do not tell."""

    def __init__(self, channel: Callable[[], ControllerChannel], timeout: float) -> None:
        self._channel = channel
        self._timeout = timeout
        self._idle: list[ControllerChannel] = []
        self._busy: set[ControllerChannel] = set()
        self._lines = Shares(LINES, LINES_OF_ONE)

    async def request(self, entity: Entity, host: str = "") -> Any:
        """The active controller's answer. host: who asks. Raises NoController: it was certainly not carried out;
        ConnectionError, TimeoutError: it may have been."""
        until = asyncio.get_running_loop().time() + self._allowed(entity)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(until):
                    await stack.enter_async_context(self._lines.turn(host))
            except TimeoutError:
                raise NoController("requests before it have no answer yet") from None
            channel = self._idle.pop() if self._idle else self._channel()
            self._busy.add(channel)
            try:
                return await self._ask(channel, entity, until)
            finally:
                self._busy.discard(channel)
                self._idle.append(channel)

    async def pass_on(self, request: Entity, aside: Aside = here, host: str = "") -> Entity:
        """As request(); the answer is this broker's, whatever happens. aside: see network.Peer."""
        try:
            answer: Entity = await self.request(request, host)
            return answer
        except NoController as error:
            message = f"{error}: the request was not carried out"
        except (ConnectionError, TimeoutError):
            message = "the controller did not answer: the request may or may not have been carried out"
        return await aside(partial(error_answer, request, ErrorCode.request_timed_out, message))

    def close(self) -> None:
        for channel in (*self._idle, *self._busy):
            channel.close()

    def _allowed(self, entity: Entity) -> float:
        timeout = getattr(entity, "timeout", None)
        return self._timeout if timeout is None else min(max(timeout.total_seconds(), 0.0), MOST_S)

    async def _ask(self, channel: ControllerChannel, entity: Entity, until: float) -> Any:
        loop = asyncio.get_running_loop()
        while True:
            left = until - loop.time()
            try:
                answer = await channel.request(entity, max(left, LOOK_S))
                if not says(answer, ErrorCode.not_controller):
                    return answer
                raise NoController("who was the controller is not any more")
            except NoController:
                if left <= LOOK_S:
                    raise
            await asyncio.sleep(LOOK_S)
