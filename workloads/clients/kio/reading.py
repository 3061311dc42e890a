"""Reads of one process: fetches and end-of-log queries, each recorded as it was asked and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Connection, Entity
from cluster_image.storage.records import RecordError
from harness.record.history import HistoryRecorder, Operation
from workloads.clients.kio import outcomes
from workloads.clients.kio.batches import decode
from workloads.clients.kio.client import CannotSend, Client, Link
from workloads.clients.kio.requests import (
    EARLIEST,
    LATEST,
    FetchAnswer,
    FetchFrom,
    fetch_answers,
    fetch_request,
    list_offsets_answers,
    list_offsets_request,
)
from workloads.tally import Tally

MAX_WAIT_S: Final = 0.1  # of a long poll
RETRY_S: Final = 0.1
#: Seconds between two looks at the ends of all logs by one reader.
LIST_OFFSETS_EVERY_S: Final = (0.5, 1.5)
#: A reader asks a leader so often at most; faster logs are read in larger pieces.
FETCHES_PER_S: Final = 30
_MAX_BYTES: Final = 8 * 1024 * 1024
_PARTITION_MAX_BYTES: Final = 1024 * 1024


class Reader:
    """Reads the topic as one process of the history. clock: monotonic ns. compacted: batches may lack records.
    start_moves: logs may begin anywhere, as records are deleted."""

    def __init__(
        self, client: Client, recorder: HistoryRecorder, tally: Tally, process: int, *, clock: Callable[[], int],
        compacted: bool = False, start_moves: bool = False,
    ) -> None:  # fmt: skip
        self._client = client
        self._recorder = recorder
        self._tally = tally
        self._process = process
        self._clock = clock
        self._compacted = compacted
        self._start_moves = start_moves
        self._positions: dict[int, int] = {}

    async def tail(self, bytes_per_s: float, random: Random) -> None:
        """Follow all partitions and look at their ends now and then, until cancelled.

        bytes_per_s: what a leader is expected to take, for the size of fetches.
        """
        min_bytes = max(1, round(bytes_per_s / FETCHES_PER_S))
        nodes: dict[int, None] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                for node in self._client.metadata.brokers:
                    if node not in nodes:
                        nodes[node] = None
                        group.create_task(self._tail_node(node, min_bytes))
                        group.create_task(self._watch_ends(node, Random(random.random())))
                await self._client.metadata.updated(timeout=1.0)

    async def read_all(self, partition: int, kind: str, at_least: int = 0) -> None:
        """Read one partition from its start to the end that it has now, retrying until cancelled. at_least: an end that
        lies below is not the true one: it is asked for again."""
        link = Link(self._client)
        position, end = 0, None
        answered = False  # an empty log is read once too: that it is empty is what the history must hold
        try:
            while end is None or position < end or not answered:
                known = self._client.metadata.partitions.get(partition)
                try:
                    connection = await link.to(known.leader if known is not None else None)
                except CannotSend:
                    await self._retry()
                    continue
                assert known is not None
                if end is None:
                    end = (await self.end_offsets(connection, {partition: known.leader_epoch})).get(partition)
                    if end is None or end < at_least:
                        end = None
                        await self._retry()
                    continue
                self._positions[partition] = position
                start = FetchFrom(partition, position, known.leader_epoch)
                answers = await self.fetch(connection, kind, (start,), min_bytes=1)
                position = self._positions[partition]
                error = answers[partition].error if partition in answers else None
                answered = answered or error is ErrorCode.none
                if error is ErrorCode.offset_out_of_range and self._start_moves:
                    starts = await self._starts(connection, {partition: known.leader_epoch})
                    position = max(position, starts.get(partition, position))
                if position == start.offset and (position < end or not answered):
                    # An end that the log no longer has (it lost its tail) would never be reached: ask for it anew.
                    end = None if error is ErrorCode.offset_out_of_range else end
                    await self._retry()
        finally:
            link.close()

    async def fetch(
        self, connection: Connection, kind: str, positions: Sequence[FetchFrom], *, min_bytes: int
    ) -> Mapping[int, FetchAnswer]:
        """One Fetch, as one operation a partition; moves this reader's positions on. {} if it was not answered."""
        request = fetch_request(
            self._client.topic,
            positions,
            max_wait=MAX_WAIT_S,
            min_bytes=min_bytes,
            max_bytes=_MAX_BYTES,
            partition_max_bytes=_PARTITION_MAX_BYTES,
        )
        operations = self._invoke(kind, [position.partition for position in positions])
        response, error, complete = await self._ask(connection, request)
        answers = fetch_answers(response) if response is not None else {}
        for start, operation in zip(positions, operations, strict=True):
            answer = answers.get(start.partition)
            self._take(start, operation, answer, error or outcomes.MALFORMED_RESPONSE, complete)
        return answers

    def _take(
        self, start: FetchFrom, operation: Operation, answer: FetchAnswer | None, missing: str, complete: int
    ) -> None:
        records = None
        high_watermark = None
        if answer is None:
            error: str | None = missing
        elif (error := outcomes.name(answer.error)) is None:
            try:
                offsets, values, next_offset = decode(answer.records, start.offset, self._compacted)
            except RecordError:
                error = outcomes.CORRUPT_RECORDS
            else:
                records, high_watermark = (offsets, values), answer.high_watermark
                # Two fetches of a partition may overlap when its leader moves: never step back.
                self._positions[start.partition] = max(next_offset, self._positions.get(start.partition, 0))
        self._recorder.complete(
            operation,
            complete,
            "ok" if error is None else "fail",
            offset=start.offset,
            high_watermark=high_watermark,
            leader_epoch=start.leader_epoch,
            error=error,
            records=records,
        )
        self._tally.read(error)

    async def end_offsets(self, connection: Connection, leader_epochs: Mapping[int, int]) -> dict[int, int]:
        """One ListOffsets, as one operation a partition: the end of each log that its leader told."""
        operations = self._invoke("list_offsets", list(leader_epochs))
        request = list_offsets_request(self._client.topic, leader_epochs, LATEST)
        response, error, complete = await self._ask(connection, request)
        answers = list_offsets_answers(response) if response is not None else {}
        ends = {}
        for operation in operations:
            partition = operation.partition
            answer = answers.get(partition)
            problem = (error or outcomes.MALFORMED_RESPONSE) if answer is None else outcomes.name(answer.error)
            if answer is not None and problem is None:
                ends[partition] = answer.offset
            self._recorder.complete(
                operation,
                complete,
                "ok" if problem is None else "fail",
                offset=ends.get(partition),
                leader_epoch=leader_epochs[partition],
                error=problem,
            )
            self._tally.read(problem)
        return ends

    async def _skip_deleted(self, connection: Connection, leader_epochs: Mapping[int, int]) -> dict[int, int]:
        """Go on from the starts of logs whose begin was deleted; the others are returned."""
        for partition, start in (await self._starts(connection, leader_epochs)).items():
            if start > self._positions.get(partition, 0):
                self._positions[partition] = start
                leader_epochs = {p: epoch for p, epoch in leader_epochs.items() if p != partition}
        return dict(leader_epochs)

    async def _starts(self, connection: Connection, leader_epochs: Mapping[int, int]) -> dict[int, int]:
        """Where logs begin, of those whose leader told it. Not part of the history."""
        request = list_offsets_request(self._client.topic, leader_epochs, EARLIEST)
        response, _, _ = await self._ask(connection, request)
        answers = list_offsets_answers(response) if response is not None else {}
        return {p: answer.offset for p, answer in answers.items() if answer.error is ErrorCode.none}

    def _invoke(self, kind: str, partitions: Sequence[int]) -> list[Operation]:
        invoke = self._clock()
        return [self._recorder.invoke(self._process, kind, self._client.topic, p, invoke) for p in partitions]

    async def _ask(self, connection: Connection, request: Entity) -> tuple[Entity | None, str | None, int]:
        """(response, error if there was none, when that was known)"""
        try:
            response = await connection.request(request, timeout=self._client.request_timeout)
        except TimeoutError:
            return None, outcomes.CLIENT_TIMEOUT, self._clock()
        except ConnectionError:
            return None, outcomes.CONNECTION_LOST, self._clock()
        return response, None, self._clock()

    async def _tail_node(self, node: int, min_bytes: int) -> None:
        """Fetch all partitions that `node` leads, again and again."""
        link = Link(self._client)
        try:
            while True:
                mine = self._client.metadata.led_by(node)
                if not mine:
                    await self._client.metadata.updated(timeout=1.0)
                    continue
                try:
                    connection = await link.to(node)
                except CannotSend:
                    await self._retry()
                    continue
                starts = [FetchFrom(p, self._positions.get(p, 0), epoch) for p, epoch in mine.items()]
                answers = await self.fetch(connection, "read", starts, min_bytes=min_bytes)
                lost_tail = {p: mine[p] for p, a in answers.items() if a.error is ErrorCode.offset_out_of_range}
                if lost_tail and self._start_moves:
                    lost_tail = await self._skip_deleted(connection, lost_tail)
                if lost_tail:
                    self._positions.update(await self.end_offsets(connection, lost_tail))
                if not answers or any(answer.error for answer in answers.values()):
                    await self._retry()
        finally:
            link.close()

    async def _watch_ends(self, node: int, random: Random) -> None:
        """Ask `node` now and then for the ends of the logs it leads, on a connection without long polls."""
        link = Link(self._client)
        try:
            while True:
                await asyncio.sleep(random.uniform(*LIST_OFFSETS_EVERY_S))
                mine = self._client.metadata.led_by(node)
                if mine:
                    try:
                        await self.end_offsets(await link.to(node), mine)
                    except CannotSend:
                        self._client.metadata.ask_again()
        finally:
            link.close()

    async def _retry(self) -> None:
        self._client.metadata.ask_again()
        await asyncio.sleep(RETRY_S)
