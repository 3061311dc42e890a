"""Deletes the begin of each partition now and then (DeleteRecords), as one process of the history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Connection, Entity
from harness.record.history import HistoryRecorder
from workloads.clients.kio import outcomes
from workloads.clients.kio.administration.requests import delete_records_answers, delete_records_request
from workloads.clients.kio.client import CannotSend, Client, Link
from workloads.clients.kio.requests import LATEST, list_offsets_answers, list_offsets_request

#: Of a deletion that asks for all below the high watermark, whatever that is.
ALL: Final = -1
_SHARE_OF_ALL: Final = 0.25


class Deleter:
    """every: seconds from one deletion of a partition to the next, on average. clock: monotonic ns."""

    def __init__(
        self, client: Client, recorder: HistoryRecorder, process: int, every: float, random: Random,
        *, clock: Callable[[], int],
    ) -> None:  # fmt: skip
        self._client = client
        self._recorder = recorder
        self._process = process
        self._every = every
        self._random = random
        self._clock = clock

    async def run(self, partitions: int) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for partition in range(partitions):
                group.create_task(self._delete_from(partition, Random(self._random.random())))

    async def _delete_from(self, partition: int, random: Random) -> None:
        link = Link(self._client)
        deleted = 0
        try:
            while True:
                await asyncio.sleep(self._every * random.uniform(0.5, 1.5))
                known = self._client.metadata.partitions.get(partition)
                try:
                    connection = await link.to(known.leader if known is not None else None)
                except CannotSend:
                    self._client.metadata.ask_again()
                    continue
                assert known is not None
                end = await self._end(connection, partition, known.leader_epoch)
                if end is None or end < deleted:  # it lost its tail, or is not known
                    self._client.metadata.ask_again()
                    continue
                offset = ALL if random.random() < _SHARE_OF_ALL else random.randint(deleted, end)
                if await self._delete(connection, partition, offset, known.leader_epoch):
                    deleted = max(deleted, offset)
        finally:
            link.close()

    async def _end(self, connection: Connection, partition: int, leader_epoch: int) -> int | None:
        """The high watermark; not part of the history. None: it was not told."""
        request = list_offsets_request(self._client.topic, {partition: leader_epoch}, LATEST)
        response = await self._ask(connection, request)
        answer = None if response is None else list_offsets_answers(response).get(partition)
        return answer.offset if answer is not None and answer.error is ErrorCode.none else None

    async def _delete(self, connection: Connection, partition: int, offset: int, leader_epoch: int) -> bool:
        """True: it is done."""
        operation = self._recorder.invoke(self._process, "delete_records", self._client.topic, partition, self._clock())
        outcome: outcomes.Outcome = "info"
        error: str | None = None
        complete: int | None = None
        low_watermark: int | None = None
        try:
            request = delete_records_request(self._client.topic, {partition: offset}, self._client.request_timeout / 2)
            response = await self._ask(connection, request)
            complete = self._clock() if response is not None else None  # else it may be carried out later
            answer = delete_records_answers(response).get(partition) if response is not None else None
            if answer is None:
                error = outcomes.CONNECTION_LOST if response is None else outcomes.MALFORMED_RESPONSE
            else:
                outcome, error = outcomes.of_deletion(answer.error), outcomes.name(answer.error)
                low_watermark = answer.low_watermark if outcome == "ok" else None
        finally:  # also where it is cancelled: it may have been carried out
            self._recorder.complete(
                operation, complete, outcome, offset=offset, high_watermark=low_watermark, leader_epoch=leader_epoch,
                error=error,
            )  # fmt: skip
        if outcome != "ok":
            self._client.metadata.ask_again()
        return outcome == "ok"

    async def _ask(self, connection: Connection, request: Entity) -> Entity | None:
        try:
            return await connection.request(request, timeout=self._client.request_timeout)
        except (ConnectionError, TimeoutError):
            return None
