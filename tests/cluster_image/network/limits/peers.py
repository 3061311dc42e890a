"""Requests, answers and connections for the tests of what peers may take of a node."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.response import FetchableTopicResponse, FetchResponse, PartitionData
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseBroker
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import BrokerId

from cluster_image.network import Address, Entity
from cluster_image.network.tcp.limits import (
    RequestMemory,
)
from cluster_image.wire.messages import milliseconds

MIB = 1 << 20


def fetched(records: bytes) -> Entity:
    data = PartitionData(
        partition_index=0, error_code=ErrorCode.none, high_watermark=1, records=records, aborted_transactions=None
    )  # type: ignore[call-arg]
    topics = (FetchableTopicResponse(topic="t", partitions=(data,)),)
    return FetchResponse(throttle_time=timedelta(0), error_code=ErrorCode.none, session_id=0, responses=topics)  # type: ignore[arg-type]


def produce(size: int, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(size))
    return ProduceRequest(
        transactional_id=None, acks=acks, timeout=milliseconds(2000),
        topic_data=(TopicProduceData(name="t", partition_data=(data,)),),
    )  # fmt: skip


def an_answer(text: str = "") -> Entity:
    return MetadataResponse(throttle_time=timedelta(0), brokers=(), topics=(), cluster_id=text)  # type: ignore[arg-type]


@asynccontextmanager
async def connections(address: Address, count: int) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """That read nothing, as a stream reader stops to at its limit."""
    opened = [await asyncio.open_connection(*address, limit=1024) for _ in range(count)]
    try:
        yield [writer for _, writer in opened]
    finally:
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.sleep(0)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionError):
        return await reader.read() == b""
    return True


class Fake:
    """A connection that holds what it is told to."""

    host = "a"

    def __init__(self, memory: RequestMemory, slow: float = 0.0) -> None:
        self.memory = memory
        self.slow = slow
        self.waits = math.inf
        self.wants = 0
        self.reads = True

    def want(self, size: int) -> bool:
        self.wants = size
        self.reads = self.memory.hold(self, size)
        return self.reads

    def read_on(self) -> None:
        self.want(self.wants)

    def give_up(self, reason: str) -> None:
        self.reads = False
        self.memory.forget(self)

    def slowness(self, now: float) -> float:
        return self.slow

    def waits_since(self) -> float:
        return self.waits

    def unread_bytes(self) -> int:
        return 0

    def kept_bytes(self) -> int:
        return 0


class Unread(Fake):
    """A connection with answers that nobody reads."""

    def __init__(self, host: str, kept: int) -> None:
        super().__init__(RequestMemory(0))
        self.host = host
        self.kept = kept

    def kept_bytes(self) -> int:
        return self.kept

    def unread_bytes(self) -> int:
        return self.kept

    def give_up(self, reason: str) -> None:
        self.kept = 0


def make_topics(text: str, count: int) -> Entity:
    """An answer of so many times this text."""
    brokers = tuple(
        MetadataResponseBroker(node_id=BrokerId(number), host=text, port=1, rack=None)  # type: ignore[arg-type]
        for number in range(count)
    )
    return replace(an_answer(), brokers=brokers)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.01)
