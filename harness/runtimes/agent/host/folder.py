"""The folder of a run on this host, and what is noted in it.

Whoever undoes a run finds its folder by a mark in it: a data directory may be anybody's, and have folders of such names
that are none of ours.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_PREFIX: Final = "run-"
#: In each of them. made: folders that were not there before, the innermost first, the data directory among them.
_MARK: Final = "chaos-run.json"


def resolved(data_directory: str) -> Path:
    """As the kernel tells of what is mounted and open there: the hosts file may name a link."""
    return Path(os.path.realpath(data_directory))


def make(data_directory: Path, run: str, *, resumes: bool) -> Path:
    """resumes: it is there, as its last agent has left it. Raises OSError, also if there is one of that name."""
    folder = data_directory / f"{_PREFIX}{run}"
    if resumes and _made_with(folder) is not None:
        return folder
    made = [str(each) for each in (data_directory, *data_directory.parents) if not each.exists()]
    data_directory.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o711)
    try:
        note(folder / _MARK, {"made": made})
        _sync(data_directory)
    except OSError:
        _remove(folder, made)  # nobody would find it
        raise
    return folder


def all_of_ours(data_directory: Path) -> list[Path]:
    return sorted(path for path in data_directory.glob(f"{_PREFIX}*") if _made_with(path) is not None)


def remove(folder: Path) -> None:
    """With the data directory, if that was made for it and is empty. Raises OSError."""
    _remove(folder, _made_with(folder) or [])


def _remove(folder: Path, made: Sequence[str]) -> None:
    for entry in folder.iterdir():
        if entry.name == _MARK:
            continue  # the last of all: it is found again for as long as anything is there
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    (folder / _MARK).unlink(missing_ok=True)
    folder.rmdir()
    for each in made:
        with suppress(OSError):  # somebody else has put something there
            Path(each).rmdir()


def note(path: Path, noted: Any) -> None:
    """As JSON, durably, for a host may lose its power for good: what was noted before, or this, and nothing between."""
    keep(path, json.dumps(noted).encode())


def keep(path: Path, content: bytes) -> None:
    """See note()."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    _sync(path.parent)


def _made_with(folder: Path) -> list[str] | None:
    """None: it is none of ours."""
    try:
        if folder.is_symlink():
            return None
        return list(json.loads((folder / _MARK).read_text())["made"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
