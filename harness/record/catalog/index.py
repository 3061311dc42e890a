"""An index of a results directory, in SQLite: which runs there are, and what is worth knowing of each.

It is a cache. `<results>/.index.sqlite` holds it; where that cannot be written, a file below XDG_CACHE_HOME, or memory.
One that is damaged, or of another version, is made anew. `refresh` looks at every directory, and reads those whose
files have changed since; a run that goes on is read again each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from harness.errors import BadArguments
from harness.record.catalog import groups
from harness.record.catalog.facts import NOT_JUDGED, RUNNING, Alive, Facts, of_run
from harness.record.catalog.filters import Filter
from harness.record.catalog.groups import FILES, RUNS, Member
from harness.record.catalog.notes import NOTE_FILE

INDEX_FILE: Final = ".index.sqlite"
#: Of the tables below; an index of another one is made anew.
_VERSION: Final = 1
_AT_A_TIME: Final = 500  # entries a transaction
_WAIT_S: Final = 10.0  # for another process that writes
#: What changes when something becomes of a run, and what tells a run from another directory.
_WATCHED: Final = ("run.json", "verdict.json", "report.html", NOTE_FILE)
_MARKS: Final = ("plan.json", "run.json", "verdict.json", "journal", "history")
_COLUMNS: Final = tuple(each.name for each in fields(Facts))
_TABLES: Final = f"""
CREATE TABLE entry (
    path TEXT PRIMARY KEY, kind TEXT, parent TEXT, verdict TEXT, reason TEXT, nemeses TEXT, workload TEXT, target TEXT,
    runs_on TEXT, seed INTEGER, settings TEXT, started_at REAL, duration_s REAL, operations INTEGER,
    acknowledged INTEGER, lost INTEGER, throughput REAL, p50_ms REAL, p99_ms REAL, recovery_ms REAL,
    unavailable_ms REAL, suite TEXT, plan_name TEXT, note TEXT, command TEXT, report TEXT, live INTEGER,
    words TEXT, signature TEXT
);
CREATE INDEX entry_newest ON entry (started_at DESC, path DESC);
CREATE INDEX entry_parent ON entry (parent);
CREATE TABLE nemesis (path TEXT, name TEXT);
CREATE INDEX nemesis_path ON nemesis (path);
CREATE INDEX nemesis_name ON nemesis (name, path);
CREATE TABLE setting (path TEXT, name TEXT, value TEXT);
CREATE INDEX setting_path ON setting (path);
CREATE INDEX setting_name ON setting (name, value, path);
CREATE TABLE member (
    suite_path TEXT, number INTEGER, name TEXT, seed INTEGER, expect TEXT, outcome TEXT, verdict TEXT, reason TEXT,
    path TEXT, took_s REAL
);
CREATE INDEX member_suite ON member (suite_path);
PRAGMA user_version = {_VERSION};
"""
_PARTS: Final = (("nemesis", "path"), ("setting", "path"), ("member", "suite_path"))


@dataclass(frozen=True)
class _Place:
    """Where something lies that may be an entry."""

    path: str
    directory: str
    kind: str
    parent: str = ""
    suite: str = ""
    plan_name: str = ""


class Index:
    """All methods may be called from any thread. Raises BadArguments where there is no such directory."""

    def __init__(self, results: Path, alive: Alive, only: str = "") -> None:
        """only: one entry, with what is in it; such an index is in memory. "": all."""
        if not results.is_dir():
            raise BadArguments(f"{results} is no directory; `chaos run` makes one, and --results names another")
        self.results = results
        self.revision = 0  # counts the changes that were seen
        self.alive = alive
        self._lock = threading.RLock()  # of the database
        self._refreshing = threading.Lock()
        self._only = only
        self._closed = False
        self.where, self._database = _anew(None) if only else _open(results)

    def close(self) -> None:
        """Ends a refresh that goes on, too. Nothing can be found any more then."""
        self._closed = True
        with self._refreshing, self._lock:
            self._database.close()

    def refresh(self, tell: Callable[[int, int], object] = lambda done, total: None) -> int:
        """How many entries were read anew, or are gone. tell: called now and then with how many of those to be read
        have been."""
        with self._refreshing:
            if self._closed:
                return 0
            try:
                return self._refresh(tell)
            except sqlite3.OperationalError as error:
                if "locked" in str(error):  # another process is at it, and will see the same
                    return 0
                where = None  # there is no room, say
            except sqlite3.DatabaseError:  # damaged while it is in use
                where = self.where
            with self._lock:
                self._database.close()
                self.where, self._database = _anew(where)
            return self._refresh(tell)

    def _refresh(self, tell: Callable[[int, int], object]) -> int:
        """Others may search while the directories are looked at."""
        rows = self._all("SELECT path, kind, signature, live FROM entry", ())
        known = {path: (kind, signature, live) for path, kind, signature, live in rows}
        seen: set[str] = set()
        stale: list[tuple[_Place, str]] = []
        for place in self._places(known):
            signature = _signature(place)
            seen.add(place.path)
            before = known.get(place.path)
            if before is None or before[0] != place.kind or before[1] != signature or before[2]:
                stale.append((place, signature))
        gone = known.keys() - seen
        for start in range(0, len(stale), _AT_A_TIME):
            if self._closed:
                break
            with self._lock, self._database:
                for place, signature in stale[start : start + _AT_A_TIME]:
                    self._put(place, signature)
            tell(min(start + _AT_A_TIME, len(stale)), len(stale))
        if not stale and not gone:
            return 0
        with self._lock, self._database:
            for path in gone:
                self._remove(path)
            # A group goes on while one of its runs does, and is looked at again until it has ended.
            self._database.execute(
                "UPDATE entry SET verdict = ?, live = 1 WHERE kind <> 'run' AND verdict = ? AND path IN "
                "(SELECT parent FROM entry WHERE live)", (RUNNING, NOT_JUDGED),
            )  # fmt: skip
        self.revision += 1
        return len(stale) + len(gone)

    def _places(self, known: Mapping[str, tuple[Any, ...]]) -> Iterator[_Place]:
        for path, directory in _directories(str(self.results)):
            if self._only and path != self._only:
                continue
            kind = _kind(directory, known[path][0] if path in known else "")
            if kind:
                yield _Place(path, directory, kind)
            if kind and kind != "run":
                yield from self._within(Path(directory), path, kind)

    def _within(self, group: Path, path: str, kind: str) -> Iterator[_Place]:
        suite, names = "", {}
        if kind == "suite":
            found = groups.read_group(group, kind)
            suite = groups.suite_name(found)
            names = {each.path: each.name for each in groups.members(found, path)}
        for name, directory in _directories(str(group / RUNS)):
            below = f"{path}/{RUNS}/{name}"
            if _kind(directory, "") == "run":
                yield _Place(below, directory, "run", path, suite, names.get(below, ""))

    def _put(self, place: _Place, signature: str) -> None:
        members: Sequence[Member] = ()
        if place.kind == "run":
            facts = of_run(Path(place.directory), place.path, self.alive, parent=place.parent, suite=place.suite,
                           plan_name=place.plan_name)  # fmt: skip
        else:
            facts = groups.of_group(Path(place.directory), place.path, place.kind)
            if place.kind == "suite":
                members = groups.members(groups.read_group(Path(place.directory), place.kind), place.path)
        self._remove(place.path)
        values = [_kept(getattr(facts, name)) for name in _COLUMNS]
        marks = ", ".join("?" * (len(values) + 2))
        self._database.execute(
            f"INSERT INTO entry ({', '.join(_COLUMNS)}, words, signature) VALUES ({marks})",
            [*values, _words(facts), signature],
        )
        self._database.executemany("INSERT INTO nemesis VALUES (?, ?)", [(facts.path, each) for each in facts.nemeses])
        self._database.executemany(
            "INSERT INTO setting VALUES (?, ?, ?)",
            [(facts.path, name, value) for name, value in facts.settings.items()],
        )
        self._database.executemany(
            "INSERT INTO member VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(facts.path, number, each.name, each.seed, each.expect, each.outcome, each.verdict, each.reason,
              each.path, each.took_s) for number, each in enumerate(members)],
        )  # fmt: skip

    def _remove(self, path: str) -> None:
        self._database.execute("DELETE FROM entry WHERE path = ?", (path,))
        for table, column in _PARTS:
            self._database.execute(f"DELETE FROM {table} WHERE {column} = ?", (path,))

    def find(self, wanted: Filter, limit: int = -1, offset: int = 0) -> tuple[list[Facts], int]:
        """The newest first, and how many there are in all."""
        where, values = wanted.where()
        rows = self._all(
            f"SELECT {', '.join(_COLUMNS)} FROM entry WHERE {where} ORDER BY started_at DESC, path DESC "
            "LIMIT ? OFFSET ?",
            [*values, limit, offset],
        )
        ((count,),) = self._all(f"SELECT count(*) FROM entry WHERE {where}", values)
        return [_facts(row) for row in rows], count

    def get(self, path: str) -> Facts | None:
        rows = self._all(f"SELECT {', '.join(_COLUMNS)} FROM entry WHERE path = ?", [path])
        return _facts(rows[0]) if rows else None

    def members(self, suite_path: str) -> list[Member]:
        columns = ", ".join(each.name for each in fields(Member))
        rows = self._all(f"SELECT {columns} FROM member WHERE suite_path = ? ORDER BY number", [suite_path])
        return [Member(*row) for row in rows]

    def counts(self, wanted: Filter) -> dict[str, int]:
        """Entries by verdict."""
        where, values = wanted.where()
        return dict(self._all(f"SELECT verdict, count(*) FROM entry WHERE {where} GROUP BY verdict", values))

    def choices(self) -> dict[str, list[str]]:
        """What there is to filter by."""
        found = {
            column: [text for (text,) in self._all(f"SELECT DISTINCT {column} FROM entry ORDER BY 1", []) if text]
            for column in ("kind", "verdict", "workload", "target", "suite")
        }
        found["nemesis"] = [name for (name,) in self._all("SELECT DISTINCT name FROM nemesis ORDER BY 1", [])]
        found["setting"] = [name for (name,) in self._all("SELECT DISTINCT name FROM setting ORDER BY 1", [])]
        return found

    def suite_runs(self, suite: str) -> list[Facts]:
        """All times that a suite was run, the oldest first."""
        return self.find(Filter(kind="suite", suite=suite))[0][::-1]

    def _all(self, query: str, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            return self._database.execute(query, values).fetchall()


def _open(results: Path) -> tuple[Path | None, sqlite3.Connection]:
    """The file, None: memory; and what it holds, empty or not."""
    digest = hashlib.sha256(os.fsencode(results.resolve())).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "chaos"
    for path in (results / INDEX_FILE, cache / f"index-{digest}.sqlite"):
        with suppress(OSError, sqlite3.Error):
            if path.parent == cache:
                cache.mkdir(parents=True, exist_ok=True)
            return path, _connect(path)
    return _anew(None)


def _connect(path: Path) -> sqlite3.Connection:
    """Raises OSError or sqlite3.OperationalError where it cannot be written."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError("no file of ours")
    # Of its owner alone, as what lies in a run's directory is of few.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False)
    try:
        if _is_ours(database):
            return database
    except sqlite3.OperationalError:
        database.close()
        raise
    except sqlite3.DatabaseError:  # it is no database, or one no longer
        pass
    database.close()
    path.unlink()
    return _connect(path)


