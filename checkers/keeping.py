"""Verdicts are kept: judging an old run again with newer checkers does not throw away what older ones said.

    results/<run>/verdict.json                                 the newest
    results/<run>/verdicts/<number>-<checkers>-<time>.json     earlier ones, as they were, numbered from 0001

verdict.json says by whom it was made: `checked_at` (UTC), `checkers` {version: of the distribution, source: the start
of the SHA-256 of the source of checkers/ and spark_history/, so that nobody has to remember to count up}, and
`history`, the digest of what was judged. Its `earlier` lists the others, oldest first: {file, verdict, reason,
checked_at, checkers}. The same checkers on the same history replace their own verdict.

A process that dies in between loses nothing: the old verdict is copied, and on disk, before the new one takes its
place; a copy that was already made is found by its content.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import spark_history

FOLDER: Final = "verdicts"
_STAMPS: Final = ("checked_at", "checkers", "history", "earlier")
_KEPT: Final = re.compile(r"(\d{4,})-.*\.json")
_SOURCES: Final = (Path(__file__).parent, Path(str(spark_history.__file__)).parent)


@cache
def checkers_version() -> dict[str, str]:
    """Of the checkers that run here."""
    digest = hashlib.sha256()
    for root in _SOURCES:
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{root.name}/{path.relative_to(root)}".encode() + b"\0" + path.read_bytes())
    try:
        version = metadata.version("chaos")
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        version = "0"
    return {"version": version, "source": digest.hexdigest()[:12]}


def digest_of(run_directory: Path) -> str:
    """Of what there is to be judged: the plan, and names and sizes of the journal, or else of the history."""
    digest = hashlib.sha256()
    for name in ("plan.json", "violation.json", "journal", "history/manifest.json"):
        path = run_directory / name
        if path.is_dir():
            for part in sorted(path.glob("[!.]*")):
                digest.update(f"{part.name} {part.stat().st_size}\0".encode())
        elif path.is_file() and not (name.startswith("history") and (run_directory / "journal").is_dir()):
            digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def keep(run_directory: Path, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Write a verdict as verdict.json, its predecessor being kept; returns what was written. Raises OSError."""
    path, folder = run_directory / "verdict.json", run_directory / FOLDER
    stamps = {
        "checked_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "checkers": checkers_version(),
        "history": digest_of(run_directory),
    }
    try:
        old = path.read_bytes()
    except FileNotFoundError:
        old = None
    if old is not None and not _is_mine(old, stamps):
        _put_aside(folder, path, old)
    result = {**verdict, **stamps, "earlier": _earlier(folder)}
    _write(path, (json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode())
    return result


def without_stamps(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What the checkers said, but not who they were and when."""
    return {key: value for key, value in verdict.items() if key not in _STAMPS}


def change(verdict: Mapping[str, Any]) -> str | None:
    """A sentence if the verdict is not what the checkers before said; None: it is, or there was none."""
    earlier = verdict.get("earlier")
    if not isinstance(earlier, list) or not earlier or not isinstance(earlier[-1], Mapping):
        return None
    before = earlier[-1]
    if before.get("verdict") == verdict.get("verdict"):
        return None
    return (
        f"was {before.get('verdict') or 'unreadable'} by {_name(before.get('checkers'))}"
        f"{_on(before.get('checked_at'))}; now {verdict.get('verdict')} by {_name(verdict.get('checkers'))}"
    )


def _name(checkers: Any) -> str:
    if not isinstance(checkers, Mapping):
        return "checkers of unknown version"
    return f"checkers {checkers.get('version')} ({checkers.get('source')})"


def _on(time: Any) -> str:
    return f" on {time[:10]}" if isinstance(time, str) else ""


def _parse(content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _is_mine(old: bytes, stamps: Mapping[str, Any]) -> bool:
    fields = _parse(old)
    return all(fields.get(key) == stamps[key] for key in ("checkers", "history"))


def _put_aside(folder: Path, path: Path, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    kept = {int(match[1]): each for each in folder.iterdir() if (match := _KEPT.fullmatch(each.name))}
    if any(each.stat().st_size == len(content) and each.read_bytes() == content for each in kept.values()):
        return
    fields = _parse(content)
    by = fields.get("checkers")
    version = f"{by.get('version')}+{by.get('source')}" if isinstance(by, dict) else "unknown"
    when = fields.get("checked_at") or datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    name = re.sub(r"[^A-Za-z0-9+.-]", "", f"{version}-{when}")[:80]
    _write(folder / f"{max(kept, default=0) + 1:04}-{name}.json", content)


def _earlier(folder: Path) -> list[dict[str, Any]]:
    entries = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        if _KEPT.fullmatch(path.name):
            fields = _parse(path.read_bytes())
            told = {key: fields.get(key) for key in ("verdict", "reason", "checked_at", "checkers")}
            entries.append({"file": f"{FOLDER}/{path.name}", **told})
    return entries


def _write(path: Path, content: bytes) -> None:
    """Whole and on disk, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
