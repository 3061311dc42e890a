"""Processes for work on proofs: searches have workers of their own (workers.py), this is for what comes after."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from harness.explore.workers import TO_ALL


@contextmanager
def processes(number: int) -> Iterator[ProcessPoolExecutor]:
    """Signals to all processes of a group are left to this one. Whatever is raised inside ends them at once."""
    pool = ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), initializer=_leave_signals)
    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _leave_signals() -> None:
    for number in TO_ALL:
        signal.signal(number, signal.SIG_IGN)
