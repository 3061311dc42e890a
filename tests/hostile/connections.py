"""Many connections, slow ones, and connections whose answers nobody reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.metadata.v12.request import MetadataRequest

from cluster_image import wire
from cluster_image.wire.messages import milliseconds

from .stranger import Kind, Target, reported, stranger

_ASK_VERSIONS: Final = ApiVersionsRequest(client_software_name="s", client_software_version="1")


async def opened_and_left(target: Target) -> str:
    """Three hundred to one broker, which nobody uses."""
    refused = 0
    async with AsyncExitStack() as stack:
        address = target.brokers[0]
        ones = [await stack.enter_async_context(stranger(address)) for _ in range(300)]
        await asyncio.sleep(0.3)
        refused = sum([await reported(_usable(one)) == "closed" for one in ones])
    return "closed beyond some" if refused else "kept open"


async def _usable(one: Any) -> str:
    await one.ask(_ASK_VERSIONS)
    return "kept"


async def opened_and_closed(target: Target) -> str:
    for _ in range(50):
        async with stranger(random.choice(target.brokers)):
            pass
    return "accepted"


def _unread(request: bytes, connections: int, times: int) -> Kind:
    """Asked again and again, and nothing is read."""

    async def ask(target: Target) -> str:
        async with AsyncExitStack() as stack:
            address = random.choice(target.brokers)
            ones = [await stack.enter_async_context(stranger(address)) for _ in range(connections)]
            ends = await asyncio.gather(*(reported(_send(one, request, times)) for one in ones))
            await asyncio.sleep(0.5)
            return " or ".join(sorted(set(ends)))

    return ask


async def _send(one: Any, request: bytes, times: int) -> str:
    # In few packets: of thousands at once the loopback device drops some, also those of others, and what is measured
    # then is how long TCP waits before it sends again.
    await one.send(request * times)
    return "taken"


def _fetch(topic: str) -> bytes:
    partitions = tuple(FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=16 << 20) for p in range(3))
    request = FetchRequest(
        replica_id=-1, max_wait=milliseconds(0), min_bytes=1, max_bytes=50 << 20, session_id=0, session_epoch=-1,
        topics=(FetchTopic(topic=topic, partitions=partitions),), forgotten_topics_data=(),
    )  # fmt: skip
    return wire.encode_request(request, 1, "stranger")


async def long_polls(target: Target) -> str:
    """Two hundred fetches that wait for what never comes."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        replica_id=-1, max_wait=milliseconds(2**31 - 1), min_bytes=2**31 - 1, max_bytes=1, session_id=0,
        session_epoch=-1, topics=(FetchTopic(topic=target.topic, partitions=(partition,)),), forgotten_topics_data=(),
    )  # fmt: skip
    return await _unread(wire.encode_request(request, 1, "stranger"), 200, 1)(target)


async def long_polls_before_others(target: Target) -> str:
    """Nine, and behind each 5 MB of requests."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        replica_id=-1, max_wait=milliseconds(2**31 - 1), min_bytes=2**31 - 1, max_bytes=1, session_id=0,
        session_epoch=-1, topics=(FetchTopic(topic=target.topic, partitions=(partition,)),), forgotten_topics_data=(),
        rack_id="r" * 1_000_000,
    )  # fmt: skip
    return await _unread(wire.encode_request(request, 1, "stranger"), 9, 5)(target)


_METADATA: Final = wire.encode_request(
    MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False), 1, "s"
)
_VERSIONS: Final = wire.encode_request(_ASK_VERSIONS, 1, "s")

KINDS: Final[Mapping[str, Kind]] = {
    "300 connections": opened_and_left,
    "connections opened and closed": opened_and_closed,
    "200 connections, Metadata unread": _unread(_METADATA, 200, 50),
    "200 connections, Fetch unread": lambda target: _unread(_fetch(target.topic), 200, 4)(target),
    "10,000 ApiVersions at once, unread": _unread(_VERSIONS * 2000, 1, 5),
    "200 fetches that wait for days": long_polls,
    "nine fetches that wait before 5 MB": long_polls_before_others,
}
