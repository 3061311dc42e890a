"""Which of a results directory's entries are to go, and their removal.

An entry is what lies in the results directory itself: a run, or an exploration, a suite or a matrix with all its runs.
What is none of these is never looked at.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import describe
from harness.record.catalog.facts import NOT_JUDGED, RUNNING, Facts, of_run
from harness.record.catalog.filters import Filter
from harness.record.catalog.groups import FILES, RUNS
from harness.record.catalog.index import Index

#: A group that nothing was written to for so long, in seconds, has ended, whatever its file says.
_SETTLED_S: Final = 3600.0


@dataclass(frozen=True)
class Wish:
    """keep: how many of the newest stay. keep_failed: whether those that failed stay, too. with_notes: whether those go
    that somebody left a note at."""

    keep: int
    keep_failed: bool = False
    with_notes: bool = False


@dataclass(frozen=True)
class Going:
    """size: bytes on disk."""

    entry: Facts
    directory: Path
    size: int


@dataclass(frozen=True)
class Outlook:
    """going: the oldest first. kept: how many stay, by why."""

    going: Sequence[Going]
    kept: dict[str, int]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.going)


def consider(index: Index, wish: Wish) -> Outlook:
    """index: refreshed just now."""
    going: list[Going] = []
    kept: dict[str, int] = {}
    for number, entry in enumerate(_top(index)):
        why = _why_kept(index, entry, number, wish)
        if why:
            kept[why] = kept.get(why, 0) + 1
        else:
            directory = index.results / entry.path
            going.append(Going(entry, directory, _size(directory)))
    return Outlook(going[::-1], kept)


def remove(index: Index, outlook: Outlook) -> Iterator[str]:
    """One after the other; a sentence for each that could not be removed. What has begun to run since is left alone."""
    for each in outlook.going:
        if each.entry.kind == "run":  # of which there may be many: only this one is looked at again
            entry: Facts | None = of_run(each.directory, each.entry.path, index.alive)
        else:
            index.refresh()
            entry = index.get(each.entry.path)
        if entry is None or not each.directory.is_dir() or _goes_on(index, entry):
            continue
        try:
            shutil.rmtree(each.directory)
        except OSError as error:
            yield f"{each.directory} could not be removed: {describe(error)}"


def _top(index: Index) -> list[Facts]:
    return [entry for entry in index.find(Filter())[0] if not entry.parent]


def _why_kept(index: Index, entry: Facts, number: int, wish: Wish) -> str:
    if number < wish.keep:
        return "the newest"
    if _goes_on(index, entry):
        return "still running"
    inside = [entry] if entry.kind == "run" else [entry, *index.find(Filter(parent=entry.path))[0]]
    # A control within a suite fails, and the suite has passed.
    judged = [entry] if entry.verdict != NOT_JUDGED else inside
    if wish.keep_failed and any(each.verdict == "fail" for each in judged):
        return "failed"
    if not wish.with_notes and any(each.note for each in inside):
        return "with a note"
    return ""


def _goes_on(index: Index, entry: Facts) -> bool:
    if entry.verdict == RUNNING:
        return True
    if entry.kind == "run":
        return False
    # Between two of its runs nothing of a group is running, and an exploration says nothing before its end.
    unfinished = entry.duration_s is None and time.time() - _changed_at(index.results / entry.path) < _SETTLED_S
    return unfinished or any(each.live for each in index.find(Filter(parent=entry.path))[0])


def _changed_at(directory: Path) -> float:
    """Of a group, seconds since 1970."""
    times = [0.0]
    for path in (directory, directory / RUNS, directory / "dataset", *(directory / name for name in FILES.values())):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


def _size(directory: Path) -> int:
    """What `du` counts; no link is followed."""
    total = 0
    for path, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except OSError:
                continue
    return total
