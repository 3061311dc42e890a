"""Parquet files in and out, with errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_history.errors import HistoryError, first_line
from spark_history.regular import replacing, require_regular

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Few distinct values over many rows: kept as dictionaries, in memory and in files.
CATEGORIES: Final = frozenset({"run", "kind", "topic", "outcome", "error", "node", "event", "type", "group"})
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())


def compact(schema: pa.Schema) -> pa.Schema:
    """The schema with its categories as dictionaries."""
    return pa.schema([field.with_type(_DICTIONARY) if field.name in CATEGORIES else field for field in schema])


def read_parquet(path: Path | str, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, categories as dictionaries. Raises HistoryError."""
    try:
        require_regular(path)
        metadata = pq.read_metadata(path)
        present = metadata.schema.to_arrow_schema().names
        missing = [name for name in schema.names if name not in present]
        if missing:
            raise HistoryError(f"{path} lacks the column {missing[0]!r}, so it is not part of a history")
        categories = [name for name in present if name in CATEGORIES]
        with pq.ParquetFile(
            path, metadata=metadata, read_dictionary=categories, page_checksum_verification=True
        ) as file:
            table = file.read(columns=schema.names, use_threads=False)
        return table.select(schema.names).cast(compact(schema))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise HistoryError(_unreadable(path, error)) from None


def read_row_groups(path: Path | str, schema: pa.Schema) -> Iterator[pa.Table]:
    """The same, a row group at a time. Raises HistoryError."""
    try:
        require_regular(path)
        categories = [name for name in schema.names if name in CATEGORIES]
        with pq.ParquetFile(path, read_dictionary=categories, page_checksum_verification=True) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number, columns=schema.names, use_threads=False).cast(compact(schema))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise HistoryError(_unreadable(path, error)) from None


def read_row_group(path: Path | str, schema: pa.Schema, number: int) -> tuple[pa.Table, int]:
    """One row group, which may be sound where others are damaged; and how many there are. Raises HistoryError."""
    try:
        require_regular(path)
        categories = [name for name in schema.names if name in CATEGORIES]
        with pq.ParquetFile(path, read_dictionary=categories, page_checksum_verification=True) as file:
            table = file.read_row_group(number, columns=schema.names, use_threads=False)
            return table.select(schema.names).cast(compact(schema)), file.num_row_groups
    except (OSError, ValueError, pa.ArrowException, IndexError, KeyError) as error:
        raise HistoryError(_unreadable(path, error)) from None


def read_lengths(path: Path | str, schema: pa.Schema) -> tuple[pa.Table, Ints]:
    """As read_parquet(), and how many rows each row group has. Raises HistoryError."""
    try:
        require_regular(path)
        groups = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        groups = None
    # A table of many runs that have nothing in it costs as much as one that is full.
    empty = groups is not None and groups.num_rows == 0
    table = compact(schema).empty_table() if empty else read_parquet(path, schema)
    groups = groups or pq.read_metadata(path)
    return table, np.array([groups.row_group(number).num_rows for number in range(groups.num_row_groups)], np.int64)


def write_parquet(path: Path | str, table: pa.Table) -> None:
    """All of the file or none of it: a task that runs twice, or dies, leaves no half file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        pq.write_table(table, temporary, **encodings(table.schema))


def encodings(schema: pa.Schema) -> dict[str, Any]:
    """How the columns are written: arguments of pyarrow's writers.

    Integers as differences, without compression: a history is full of numbers that grow, and reading these takes a
    third of the time, and less space, than zstd does (measured: 4 to 5 ns a row against 13).
    """
    numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
    return {
        "compression": {field.name: "none" if field.name in numbers else "zstd" for field in schema},
        "use_dictionary": [field.name for field in schema if field.name in CATEGORIES] or False,
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        "write_page_checksum": True,
    }


def _unreadable(path: Path | str, error: Exception) -> str:
    return f"{path} is damaged or not a Parquet file ({first_line(error)})"


def integers(table: pa.Table, column: str, null: int) -> Ints:
    """A column as int64, with `null` in place of nulls."""
    column_ = table[column]
    filled = pc.fill_null(column_.cast(pa.int64()), null) if column_.null_count else column_  # null: too big for int32
    values: Ints = filled.to_numpy().astype(np.int64, copy=False)
    return values


def last_rows(table: pa.Table, column: str) -> pa.Table:
    """Of rows that have the same integer, not null, in a column, the last one; in the order of these integers."""
    values = integers(table, column, -1)
    _, from_end = np.unique(values[::-1], return_index=True)
    return table.take(len(values) - 1 - from_end)


def nullable(values: Ints, null: int) -> pa.Array:
    """The inverse of integers()."""
    return pa.array(values, pa.int64(), mask=values == null)


def codes(table: pa.Table, column: str, names: Sequence[str]) -> npt.NDArray[np.int8]:
    """Which of `names` a column of categories, as dictionaries, holds in each row; NO_CODE: none of them."""
    parts = []
    for chunk in table[column].chunks:
        texts, numbers = categories(chunk)
        known = [names.index(text) if text in names else NO_CODE for text in texts]
        parts.append(np.array([*known, NO_CODE], np.int8)[numbers])  # a null's number is -1: the last
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int8), *parts])


def equals(table: pa.Table, column: str, text: str) -> Bools:
    """Where a column of categories, as dictionaries, holds `text`."""
    # For few rows, which many short runs have, this takes a fifth of the time of Arrow's comparison.
    parts = [codes == names.index(text) if text in names else codes < NO_CODE
             for names, codes in (categories(chunk) for chunk in table[column].chunks)]  # fmt: skip
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, bool), *parts])


NO_CODE: Final = -1


def categories(chunk: pa.DictionaryArray) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The distinct texts, and for each row which of these it is; NO_CODE: null."""
    codes = chunk.indices
    filled = codes.fill_null(NO_CODE) if codes.null_count else codes
    return chunk.dictionary.to_pylist(), filled.to_numpy()
