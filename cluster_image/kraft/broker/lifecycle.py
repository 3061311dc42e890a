"""A broker's life as the controller sees it: registration, heartbeats, unfencing, controlled shutdown (description 8).

    STARTING → RECOVERY → RUNNING → PENDING_CONTROLLED_SHUTDOWN → SHUTTING_DOWN

The session with the controller is also a lease: the controller fences a broker only when it has not heard of it for
broker.session.timeout.ms, so for that long after a heartbeat was *sent* that the controller then answered, no other
broker can have been elected in this one's place.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import uuid
from collections.abc import Callable
from random import Random

from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest, Listener
from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.network.tasks import Failed, start_task
from cluster_image.wire.integers import BrokerId, i16, i64, u16

from .channel import ControllerChannel

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1


class State(enum.Enum):
    STARTING = "STARTING"
    RECOVERY = "RECOVERY"
    RUNNING = "RUNNING"
    PENDING_CONTROLLED_SHUTDOWN = "PENDING_CONTROLLED_SHUTDOWN"
    SHUTTING_DOWN = "SHUTTING_DOWN"


class Lifecycle:
    """previous_epoch: the broker epoch of the session before if that ended cleanly, else -1.
    metadata_offset: the offset of the last metadata record that this broker has replayed."""

    def __init__(
        self,
        config: Config,
        channel: ControllerChannel,
        random: Random,
        previous_epoch: int,
        metadata_offset: Callable[[], int],
        failed: Failed,
    ) -> None:
        self._config = config
        self._channel = channel
        self.previous_epoch = previous_epoch
        self._metadata_offset = metadata_offset
        self._incarnation = uuid.UUID(int=random.getrandbits(128), version=4)
        self.lease_until = float("-inf")
        self._failed = failed
        self._heartbeats: asyncio.Task[None] | None = None
        self._may_shut_down = asyncio.Event()
        self._soon = asyncio.Event()
        self._ready = False  # to be unfenced
        self.state = State.STARTING
        self.broker_epoch = -1
        self.fenced = True
        self.unfenced = asyncio.Event()

    def holds_lease(self) -> bool:
        """Is it certain that the controller has given nobody else this broker's leaderships? It does so when the
        session has run out, and when the broker asks to shut down."""
        in_session = asyncio.get_running_loop().time() < self.lease_until
        return self.state is State.RUNNING and not self.fenced and in_session

    async def register(self) -> None:
        """Retry until the controller takes the registration, then start heartbeats."""
        address = self._config.listener("broker")
        request = BrokerRegistrationRequest(
            broker_id=BrokerId(self._config["node.id"]),
            cluster_id=self._config["cluster.id"],
            incarnation_id=self._incarnation,
            listeners=(
                Listener(name="PLAINTEXT", host=address.host, port=u16(address.port), security_protocol=i16(0)),
            ),
            features=(),
            rack=self._config["broker.rack"] or None,
            previous_broker_epoch=i64(self.previous_epoch),
        )
        while True:
            try:
                answer = await self._channel.request(request)
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if answer.error_code is ErrorCode.none:
                break
            # Most often DUPLICATE_BROKER_REGISTRATION: the session before has yet to run out.
            log.info("registration refused", extra={"error": answer.error_code.name})
            await asyncio.sleep(_RETRY_SECONDS)
        self.broker_epoch = int(answer.broker_epoch)
        self.state = State.RECOVERY
        log.info("registered", extra={"broker_epoch": self.broker_epoch, "previous_epoch": self.previous_epoch})
        self._heartbeats = start_task(self._send_heartbeats(), self._failed)

    def run(self) -> None:
        """The logs are recovered and the metadata has reached this broker's own registration: ask to be unfenced.
        RUNNING begins when the controller has done so."""
        self._ready = True
        self._soon.set()

    async def shut_down(self, timeout: float) -> bool:
        """Ask the controller for leave to stop; False if it was not given within `timeout` seconds."""
        self.state = State.PENDING_CONTROLLED_SHUTDOWN
        self._soon.set()
        try:
            async with asyncio.timeout(timeout):
                await self._may_shut_down.wait()
        except TimeoutError:
            log.warning("no leave to shut down in time")
            return False
        finally:
            self.state = State.SHUTTING_DOWN
        return True

    async def close(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
        self._channel.close()

    async def _send_heartbeats(self) -> None:
        interval = self._config.seconds("broker.heartbeat.interval.ms")
        while not self._may_shut_down.is_set():
            answered = await self._heartbeat()
            # While fenced and ready, ask often: only the metadata log keeps the controller from agreeing.
            waiting = self.fenced and self._ready
            pause = interval if answered and not waiting else min(interval, _RETRY_SECONDS)
            self._soon.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._soon.wait()
            except TimeoutError:
                pass
        # It has leave to go. A heartbeat more would ask to be unfenced again.
        await asyncio.get_running_loop().create_future()  # until close()

    async def _heartbeat(self) -> bool:
        sent = asyncio.get_running_loop().time()
        try:
            answer = await self._channel.request(
                BrokerHeartbeatRequest(
                    broker_id=BrokerId(self._config["node.id"]),
                    broker_epoch=i64(self.broker_epoch),
                    current_metadata_offset=i64(self._metadata_offset()),
                    want_fence=not self._ready,
                    want_shut_down=self.state is State.PENDING_CONTROLLED_SHUTDOWN,
                )
            )
        except (ConnectionError, TimeoutError):
            return False
        if answer.error_code is not ErrorCode.none:
            log.warning("heartbeat refused", extra={"error": answer.error_code.name})
            return False
        if self.fenced != answer.is_fenced:
            log.info("fenced" if answer.is_fenced else "unfenced")
        self.fenced = answer.is_fenced
        if not self.fenced:
            self.lease_until = sent + self._config.seconds("broker.session.timeout.ms")
            if self.state is State.RECOVERY:
                self.state = State.RUNNING
            self.unfenced.set()
        if answer.should_shut_down:
            self._may_shut_down.set()
        return True
