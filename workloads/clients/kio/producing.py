"""Producers: one sender for each producer and partition, each with one batch in flight on its own connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from cluster_image.network import Connection
from cluster_image.storage.records import encode_int64s
from harness.record.history import HistoryRecorder, Operation
from workloads.clients.kio import outcomes
from workloads.clients.kio.client import CannotSend, Client, Link
from workloads.clients.kio.metadata import Partition
from workloads.clients.kio.outcomes import Outcome
from workloads.clients.kio.requests import ACKS, produce_answers, produce_request
from workloads.pacing import Pacer
from workloads.tally import Tally

MIN_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 0.5
#: The leader gives up waiting for its followers a little before the client gives up waiting for the leader.
_LEADER_TIMEOUT: Final = 0.8


class Answered(NamedTuple):
    """What became of an append. error: its name in the history; offset: of the first record."""

    outcome: Outcome
    error: str | None = None
    offset: int | None = None


async def produce(client: Client, connection: Connection, partition: int, batch: bytes, acks: int) -> Answered:
    """Once. acks: as the wire has it, of ACKS."""
    timeout = client.request_timeout
    request = produce_request(client.topic, {partition: batch}, acks, timeout * _LEADER_TIMEOUT)
    try:
        response = await connection.request(request, timeout=timeout)
    except TimeoutError:
        return Answered("info", outcomes.CLIENT_TIMEOUT)
    except ConnectionError:
        return Answered("info", outcomes.CONNECTION_LOST)
    if response is None:  # acks=0 gets none
        return Answered("info")
    answer = produce_answers(response).get(partition)
    if answer is None:
        return Answered("info", outcomes.MALFORMED_RESPONSE)
    outcome = outcomes.of_append(answer.error, answer.base_offset)
    return Answered(outcome, outcomes.name(answer.error), answer.base_offset if outcome == "ok" else None)


class Sender:
    """Appends what falls due for one partition, on behalf of one producer.

    process: the producer's, in the history. encode: values as one batch, as encode_int64s. clock: monotonic ns.
    wall_clock: seconds since 1970, for the records' own timestamps.
    """

    def __init__(
        self,
        client: Client,
        recorder: HistoryRecorder,
        tally: Tally,
        pacer: Pacer,
        process: int,
        partition: int,
        acks: str,
        *,
        encode: Callable[..., bytes] = encode_int64s,
        clock: Callable[[], int],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._tally = tally
        self._pacer = pacer
        self._process = process
        self._partition = partition
        self._acks = ACKS[acks]
        self._encode = encode
        self._clock = clock
        self._wall_clock = wall_clock
        self._link = Link(client)
        self._backoff = 0.0
        self._in_flight: dict[asyncio.Task[None], None] = {}
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Until cancelled; settle() then."""
        while True:
            count = await self._pacer.take(self._partition)
            known = self._client.metadata.partitions.get(self._partition)
            moved = self._client.metadata.leader_change(self._partition)
            try:
                connection = await self._link.to(known.leader if known is not None else None)
            except CannotSend as failure:
                self._refuse(count, failure.error)
            else:
                assert known is not None
                await self._start_sending(connection, known, count, moved)
            if self._backoff:
                self._client.metadata.ask_again()
                await asyncio.wait((moved,), timeout=self._backoff)

    async def settle(self) -> None:
        """Wait for what is in flight, at most one request timeout, and close. After run() was cancelled. Raises
        what a send raised that run() no longer waited for."""
        if self._in_flight:
            await asyncio.wait(self._in_flight)
        self._link.close()
        if self._failure is not None:
            raise self._failure

    async def _start_sending(
        self, connection: Connection, leader: Partition, count: int, moved: asyncio.Future[None]
    ) -> None:
        """Returns when the batch is answered, or once the partition has another leader: a leader that is cut off or
        without power answers nothing, and its successor should not have to wait for that."""
        sending = asyncio.get_running_loop().create_task(self._send(connection, leader, count))
        self._in_flight[sending] = None
        sending.add_done_callback(self._sent)
        await asyncio.wait((sending, moved), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
        else:
            self._link.detach()
            sending.add_done_callback(lambda _: connection.close())

    def _sent(self, sending: asyncio.Task[None]) -> None:
        self._in_flight.pop(sending)
        if not sending.cancelled() and sending.exception() is not None:
            self._failure = sending.exception()

    async def _send(self, connection: Connection, leader: Partition, count: int) -> None:
        if connection.closed:
            self._refuse(count, outcomes.CONNECTION_FAILED)
            return
        appends = self._recorder.invoke_append(self._process, self._client.topic, self._partition, count, self._clock())
        batch = self._encode(appends.values, timestamp_ms=int(self._wall_clock() * 1000))
        self._complete(appends, leader, count, await self._produce(connection, batch))

    async def _produce(self, connection: Connection, batch: bytes) -> Answered:
        return await produce(self._client, connection, self._partition, batch, self._acks)

    def _complete(self, appends: Operation, leader: Partition, count: int, answered: Answered) -> None:
        outcome, error, offset = answered
        self._recorder.complete(
            appends, self._clock(), outcome, offset=offset, leader_epoch=leader.leader_epoch, error=error
        )
        if outcome == "ok":
            self._tally.acknowledged(self._partition, self._clock())
        self._note(outcome, count, error)

    def _refuse(self, count: int, error: str) -> None:
        """Records that could not be sent at all."""
        now = self._clock()
        appends = self._recorder.invoke_append(self._process, self._client.topic, self._partition, count, now)
        self._recorder.complete(appends, now, "fail", error=error)
        self._note("fail", count, error)

    def _note(self, outcome: Outcome, count: int, error: str | None) -> None:
        self._tally.appended(outcome, count, error)
        self._back_off(error)

    def _back_off(self, error: str | None) -> None:
        self._backoff = 0.0 if error is None else min(max(2 * self._backoff, MIN_BACKOFF_S), MAX_BACKOFF_S)
