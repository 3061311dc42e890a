"""One node of the cluster under test in Docker. See runtime.py for what it is made of."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from harness.cluster import Role
from harness.runtimes.agent.clock import ASK_IT, wall_minus_monotonic
from harness.runtimes.nodes.asking import Agent
from harness.runtimes.nodes.calls import Calls
from harness.runtimes.nodes.clock import NodeClock
from harness.runtimes.nodes.node import LAST_LINES, AgentNode
from harness.targets.target import Target


class DockerNode(AgentNode):
    """`network` and `process` are its containers' ids, `configuration` a file that its container sees."""

    clock: NodeClock | None = None

    def __init__(
        self, api: docker.APIClient, calls: Calls, agent: Agent, target: Target,
        *, name: str, node_id: int, role: Role, rack: str, address: tuple[str, int],
    ) -> None:  # fmt: skip
        super().__init__(calls, agent, target, name=name, node_id=node_id, role=role, rack=rack, address=address)
        self.network = ""
        self.process = ""
        self.configuration = Path()
        self._api = api

    async def switch_on(self) -> None:
        await self._call(self._api.start, self.network)

    async def is_running(self) -> bool:
        return bool((await self._state(self.process))["Running"])

    async def last_words(self) -> str:
        with suppress(APIError, OSError):
            return bytes(await self._call(self._api.logs, self.process, tail=LAST_LINES)).decode(errors="replace")
        return ""

    async def _switched_off(self) -> None:
        await self._call(self._api.wait, self.network)

    async def _network_holder(self) -> int:
        return await self._pid(self.network)

    async def _start(self) -> None:
        await self._call(self._api.start, self.process)
        await self._agent.ask(self.name, "started", pid=await self._pid(self.process))

    async def _ended(self) -> int:
        return int((await self._call(self._api.wait, self.process))["StatusCode"])

    async def _freeze(self) -> None:
        await self._call(self._api.pause, self.process)

    async def _thaw(self) -> None:
        await self._call(self._api.unpause, self.process)

    async def _is_frozen(self) -> bool:
        return bool((await self._state(self.process))["Paused"])

    async def _clock_offset_s(self) -> float | None:
        """As a process in the node's container sees it; None if its container does not run."""
        try:
            asked = await self._call(self._api.exec_create, self.process, ["python3", "-c", ASK_IT])
            answer = await self._call(self._api.exec_start, asked["Id"])
            return float(answer) - wall_minus_monotonic()
        except (APIError, ValueError):  # stopped, frozen, or stopped just now
            return None

    async def copy_disk(self, directory: Path) -> str:
        copied = await self._agent.ask(
            self.name, "copy_disk", directory=str(directory), owner=os.getuid(), group=os.getgid()
        )
        return str(copied["left_out"])

    async def _configuration(self) -> str:
        return self.configuration.read_text()

    async def _configure(self, text: str) -> None:
        """In place, for the container has the file itself mounted."""
        self.configuration.write_text(text)

    async def _pid(self, container: str) -> int:
        """0 if it does not run (any more)."""
        return int((await self._state(container))["Pid"])

    async def _state(self, container: str) -> dict[str, Any]:
        return dict((await self._call(self._api.inspect_container, container))["State"])
