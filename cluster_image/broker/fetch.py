"""Fetch of every version, by consumers and followers: read what there is, else wait for it (long poll).

An answer goes out as soon as min_bytes are there, something is wrong, or max_wait has passed. It waits on futures
that partitions set when their log grows (followers) or their high watermark advances (consumers).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId

from ..integers import i32, i64
from ..messages import NO_THROTTLE, make, response_module
from ..metadata.image import MetadataImage
from ..network import Entity
from ..storage.errors import OffsetOutOfRange
from .partition import Eligible, FetchRead, Partition, Refused

#: Most that one answer carries, whatever the request allows.
_MAX_RESPONSE_BYTES = 50 << 20


class _Asked(NamedTuple):
    topic: Any  # FetchTopic
    data: Any  # FetchPartition
    partition: Partition | None


class _Result(NamedTuple):
    error: ErrorCode
    read: FetchRead | None


class FetchHandler:
    def __init__(
        self,
        image: MetadataImage,
        find: Callable[[Any, int], Partition | None],
        eligible: Eligible,
        isr_changed: Callable[[], None],
    ) -> None:
        self._image = image
        self._find = find
        self._eligible = eligible
        self._isr_changed = isr_changed

    async def handle(self, request: Any) -> Entity:
        loop = asyncio.get_running_loop()
        asked = self._resolve(request)
        replica, broker_epoch = _sender(request)
        deadline = loop.time() + request.max_wait.total_seconds()
        while True:
            results = self._read(request, asked, replica, broker_epoch, loop.time())
            size = sum(len(r.read.records) for r in results if r.read is not None)
            urgent = not asked or any(
                r.error is not ErrorCode.none or (r.read is not None and r.read.diverging) for r in results
            )
            remaining = deadline - loop.time()
            if urgent or size >= max(request.min_bytes, 0) or remaining <= 0:
                return self._answer(request, asked, results)
            await self._wait(asked, replica >= 0, remaining)

    def _resolve(self, request: Any) -> list[_Asked]:
        asked = []
        for topic in request.topics:
            if hasattr(topic, "topic_id"):
                topic_id = topic.topic_id
            else:
                known = self._image.topics.get(topic.topic)
                topic_id = known.id if known is not None else None
            for data in topic.partitions:
                asked.append(_Asked(topic, data, self._find(topic_id, int(data.partition))))
        return asked

    def _read(self, request: Any, asked: list[_Asked], replica: int, broker_epoch: int, now: float) -> list[_Result]:
        left = min(getattr(request, "max_bytes", _MAX_RESPONSE_BYTES), _MAX_RESPONSE_BYTES)
        results = []
        for topic, data, partition in asked:
            if partition is None:
                results.append(_Result(self._why_missing(topic, int(data.partition)), None))
                continue
            max_bytes = min(int(data.partition_max_bytes), left)
            leader_epoch = int(getattr(data, "current_leader_epoch", -1))
            try:
                if replica < 0:
                    read = partition.fetch_as_consumer(int(data.fetch_offset), leader_epoch, max_bytes)
                else:
                    read = partition.fetch_as_follower(
                        replica,
                        broker_epoch,
                        leader_epoch,
                        int(data.fetch_offset),
                        int(getattr(data, "last_fetched_epoch", -1)),
                        max_bytes,
                        now,
                        self._eligible,
                    )
            except Refused as refused:
                results.append(_Result(refused.error, None))
                continue
            except OffsetOutOfRange:
                results.append(_Result(ErrorCode.offset_out_of_range, None))
                continue
            left = max(left - len(read.records), 0)
            results.append(_Result(ErrorCode.none, read))
        if replica >= 0:
            self._isr_changed()
        return results

    def _why_missing(self, topic: Any, index: int) -> ErrorCode:
        """This broker has no replica: either nobody has one, or its metadata shows who does."""
        by_id = hasattr(topic, "topic_id")
        known = self._image.topics_by_id.get(topic.topic_id) if by_id else self._image.topics.get(topic.topic)
        if known is not None and index in known.partitions:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition

    @staticmethod
    async def _wait(asked: list[_Asked], follower: bool, timeout: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        places = [p.log_waiters if follower else p.watermark_waiters for _, _, p in asked if p is not None]
        for place in places:
            place[woken] = None
        try:
            async with asyncio.timeout(timeout):
                await woken
        except TimeoutError:
            pass
        finally:
            for place in places:
                place.pop(woken, None)

    @staticmethod
    def _answer(request: Any, asked: list[_Asked], results: list[_Result]) -> Entity:
        module = response_module(request)
        topics: list[tuple[Any, list[Entity]]] = []
        for (topic, data, partition), (error, read) in zip(asked, results, strict=True):
            if not topics or topics[-1][0] is not topic:
                topics.append((topic, []))
            values: dict[str, Any] = {}
            if read is not None and read.diverging is not None:
                values["diverging_epoch"] = module.EpochEndOffset(
                    epoch=i32(read.diverging[0]), end_offset=i64(read.diverging[1])
                )
            moved = error in (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)
            if moved and partition is not None and hasattr(module, "LeaderIdAndEpoch"):
                values["current_leader"] = module.LeaderIdAndEpoch(
                    leader_id=BrokerId(partition.leader), leader_epoch=i32(partition.leader_epoch)
                )
            start = partition.log.start_offset if partition is not None else -1
            watermark = read.high_watermark if read is not None else -1
            topics[-1][1].append(
                make(
                    module.PartitionData,
                    partition_index=data.partition,
                    error_code=error,
                    high_watermark=i64(watermark),
                    last_stable_offset=i64(watermark),
                    log_start_offset=i64(start),
                    aborted_transactions=None,
                    preferred_read_replica=BrokerId(-1),
                    records=read.records if read is not None else b"",
                    **values,
                )
            )
        return make(
            module.FetchResponse,
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.none,
            session_id=i32(0),
            responses=tuple(
                make(
                    module.FetchableTopicResponse,
                    topic=getattr(topic, "topic", None),
                    topic_id=getattr(topic, "topic_id", None),
                    partitions=tuple(partitions),
                )
                for topic, partitions in topics
            ),
        )


def _sender(request: Any) -> tuple[int, int]:
    """Replica id (-1: a consumer) and broker epoch of the fetching broker, in any version."""
    state = getattr(request, "replica_state", None)
    if state is not None:
        return int(state.replica_id), int(state.replica_epoch)
    return int(request.replica_id), -1
