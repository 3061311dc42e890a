"""Open-loop pacing: records fall due at a steady rate, whatever the cluster does."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import Final

#: Batches a second that a workload aims at: enough to meet every moment of an election, at any rate.
BATCHES_PER_S: Final = 150
MAX_BATCH: Final = 1000
#: Seconds of records that may wait for a partition that cannot take them; what falls due beyond is left out.
BACKLOG_S: Final = 1.0


def batch_size(rate: float) -> int:
    """Records in a batch at `rate` records a second: 1 up to 150/s, 13 at 2,000/s, 133 at 20,000/s."""
    return min(max(round(rate / BATCHES_PER_S), 1), MAX_BATCH)


def turn_s(rate: float, partitions: int, records_per_batch: int | None = None) -> float:
    """Seconds between two batches for a partition. records_per_batch: None: as batch_size() has it."""
    return (records_per_batch or batch_size(rate)) / rate * partitions


class Pacer:
    """Deals batches out to partitions in turn. A partition's senders take them when they can; one that is stuck
    holds up no other."""

    def __init__(self, rate: float, partitions: int, records_per_batch: int | None = None) -> None:
        """See turn_s()."""
        self._batch = records_per_batch or batch_size(rate)
        self.turn_s = turn_s(rate, partitions, records_per_batch)
        self._interval = self.turn_s / partitions
        backlog = math.ceil(BACKLOG_S * rate / self._batch / partitions)
        self._due: list[asyncio.Queue[None]] = [asyncio.Queue(backlog) for _ in range(partitions)]

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        for queue in itertools.cycle(self._due):
            if not queue.full():
                queue.put_nowait(None)
            # After a standstill of the harness itself, catch up with one second at most.
            next_at = max(next_at + self._interval, loop.time() - BACKLOG_S)
            if next_at > loop.time():
                await asyncio.sleep(next_at - loop.time())

    async def take(self, partition: int) -> int:
        """How many records to send to the partition now."""
        await self._due[partition].get()
        return self._batch
