"""A broker's session as a lease: what a leader may say rests on it (kraft/broker/rules.may_tell_end_of_log)."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from kio.schema.broker_heartbeat.v1.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.lifecycle import Lifecycle
from cluster_image.wire.messages import NO_THROTTLE
from tests.cluster_image.kraft.broker.test_partition import config


class Controller:
    """In place of a channel to one: takes every registration, and answers heartbeats while it is `there`."""

    there = True

    async def request(self, request: Any) -> Any:
        if not self.there:
            raise ConnectionError("gone")
        if "Registration" in type(request).__name__:
            return BrokerRegistrationResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, broker_epoch=5)
        return BrokerHeartbeatResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.none, is_fenced=request.want_fence, should_shut_down=False
        )

    def close(self) -> None: ...


def test_the_lease_ends_with_the_session_and_with_the_wish_to_shut_down() -> None:
    async def scenario() -> None:
        controller: Any = Controller()
        settings = config(broker_session_timeout_ms="300", broker_heartbeat_interval_ms="20")
        errors: list[BaseException] = []
        lifecycle = Lifecycle(settings, controller, Random(1), -1, lambda: 5, errors.append)
        await lifecycle.register()
        assert not lifecycle.holds_lease(), "fenced until it asks not to be"
        lifecycle.run()
        await asyncio.wait_for(lifecycle.unfenced.wait(), 5)
        assert lifecycle.holds_lease()
        controller.there = False
        await asyncio.sleep(0.5)
        assert not lifecycle.fenced and not lifecycle.holds_lease(), "nobody told it, and it must not wait to be told"
        controller.there = True
        while not lifecycle.holds_lease():
            await asyncio.sleep(0.02)
        await lifecycle.shut_down(0.1)
        assert not lifecycle.holds_lease(), "its leaderships may be others' by now"
        await lifecycle.close()
        assert not errors

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_the_lease_begins_when_the_heartbeat_is_sent_and_not_when_it_is_answered() -> None:
    """The controller counts from when it has heard the broker: of an answer that took longer than the session nobody
    knows whether the session has lasted."""

    class Slow(Controller):
        async def request(self, request: Any) -> Any:
            if "Heartbeat" in type(request).__name__:
                await asyncio.sleep(0.4)
            return await super().request(request)

    async def scenario() -> None:
        controller: Any = Slow()
        settings = config(broker_session_timeout_ms="300", broker_heartbeat_interval_ms="20")
        errors: list[BaseException] = []
        lifecycle = Lifecycle(settings, controller, Random(1), -1, lambda: 5, errors.append)
        await lifecycle.register()
        lifecycle.run()
        await asyncio.wait_for(lifecycle.unfenced.wait(), 5)
        assert not lifecycle.fenced and not lifecycle.holds_lease()
        await lifecycle.close()
        assert not errors

    asyncio.run(asyncio.wait_for(scenario(), 20))
