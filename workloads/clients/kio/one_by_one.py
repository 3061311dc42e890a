"""One client of logs that appends a record at a time and reads on when it wants to: for workloads of the user's own,
whose clients decide by what they have read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from cluster_image.storage.records import RecordError, encode_int64s
from harness.record.history import HistoryRecorder
from workloads.clients.kio.batches import decode
from workloads.clients.kio.client import CannotSend, Client, Link
from workloads.clients.kio.producing import Answered, produce
from workloads.clients.kio.reading import RETRY_S, Reader
from workloads.clients.kio.requests import ACKS, FetchFrom
from workloads.tally import Tally


class LogClient:
    """A process of the history, which does one thing after the other. All of it is recorded as appends and reads of the
    log, and judged as these are, whatever else the workload records.

    process: its number. clock: monotonic ns. wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        client: Client,
        recorder: HistoryRecorder,
        tally: Tally,
        process: int,
        acks: str,
        *,
        clock: Callable[[], int],
        wall_clock: Callable[[], float],
    ) -> None:
        self.process = process
        self._client = client
        self._recorder = recorder
        self._tally = tally
        self._acks = ACKS[acks]
        self._clock = clock
        self._wall_clock = wall_clock
        self._reader = Reader(client, recorder, tally, process, clock=clock)
        self._link = Link(client)
        self._positions: Counter[int] = Counter()

    async def append(self, partition: int, value: int | None = None) -> Answered:
        """One record with this value, int64, which nothing else in the run may have; None: with one that nothing has.
        Its outcome is ok, with the offset of the record; fail: it is not in the log and never will be; or info, nobody
        knows. Returns within the client's time-out for requests."""
        known = self._client.metadata.partitions.get(partition)
        try:
            connection = await self._link.to(known.leader if known is not None else None)
        except CannotSend as failure:
            connection, answered = None, Answered("fail", failure.error)
        operation = self._recorder.invoke_append(
            self.process, self._client.topic, partition, 1, self._clock(), first_value=value
        )
        if connection is not None:
            batch = encode_int64s(list(operation.values), timestamp_ms=int(self._wall_clock() * 1000))
            answered = await produce(self._client, connection, partition, batch, self._acks)
        now = self._clock()
        self._recorder.complete(
            operation, now, answered.outcome, offset=answered.offset, error=answered.error,
            leader_epoch=known.leader_epoch if known is not None else None,
        )  # fmt: skip
        self._tally.appended(answered.outcome, 1, answered.error)
        if answered.outcome == "ok":
            self._tally.acknowledged(partition, now)
        elif answered.error is not None:
            await self._back_off()
        return answered

    async def read_on(self, partition: int) -> list[tuple[int, int]]:
        """What is committed from where this client has read to, from the start of the log at first: offsets and values,
        in order. Nothing: there is no more yet, or it cannot be read now; returns within the time-out."""
        known, position = self._client.metadata.partitions.get(partition), self._positions[partition]
        try:
            connection = await self._link.to(known.leader if known is not None else None)
        except CannotSend:
            await self._back_off()
            return []
        assert known is not None
        start = FetchFrom(partition, position, known.leader_epoch)
        answer = (await self._reader.fetch(connection, "read", (start,), min_bytes=1)).get(partition)
        try:
            if answer is None or answer.error:
                raise RecordError
            offsets, values, self._positions[partition] = decode(answer.records, position, False)
        except RecordError:
            await self._back_off()
            return []
        return [(int(offset), int(value)) for offset, value in zip(offsets, values, strict=True)]

    def close(self) -> None:
        self._link.close()

    async def _back_off(self) -> None:
        self._link.close()  # whatever is still to be answered there
        self._client.metadata.ask_again()
        await asyncio.sleep(RETRY_S)
