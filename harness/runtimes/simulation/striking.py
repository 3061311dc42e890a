"""Waits for one operation of a node on its disk, or one message that it sends, and strikes in it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from typing import Any, Protocol

from cluster_image.storage.disk import ProcessDied
from harness.cluster import Evidence
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from harness.runtimes.simulation.disk.strike import OF_MESSAGES, Strike

POLL_S = 0.01


class Struck(Protocol):
    """A node, as far as it is struck."""

    disk: SimulatedDisk
    running: Any

    def now_ns(self) -> int:
        """On the clock of the run."""
        ...

    def lose_power(self) -> Evidence: ...

    def end(self) -> Evidence:
        """SIGKILL."""
        ...


class Striking:
    """choice: see Node.strike_operation. starting: the process begins now, and what counts is what it does until it
    has loaded what its disk holds."""

    def __init__(self, node: Struck, choice: Mapping[str, Any], *, starting: bool) -> None:
        self._node = node
        self._choice = choice
        self._strike = Strike(choice["what"], int(choice["operation"]))
        self._starting = starting
        self._evidence: Evidence = {}
        self._over = False

    @property
    def failed(self) -> bool:
        """Was an operation on the disk refused, which the process may have outlived?"""
        return self._strike.struck is not None and self._strike.what not in ("power", "kill", *OF_MESSAGES)

    @property
    def of_messages(self) -> bool:
        return self._strike.what in OF_MESSAGES

    @property
    def pages(self) -> str:
        """What a failed sync made of the pages that it was to write."""
        return str(self._choice.get("pages", "dropped")) if self._strike.what == "fsync" else "kept"

    def before(self, operation: str, path: str) -> None:
        """An operation is about to happen: raises if it is not to. As Mount.before."""
        if self._over or self._has_loaded() or not self._strike.hits(operation, path):
            return
        self._over = True
        at = {"lost_at": self._node.now_ns()}
        if self._strike.what in ("power", "kill"):
            self._evidence = at | (self._node.lose_power() if self._strike.what == "power" else self._node.end())
            raise ProcessDied
        self._evidence = at | {"failed_operations": 1}
        if self.pages != "kept":
            self._node.disk.drop(path)
        full = self._strike.what == "short-write" and self._choice.get("error") == "ENOSPC"
        number = errno.ENOSPC if full else errno.EIO
        raise OSError(number, os.strerror(number), path)

    def sends(self, kind: str, name: str) -> str | None:
        """As network.connections.AtMessage."""
        if self._over or not self._strike.hits(kind, name):
            return None
        self._over = True
        self._evidence = {"struck_at": self._node.now_ns()}
        return self._strike.what

    async def wait(self, seconds: float) -> Evidence:
        """Until it has struck, or nothing is left to strike, but no longer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._over and not self._has_loaded() and loop.time() < until:
            await asyncio.sleep(POLL_S)
        self._over = True
        return {**self._evidence, **self._strike.evidence()}

    def _has_loaded(self) -> bool:
        """Has the process come so far that it counts no more?"""
        running = self._node.running
        return self._starting and (running is None or getattr(running, "loaded", False))  # a user's own may not tell
