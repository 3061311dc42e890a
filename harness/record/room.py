"""Checks that there is disk space for a run's results: on a full volume the end of the history is lost, and its
verdict cannot be saved.

What a run takes besides its journal: the history that is laid out from it (about as large again), the copies of the
nodes' disks (each acknowledged record once a replica), their traces and logs, and the report.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from checkers.verdict import keeping
from harness.errors import HarnessFailure, describe

if TYPE_CHECKING:
    from harness.plan.plan import Plan

#: For everything whose size does not grow with the run.
LEAST_BYTES: Final = 6 << 20
#: Of a journal: what is laid out from it, and what reports and witnesses take.
_JOURNALS: Final = 2.0
#: Of an acknowledged record on a replica's disk, and of its share of trace and logs.
_RECORD_BYTES: Final = 40
#: Of an acknowledged record in journal and history: measured 25 to 60 bytes, with the reads that return it.
_RECORDED_BYTES: Final = 80


def needed_now(journal: int, acknowledged: int, replication_factor: int) -> int:
    """Bytes that it takes to end, in order, a run that has come so far. journal: bytes."""
    return int(LEAST_BYTES + _JOURNALS * journal + acknowledged * replication_factor * _RECORD_BYTES)


def needed(time_limit: float, rate: float, replication_factor: int) -> int:
    """Bytes that a run takes in all, at most: a cluster may acknowledge less than clients are told to send."""
    return int(LEAST_BYTES + time_limit * rate * (_RECORDED_BYTES + replication_factor * _RECORD_BYTES))


def check(directory: Path) -> None:
    """Raises HarnessFailure where there is not even room for a run that ends at once. directory: of the run."""
    left = free(directory)
    if left is not None and left < LEAST_BYTES:
        raise HarnessFailure(
            f"{directory.parent} has {megabytes(left)} left, and the least that a run takes is "
            f"{megabytes(LEAST_BYTES)}; make room, or give another --results"
        )


def short(directory: Path, plan: Plan) -> str | None:
    """A sentence if the room may not last for a whole run. directory: of the run."""
    left, most = free(directory), needed(plan.time_limit, plan.rate, plan.replication_factor)
    if left is None or left >= most:
        return None
    return (
        f"{directory} has {megabytes(left)} left, and this run may take up to {megabytes(most)}: it will be ended, and "
        "judged as far as it came, before there is none left"
    )


def free(directory: Path) -> int | None:
    """Bytes; None: it cannot be told."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


def _sizes(directory: Path) -> Iterator[int]:
    for path in directory.glob("*"):
        try:
            yield path.stat().st_size
        except OSError:  # replaced meanwhile
            continue


def log_file(directory: Path, name: str) -> Path:
    """Where a log of the judging of a run goes: beside it, or under TMPDIR where nothing can be written there."""
    if os.access(directory, os.W_OK):
        return directory / name
    return Path(tempfile.gettempdir()) / f"chaos-{os.getpid()}-{name}"


def judged(directory: Path, judge: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The verdict on a run, by `judge`, which writes beside it. Where there is no room for that, or it may not be
    written, what is laid out lies under TMPDIR meanwhile, and what is said is put beside the run if that can be done;
    else the verdict says under `unsaved` why not. Raises what `judge` does; HistoryError if it cannot write either."""
    from spark_history.errors import HistoryError

    left = free(directory)
    needed = LEAST_BYTES / 2 + _JOURNALS * sum(_sizes(directory / "journal"))
    if os.access(directory, os.W_OK) and (left is None or left >= needed):
        try:
            return judge(directory)
        except OSError as error:
            raise HistoryError(f"{directory} could not be judged: {describe(error)}") from error
    with ExitStack() as stack:
        try:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-judged-"))
            copy = _links(directory, Path(scratch) / directory.name)
            verdict = judge(copy)
        except HistoryError as error:
            raise HistoryError(str(error).replace(str(copy), str(directory))) from None
        except OSError as error:
            raise HistoryError(
                f"{directory} could not be judged under {tempfile.gettempdir()}: {describe(error)}"
            ) from error
        try:  # all that was said before, or nothing new: verdict.json is the last
            for kept in sorted((copy / keeping.FOLDER).glob("*")):
                (directory / keeping.FOLDER).mkdir(exist_ok=True)
                if not (directory / keeping.FOLDER / kept.name).exists():
                    _put(kept, directory / keeping.FOLDER / kept.name)
            for name in ("anomalies.parquet", "lost.parquet", "verdict.json"):
                if (copy / name).exists():
                    _put(copy / name, directory / name)
        except OSError as error:
            verdict["unsaved"] = f"this verdict is not on record in {directory}: {describe(error)}"
        return verdict


def _links(directory: Path, copy: Path) -> Path:
    """A run's directory whose contents are links, but for what judging writes. Raises OSError."""
    copy.mkdir()
    for each in directory.iterdir():
        if each.name not in _MADE_BY_JUDGING:
            (copy / each.name).symlink_to(each.resolve())
    if not (directory / "journal").is_dir() and (directory / "history").is_dir():  # which cannot be made again
        shutil.copytree(directory / "history", copy / "history")
    if (directory / "verdict.json").is_file():  # it is kept beside the new one
        shutil.copyfile(directory / "verdict.json", copy / "verdict.json")
    for kept in (directory / keeping.FOLDER).glob("*"):
        if kept.is_file():
            (copy / keeping.FOLDER).mkdir(exist_ok=True)
            shutil.copyfile(kept, copy / keeping.FOLDER / kept.name)
    return copy


def _put(source: Path, target: Path) -> None:
    """There as a whole, or as it was. Raises OSError."""
    from spark_history.regular import replacing

    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)


_MADE_BY_JUDGING: Final = frozenset(
    {"history", "history.new", "verdict.json", keeping.FOLDER, "anomalies.parquet", "lost.parquet", "report.html"}
)


def megabytes(amount: int) -> str:
    return f"{amount / 1e6:,.0f} MB"
