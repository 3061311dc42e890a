"""What can go wrong around a run, by exit code. Every message is one sentence that a person can act on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from enum import IntEnum


class ExitCode(IntEnum):
    """Jepsen's exit codes, for every command."""

    PASS = 0
    FAIL = 1
    UNKNOWN = 2
    BAD_ARGUMENTS = 254
    HARNESS_FAILURE = 255


class BadArguments(Exception):
    """What was asked for does not exist or makes no sense. The message names it and says what is valid."""


class HarnessFailure(Exception):
    """The machine or the harness could not do its part. Says nothing about the cluster under test."""


class HistoryLost(HarnessFailure):
    """What is recorded from now on cannot be written: the volume is full, say. What was written can be judged."""


class Stopped(HarnessFailure):
    """The user asked a second time to stop, and the run ended where it stood."""


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """` (did you mean kill?)`, or nothing where no valid word is like it."""
    like = get_close_matches(word.lower(), list(valid), n=1)
    return f" (did you mean {like[0]}?)" if like else ""


def describe(error: BaseException) -> str:
    """The error in one line; one that is neither the harness' own nor the operating system's also says its type."""
    text = " ".join(str(error).split())
    if isinstance(error, BadArguments | HarnessFailure):
        return text
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    # Docker's client puts the address of a request and its status before what the engine has to say.
    explanation = getattr(error, "explanation", None)
    if isinstance(explanation, str) and explanation:
        return f"Docker says: {' '.join(explanation.split())}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class RuntimeUnavailable(Exception):
    """The machine cannot do this (no Docker, no permission, no loop devices …). The message is one sentence that
    says what is missing and what to do; the command line exits 255 with it."""


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
    os._exit(ExitCode.HARNESS_FAILURE)
