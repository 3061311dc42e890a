"""Which files of a run are not what was written: torn, flipped, cut short, gone.

The recorder notes of every file that it flushes its size and CRC-32, in `journal/checks-<number>.json`:

    {"operations-000003.parquet": [48123, 2839171011], …}

These are in place before the files that they are about, and never overwritten; of a file that is written anew (faults)
any of its sums will do. There are some for every flush from 0, so none may be missing; files bear a mark (MARK) by
which that is known also once all of the sums are gone. Those of flush 0 tell of plan.json and run.json
(null: it changes, and is sealed), as far as these were there. In a journal that has them each file must be as noted,
and none may be missing. In an older one a file must be readable, and its footer must add up: what Parquet's own page
checksums cover cannot be read wrongly, but a footer says how many rows there are. There a number that no file of
operations has tells of a missing one.

The history that is laid out from it has its sums in the manifest. It is laid out again when they differ, or, where
there is no journal, what differs is left out.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_history.errors import first_line
from spark_history.regular import open_regular, read_object, require_regular
from spark_history.schema import TABLES

_CHUNK: Final = 1 << 22
#: Metadata of a Parquet file of a journal with checksums.
MARK: Final = {b"chaos.checks": b"1"}
#: What lies beside a journal and is told of by the checksums of its first flush.
BESIDE: Final = ("plan.json", "run.json")
_MOST_NAMED: Final = 10  # of files that are missing one after the other

CHECKS: Final = "checks-{:06}.json"  # of a flush
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, IndexError, KeyError, OverflowError, RecursionError)

Damage = tuple[str, str]  # (name of the file, why: the rest of a sentence)
Sum = tuple[int, int]  # size, CRC-32


def checksum(path: Path, most: int | None = None) -> Sum:
    """most: bytes from the beginning that are looked at; None: all. Raises OSError."""
    size = crc = 0
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK if most is None else min(_CHUNK, most - size)):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
    return size, crc


def checksums(root: Path, paths: Iterable[Path]) -> dict[str, Sum]:
    """By path relative to `root`, of files that are there. Raises OSError."""
    paths = list(paths)
    with ThreadPoolExecutor() as threads:
        return dict(zip((str(path.relative_to(root)) for path in paths), threads.map(checksum, paths), strict=True))


def changed(root: Path, sums: Mapping[str, Sequence[int]]) -> list[Damage]:
    """The files, relative to `root`, that are gone or not as noted."""

    def why(entry: tuple[str, Sequence[int]]) -> str:
        size, crc = entry[1]
        return differs(root / entry[0], [(size, crc)])

    with ThreadPoolExecutor() as threads:
        reasons = zip(sums, threads.map(why, sums.items()), strict=True)
        return [(name, reason) for name, reason in reasons if reason]


def begins_as(path: Path, sum_: Sum) -> str:
    """Why a file that may have grown does not begin as was noted, or nothing."""
    return differs(path, [sum_], most=sum_[0])


def differs(path: Path, sums: Sequence[Sum], most: int | None = None) -> str:
    """Why a file is none of those that were noted, the last of them being the newest; or nothing. most: see
    checksum()."""
    try:
        size, crc = checksum(path, most)
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return first_line(error)
    if (size, crc) in sums:
        return ""
    due = sums[-1][0]
    return f"it has {size:,} bytes where {due:,} were written" if size != due else "its bytes are not those written"


def notes_beside(directory: Path) -> dict[str, Sum | None]:
    """Of the files of BESIDE that are there: what the checksums of a first flush say."""
    paths = {name: directory / name for name in BESIDE}
    return {
        name: None if name == "run.json" else checksum(path) for name, path in paths.items() if path.is_file()
    }  # fmt: skip


def write_checks(directory: Path, newest: int) -> None:
    """The checksums of a journal that was written at once, in the run `directory`, the rest of which is there. newest:
    its last flush. Raises OSError."""
    journal = directory / "journal"
    notes: list[dict[str, Sum | None]] = [notes_beside(directory), *({} for _ in range(newest))]
    for name, sum_ in checksums(journal, sorted(journal.glob("*.parquet"))).items():
        notes[int(Path(name).stem.rpartition("-")[2])][name] = sum_
    for flush, of_flush in enumerate(notes):
        (journal / CHECKS.format(flush)).write_text(json.dumps(of_flush) + "\n")


def noted_beside(journal: Path) -> dict[str, Sum | None]:
    """The same as it was noted; nothing where it cannot be read, which find() says."""
    try:
        noted = read_object(journal / CHECKS.format(0))
        return {name: noted[name] and (int(noted[name][0]), int(noted[name][1])) for name in BESIDE if name in noted}
    except (OSError, *_UNREADABLE):
        return {}


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """With the CRC-32 of its own content, for is_sealed()."""
    return {**content, "crc": _crc(content)}


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Is it as it was sealed, or never was?"""
    rest = {key: value for key, value in content.items() if key != "crc"}
    return "crc" not in content or content["crc"] == _crc(rest)


