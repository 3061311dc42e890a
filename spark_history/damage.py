"""Which files of a run are not what was written: torn, flipped, cut short, gone.

The recorder notes of every file that it flushes its size and CRC-32, in `journal/checks-<number>.json`:

    {"operations-000003.parquet": [48123, 2839171011], …}

These are in place before the files that they are about, and never overwritten; of a file that is written anew (faults)
any of its sums will do. In a journal that has them each file must be as noted, and none may be missing. In an older one
a file must be readable, and its footer must add up: what Parquet's own page checksums cover cannot be read wrongly, but
a footer says how many rows there are.

The history that is laid out from it has its sums in the manifest. It is laid out again when they differ.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_history.files import HistoryError
from spark_history.schema import TABLES

_CHUNK: Final = 1 << 22

Damage = tuple[str, str]  # (name of the file, why: the rest of a sentence)
Sum = tuple[int, int]  # size, CRC-32


def checksum(path: Path) -> Sum:
    """Raises OSError."""
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
    return size, crc


def checksums(root: Path, paths: Iterable[Path]) -> dict[str, Sum]:
    """By path relative to `root`, of files that are there. Raises OSError."""
    paths = list(paths)
    with ThreadPoolExecutor() as threads:
        return dict(zip((str(path.relative_to(root)) for path in paths), threads.map(checksum, paths), strict=True))


def changed(root: Path, sums: Mapping[str, Sequence[int]]) -> list[str]:
    """The files, relative to `root`, that are gone or not as noted."""

    def differs(entry: tuple[str, Sequence[int]]) -> bool:
        try:
            return checksum(root / entry[0]) != tuple(entry[1])
        except OSError:
            return True

    with ThreadPoolExecutor() as threads:
        return [name for (name, _), bad in zip(sums.items(), threads.map(differs, sums.items()), strict=True) if bad]


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
    for path in sorted(journal.glob("checks-*.json")):
        try:
            for name, (size, crc) in json.loads(path.read_text()).items():
                sum_ = int(size), int(crc)
                noted.setdefault(name, []).append(sum_)
        except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            damaged.append((path.name, f"it does not hold checksums: {_reason(error)}"))
    there = {path.name for path in paths}
    gone = [name for name in noted if name not in there and _is_due(journal, name, newest)]
    damaged += [(name, "it is missing") for name in sorted(gone)]
    with ThreadPoolExecutor() as threads:
        reasons = threads.map(lambda path: _judge(path, noted), paths)
        damaged += [(path.name, why) for path, why in zip(paths, reasons, strict=True) if why]
    return damaged


def _is_due(journal: Path, name: str, newest: int) -> bool:
    """Pending files go once the next is there, and what is newer belongs to a flush that was cut off."""
    number = re.search(r"-(\d+)\.parquet$", name)
    if number is None or (journal / name).exists():
        return False
    flush = int(number[1])
    return flush == newest if name.startswith("pending-") else flush <= newest


def _judge(path: Path, noted: Mapping[str, Sequence[Sum]]) -> str:
    """Why a file must not be read, or nothing."""
    try:
        if not noted:
            return _footer(path)
        if path.name not in noted:
            return "no checksum of it is on record"
        size, crc = checksum(path)
        if (size, crc) in noted[path.name]:
            return ""
        due = noted[path.name][-1][0]
        return f"it has {size:,} bytes where {due:,} were written" if size != due else "its bytes are not those written"
    except OSError as error:
        return _reason(error)


def _footer(path: Path) -> str:
    try:
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        whole = sum(group.num_rows for group in groups) == metadata.num_rows and all(
            group.column(number).num_values == group.num_rows
            for group in groups
            for number in range(group.num_columns)
            if "list" not in group.column(number).path_in_schema
        )
    except (OSError, pa.ArrowException) as error:
        return _reason(error)
    return "" if whole else "its footer contradicts itself"


def tables(damaged: Iterable[Damage]) -> set[str]:
    """Of which parts are missing: names of schema.TABLES, pending appends being operations. A file of checksums that is
    damaged is of no table: what it alone vouched for is among the damaged files."""
    names = {Path(name).name.rpartition("-")[0] for name, _ in damaged}
    return {"operations" if name == "pending" else name for name in names} & set(TABLES)


def unreadable(paths: Iterable[Path]) -> list[Damage]:
    """Those that cannot be decoded. Reads all of them."""

    def why(path: Path) -> str:
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                for number in range(file.num_row_groups):
                    file.read_row_group(number)
        except (OSError, pa.ArrowException, HistoryError) as error:
            return _reason(error)
        return ""

    paths = list(paths)
    with ThreadPoolExecutor() as threads:
        return [(path.name, reason) for path, reason in zip(paths, threads.map(why, paths), strict=True) if reason]


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
