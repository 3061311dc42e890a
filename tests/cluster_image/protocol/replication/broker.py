"""One broker of three and what it asks of the others: its partitions and fetchers are the cluster's own, the leaders
are not there and answer when a test tells them to."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.response import FetchResponse

from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.broker.replica_manager import ReplicaManager
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.kraft.metadata.records import (
    BrokerEndpoint,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from cluster_image.network import Address
from cluster_image.replication.log_manager import LogManager
from cluster_image.wire.messages import NO_THROTTLE
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from tests.cluster_image.kraft.broker.test_partition import TOPIC, config
from tests.cluster_image.storage.simulated_disk import simulated_disk

ME = 1


class Link:
    """A connection to one leader, which answers when it is told to."""

    def __init__(self, leader: int, session: int) -> None:
        self.leader = leader
        self.session = session
        self.closed = False
        self.asked: Any = None
        self.sent: list[Any] = []
        self._answer: asyncio.Future[Any] | None = None

    async def request(self, request: Any, timeout: float) -> Any:
        self.asked, self._answer = request, asyncio.get_running_loop().create_future()
        self.sent.append(request)
        try:
            return await self._answer
        finally:
            self.asked = self._answer = None

    def answer(self) -> None:
        """That there is nothing new."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(
                FetchResponse(
                    throttle_time=NO_THROTTLE, error_code=ErrorCode.none, session_id=self.session, responses=()
                )
            )

    def close(self) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("closed"))


class Broker:
    """Of epoch 77. session: the id of the fetch session that leaders grant, 0: none. disk: what it starts with."""

    def __init__(self, me: int = ME, session: int = 0, disk: SimulatedDisk | None = None, **settings: str) -> None:
        self.me = me
        self.disk = disk or simulated_disk()
        self.session = session
        self.image = MetadataImage()
        self.links: list[Link] = []
        for broker in (1, 2, 3):
            endpoint = BrokerEndpoint(name="P", host="h", port=broker)
            self.replay(
                RegisterBrokerRecord(
                    broker_id=broker, incarnation_id=uuid.UUID(int=broker), broker_epoch=broker, end_points=(endpoint,),
                    rack=None, fenced=False,
                )
            )  # fmt: skip
        self.replay(TopicRecord(name="t", topic_id=TOPIC))
        settings_ = config(**{"node_id": str(me), "replica_fetch_backoff_ms": "1", **settings})
        logs = LogManager(settings_, self.disk)
        logs.load()
        network: Any = self
        isr_manager: Any = SimpleNamespace(proposals_changed=lambda: None)
        self.errors: list[BaseException] = []
        self.manager = ReplicaManager(
            settings_, network, logs, self.image, lambda: 77, isr_manager, self.errors.append, wall_clock=lambda: 0.0
        )

    async def connect(self, address: Address, **_: Any) -> Link:
        link = Link(address.port, self.session)
        self.links.append(link)
        return link

    def replay(self, *records: Any) -> dict[Any, None]:
        changed: dict[Any, None] = {}
        for record in records:
            changed |= dict.fromkeys(self.image.replay(self.image.end_offset, record))
        return changed

    def create(self, index: int, leader: int, replicas: tuple[int, ...] = (1, 2, 3)) -> Partition:
        """A partition of this broker's."""
        record = PartitionRecord(partition_id=index, topic_id=TOPIC, replicas=replicas, isr=replicas, leader=leader)
        self.manager.apply(self.replay(record))
        return self.manager.partitions[TOPIC, index]

    def change(self, index: int, *deltas: dict[str, Any]) -> None:
        """These deltas, in one batch."""
        records = [PartitionChangeRecord(partition_id=index, topic_id=TOPIC, **delta) for delta in deltas]
        self.manager.apply(self.replay(*records))

    async def settled(self) -> list[Link]:
        """Answer what is under way. The connections over which something is asked then, over each what comes next."""
        for _ in range(2):
            for link in self.links:
                link.answer()
            await asyncio.sleep(0.01)
        return [link for link in self.links if link.asked is not None and not link.closed]

    async def fetches(self) -> dict[int, dict[int, Any]]:
        """What it asks of whom, once all that was under way is answered: by leader and partition, the request's part
        with the broker epoch of the request."""
        found: dict[int, dict[int, Any]] = {}
        for link in await self.settled():
            assert link.asked.replica_state.replica_id == self.me
            for topic in link.asked.topics:
                for data in topic.partitions:
                    of_leader = found.setdefault(link.leader, {})
                    assert data.partition not in of_leader, "asked for twice"
                    of_leader[int(data.partition)] = SimpleNamespace(
                        broker_epoch=int(link.asked.replica_state.replica_epoch),
                        offset=int(data.fetch_offset),
                        leader_epoch=int(data.current_leader_epoch),
                        last_epoch=int(data.last_fetched_epoch),
                    )
        return found


def living(
    story: Callable[[Broker], Coroutine[Any, Any, None]], me: int = ME, session: int = 0, **settings: str
) -> None:
    async def run() -> None:
        broker = Broker(me, session, **settings)
        try:
            await story(broker)
        finally:
            broker.manager.stop()
        assert broker.errors == []

    asyncio.run(asyncio.wait_for(run(), 20))
