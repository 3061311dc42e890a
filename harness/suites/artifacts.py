"""What of a suite's runs is kept for whoever looks into them: evidence is large, and CI keeps it for weeks.

A run's verdict, report, plan and schedule are always kept. Its evidence (history, disks, logs, traces) goes if it was
asked for by `--artifacts`, or once all runs together are larger than allowed: of runs that passed first, the oldest
before the others.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.suites.results import Ran

Which = Literal["all", "failed", "none"]
#: What stays of a run whose evidence is removed, and the file that says that it was.
_KEPT: Final = frozenset({"plan.json", "plan.toml", "schedule.toml", "run.json", "verdict.json", "violation.json",
                          "report.html", "note.txt"})  # fmt: skip
_NOTE: Final = "evidence-removed.txt"
_UNITS: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


@dataclass(frozen=True)
class Keep:
    """which: of the runs whose evidence is kept; failed: also of those that could not be judged. limit: bytes of all
    runs together; None: no matter."""

    which: Which = "all"
    limit: int | None = None


def tidy(directory: Path, ran: Iterable[Ran], keep: Keep) -> None:
    """directory: of the suite. Removes what is not to be kept of the runs that have ended."""
    ended = [each for each in ran if each.directory]
    for each in ended:
        if keep.which == "none" or (keep.which == "failed" and each.outcome == "passed"):
            _remove(directory / each.directory, f"--artifacts {keep.which}")
    if keep.limit is None:
        return
    sizes = {each: size_of(directory / each.directory) for each in ended}
    for each in sorted(ended, key=lambda each: each.outcome != "passed"):
        if sum(sizes.values()) <= keep.limit:
            return
        _remove(directory / each.directory, "--artifacts-limit")
        sizes[each] = size_of(directory / each.directory)


def _remove(run: Path, asked: str) -> None:
    doomed = [path for path in run.iterdir() if path.name not in {*_KEPT, _NOTE}]
    for path in doomed:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if doomed:
        (run / _NOTE).write_text(
            f"History, disks, logs and traces of this run were removed, as {asked} of chaos suite asks: it cannot be "
            "judged again. Its plan repeats it: chaos run --plan plan.toml\n"
        )


def size_of(directory: Path) -> int:
    """Bytes of all files in it."""
    return sum(path.lstat().st_size for path in _files(directory))


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def parse_size(text: str) -> int:
    """`500MB`, `2GiB` or bytes. Raises ValueError."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is no size; valid are bytes, or a number with a unit, e.g. 500MB or 2GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])
