"""The harness' end of the agent's socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.cluster import ClusterLost


class AgentError(Exception):
    """The agent could not do what it was asked."""


class AgentGone(AgentError, ClusterLost):
    """The agent does not answer, and never will."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what}: the agent {why}; its container was removed or has died: look for the reason in the engine's log, "
            "leave a run's containers alone, and run it again"
        )


class AgentClient:
    """Requests to the agent: in order for one node, but for measurements, in parallel for different ones."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._connections: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def ask(self, node: str, do: str, **arguments: Any) -> Any:
        """What agent.machine.Machine.<do>(**arguments) returns for `node`. Raises AgentError."""
        return await self._ask(node, node, do, arguments)

    async def measure(self, node: str, do: str, **arguments: Any) -> Any:
        """The same, beside what else that node is asked: for what takes long and changes nothing."""
        return await self._ask(f"{node}, measured", node, do, arguments)

    async def _ask(self, line: str, node: str, do: str, arguments: Mapping[str, Any]) -> Any:
        """In order on one line."""
        request = json.dumps({"node": node, "do": do, **arguments}).encode() + b"\n"
        async with self._locks.setdefault(line, asyncio.Lock()):
            try:
                if line not in self._connections:
                    self._connections[line] = await asyncio.open_unix_connection(self._socket, limit=1 << 24)
                reader, writer = self._connections[line]
                writer.write(request)
                answered = await reader.readline()
            except BaseException as error:
                # An answer that nobody awaits any more must not be taken for the next one's.
                if connection := self._connections.pop(line, None):
                    connection[1].close()
                if isinstance(error, OSError):
                    raise AgentGone(f"{do} on {node}", f"does not answer ({error.strerror or error})") from error
                raise
        if not answered:
            self._connections.pop(line)[1].close()
            raise AgentGone(f"{do} on {node}", "is gone")
        answer = json.loads(answered)
        if "error" in answer:
            raise AgentError(f"{do} on {node}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        for _, writer in self._connections.values():
            writer.close()
        self._connections.clear()
