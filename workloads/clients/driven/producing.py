"""Producers whose client runs in a process of its own: all of a run in one."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

from harness.record.history import Operation
from workloads.clients.client import Producer, Session
from workloads.clients.driven.kind import Kind
from workloads.clients.driven.outcomes import CRASHED, HUNG
from workloads.clients.driven.process import Driver, DriverEnded
from workloads.pacing import Pacer

#: Batches that a producer was given for a partition and has not told of: what it sends at a time is its own affair.
MOST_BATCHES: Final = 8
#: A client that has not told of a record so long after it should have given it up hangs, in seconds.
HANGS_AFTER_S: Final = 10.0
#: Once the time of a run is over, however long its client may take, in seconds.
LONGEST_END_S: Final = 150.0
_LOOK_S: Final = 0.5


class DrivenProducers(Producer):
    """All of them."""

    def __init__(self, session: Session, kind: Kind, driver: Driver, pacer: Pacer) -> None:
        settings = session.plan.client_settings
        self._session = session
        self._kind = kind
        self._driver = driver
        self._pacer = pacer
        self._outcomes = kind.outcomes(session.plan.acks, settings)
        self._delivery_s = kind.delivery_s(settings)
        self._first_values: list[int] = []  # of what is in flight, in order
        self._in_flight: dict[int, Operation] = {}  # by first value
        self._told: dict[int, int] = {}  # when each client told of a record last
        self._open: dict[tuple[int, int], int] = {}  # batches, by client and partition
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        driver.heard, driver.lost = self._heard, self._lost

    async def run(self) -> None:
        plan = self._session.plan
        self._running = asyncio.get_running_loop().create_task(self._driver.run())
        loops = [self._feed(client, p) for client in range(plan.concurrency) for p in range(plan.partitions)]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            for loop in loops:
                group.create_task(loop)

    async def settle(self) -> None:
        """Until all is told, or given up. What a client does not tell of stays unknown."""
        try:
            for client in range(self._session.plan.concurrency):
                try:
                    self._driver.say("flush", client=client, seconds=self._delivery_s)
                except DriverEnded:
                    break
            async with asyncio.timeout(min(self._delivery_s + HANGS_AFTER_S, LONGEST_END_S)):
                while self._in_flight:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self._driver.ends.append(f"was ended: {len(self._in_flight)} batches were not told of at the end")
            self._give_up(HUNG)
        finally:
            if self._running is not None:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)

    async def _feed(self, client: int, partition: int) -> None:
        session, place = self._session, (client, partition)
        self._open[place] = 0
        while True:
            count = await self._pacer.take(partition)
            while self._open[place] >= MOST_BATCHES or not self._driver.is_up:
                await self._wait()
            topic = session.plan.topic
            appends = session.recorder.invoke_append(client, topic, partition, count, session.clock())
            assert appends.first_value is not None
            self._first_values.append(appends.first_value)
            self._in_flight[appends.first_value] = appends
            self._open[place] += 1
            self._driver.say(
                "produce", client=client, topic=topic, partition=partition, first=appends.first_value, count=count,
                keys=session.keys,
            )  # fmt: skip

    async def _wait(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _watch(self) -> None:
        patience = round((self._delivery_s + HANGS_AFTER_S) * 1e9)
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._running is not None and self._running.done():
                self._running.result()
            if self._first_values:
                oldest = self._in_flight[self._first_values[0]]
                told = max(oldest.invoke, self._told.get(oldest.process, 0))
                if self._session.clock() - told > patience:
                    self._driver.kill(f"hung: a record was not told of after {patience / 1e9:g} s")

    def _heard(self, said: Mapping[str, Any]) -> None:
        """What the driver says."""
        if said["is"] == "produced":
            self._produced(said)
        elif said["is"] == "failed":
            self._driver.cannot_start(self._kind.unusable(said["error"], said["says"]))

    def _produced(self, said: Mapping[str, Any]) -> None:
        first, count, error = said["first"], said["count"], said.get("error")
        while count:  # what is told at once may be of several batches
            number = bisect_right(self._first_values, first) - 1
            appends = self._in_flight[self._first_values[number]]
            self._told[appends.process] = said["complete"]
            assert appends.first_value is not None
            start = first - appends.first_value
            part = min(count, len(appends) - start)
            offset = said.get("offset", -1)
            outcome = self._outcomes.acknowledged if error is None else self._outcomes.of(error, said["stage"])
            shown = offset + (first - said["first"]) if error is None and offset >= 0 else None
            self._complete(appends, start, part, said["complete"], outcome, shown, error)
            first, count = first + part, count - part

    def _complete(
        self, appends: Operation, start: int, count: int, complete: int, outcome: Any, offset: int | None,
        error: str | None,
    ) -> None:  # fmt: skip
        session = self._session
        session.recorder.complete_part(appends, start, count, complete, outcome, offset=offset, error=error)
        session.tally.appended(outcome, count, error)
        if outcome == "ok":
            session.tally.acknowledged(appends.partition, complete)
        if not appends.left:
            assert appends.first_value is not None
            del self._in_flight[appends.first_value]
            self._first_values.remove(appends.first_value)
            self._open[appends.process, appends.partition] -= 1
            self._changed.set()

    def _lost(self, how: str) -> None:
        """The process has ended: what it had not told of may have been sent, or still be."""
        self._give_up(HUNG if how.startswith("hung") else CRASHED)

    def _give_up(self, error: str) -> None:
        now = self._session.clock()
        for appends in list(self._in_flight.values()):
            for start, end in list(appends.left):
                self._complete(appends, start, end - start, now, "info", None, error)
