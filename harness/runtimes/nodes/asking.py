"""Asking an agent, from the harness."""

from __future__ import annotations

from typing import Any, Protocol

from harness.errors import HarnessFailure


class AgentError(HarnessFailure):
    """The agent could not do what it was asked."""


class Agent(Protocol):
    """Requests to agents: in order for one node, but for measurements, in parallel for different ones."""

    async def ask(self, node: str, do: str, **arguments: Any) -> Any:
        """What agent.machine.Machine.<do>(**arguments) returns for `node`. Raises AgentError."""

    async def measure(self, node: str, do: str, **arguments: Any) -> Any:
        """The same, beside what else that node is asked: for what takes long and changes nothing."""
