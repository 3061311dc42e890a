"""Starts `chaos` in a process of its own that ends early if this one dies, and says what it ended with."""

from __future__ import annotations

import os
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
        done = subprocess.run(
            command(*map(str, arguments)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, check=False
        )
    return done.returncode, done.stdout.decode(errors="replace")


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