def _crc(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def find(journal: Path, paths: Sequence[Path], newest: int) -> list[Damage]:
    """Files of a journal that must not be read, also such that are gone. newest: the last flush that counts."""
    damaged: list[Damage] = []
    noted: dict[str, list[Sum]] = {}
    since: dict[str, int] = {}  # the flush that first wrote it
    checks = sorted(journal.glob("checks-*.json"))
    for path in checks:
        try:
            flush = int(path.stem.rpartition("-")[2])
            for name, sum_ in read_object(path).items():
                if name not in BESIDE:
                    size, crc = (int(number) for number in sum_)
                    noted.setdefault(name, []).append((size, crc))
                    since[name] = min(since.get(name, flush), flush)
        except (OSError, *_UNREADABLE) as error:
            damaged.append((path.name, f"it does not hold checksums: {first_line(error)}"))
    there = {path.name for path in paths}
    if checks or any(_is_marked(path) for path in paths):
        due = (CHECKS.format(flush) for flush in range(newest + 1))
        untold = _missing(due, {path.name for path in checks}, "it is missing")
    else:
        numbers = [int(Path(name).stem.rpartition("-")[2]) for name in there if name.startswith("operations-")]
        due = (f"operations-{number:06}.parquet" for number in range(min(numbers, default=0), max(numbers, default=0)))
        untold = _missing(due, there, "it is missing, and there are no checksums to say that it never was")
    gone = [name for name, flush in since.items() if name not in there and _is_due(journal, name, flush, newest)]
    damaged += [(name, "it is missing") for name in sorted(gone)]
    with ThreadPoolExecutor() as threads:
        reasons = threads.map(lambda path: _judge(path, noted), paths)
        damaged += [(path.name, why) for path, why in zip(paths, reasons, strict=True) if why]
    return damaged + untold


def _missing(due: Iterable[str], there: Set[str], why: str) -> list[Damage]:
    """The first few that are not there."""
    return [(name, why) for name in islice((name for name in due if name not in there), _MOST_NAMED)]


def _is_marked(path: Path) -> bool:
    """Was it written together with its checksum?"""
    try:
        with open_regular(path) as file:
            return MARK.items() <= (pq.read_metadata(file).metadata or {}).items()
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        return False


def _is_due(journal: Path, name: str, flush: int, newest: int) -> bool:
    """Pending files go once the next is there, and what is newer belongs to a flush that was cut off."""
    if (journal / name).exists():
        return False
    return flush == newest if name.startswith("pending-") else flush <= newest


def _judge(path: Path, noted: Mapping[str, Sequence[Sum]]) -> str:
    """Why a file must not be read, or nothing."""
    if not noted:
        return _footer(path)
    return differs(path, noted[path.name]) if path.name in noted else "no checksum of it is on record"


def _footer(path: Path) -> str:
    try:
        with open_regular(path) as file:
            metadata = pq.read_metadata(file)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        whole = sum(group.num_rows for group in groups) == metadata.num_rows and all(
            group.column(number).num_values == group.num_rows
            for group in groups
            for number in range(group.num_columns)
            if "list" not in group.column(number).path_in_schema
        )
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        return first_line(error)
    return "" if whole else "its footer contradicts itself"


def tables(damaged: Iterable[Damage]) -> set[str]:
    """Of which parts are missing: names of schema.TABLES, pending appends being operations. Where checksums are missing
    or damaged, files of any table may be missing that nobody knows of."""
    names = {_table(Path(name).name) for name, _ in damaged}
    return set(TABLES) if "checks" in names else names & set(TABLES)


def _table(name: str) -> str:
    """What a file of a journal is of."""
    table = name.rpartition("-")[0]
    return "operations" if table == "pending" else table


def unreadable(paths: Iterable[Path], root: Path | None = None) -> list[Damage]:
    """Those that cannot be decoded, by name, or relative to `root`. Reads all of them."""

    def why(path: Path) -> str:
        try:
            require_regular(path)
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                due = TABLES[table].names if (table := _table(path.name)) in TABLES and root is None else []
                for column in sorted(set(due) - set(file.schema_arrow.names)):
                    return f"it lacks the column {column!r}"
                for number in range(file.num_row_groups):
                    file.read_row_group(number)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            return first_line(error)
        return ""

    paths = list(paths)
    with ThreadPoolExecutor() as threads:
        reasons = zip(paths, threads.map(why, paths), strict=True)
        return [(str(path.relative_to(root)) if root else path.name, reason) for path, reason in reasons if reason]
