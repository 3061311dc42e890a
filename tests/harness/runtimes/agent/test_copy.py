"""A copy of a host's disk: what becomes of it there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.ssh.node import HostNode


def test_a_copy_that_fails_leaves_nothing_on_the_host(tmp_path: Path) -> None:
    """It has room for a few of them at most, and each power cut makes one."""

    class Agent:
        async def ask(self, node: str, do: str, **arguments: Any) -> Any:
            raise AgentError(f"{do} on {node}: OSError: No space left on device")

    done: list[list[str]] = []

    async def call(work: Any, *arguments: Any) -> Any:
        return work(*arguments)

    node: Any = object.__new__(HostNode)
    node.name, node.folder, node._agent, node._call = "broker-1", "/var/lib/chaos/run-r", Agent(), call
    node._root = done.append
    with pytest.raises(AgentError, match="No space left"):
        asyncio.run(node.copy_disk(tmp_path / "disk"))
    there = "/var/lib/chaos/run-r/copy-disk"
    assert done == [["mkdir", "-p", there], ["rm", "-rf", there]]