def _is_ours(database: sqlite3.Connection) -> bool:
    """Whether it is an index of this version, or empty and now is one. Raises sqlite3.DatabaseError."""
    _prepare(database)
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == _VERSION and database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
        database.execute("UPDATE entry SET live = live WHERE 0")  # may it be written?
        database.commit()
        return True
    if version == 0 and database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        database.executescript(_TABLES)
        return True
    return False


def _prepare(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA synchronous = OFF")  # what a power cut damages is made anew


def _in_memory() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.executescript(_TABLES)
    return database


def _anew(path: Path | None) -> tuple[Path | None, sqlite3.Connection]:
    with suppress(OSError, sqlite3.Error):
        if path is not None:
            path.unlink(missing_ok=True)
            return path, _connect(path)
    return None, _in_memory()


def _directories(within: str) -> list[tuple[str, str]]:
    """(name, path) by name. No links: what they lead to may lie anywhere. Texts, for a Path takes longer to make than
    what it leads to takes to be looked at."""
    try:
        with os.scandir(within) as found:
            names = sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
    except OSError:
        return []
    # A name that is no UTF-8 has no address that leads to it.
    return [(name, f"{within}/{name}") for name in names if not name.startswith(".") and _is_text(name)]


def _is_text(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _kind(directory: str, known: str) -> str:
    """ "": none of ours. known: what it was before, which it mostly still is."""
    if known == "run" and _stat(f"{directory}/plan.json"):
        return known
    for kind, file in FILES.items():
        if _stat(f"{directory}/{file}"):
            return kind
    if _stat(f"{directory}/dataset") and not _stat(f"{directory}/plan.json"):
        return "exploration"
    return "run" if any(_stat(f"{directory}/{mark}") for mark in _MARKS) else ""


def _stat(path: str) -> str:
    """Another one when the file has changed; "": it is not there."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}"


def _signature(place: _Place) -> str:
    files: Sequence[str] = _WATCHED
    if place.kind != "run":
        files = (FILES[place.kind], NOTE_FILE, *filter(None, [groups.PAGES[place.kind]]))
    return "|".join([place.suite, place.plan_name, *[_stat(f"{place.directory}/{name}") for name in files]])


def _kept(value: Any) -> Any:
    if isinstance(value, tuple | Mapping):
        return json.dumps(value)
    return int(value) if isinstance(value, bool) else value


def _facts(row: Sequence[Any]) -> Facts:
    found = dict(zip(_COLUMNS, row, strict=True))
    found["nemeses"] = tuple(json.loads(found["nemeses"]))
    found["settings"] = json.loads(found["settings"])
    found["live"] = bool(found["live"])
    return Facts(**found)


def _words(facts: Facts) -> str:
    """What is searched."""
    settings = (f"{name}={value}" for name, value in facts.settings.items())
    words = (
        facts.path, facts.kind, facts.verdict, facts.reason, *facts.nemeses, facts.workload, facts.target,
        facts.runs_on, *settings, facts.suite, facts.plan_name, facts.note, facts.command,
    )  # fmt: skip
    return "\n".join(words).lower()
