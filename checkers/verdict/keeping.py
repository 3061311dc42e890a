"""Verdicts are kept: judging a run again, with newer checkers or other options, does not throw away what was said.

    results/<run>/verdict.json                                 the newest
    results/<run>/verdicts/<number>-<checkers>-<time>.json     earlier ones, as they were, numbered from 0001

verdict.json says by whom it was made: `checked_at` (UTC), `checkers` {version: of the distribution, source: the start
of the SHA-256 of the source of checkers/ and spark_history/, so that nobody has to remember to count up}, `asked`, the
entries of the plan that `chaos check` was told to judge by instead of the run's own, and `history`, the digest of all
that was judged. Its `earlier` lists the others, oldest first: {file, verdict, reason, checked_at, checkers, asked}.
Only the very same verdict takes the place of another: same checkers, same history, same options, same findings.

A process that dies in between loses nothing: the old verdict is copied, and on disk, before the new one takes its
place; a copy that was already made is found by its content.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import spark_history
from spark_history.errors import HistoryError
from spark_history.regular import NotRegular, open_regular, read_object, replacing

FOLDER: Final = "verdicts"
_STAMPS: Final = ("checked_at", "checkers", "asked", "history", "earlier")
_KEPT: Final = re.compile(r"(\d{4,})-.*\.json")
_SOURCES: Final = (Path(__file__).parent.parent, Path(str(spark_history.__file__)).parent)


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


def digest_of(run_directory: Path, asked: Mapping[str, Any] | None = None) -> str:
    """Of what there is to be judged, and of what was asked otherwise than planned: the plan, and the journal, or else
    the history, by the names and sizes of their files and the checksums on record (see spark_history/damage.py)."""
    digest = hashlib.sha256()
    for path in (run_directory / "plan.json", run_directory / "violation.json", *_contents(run_directory)):
        if path.suffix == ".json" and path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        elif path.is_file():
            digest.update(f"{path.relative_to(run_directory)} {path.stat().st_size}\0".encode())
    if asked:
        digest.update(b"asked\0" + json.dumps(dict(asked), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _contents(run_directory: Path) -> Iterator[Path]:
    """The files that are judged, and those with their checksums."""
    if (run_directory / "journal").is_dir():
        yield from sorted((run_directory / "journal").glob("[!.]*"))
    else:
        yield run_directory / "history" / "manifest.json"
        for table in sorted((run_directory / "history").glob("[!.]*/")):
            if table.name != "candidates":  # what checkers leave there for a while
                yield from sorted(table.rglob("[!.]*.parquet"))


def keep(run_directory: Path, verdict: Mapping[str, Any], asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write a verdict as verdict.json, its predecessor being kept; returns what was written. asked: entries of the plan
    that were to be judged by instead of plan.json's; those that are the same there do not count. Raises HistoryError
    if something that is no file is in its place, or OSError."""
    path, folder = run_directory / "verdict.json", run_directory / FOLDER
    asked = _otherwise(run_directory, asked or {})
    result = {
        **verdict,
        "checked_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "checkers": checkers_version(),
        "asked": asked,
        "history": digest_of(run_directory, asked),
    }
    try:
        with open_regular(path) as file:
            old = file.read()
    except FileNotFoundError:
        old = None
    except NotRegular as error:
        raise HistoryError(f"{path} is where the verdict goes, and {error}: move it away") from None
    if old is not None and not _is_same(old, result):
        _put_aside(folder, path, old)
    result["earlier"] = _earlier(folder)
    _write(path, (json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode())
    return result


def _otherwise(run_directory: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plan = read_object(run_directory / "plan.json")
    except (OSError, ValueError):
        plan = {}
    return {key: value for key, value in sorted(asked.items()) if key not in plan or plan[key] != value}


def without_stamps(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What the checkers said, but not who they were and when."""
    return {key: value for key, value in verdict.items() if key not in _STAMPS}


def change(verdict: Mapping[str, Any]) -> str | None:
    """A sentence if the verdict is not what was said before; None: it is, or nothing was."""
    earlier = verdict.get("earlier")
    if not isinstance(earlier, list) or not earlier or not isinstance(earlier[-1], Mapping):
        return None
    before = earlier[-1]
    if before.get("verdict") == verdict.get("verdict"):
        return None
    return (
        f"was {before.get('verdict') or 'unreadable'} by {by(before)}{_on(before.get('checked_at'))}; "
        f"now {verdict.get('verdict')} by {by(verdict)}"
    )


def by(verdict: Mapping[str, Any]) -> str:
    """By which checkers a verdict, or an entry of `earlier`, was made, and with which options."""
    checkers, asked = verdict.get("checkers"), verdict.get("asked")
    if not isinstance(checkers, Mapping):
        return "checkers of unknown version"
    name = f"checkers {checkers.get('version')} ({checkers.get('source')})"
    if not isinstance(asked, Mapping) or not asked:
        return name
    options = (f"{key} {value if isinstance(value, str) else json.dumps(value)}" for key, value in asked.items())
    return f"{name} asked for {', '.join(options)}"


def _on(time: Any) -> str:
    return f" on {time[:10]}" if isinstance(time, str) else ""


def _parse(content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _is_same(old: bytes, new: Mapping[str, Any]) -> bool:
    """Do both say the same of the same, but for the time?"""
    before, now = (
        {key: value for key, value in fields.items() if key not in ("checked_at", "earlier")}
        for fields in (_parse(old), json.loads(json.dumps(new)))
    )
    return bool(before == now)


def _put_aside(folder: Path, path: Path, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    kept = {int(match[1]): each for each in folder.iterdir() if (match := _KEPT.fullmatch(each.name))}
    if any(_holds(each, content) for each in kept.values()):
        return
    fields = _parse(content)
    of = fields.get("checkers")
    version = f"{of.get('version')}+{of.get('source')}" if isinstance(of, dict) else "unknown"
    when = fields.get("checked_at") or datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    name = re.sub(r"[^A-Za-z0-9+.-]", "", f"{version}-{when}")[:80]
    _write(folder / f"{max(kept, default=0) + 1:04}-{name}.json", content)


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def _earlier(folder: Path) -> list[dict[str, Any]]:
    entries = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        if _KEPT.fullmatch(path.name):
            fields = _parse(path.read_bytes()) if path.is_file() else {}
            reported = {key: fields.get(key) for key in ("verdict", "reason", "checked_at", "checkers", "asked")}
            entries.append({"file": f"{FOLDER}/{path.name}", **reported})
    return entries


def _write(path: Path, content: bytes) -> None:
    """Whole and on disk, or not at all."""
    with replacing(path, sync=True) as temporary:
        temporary.write_bytes(content)
