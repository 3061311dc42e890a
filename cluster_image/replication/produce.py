"""Produce of every version, with acks 0, 1 and all (000, 2.5).

A partition's answer carries the base offset whenever the records were appended, also with an error: so a client can
tell "refused" from "appended, and not known to be committed", as with Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from cluster_image.network import Aside, Entity, here
from cluster_image.network.slices import Pauses
from cluster_image.storage.record_checks import UnknownTransaction, check_batch
from cluster_image.storage.records import CorruptRecord, InvalidRecord
from cluster_image.wire.integers import i64
from cluster_image.wire.messages import NO_THROTTLE, make, response_module

from .served import Appended, Refused, ServedPartition, Topic, Topics

#: To look at so much takes as long as a step of slices.SLICE.
_BYTES_OF_STEP: Final = 4096
#: However long a request allows: an answer may come before.
_LONGEST_WAIT_S: Final = 120.0


class _Outcome(NamedTuple):
    error: ErrorCode
    base_offset: int = -1
    log_start_offset: int = -1


class ProduceHandler:
    def __init__(self, image: Topics, find: Callable[[Any, int], ServedPartition | None]) -> None:
        self._image = image
        self._find = find

    async def handle(
        self, request: Any, aside: Aside = here, only_waits: Callable[[], None] = lambda: None
    ) -> Entity | None:
        """aside, only_waits: see network.Peer. None for acks=0. Raises ConnectionError, which closes the connection, if
        such a request fails: there is no other way to tell. A storage failure is raised: the broker cannot go on."""
        loop = asyncio.get_running_loop()
        acks = int(request.acks)
        outcomes: dict[tuple[int, int], _Outcome] = {}
        waiting: dict[tuple[int, int], Appended] = {}
        named = [
            (t, p, topic.name, data)
            for t, topic in enumerate(request.topic_data)
            for p, data in enumerate(topic.partition_data)
        ]
        pauses = Pauses()
        for t, p, name, data in named:
            await pauses.after(1 + len(data.records or b"") // _BYTES_OF_STEP)
            known = self._image.topics.get(name)
            partition = self._find(known.id, int(data.index)) if known is not None else None
            if partition is None:
                outcomes[t, p] = _Outcome(self._why_missing(known, int(data.index)))
                continue
            outcome = await self._append(partition, data.records, acks, loop.create_future, aside)
            if isinstance(outcome, _Outcome):
                outcomes[t, p] = outcome
                continue
            outcomes[t, p] = _Outcome(ErrorCode.none, outcome.base_offset, partition.log.start_offset)
            if outcome.done is not None:
                waiting[t, p] = outcome
        if acks == 0:
            failed = next((o.error for o in outcomes.values() if o.error is not ErrorCode.none), None)
            if failed is not None:
                raise ConnectionError(f"a Produce request with acks=0 failed: {failed.name}")
            return None
        only_waits()
        await self._commit(min(request.timeout.total_seconds(), _LONGEST_WAIT_S), waiting, outcomes)
        return self._answer(request, outcomes)

    @staticmethod
    def _why_missing(topic: Topic | None, index: int) -> ErrorCode:
        """This broker has no replica: either nobody has one, or others do."""
        if topic is not None and index in topic.partitions:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.unknown_topic_or_partition

    @staticmethod
    async def _append(
        partition: ServedPartition,
        records: bytes | None,
        acks: int,
        new_future: Callable[[], asyncio.Future[ErrorCode]],
        aside: Aside,
    ) -> Appended | _Outcome:
        if acks not in (-1, 0, 1):
            return _Outcome(ErrorCode.invalid_required_acks)
        if records is None or not records:
            return _Outcome(ErrorCode.invalid_record)
        if len(records) > partition.max_message_bytes:
            return _Outcome(ErrorCode.message_too_large)
        try:
            batch = bytes(records)
            await check_batch(batch, aside)
            return partition.append(batch, acks, new_future)
        except Refused as refused:
            return _Outcome(refused.error)
        except UnknownTransaction:
            return _Outcome(ErrorCode.invalid_txn_state)
        except CorruptRecord:
            return _Outcome(ErrorCode.corrupt_message)
        except InvalidRecord:
            return _Outcome(ErrorCode.invalid_record)

    @staticmethod
    async def _commit(
        timeout: float, waiting: dict[tuple[int, int], Appended], outcomes: dict[tuple[int, int], _Outcome]
    ) -> None:
        futures = [appended.done for appended in waiting.values() if appended.done is not None]
        timer = asyncio.get_running_loop().call_later(timeout, _expire, futures)
        try:
            for key, done in zip(waiting, futures, strict=True):
                _, base_offset, log_start_offset = outcomes[key]
                outcomes[key] = _Outcome(await done, base_offset, log_start_offset)
        finally:
            timer.cancel()

    @staticmethod
    def _answer(request: Any, outcomes: dict[tuple[int, int], _Outcome]) -> Entity:
        module = response_module(request)
        return make(
            module.ProduceResponse,
            throttle_time=NO_THROTTLE,
            responses=tuple(
                make(
                    module.TopicProduceResponse,
                    name=topic.name,
                    partition_responses=tuple(
                        make(
                            module.PartitionProduceResponse,
                            index=data.index,
                            error_code=outcomes[t, p].error,
                            base_offset=i64(outcomes[t, p].base_offset),
                            log_append_time=None,
                            log_start_offset=i64(outcomes[t, p].log_start_offset),
                            record_errors=(),
                            error_message=None,
                        )
                        for p, data in enumerate(topic.partition_data)
                    ),
                )
                for t, topic in enumerate(request.topic_data)
            ),
        )


def _expire(waiting: list[asyncio.Future[ErrorCode]]) -> None:
    for done in waiting:
        if not done.done():
            done.set_result(ErrorCode.request_timed_out)
