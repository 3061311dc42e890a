"""The end of a run with transactions, by the own client: a last record of each log, which is no transaction's, and how
far what read_committed returns goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Connection
from cluster_image.storage.records import encode_int64s
from workloads.clients.kio.client import CannotSend, Client, Link
from workloads.clients.kio.producing import produce
from workloads.clients.kio.requests import ACKS, LATEST, list_offsets_answers, list_offsets_request
from workloads.transactions.recording import TransactionRecorder

_RETRY_S: Final = 0.2


class Closing:
    """process: of the history. values: unique in the run."""

    def __init__(
        self, client: Client, recorder: TransactionRecorder, process: int, *, values: Callable[[], int],
        clock: Callable[[], int], wall_clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._client = client
        self._recorder = recorder
        self._process = process
        self._values = values
        self._clock = clock
        self._wall_clock = wall_clock

    async def append(self, partitions: Sequence[int]) -> dict[int, int]:
        """A record to each; returns the value of each. Retries until cancelled."""
        return dict([await self._append(partition) for partition in partitions])

    async def look(self, partitions: Sequence[int]) -> bool:
        """At the last stable offsets, and after that at the high watermarks: are they equal? Recorded, as far as
        leaders tell."""
        link = Link(self._client)
        try:
            return all([await self._look(link, partition) for partition in partitions])
        finally:
            link.close()

    async def _append(self, partition: int) -> tuple[int, int]:
        link = Link(self._client)
        try:
            while True:
                known = self._client.metadata.partitions.get(partition)
                try:
                    connection = await link.to(known.leader if known is not None else None)
                except CannotSend:
                    await self._again()
                    continue
                value = self._values()
                if await self._appended(connection, partition, value):
                    return partition, value
                await self._again()
        finally:
            link.close()

    async def _appended(self, connection: Connection, partition: int, value: int) -> bool:
        batch = encode_int64s([value], timestamp_ms=int(self._wall_clock() * 1000))
        op = self._recorder.begin(self._process, [("send", partition, value)], self._clock())
        outcome, error, offset = await produce(self._client, connection, partition, batch, ACKS["all"])
        sent = {} if offset is None else {value: offset}
        self._recorder.end(op, self._clock(), outcome, error, sent=sent)
        return outcome == "ok"

    async def _look(self, link: Link, partition: int) -> bool:
        known = self._client.metadata.partitions.get(partition)
        invoke = self._clock()
        found: list[int] = []
        try:
            connection = await link.to(known.leader if known is not None else None)
            assert known is not None
            for committed in (True, False):
                request = list_offsets_request(
                    self._client.topic, {partition: known.leader_epoch}, LATEST, committed=committed
                )  # fmt: skip
                response = await connection.request(request, timeout=self._client.request_timeout)
                answer = None if response is None else list_offsets_answers(response).get(partition)
                if answer is None or answer.error is not ErrorCode.none:
                    raise ConnectionError
                found.append(answer.offset)
        except (CannotSend, TimeoutError, ConnectionError):
            self._client.metadata.ask_again()
            return False
        last_stable, end = found
        self._recorder.stable(partition, last_stable, end, invoke, self._clock())
        return last_stable == end

    async def _again(self) -> None:
        self._client.metadata.ask_again()
        await asyncio.sleep(_RETRY_S)
