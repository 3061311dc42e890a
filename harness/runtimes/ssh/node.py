"""One node of the cluster under test on a host of its own."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from harness.cluster import Evidence, Pausing
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.nodes.node import LAST_LINES, AgentNode

from .agents import HostAgents
from .connection.sessions import HostError, Session
from .hosts_file import Host

_ENDED_S = 30.0
_COPY_S = 120.0


class HostNode(AgentNode):
    """host: where it is. folder: of the run, there."""

    host: Host
    session: Session
    folder: str
    agent_command: list[str]
    #: Where its host may be rebooted: how its power is cut then.
    reboots: Callable[[], Awaitable[Evidence]] | None = None
    _agent: HostAgents

    async def switch_on(self) -> None:
        """A host is on."""

    async def is_running(self) -> bool:
        return bool(await self._agent.ask(self.name, "running"))

    async def last_words(self) -> str:
        with suppress(AgentError):
            text: str = await self._agent.ask(self.name, "last_words")
            return "\n".join(text.splitlines()[-LAST_LINES:])
        return ""

    async def _cut_power_of_machine(self) -> Evidence:
        return await super()._cut_power_of_machine() if self.reboots is None else await self.reboots()

    async def _switched_off(self) -> None:
        """It is its network that is off, and its file system."""

    async def _network_holder(self) -> int:
        return 0

    async def _start(self) -> None:
        await self._agent.ask(self.name, "boot")

    async def _ended(self) -> int:
        status = await self._agent.ask(self.name, "ended", patience=_ENDED_S)
        if status is None:
            raise AgentError(f"the process of {self.name} has not ended after {_ENDED_S:g} s")
        return int(status)

    async def _way_to_pause(self, asked: Pausing) -> Pausing:
        """A host whose cgroups are not ours to write has no freezer."""
        if asked == "freezer" and not await self._agent.ask(self.name, "freezes"):
            return "sigstop"
        return asked

    async def _freeze(self) -> None:
        await self._agent.ask(self.name, "freeze")

    async def _thaw(self) -> None:
        await self._agent.ask(self.name, "thaw")

    async def _is_frozen(self) -> bool:
        return bool(await self._agent.ask(self.name, "is_frozen"))

    async def _clock_offset_s(self) -> float | None:
        with suppress(AgentError):
            return float(await self._agent.ask(self.name, "clock_offset_s"))
        return None

    async def _tell_clock(self) -> None:
        assert self.clock is not None
        await self._agent.ask(self.name, "set_clock", offset_s=self.clock.was_set_to_s, drift=self.clock.drift)

    async def _configuration(self) -> str:
        return str(await self._agent.ask(self.name, "configuration"))

    async def _configure(self, text: str) -> None:
        await self._agent.ask(self.name, "configure", text=text)

    async def copy_disk(self, directory: Path) -> str:
        """On the host first, so that what is sent is whole."""
        there = f"{self.folder}/copy-{directory.name}"
        await self._call(self._root, ["mkdir", "-p", there])
        try:
            copied: dict[str, Any] = await self._agent.ask(self.name, "copy_disk", directory=there, owner=0, group=0)
            await self._call(self._fetch, there, directory)
        finally:
            await self._call(self._root, ["rm", "-rf", there])
        return str(copied["left_out"])

    def _root(self, command: list[str], into: IO[bytes] | None = None) -> None:
        """into: a file for what it prints. Blocks. Raises AgentError, OSError."""
        if lost := self._agent.why_not(self.name):
            raise AgentError(lost)
        try:
            done = self.session.run(command, sudo=True, timeout_s=_COPY_S, into=into)
        except HostError as error:
            raise AgentError(str(error)) from error
        if done.status != 0:
            raise AgentError(f"{' '.join(command[-2:])} on host {self.host.name}: {done.why}")

    def _fetch(self, there: str, directory: Path) -> None:
        """A folder of the host into one here. Blocks. Raises AgentError."""
        with tempfile.TemporaryFile() as archive:
            try:
                self._root([*self.agent_command, "send", there], archive)
                archive.seek(0)
                with tarfile.open(fileobj=archive, mode="r:gz") as tar:
                    tar.extractall(directory, filter="data")
            except (OSError, tarfile.TarError) as error:
                raise AgentError(f"what {self.host.name} sent of its disk cannot be unpacked: {error}") from error

    async def fetch_file(self, name: str, path: Path) -> None:
        """A file of the run's folder on the host. Raises AgentError, OSError."""
        await self._call(self._fetch_file, f"{self.folder}/{name}", path)

    def _fetch_file(self, there: str, path: Path) -> None:
        """As it comes, for it may be large, and each node has one. Blocks."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        try:
            with new.open("wb") as file:
                self._root(["cat", there], file)
            new.rename(path)
        finally:
            new.unlink(missing_ok=True)
