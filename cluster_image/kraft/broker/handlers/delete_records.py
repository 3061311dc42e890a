"""DeleteRecords: everything below an offset, at a client's word (KIP-107).

The leader moves its log start offset at once; followers take it over with what they fetch next. A partition's answer
carries its low watermark, and goes out when no live replica has what was to be deleted, as the leader knows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Entity
from cluster_image.network.slices import Pauses
from cluster_image.replication.served import Refused
from cluster_image.wire.integers import i64
from cluster_image.wire.messages import NO_THROTTLE, make, repeated, response_module

from ..partition import Partition

#: However long a request allows: an answer may come before.
LONGEST_WAIT_S: Final = 120.0
_Place = tuple[int, int]  # positions of a topic in the request, and of a partition in it


async def delete_records(
    request: Any, find: Callable[[str, int], Partition], only_waits: Callable[[], None] = lambda: None
) -> Entity:
    """find: a partition by its topic's name; raises Refused. only_waits: see network.Peer."""
    loop = asyncio.get_running_loop()
    twice = repeated((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    errors: dict[_Place, ErrorCode] = {}
    low_watermarks: dict[_Place, int] = {}
    waiting: dict[_Place, tuple[Partition, asyncio.Future[ErrorCode]]] = {}
    pauses = Pauses()
    timer = loop.call_later(min(request.timeout.total_seconds(), LONGEST_WAIT_S), _expire, waiting)
    try:
        for t, topic in enumerate(request.topics):
            for p, data in enumerate(topic.partitions):
                await pauses.after(1)
                try:
                    if (topic.name, data.partition_index) in twice:
                        raise Refused(ErrorCode.invalid_request)
                    partition = find(topic.name, int(data.partition_index))
                    waiting[t, p] = partition, partition.delete_records(int(data.offset), loop.create_future)
                except Refused as refused:
                    errors[t, p] = refused.error
        only_waits()
        for place, (partition, done) in waiting.items():
            errors[place] = await done
            if errors[place] is ErrorCode.none:
                with suppress(Refused):  # it may lead no longer, and what it has deleted is deleted
                    low_watermarks[place] = partition.low_watermark
    finally:
        timer.cancel()
        for _, done in waiting.values():
            done.cancel()  # nobody waits any more
    module = response_module(request)
    return make(
        module.DeleteRecordsResponse,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            make(
                module.DeleteRecordsTopicResult,
                name=topic.name,
                partitions=tuple(
                    make(
                        module.DeleteRecordsPartitionResult,
                        partition_index=data.partition_index,
                        low_watermark=i64(low_watermarks.get((t, p), -1)),
                        error_code=errors[t, p],
                    )
                    for p, data in enumerate(topic.partitions)
                ),
            )
            for t, topic in enumerate(request.topics)
        ),
    )


def _expire(waiting: Mapping[_Place, tuple[Partition, asyncio.Future[ErrorCode]]]) -> None:
    for _, done in waiting.values():
        if not done.done():
            done.set_result(ErrorCode.request_timed_out)
