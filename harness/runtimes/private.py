"""The folder of a run's secrets: of this user alone, outside of what is kept of the run, and gone when the run is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PREFIX: Final = "chaos-secrets-"


def make(run: str) -> Path:
    """A new one, empty. Raises OSError."""
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{run}."))  # with mode 0700


def runs() -> set[str]:
    """Those that have one on this machine, of this user."""
    return {run for run, _ in _all()}


def remove(run: str) -> list[str]:
    """All of that run that are this user's. Returns what was removed. Raises OSError."""
    removed = []
    for folder in [folder for of, folder in _all() if of == run]:
        shutil.rmtree(folder)
        removed.append(str(folder))
    return removed


def _all() -> Iterator[tuple[str, Path]]:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*.*"):
        if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
            yield folder.name.removeprefix(_PREFIX).rpartition(".")[0], folder
