"""What the commands that search for bugs and mutants have in common: files that go on, and an end at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.report.terminal import say
from harness.run.interrupt import SIGNALS
from spark_history.regular import replacing


def read_json(directory: Path, name: str, writer: str) -> Any:
    """Of an earlier one, to go on with. Raises BadArguments."""
    file = directory / name
    try:
        return json.loads(file.read_text())
    except OSError as error:
        raise BadArguments(f"--resume: {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise not_written(directory, name, writer) from error


def not_written(directory: Path, name: str, writer: str) -> BadArguments:
    return BadArguments(f"--resume: {directory / name} is not what {writer} writes")


def same_options(directory: Path, told: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """told: what the earlier one was asked. Figures of several are not to be read as those of one. Raises
    BadArguments."""
    for name, value in asked.items():
        if name in told and told[name] != value:
            raise BadArguments(f"--resume: {directory} was made with {name} {told[name]}, not {value}")


def check_to_be_written(option: str, path: Path | None) -> None:
    """Before hours of work. Raises BadArguments."""
    if path is None:
        return
    if path.is_dir():
        raise BadArguments(f"{option} {path} is a directory")
    if not path.parent.is_dir():
        raise BadArguments(f"{option} {path}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadArguments(f"{option} {path} cannot be written")


def write(path: Path, text: str) -> None:
    """Raises HarnessFailure."""
    try:
        with replacing(path) as new:  # a signal may come at any moment
            new.write_text(text)
    except OSError as error:
        raise HarnessFailure(f"{path} cannot be written: {error.strerror}") from error


def when() -> str:
    """The day, and the code by which this was measured: its commit, or without one what its checkers are known by."""
    from checkers.verdict.keeping import checkers_version
    from harness.record.results import utc_now

    return f"{str(utc_now())[:10]}, {_commit() or 'checkers ' + checkers_version()['source']}"


@cache  # the modules stay those that were loaded
def _commit() -> str | None:
    """Of the working tree that this module is in. None: it is in none."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():  # it is installed; what is above may be a tree of another project
        return None
    git = ("git", "-C", str(root))
    try:
        commit, changed = (
            subprocess.run((*git, *words), capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"commit {commit}{' with changes' if changed else ''}"


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """The first of them is a KeyboardInterrupt; what ends the workers then is not interrupted in its turn."""

    def signalled(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, signalled) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopped(directory: Path) -> int:
    """Says how to go on. The exit code."""
    say(f"stopped; what is complete is kept: the same command goes on with --resume {directory}")
    return ExitCode.UNKNOWN
