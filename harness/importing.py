"""What Ctrl-C does while modules are imported."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Within it, an interrupt says so and ends the process at once, for nothing is begun that is to be cleaned.

    A KeyboardInterrupt would not do: code in C that modules call while they are imported (pydantic's) may drop it, and
    the command would go on as if nobody had asked it to stop.
    """
    # Whoever has a handler of their own keeps it, and so does whoever ignores interrupts.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os.write(2, b"chaos: stopped\n")
    os._exit(255)
