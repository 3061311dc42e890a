"""A process that drives a client (workloads/clients/drivers), kept alive: one that ends or hangs is a fact of the run,
and is started again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.errors import HarnessFailure

#: From the end of one process to the start of the next, in seconds.
RESTART_S: Final = 0.5
_END_S: Final = 5.0  # that it may take to end by itself
_LONGEST_LINE: Final = 64 << 20


#: A process that stands still would not see that we are gone (util-linux).
_ENDS_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


class DriverEnded(Exception):
    """It has ended, by itself or by us; a sentence."""


class Driver:
    """One process at a time, and what it says.

    command: of the process. log: the file that takes its standard error, all processes one after the other; None:
    nobody keeps it. environment: beside this process's own. opening: what each process is told first.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path | None,
        *,
        environment: Mapping[str, str],
        opening: Callable[[], Sequence[Mapping[str, Any]]],
    ) -> None:
        self.name = name
        self.starts = 0
        self.ends: list[str] = []  # of processes that were not asked to
        self.versions: set[str] = set()
        #: Called with each line that is no answer to ask().
        self.heard: Callable[[Mapping[str, Any]], None] = lambda said: None
        #: Called when a process has ended that was not asked to, with how, as a clause.
        self.lost: Callable[[str], None] = lambda how: None
        self._command = [*_ENDS_WITH_US, *command]
        self._log = log
        self._environment = environment
        self._opening = opening
        self._process: asyncio.subprocess.Process | None = None
        self._asked: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._next_id = 0
        self._why = ""  # it was killed

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def freeze(self) -> bool:
        """It stands still until thaw(), with all its threads. False: there is none."""
        return self._signal(signal.SIGSTOP)

    def thaw(self) -> bool:
        return self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> bool:
        if self._process is None or self._process.returncode is not None:
            return False
        self._process.send_signal(what)
        return True

    async def run(self) -> None:
        """Until cancelled, which ends the process."""
        try:
            while True:
                how = await self._one_process()
                self.ends.append(how)
                self._gone(how)
                await asyncio.sleep(RESTART_S)
        finally:
            await self._end()

    def say(self, do: str, **fields: Any) -> None:
        """Raises DriverEnded if there is no process at present."""
        if self._process is None or self._process.stdin is None:
            raise DriverEnded(f"{self.name} does not run at present")
        self._process.stdin.write(_line({"do": do, **fields}))

    async def ask(self, do: str, *, patience: float, **fields: Any) -> Mapping[str, Any]:
        """patience: seconds until TimeoutError. Raises DriverEnded too."""
        self._next_id += 1
        answer = self._asked[self._next_id] = asyncio.get_running_loop().create_future()
        number = self._next_id
        try:
            self.say(do, id=number, **fields)
            async with asyncio.timeout(patience):
                return await answer
        finally:
            self._asked.pop(number, None)

    def kill(self, why: str) -> None:
        """It hangs, say: a clause."""
        if self._process is not None and self._process.returncode is None:
            self._why = why
            self._process.kill()

    def cannot_start(self, why: HarnessFailure, *, is_first: bool | None = None) -> None:
        """A client could not be made. Of the first process that is an error of the run; later ones may meet a cluster
        that does not answer, and are started again. is_first: is it? None: of this driver. Raises why."""
        if self.starts == 1 if is_first is None else is_first:
            raise why
        self.kill(f"could not start: {why}")

    async def _one_process(self) -> str:
        """How it ended."""
        log = open(self._log, "ab") if self._log is not None else None  # noqa: SIM115
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=log or asyncio.subprocess.DEVNULL, limit=_LONGEST_LINE, env={**os.environ, **self._environment},
                start_new_session=True,
            )  # fmt: skip
        finally:
            if log is not None:
                log.close()
        process = self._process
        self.starts += 1
        assert process.stdout is not None and process.stdin is not None
        for command in self._opening():
            process.stdin.write(_line(command))
        async for line in process.stdout:
            self._take(json.loads(line))
        status = await process.wait()
        self._process = None
        why, self._why = self._why, ""
        return why or _how(status)

    def _take(self, said: Mapping[str, Any]) -> None:
        asked = self._asked.get(said["id"]) if "id" in said else None
        if asked is not None and not asked.done():
            asked.set_result(said)
        elif said["is"] == "opened":
            self.versions.add(said["says"])
        if asked is None:
            self.heard(said)

    def _gone(self, how: str) -> None:
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(DriverEnded(f"{self.name} {how}"))
        self.lost(how)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _line(command: Mapping[str, Any]) -> bytes:
    return json.dumps(command, separators=(",", ":")).encode() + b"\n"


def _how(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit code {status}"


async def beside(driver: Driver, loops: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Its process and these, side by side until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(driver.run())
        for loop in loops:
            group.create_task(loop)
