"""Consumers whose client runs in a process of its own: all that follow the logs in one, the final read in another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, Literal

from workloads.clients.client import Session
from workloads.clients.driven.process import Driver, DriverEnded
from workloads.clients.driven.runs import spread

#: Seconds between two looks of a reader at the end of some log.
LOOK_EVERY_S: Final = (0.1, 0.4)
#: That a client may take to tell where logs end, and that it is waited for beyond that, in seconds.
OFFSETS_S: Final = 3.0
_GRACE_S: Final = 15.0
#: A client that neither reads on nor says why for so long, though there is more, is started anew, in seconds.
SILENT_S: Final = 20.0
_RETRY_S: Final = 0.2
Kind = Literal["read", "final_read"]


class Position:
    """Where a process of the history stands in one log."""

    def __init__(self) -> None:
        self.offset = 0
        self.end: int | None = None  # of a final read


class DrivenReader:
    """One process of the history: a client that reads, and another of the same driver that looks at the ends of logs.

    number: of the reading client; the other is the next.
    """

    def __init__(self, session: Session, driver: Callable[[], Driver], process: int, number: int, kind: Kind) -> None:
        self._session = session
        self._driver = driver
        self._process = process
        self.number = number
        self._kind = kind
        self.positions = {partition: Position() for partition in range(session.plan.partitions)}
        self.heard_at = session.clock()
        self.stuck: asyncio.Queue[tuple[int | None, str]] = asyncio.Queue()
        self.moved = asyncio.Event()

    @property
    def _moves(self) -> bool:
        return self._session.plan.log_start != 0

    def assignment(self) -> Mapping[str, Any]:
        """The command that has it read on from where it stands."""
        positions = {str(partition): position.offset for partition, position in self.positions.items()}
        return {"do": "assign", "client": self.number, "topic": self._session.plan.topic, "positions": positions}

    def heard(self, said: Mapping[str, Any]) -> None:
        self.heard_at = self._session.clock()
        if said["is"] == "read":
            self._read(said)
        elif said["is"] == "stuck":
            self._session.tally.read(said["error"])
            self.stuck.put_nowait((said["partition"], said["error"]))

    def _read(self, said: Mapping[str, Any]) -> None:
        session, partition = self._session, said["partition"]
        position = self.positions[partition]
        offsets, values = spread(said["runs"])
        operation = session.recorder.invoke(
            self._process, self._kind, session.plan.topic, partition, said["invoke"]
        )  # fmt: skip
        session.recorder.complete(
            operation, said["complete"], "ok", offset=said["from"], high_watermark=position.end,
            records=(offsets, values),
        )  # fmt: skip
        session.tally.read(None)
        if len(offsets):
            position.offset = max(position.offset, int(offsets.max()) + 1)
        self.moved.set()

    async def offsets(self, partitions: Sequence[int], which: Literal["latest", "earliest"]) -> dict[int, int] | None:
        """What the client told, and of ends a read that returned nothing; None: it did not.

        As `list_offsets`, which must be exact, it would be blamed for what the client's own picture of the cluster
        brings about: a leader that was deposed while it stood still answers from before, as long as neither it nor who
        asks it knows of a newer leader epoch. (The own client tells the newest that any broker has told it.)
        """
        session = self._session
        invoke = session.clock()
        error: str | None = None
        complete = invoke
        found: dict[int, int] = {}
        try:
            said = await self._driver().ask(
                "offsets", patience=OFFSETS_S * len(partitions) + _GRACE_S, client=self.number + 1,
                topic=session.plan.topic, partitions=list(partitions), which=which, seconds=OFFSETS_S,
            )  # fmt: skip
            invoke, complete, error = said["invoke"], said["complete"], said.get("error")
            found = {int(partition): offset for partition, offset in said.get("offsets", {}).items()}
        except DriverEnded:
            return None
        except TimeoutError:
            self._driver().kill("hung: it did not tell where logs end")
            return None
        if which == "latest":
            for partition in partitions:
                operation = session.recorder.invoke(self._process, "read", session.plan.topic, partition, invoke)
                outcome: Literal["ok", "fail"] = "ok" if error is None else "fail"
                end = found.get(partition)
                session.recorder.complete(operation, complete, outcome, offset=end, high_watermark=end, error=error)
                session.tally.read(error)
        return found if error is None else None

    async def watch_ends(self, random: Random) -> None:
        """Until cancelled."""
        partitions = range(self._session.plan.partitions)
        while True:
            await asyncio.sleep(random.uniform(*LOOK_EVERY_S))
            await self.offsets([random.choice(partitions)], "latest")

    async def go_on(self) -> None:
        """Until cancelled: where the client stands beyond the end of a log, which lost its tail, or before its start,
        it is assigned anew."""
        while True:
            partition, _ = await self.stuck.get()
            wrong = [p for p in self.positions if partition in (None, p)]
            if not await self._replace(wrong):
                await asyncio.sleep(_RETRY_S)
                self.stuck.put_nowait((partition, ""))
                continue
            while not self.stuck.empty():  # said of the assignment before
                self.stuck.get_nowait()

    async def _replace(self, partitions: Sequence[int]) -> bool:
        """False: it could not be told where."""
        ends = await self.offsets(partitions, "latest")
        starts = await self.offsets(partitions, "earliest") if self._moves else dict.fromkeys(partitions, 0)
        if ends is None or starts is None:
            return False
        for partition in partitions:
            position = self.positions[partition]
            position.offset = max(min(position.offset, ends[partition]), starts[partition])
            if position.end is not None:  # of a final read: what the log no longer has would never be reached
                position.end = min(position.end, ends[partition])
        self.say_assignment()
        return True

    async def read_to_the_ends(self) -> None:
        """From its start to the end that it has now, every partition. Retries until cancelled."""
        while (ends := await self.offsets(list(self.positions), "latest")) is None:
            await asyncio.sleep(_RETRY_S)
        for partition, position in self.positions.items():
            position.end = ends[partition]
            if not position.end:
                self._empty(partition)
        self.say_assignment()
        while self.left():
            self.moved.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self.moved.wait()
            except TimeoutError:
                if self._session.clock() - self.heard_at > SILENT_S * 1e9:
                    self.heard_at = self._session.clock()
                    self._driver().kill(f"hung: it read nothing for {SILENT_S:g} s, and there is more")

    def left(self) -> bool:
        return any(position.end is None or position.offset < position.end for position in self.positions.values())

    def say_assignment(self) -> None:
        with suppress(DriverEnded):  # the next one is assigned as it starts
            self._driver().say(**self.assignment())

    def _empty(self, partition: int) -> None:
        """That a log is empty is what the history must hold."""
        session, now = self._session, self._session.clock()
        operation = session.recorder.invoke(self._process, self._kind, session.plan.topic, partition, now)
        session.recorder.complete(operation, now, "ok", offset=0, high_watermark=0, records=None)
