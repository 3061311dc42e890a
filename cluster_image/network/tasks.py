"""Background tasks that a node cannot do without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

#: Called with what makes it impossible for a node to go on: a disk error, a defect. The process must end: nobody takes
#: the place of a node that lingers half alive.
Failed = Callable[[BaseException], None]


def start_task(work: Coroutine[Any, Any, None], failed: Failed) -> asyncio.Task[None]:
    """Run `work`, which ends only by being cancelled; anything else is reported to `failed`."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            failed(task.exception() or RuntimeError("a background task has ended"))

    task = asyncio.create_task(work)
    task.add_done_callback(ended)
    return task
