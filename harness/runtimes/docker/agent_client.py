"""The harness' end of the agent's socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.cluster import ClusterLost
from harness.runtimes.nodes.asking import AgentError


class AgentGone(AgentError, ClusterLost):
    """The agent does not answer, and never will."""

    def __init__(self, what: str, why: str, cause: str = "its container was removed or has died") -> None:
        super().__init__(
            f"{what}: the agent {why}; {cause}: look for the reason in the engine's log, leave a run's containers "
            "alone, and run it again"
        )


#: Seconds until it is said what is waited for, and until the agent is given up: what it does takes a few at most.
TELL_AFTER_S = 5.0
PATIENCE_S = 60.0


class AgentClient:
    """Requests to the agent: in order for one node, but for measurements, in parallel for different ones."""

    def __init__(self, socket: Path, tell: Callable[[str], object] = lambda _: None) -> None:
        """tell: what is waited for, in a line, when it takes long."""
        self._socket = socket
        self._tell = tell
        self._gone: AgentGone | None = None  # once it was given up: nobody waits for it again
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
            if self._gone is not None:
                raise self._gone
            try:
                if line not in self._connections:
                    self._connections[line] = await asyncio.open_unix_connection(self._socket, limit=1 << 24)
                reader, writer = self._connections[line]
                writer.write(request)
                answered = await self._answer(reader, f"{do} on {node}")
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

    async def _answer(self, reader: asyncio.StreamReader, what: str) -> bytes:
        """Raises AgentGone if there is none for PATIENCE_S."""
        answer = asyncio.ensure_future(reader.readline())
        try:
            done, _ = await asyncio.wait((answer,), timeout=TELL_AFTER_S)
            if not done:
                self._tell(f"waiting for the agent: {what}")
                await asyncio.wait((answer,), timeout=PATIENCE_S - TELL_AFTER_S)
            if not answer.done():
                cause = "its container is paused or stopped, or the machine is busy with other things"
                self._gone = AgentGone(what, f"has not answered for {PATIENCE_S:g} s", cause)
                raise self._gone
            return answer.result()
        finally:
            answer.cancel()

    def close(self) -> None:
        for _, writer in self._connections.values():
            writer.close()
        self._connections.clear()
