"""A transactional.id, and the processes that have it, or believe so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from workloads.clients.driven.process import Driver, DriverEnded
from workloads.transactions.recording import CRASHED, HUNG, Micro, Record, TransactionRecorder

#: Of one poll.
POLL_S: Final = 0.1
RETRY_S: Final = 0.3


class Incarnation:
    """One process that has the id, or believes so: a process of the history. is_over: it is asked for nothing more, as
    it was fenced, has crashed, or does not know how its last transaction ended.

    positions: where its consumer begins; None: at what its group has committed of these partitions. patience_s: what
    one answer may take, before its process is taken to hang."""

    def __init__(
        self,
        process: int,
        driver: Driver,
        recorder: TransactionRecorder,
        topic: str,
        *,
        positions: Mapping[int, int] | None,
        partitions: Sequence[int],
        patience_s: float,
        clock: Callable[[], int],
    ) -> None:
        self.process = process
        self.driver = driver
        self.is_over = False
        self._recorder = recorder
        self._start = {"topic": topic, "positions": positions, "partitions": list(partitions)}
        self._clock = clock
        self._patience_s = patience_s
        self._lost_by = HUNG
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """Fence whoever had the id before. False: it could not."""
        self.driver.lost = self._lost
        self._running = asyncio.get_running_loop().create_task(self.driver.run())
        while not self.is_over:
            said = await self._ask("start", **self._start)
            if said is None:
                return False
            if "error" not in said:
                return True
            await asyncio.sleep(RETRY_S)
        return False

    async def transaction(self, operations: Sequence[Micro], end: str) -> Mapping[str, Any] | None:
        """Of sends and polls; end: "commit" or "abort". None: nobody knows what became of it."""
        op = self._recorder.begin(self.process, operations, self._clock())
        return await self._carry_out(op, operations, end, None)

    async def copy(self, copied: Callable[[Record], Micro]) -> Mapping[str, Any] | None:
        """Poll, and commit what that returned as `copied`, and where it ends, in one transaction. None: it polled
        nothing, or nobody knows what became of it."""
        invoke = self._clock()
        said = await self._ask("poll", seconds=POLL_S)
        if said is None:
            return None
        if "error" in said:
            await asyncio.sleep(RETRY_S)
        records = said.get("records") or ()
        if not records:
            return None
        ends = {partition: offset + 1 for partition, offset, _ in records}
        sends = [copied(record) for record in records]
        op = self._recorder.begin(self.process, [("poll",), *sends], invoke, {0: records})
        return await self._carry_out(op, sends, "commit", ends)

    async def stop(self) -> None:
        self.is_over = True
        if self._running is not None:
            self.driver.thaw()
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _carry_out(
        self, op: int, operations: Sequence[Micro], end: str, offsets: Mapping[int, int] | None
    ) -> Mapping[str, Any] | None:
        said: Mapping[str, Any] | None = None
        self._lost_by = HUNG  # where nobody waits for it any more
        try:
            said = await self._ask(
                "txn", operations=[list(each) for each in operations], end=end, offsets=offsets, seconds=POLL_S
            )  # fmt: skip
        finally:
            if said is None:  # cancelled, too
                self._recorder.lost(op, self._clock(), self._lost_by)
        if said is None:
            return None
        self._recorder.end(
            op, said["complete"], said["outcome"], said.get("error"),
            sent={int(value): offset for value, offset in said["sent"].items()},
            polled=dict(said["polled"]),
        )  # fmt: skip
        self.is_over |= said["outcome"] == "info" or ("error" in said and not said.get("aborted", False))
        return said

    async def _ask(self, do: str, **fields: Any) -> Mapping[str, Any] | None:
        """None: it is over. Raises what the process could not be made by."""
        assert self._running is not None
        asking = asyncio.create_task(self._answer(do, fields))
        try:
            await asyncio.wait((asking, self._running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asking.done():
                self.is_over = True
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        if asking.cancelled():
            self._running.result()
            return None
        return asking.result()

    async def _answer(self, do: str, fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
        while not self.driver.is_up and not self.is_over:
            await asyncio.sleep(0.01)
        try:
            return await self.driver.ask(do, patience=self._patience_s, client=0, **fields)
        except DriverEnded:
            self.is_over, self._lost_by = True, CRASHED
        except TimeoutError:
            self.is_over = True
            self.driver.ends.append(f"hung: it did not answer {do} for {self._patience_s:g} s")
            self.driver.kill(self.driver.ends[-1])
        return None

    def _lost(self, how: str) -> None:
        """Its process has ended: the next one is another incarnation."""
        self.is_over = True


class Identity:
    """make: the next incarnation. work: the next thing that one does."""

    def __init__(self, make: Callable[[], Incarnation], work: Callable[[Incarnation], Awaitable[None]]) -> None:
        self._make = make
        self._work = work
        self._replace = asyncio.Event()
        self._ending = asyncio.Event()
        self.now: Incarnation | None = None

    async def run(self) -> None:
        """Until end(), or cancelled. Raises what a process could not be made by."""
        async with asyncio.TaskGroup() as lives:
            while not self._ending.is_set():
                self._replace.clear()
                self.now = self._make()
                life = lives.create_task(self._live(self.now))
                replaced = asyncio.create_task(self._replace.wait())
                try:
                    await asyncio.wait((life, replaced), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    replaced.cancel()
                if life.done():
                    await asyncio.sleep(RETRY_S)  # also of a client that ends at once

    def take_over(self) -> Incarnation | None:
        """Another process takes the id; returns the one that had it, which goes on as a zombie. None: there is none."""
        zombie, self.now = self.now, None
        if zombie is not None:
            self._replace.set()
        return zombie

    def end(self) -> None:
        """Whatever is under way is the last."""
        self._ending.set()

    async def _live(self, incarnation: Incarnation) -> None:
        try:
            if await self._started(incarnation):
                while not incarnation.is_over and not self._ending.is_set():
                    await self._work(incarnation)
        finally:
            await incarnation.stop()

    async def _started(self, incarnation: Incarnation) -> bool:
        """Not waited for any more once all is to end."""
        starting, ending = asyncio.create_task(incarnation.start()), asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
            return starting.done() and starting.result()
        finally:
            for task in (starting, ending):
                task.cancel()
            await asyncio.gather(starting, ending, return_exceptions=True)
