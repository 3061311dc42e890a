"""Ctrl-C: the first asks the run to end, the second stops it at once, later ones wait for the tear-down."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from harness.errors import Stopped

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """What the user asked for so far. `say` tells them what their signal brought about."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._task: asyncio.Task[Any] | None = None
        self._tearing_down = False
        self.asked = asyncio.Event()  # end early, and judge what there is
        self.insisted = False  # stop at once
        self.signal = ""  # that asked, e.g. SIGTERM

    def watch(self) -> None:
        """From now on, signals are for the current task."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.signalled, signal.Signals(number).name)

    def signalled(self, name: str = "SIGINT") -> None:
        if self._tearing_down:
            self._say("removing the cluster, this takes a moment")
        elif not self.asked.is_set():
            self.signal = name
            self._say("ending early: healing, then judging what there is; once more to stop at once")
            self.asked.set()
        elif not self.insisted and self._task is not None:
            self._say("stopping at once")
            self.insisted = True
            self._task.cancel()

    def begin_tear_down(self) -> None:
        """From here on the task must not be cancelled any more."""
        self._tearing_down = True

    async def cut_short(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, but raise Stopped once asked: for what comes before there is anything to judge."""
        task = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self.asked.wait())
        try:
            await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.begin_tear_down()  # whoever is starting something now takes it down again
                raise Stopped("stopped before the workload began: there is nothing to judge")
            return task.result()
        finally:
            for each in (task, asked):
                each.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)
