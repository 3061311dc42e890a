"""Where Kafkas are kept that were fetched or unpacked: a folder each, below the user's cache folder, with checksums.

What is being fetched lies beside it, in a folder of its process, and gets its name when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from harness.errors import RuntimeUnavailable

_LIBS: Final = "libs"
_MANIFEST: Final = "manifest.json"
_UNFINISHED: Final = ".unfinished-"


def folder() -> Path:
    """$CHAOS_CACHE, or `chaos` in the user's cache folder (XDG Base Directory Specification)."""
    if given := os.environ.get("CHAOS_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chaos"


def place_of(name: str) -> Path:
    """name: kafka-4.2.0, or for what was unpacked kafka-<checksum>."""
    return folder() / name


def libs_of(name: str) -> Path | None:
    """Its jars, each as it was when it was put there. None: there is no such Kafka, or it is damaged."""
    place = place_of(name)
    try:
        files: dict[str, str] = json.loads((place / _MANIFEST).read_text())["files"]
        there = {path.name for path in (place / _LIBS).iterdir()}
        sound = there == files.keys() and all(_sum(place / _LIBS / each) == files[each] for each in files)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return place / _LIBS if sound else None


def kept() -> list[str]:
    """Names of all that there are."""
    return sorted(path.parent.name for path in folder().glob(f"kafka-*/{_MANIFEST}"))


@contextmanager
def being_filled(name: str, facts: dict[str, Any]) -> Iterator[Path]:
    """A folder for the jars of a new one, which takes its name at the end unless there is an error. Raises
    RuntimeUnavailable if it cannot be written."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        _remove_dead()
        unfinished = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{os.getpid()}-", dir=folder()))
    except OSError as error:
        raise RuntimeUnavailable(
            f"{folder()}, where Kafka is kept, cannot be written ({error.strerror}); set CHAOS_CACHE to another folder."
        ) from error
    try:
        libs = unfinished / _LIBS
        libs.mkdir()
        yield libs
        files = {path.name: _sum(path) for path in sorted(libs.iterdir())}
        (unfinished / _MANIFEST).write_text(json.dumps({**facts, "files": files}, indent=2) + "\n")
        if libs_of(name) is not None:  # somebody was faster, and may be using it
            return
        place = place_of(name)
        if place.exists():
            shutil.rmtree(place)
        unfinished.chmod(0o755)
        unfinished.rename(place)
    except OSError as error:
        raise RuntimeUnavailable(f"Kafka could not be put into {folder()}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _remove_dead() -> None:
    """What processes that are no more had begun."""
    for unfinished in folder().glob(f"{_UNFINISHED}*"):
        process = unfinished.name.removeprefix(_UNFINISHED).partition("-")[0]
        if not Path("/proc", process).exists():
            shutil.rmtree(unfinished, ignore_errors=True)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
