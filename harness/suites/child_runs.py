"""Starts `chaos` in a process of its own that ends early if this one dies, and says what it ended with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit


def command(*arguments: str) -> list[str]:
    """The command line of such a process."""
    return [sys.executable, "-m", "harness.suites.child", str(os.getpid()), *arguments]


def run(arguments: Sequence[object], log: Path) -> tuple[int, str]:
    """Waits for it. Returns its exit code, below 0 the number of the signal that ended it, and its standard output.
    log: gets what it says meanwhile, on standard error."""
    with log.open("wb") as said:
        # A session of its own: Ctrl-C in a terminal reaches it from here, once, and it is waited for, as it has a
        # cluster to remove.
        process = subprocess.Popen(
            command(*map(str, arguments)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
    return process.returncode, output.decode(errors="replace")


def plan_toml(fields: Mapping[str, Any]) -> str:
    """fields: of a Plan, as plan_file reads them. Tables last, as TOML wants them."""
    plain = {
        name: ",".join(value) or "none" if name == "nemesis" else list(value) if isinstance(value, tuple) else value
        for name, value in fields.items()
    }
    tables = {name: value for name, value in plain.items() if isinstance(value, Mapping)}
    return tomlkit.dumps({name: value for name, value in plain.items() if name not in tables} | tables)


def last_words(log: Path) -> str:
    """The sentence with which `chaos` ends where it fails; "": there is none."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line.removeprefix("chaos: ") for line in reversed(lines) if line.startswith("chaos: ")), "")
