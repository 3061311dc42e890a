"""Loads the operations of a run for the report: when each append began and ended and its outcome, by partition, and
how many other operations there were. It keeps 17 bytes an append and reads only the columns that it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_history.files import categories, codes, equals, integers
from spark_history.log import NEVER, NOWHERE

Ints = NDArray[np.int64]
Codes = NDArray[np.int8]  # positions in OUTCOMES, -1: none of these

OUTCOMES: Final = ("ok", "fail", "info")
_MOST_WATERMARKS: Final = 100  # of a partition, of a file
#: What is read of each operation; all else only of the few that are shown.
COLUMNS: Final = ("kind", "topic", "partition", "invoke", "complete", "outcome", "high_watermark", "error")


@dataclass(frozen=True)
class Appends:
    """Of one partition, in any order; ns, `complete` is NEVER where there is none."""

    invoke: Ints
    complete: Ints
    outcome: Codes

    @staticmethod
    def joined(parts: Sequence[Appends]) -> Appends:
        if len(parts) == 1:
            return parts[0]
        columns = ([getattr(part, name) for part in parts] for name in ("invoke", "complete", "outcome"))
        return Appends(*(np.concatenate(column) for column in columns))


@dataclass
class Operations:
    kinds: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # of appends by (error, outcome)
    ends: dict[str, int] = field(default_factory=dict)  # by partition, the highest end that a final read returned
    origin: int | None = None  # the first invocation
    never: int = 0  # appends without a completion
    appends: dict[str, list[Appends]] = field(default_factory=dict)  # by partition
    watermarks: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # of some reads: ns, offset
    #: All columns of the operations of these ids.
    find: Callable[[set[int]], pd.DataFrame] = field(default=lambda _: pd.DataFrame(), repr=False)

    @staticmethod
    def merged(parts: Iterable[Operations]) -> Operations:
        whole = Operations()
        for part in parts:
            whole.kinds.update(part.kinds)
            whole.errors.update(part.errors)
            for name, end in part.ends.items():
                whole.ends[name] = max(end, whole.ends.get(name, end))
            origins = [each for each in (whole.origin, part.origin) if each is not None]
            whole.origin = min(origins, default=None)
            whole.never += part.never
            for name, appends in part.appends.items():
                whole.appends.setdefault(name, []).extend(appends)
            for name, told in part.watermarks.items():
                whole.watermarks.setdefault(name, []).extend(told)
        return whole

    @staticmethod
    def of(table: pa.Table) -> Operations:
        """table: COLUMNS, categories as dictionaries."""
        table = table.unify_dictionaries().combine_chunks()
        counts = Counter[str]()
        for chunk in table["kind"].chunks:
            texts, kinds = categories(chunk)
            found = np.bincount(kinds[kinds >= 0], minlength=len(texts)).tolist()
            counts.update({text: count for text, count in zip(texts, found, strict=True) if count})
        append = equals(table, "kind", "append")
        outcome, complete = codes(table, "outcome", OUTCOMES), integers(table, "complete", NEVER)
        names, numbers = _partitions(table)
        found_appends = {}
        invoke = integers(table, "invoke", 0)
        for number, name in enumerate(names):
            mine = append if len(names) == 1 else append & (numbers == number)
            if mine.any():
                found_appends[name] = [Appends(invoke[mine], complete[mine], outcome[mine])]
        final = np.flatnonzero(equals(table, "kind", "final_read") & (outcome == 0))
        watermark = integers(table.select(["high_watermark"]).take(pa.array(final)), "high_watermark", NOWHERE)
        ends = {
            name: int(watermark[mine].max())
            for number, name in enumerate(names)
            if (mine := (numbers[final] == number) & (watermark != NOWHERE)).any()
        }
        return Operations(
            counts, _errors(table, append & (outcome > 0)), ends, pc.min(table["invoke"]).as_py(),
            int(np.count_nonzero(append & (complete == NEVER))), found_appends,
            _watermarks(table, names, numbers, complete, equals(table, "kind", "read") & (outcome == 0)),
        )  # fmt: skip


def _watermarks(
    table: pa.Table, names: Sequence[str], numbers: Ints, complete: Ints, reads: NDArray[np.bool_]
) -> dict[str, list[tuple[int, int]]]:
    """Of each partition some, evenly spaced."""
    found = {}
    for number, name in enumerate(names):
        rows = np.flatnonzero(reads & (numbers == number))
        rows = rows[:: max(len(rows) // _MOST_WATERMARKS, 1)]
        told = integers(table.select(["high_watermark"]).take(pa.array(rows)), "high_watermark", NOWHERE)
        found[name] = [pair for pair in zip(complete[rows].tolist(), told.tolist(), strict=True) if pair[1] != NOWHERE]
    return found


def _partitions(table: pa.Table) -> tuple[list[str], Ints]:
    """Kafka's names of the partitions in a table of one chunk, and for each row which of these it is of."""
    if not table.num_rows:
        return [], np.empty(0, np.int64)
    texts, topic = categories(table["topic"].chunk(0))
    partition = integers(table, "partition", NOWHERE)
    key = (topic.astype(np.int64) << 32) + partition
    if (key == key[0]).all():
        distinct, numbers = key[:1], np.zeros(len(key), np.int64)
    else:
        distinct, numbers = np.unique(key, return_inverse=True)
    topics = [*texts, "None"]
    return [f"{topics[(each + 1 >> 32)]}-{_low(each)}" for each in distinct.tolist()], numbers


def _low(key: int) -> int:
    """The partition of a key of _partitions()."""
    low = key & 0xFFFFFFFF
    return low if low < 1 << 31 else low - (1 << 32)


def _errors(table: pa.Table, failed: NDArray[np.bool_]) -> Counter[tuple[str, str]]:
    rows = table.select(["error", "outcome"]).filter(pa.array(failed))
    grouped = rows.group_by(["error", "outcome"], use_threads=False).aggregate([([], "count_all")])
    columns: Mapping[str, list[object]] = grouped.to_pydict()
    counts = Counter[tuple[str, str]]()
    for error, outcome, count in zip(columns["error"], columns["outcome"], columns["count_all"], strict=True):
        counts["never answered" if error is None else str(error), str(outcome)] += int(str(count))
    return counts
