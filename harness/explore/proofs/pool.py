"""Processes for work on proofs: searches have workers of their own (workers.py), this is for what comes after."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from harness.explore.workers import TO_ALL, undisturbed

T = TypeVar("T")
U = TypeVar("U")

#: prctl(2): which signal this process gets when its parent dies.
_PR_SET_PDEATHSIG: Final = 1


@contextmanager
def processes(number: int) -> Iterator[ProcessPoolExecutor]:
    """Signals to all processes of a group are left to this one. Whatever is raised inside ends them at once."""
    pool = ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), leave_signals_to, (os.getpid(),))
    with undisturbed():
        pool.submit(int)  # which starts them all
    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()
        pool.shutdown()  # what was still to be done fails for want of processes: to cancel it as well is a race
        raise
    pool.shutdown()


def in_order(pool: ProcessPoolExecutor, function: Callable[[T], U], of: Iterable[T]) -> Iterator[U]:
    """As pool.map, which cancels what is left when its iterator goes; that the pool then fails what was cancelled ends
    in a traceback."""
    for future in [pool.submit(function, each) for each in of]:
        yield future.result()


def leave_signals_to(parent: int) -> None:
    """Of a worker: they are for that process, whose end is this one's, however it comes."""
    for number in TO_ALL:
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before
        os._exit(1)
