"""Producers that are fenced: now and then another incarnation takes over the producer's id with a higher epoch
(KIP-360), and the old one, which does not know, goes on sending for a while.

Once a record of the new epoch is in the log, nothing of the old one may be appended: whatever the old incarnation sends
is refused with INVALID_PRODUCER_EPOCH. In the history both are the same process.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any, Final

from workloads.clients.kio.pipelined import Identity, PipelinedSender

#: Seconds, from the least to the most: until an incarnation has a successor, and for how long it goes on then.
TERM_S: Final = (3.0, 10.0)
LINGERS_S: Final = (0.2, 3.0)


class FencedSender:
    """The incarnations of one producer of one partition. Arguments as of PipelinedSender."""

    def __init__(self, *given: Any, seed: int, **named: Any) -> None:
        self._make = partial(PipelinedSender, *given, seed=seed, **named)
        self._present = self._make()
        self._incarnations = [self._present]
        self._random = Random(f"{seed}/incarnations/{self._present.process}/{self._present.partition}")

    async def run(self) -> None:
        """Until cancelled; settle() then."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._present.run())
            while True:
                await asyncio.sleep(self._random.uniform(*TERM_S))
                if self._present.identity is None:
                    continue  # there is nothing to take over
                fenced, (producer_id, epoch) = self._present, self._present.identity
                self._present = self._make(identity=Identity(producer_id, epoch + 1))
                self._incarnations.append(self._present)
                fenced.is_superseded = True
                group.create_task(self._present.run())
                group.create_task(self._end(fenced, self._random.uniform(*LINGERS_S)))

    async def settle(self) -> None:
        """Wait for what is in flight, at most one request timeout."""
        await asyncio.gather(*(each.settle() for each in self._incarnations))

    async def _end(self, fenced: PipelinedSender, seconds: float) -> None:
        await asyncio.sleep(seconds)
        fenced.stop()
