"""Writes what nodes tell when they are asked, again and again, into the run's directory: as traces, for nodes that
leave none of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

from harness.targets.target import TRACE_SUFFIX, Watch

_EVERY_S: Final = 0.5


class Watching:
    """watch: None: nothing is done. now_ns: the time line of the history."""

    def __init__(self, watch: Watch | None, folder: Path, now_ns: Callable[[], int]) -> None:
        self._watch = watch
        self._folder = folder
        self._now_ns = now_ns
        self._files: dict[str, TextIO] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def goes_on(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        if self._watch is not None and self._task is None:
            self._folder.mkdir(exist_ok=True)
            self._task = asyncio.create_task(self._go_on(self._watch))

    async def stop(self) -> None:
        """After a last look: what is told then is in what lies on the disks afterwards. Raises what had ended the
        watch before its time: what nodes told since then is not known."""
        assert self._task is not None and self._watch is not None
        task, self._task = self._task, None
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        try:
            if isinstance(ended, Exception):
                raise ended
            await self._look(self._watch)
        finally:
            for file in self._files.values():
                file.close()

    async def _go_on(self, watch: Watch) -> None:
        while True:
            await self._look(watch)
            await asyncio.sleep(_EVERY_S)

    async def _look(self, watch: Watch) -> None:
        for told in await watch.ask():
            line = {"time": self._now_ns(), "node": 0, "event": told.event, "where": told.where,
                    "fields": dict(told.fields)}  # fmt: skip
            self._file_of(told.node).write(json.dumps(line, separators=(",", ":")) + "\n")
        for file in self._files.values():
            file.flush()

    def _file_of(self, node: str) -> TextIO:
        if node not in self._files:
            self._files[node] = (self._folder / f"{node}{TRACE_SUFFIX}").open("a")
        return self._files[node]
