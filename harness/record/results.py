"""Run directories: results/<run>, and what a run says of itself in run.json while it goes on.

| in a run directory | what it is |
| --- | --- |
| plan.json, plan.toml, schedule.toml | what was asked for, for programs and to be given again; the faults as drawn |
| run.json | status, problems, seconds that each phase took |
| journal/, history/ | the history as it was recorded, and the same laid out for the checkers |
| logs/, trace/, disks/ | what the nodes said, and told of their state changes; what lay on their disks |
| verdict.json, report.html | what the checkers decided, for programs and for people |
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from harness.errors import BadArguments, describe
from spark_history.regular import open_regular, read_object

#: Of a run's directory: what nodes said and stored is no business of other users of the machine.
_MODE: Final = 0o750
#: In journal/: operations under way, in files numbered like those of operations; see record/history.py.
PENDING: Final = "pending"
#: What an exploration says of itself, in its directory.
EXPLORATION_FILE: Final = "explore.json"
#: Of an exploration that strikes everywhere, of whose runs only those that failed are kept.
SWEEP_FILE: Final = "systematic.json"
#: What the name of a run made smaller by `chaos shrink` adds to that of the run it was made from.
SHRUNK: Final = "-shrunk"
#: What is in the directory of a run before anything has begun.
_ASKED_FOR: Final = frozenset({"plan.json", "plan.toml", "run.json", "schedule.toml"})
#: Also the name of containers and a network, and of the folder of the agent's socket: see create().
MOST_OF_A_NAME: Final = 72
_NAME: Final = re.compile(rf"[a-z0-9][a-z0-9.-]{{0,{MOST_OF_A_NAME - 1}}}")
#: Where runs are kept unless somebody says otherwise.
DEFAULT: Final = Path("results")
#: Instead of a verdict, of what has none.
NOT_JUDGED: Final = "not judged"
Status = Literal["running", "done", "interrupted", "failed"]


def create(
    results: Path, nemesis: tuple[str, ...], seed: int, now: datetime | None = None, name: str | None = None
) -> Path:
    """A new, empty run directory, named for its start, its nemeses and its seed, or `name`. Raises BadArguments."""
    if name is not None:
        return _create_named(results, name)
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S")
    # Also the name of containers and a network, which allow few characters, and of the folder of the agent's socket,
    # whose whole path may have 107.
    what = re.sub(r"[^a-z0-9.-]+", "-", "-".join(nemesis).lower())
    name = f"{stamp}-{what[:32] or 'none'}-s{str(seed)[:20]}"
    try:
        results.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, 1000):
            directory = results / (name if attempt == 1 else f"{name}-{attempt}")
            try:
                directory.mkdir(mode=_MODE)
            except FileExistsError:
                continue
            return directory
    except OSError as error:
        raise _cannot_save(results, error) from None
    raise BadArguments(f"{results} holds a thousand runs named {name}; give another --results")


def check_name(name: str) -> None:
    """Of a run, as its user wants it. Raises BadArguments."""
    if not _NAME.fullmatch(name):
        raise BadArguments(
            f"--run-name {name!r} cannot be: valid are lower-case letters, digits, '.' and '-', {MOST_OF_A_NAME} at "
            "most, and a letter or a digit first"
        )


def _create_named(results: Path, name: str) -> Path:
    check_name(name)
    try:
        results.mkdir(parents=True, exist_ok=True)
        (results / name).mkdir(mode=_MODE)
    except FileExistsError:
        raise BadArguments(f"{results / name} is there already; give another --run-name, or remove it") from None
    except OSError as error:
        raise _cannot_save(results, error) from None
    return results / name


def _cannot_save(results: Path, error: OSError) -> BadArguments:
    why = "it is no directory" if results.exists() and not results.is_dir() else error.strerror or error
    return BadArguments(f"no run can be saved under {results}: {why}")


def remove_unbegun(directory: Path) -> None:
    """The directory of a run that did not begin, if there is nothing in it but what was asked for."""
    if {path.name for path in directory.iterdir()} <= _ASKED_FOR:
        shutil.rmtree(directory, ignore_errors=True)


def find(run: str, results: Path) -> Path:
    """The directory of a run by path, by name under `results`, or `latest`. Raises BadArguments."""
    if run == "latest":
        runs = list_runs(results)
        if not runs:
            raise BadArguments(f"there is no run under {results} yet; `chaos run` makes one")
        return runs[-1]
    for directory in (results / run, Path(run)):
        if is_run(directory):
            return directory
    for directory in (results / run, Path(run)):
        if run and ((directory / "dataset").is_dir() or (directory / SWEEP_FILE).is_file()):
            failing = sorted((directory / "runs").glob("*"))
            named = ", ".join(map(str, failing[:3])) + (" …" if len(failing) > 3 else "")
            raise BadArguments(f"{run} is an exploration, not a run; runs of it that failed: {named or 'none'}")
    if Path(run).is_dir():
        raise BadArguments(f"{run or repr(run)} is not a run directory: it has no plan.json, no journal and no history")
    raise BadArguments(
        f"there is no run {run!r} under {results}, nor a file or directory of that name; `chaos list runs` shows what "
        "there is"
    )


def is_run(directory: Path) -> bool:
    """Also one that has lost a part."""
    history = directory / "history" / "manifest.json"
    return (directory / "plan.json").is_file() or (directory / "journal").is_dir() or history.is_file()


def list_runs(results: Path) -> list[Path]:
    """Every run under `results`, oldest first."""
    if not results.is_dir():
        return []
    return sorted(filter(is_run, results.iterdir()), key=lambda run: (run.stat().st_mtime_ns, run))


def list_explorations(results: Path) -> list[Path]:
    """By name."""
    return sorted(path.parent for path in results.glob("*/dataset") if path.is_dir() and not is_run(path.parent))


def list_sweeps(results: Path) -> list[Path]:
    """Explorations that strike everywhere, by name."""
    return sorted(path.parent for path in results.glob(f"*/{SWEEP_FILE}"))


def read_faults(directory: Path, origin: int | None = None) -> list[dict[str, Any]]:
    """The faults of a run in order, as rows of the faults table with `evidence` read, and with `start_s` and `end_s`
    (None: never healed) in seconds since `origin`, that of its verdict: monotonic ns of the first operation. None: as
    verdict.json has it. [] where none is recorded or readable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if origin is None:
        origin = read_json(directory / "verdict.json").get("origin_ns")
    try:
        with open_regular(directory / "journal" / "faults-000000.parquet") as file:
            # From memory: no thread that reads ahead holds on to a file of Python's.
            rows = pq.ParquetFile(pa.BufferReader(file.read())).read(use_threads=False).to_pylist()
    except (OSError, pa.ArrowException):
        return []
    rows.sort(key=lambda row: (row["start"], row["fault"]))
    origin = origin if origin is not None or not rows else rows[0]["start"]
    for row in rows:
        row["evidence"] = json.loads(row["evidence"])
        row["start_s"] = (row["start"] - origin) / 1e9
        row["end_s"] = None if row["end"] is None else (row["end"] - origin) / 1e9
    return rows


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; {} if it is missing or damaged."""
    try:
        return read_object(path)
    except (OSError, ValueError):
        return {}


_RESERVE: Final = ".reserve"
_RESERVED_BYTES: Final = 1 << 19


@dataclass
class RunRecord:
    """run.json: kept up to date at every step, so that a run that dies says how far it came."""

    directory: Path
    status: Status = "running"
    phase: str = ""  # the one that is going on
    phases: dict[str, float] = field(default_factory=dict)  # seconds that each took
    problems: list[str] = field(default_factory=list)  # what went wrong in the harness, one sentence each
    facts: dict[str, Any] = field(default_factory=dict)  # e.g. ready_s, after_time_limit_s
    unsaved: str = ""  # why run.json does not hold all of this, a sentence

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Measure a phase, also one that fails."""
        self.phase = phase
        self.save()
        start = time.monotonic()
        try:
            yield
        finally:
            self.phases[phase] = round(time.monotonic() - start, 3)
            self.save()

    @contextmanager
    def survived(self, phase: str) -> Iterator[None]:
        """Measure a phase whose failure must not cost the verdict: it becomes a problem."""
        try:
            with self.timed(phase):
                yield
        except Exception as error:  # whatever a runtime, workload or checker raises
            self.problem(f"{phase} failed: {describe(error)}")
            logging.getLogger(__name__).debug("%s failed", phase, exc_info=True)

    def problem(self, text: str) -> None:
        self.problems.append(text)
        self.save()

    def doubt(self, text: str) -> None:
        """A problem that forbids to call the run passed, now or when it is checked again."""
        self.facts["doubts"] = [*self.facts.get("doubts", ()), text]
        self.problem(text)

    def end_early(self, how: str) -> None:
        """How the run came to its end before its time, a sentence without its full stop: the verdict says so. The first
        one counts."""
        self.facts.setdefault("ended_early", how)
        if how not in self.problems:
            self.problem(how)

    def finish(self, status: Status) -> None:
        """status: `failed` where there is no verdict, `interrupted` where the user ended the workload early."""
        self.status, self.phase = status, ""
        self.facts["finished_at"] = utc_now()
        self.save()

    def save(self) -> None:
        from spark_history.damage import seal  # which takes Arrow, and time that `chaos list` need not wait

        content = {
            "status": self.status, "phase": self.phase, "phases": self.phases, "problems": self.problems,
        }  # fmt: skip
        text = json.dumps(seal(content | self.facts), indent=2) + "\n"
        try:
            self._write(text)
        except OSError:
            self.release()
            try:
                self._write(text)
            except OSError as error:  # what goes on matters more than what is said of it
                self.unsaved = f"{self.directory / 'run.json'} could not be written: {error.strerror or error}"
                return
        self.unsaved = ""

    def _write(self, text: str) -> None:
        temporary = self.directory / "run.json.tmp"
        try:
            temporary.write_text(text)
            os.replace(temporary, self.directory / "run.json")
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise

    def reserve(self) -> None:
        """Room for what must still be said once the volume is full. Raises OSError."""
        (self.directory / _RESERVE).write_bytes(bytes(_RESERVED_BYTES))

    def release(self) -> None:
        """Give back what reserve() has taken, if anything. Safe to repeat."""
        with suppress(OSError):
            (self.directory / _RESERVE).unlink()


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
