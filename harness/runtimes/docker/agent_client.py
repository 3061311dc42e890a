"""The harness' end of the agent's socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any


class AgentError(Exception):
    """The agent could not do what it was asked, or is gone."""


class AgentClient:
    """Requests to the agent: in order for one node, in parallel for different ones."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._connections: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def ask(self, node: str, do: str, **arguments: Any) -> Any:
        """What agent.machine.Machine.<do>(**arguments) returns for `node`. Raises AgentError."""
        request = json.dumps({"node": node, "do": do, **arguments}).encode() + b"\n"
        async with self._locks.setdefault(node, asyncio.Lock()):
            try:
                if node not in self._connections:
                    self._connections[node] = await asyncio.open_unix_connection(self._socket, limit=1 << 24)
                reader, writer = self._connections[node]
                writer.write(request)
                line = await reader.readline()
            except BaseException as error:
                # An answer that nobody awaits any more must not be taken for the next one's.
                if connection := self._connections.pop(node, None):
                    connection[1].close()
                if isinstance(error, OSError):
                    raise AgentError(f"{do} on {node}: the agent does not answer ({error})") from error
                raise
        if not line:
            self._connections.pop(node)[1].close()
            raise AgentError(f"{do} on {node}: the agent is gone")
        answer = json.loads(line)
        if "error" in answer:
            raise AgentError(f"{do} on {node}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        for _, writer in self._connections.values():
            writer.close()
        self._connections.clear()
