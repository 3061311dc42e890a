"""A process that is not the agent's child, and that may die at any moment."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from contextlib import suppress

from . import kernel

_DEATH_TIMEOUT = 10.0  # seconds


class Process:
    """A process that is not our child, held by pidfd so that a reused pid is never struck."""

    def __init__(self) -> None:
        self.pid = 0
        self._descriptor = -1

    def watch(self, pid: int) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self.pid, self._descriptor = pid, -1
        with suppress(ProcessLookupError):  # it may have died at once
            if pid:
                self._descriptor = os.pidfd_open(pid)

    @property
    def alive(self) -> bool:
        return self._descriptor >= 0 and not self._exited(timeout=0)

    @property
    def stopped(self) -> bool:
        """By SIGSTOP."""
        return self.alive and kernel.is_stopped(self.pid)

    def kill(self) -> int:
        """SIGKILL, and wait until it is gone with everything it held. When it was, in ns; 0 if it was not running."""
        if not self.alive:
            return 0
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        with suppress(OSError):
            kernel.thaw(self.pid)
        if not self._exited(timeout=_DEATH_TIMEOUT):
            raise OSError(errno.ETIMEDOUT, f"process {self.pid} survived SIGKILL for {_DEATH_TIMEOUT:g} s")
        return time.monotonic_ns()

    def terminate(self, patience: float) -> bool | None:
        """SIGTERM. Does it end within so many seconds? None: there was nothing to end."""
        if not self.alive:
            return None
        self.signal(signal.SIGTERM)
        return self._exited(timeout=patience)

    def ended_within(self, seconds: float) -> bool:
        """Has it ended, or does it so soon?"""
        return self._descriptor < 0 or self._exited(timeout=seconds)

    def signal(self, number: int) -> None:
        """Nothing if it is gone."""
        if self._descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def _exited(self, timeout: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(timeout * 1000))
