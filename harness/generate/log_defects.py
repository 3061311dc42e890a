"""What is wrong with a generated log, on purpose: each defect changes a place of a chunk so that it cannot be right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from harness.generate.log_model import (
    FAIL,
    FINAL_RECORDS,
    INFO,
    LIST_OFFSETS,
    OK,
    READ,
    TAIL_RECORDS,
    Chunk,
    LogModel,
)
from spark_history.files import Ints
from spark_history.log import NEVER, NOWHERE

MAX_LOST: Final = 10  # records at the end of a log

#: (chunk, the row of the append it strikes, numbers for operations of its own, model)
Plant = Callable[[Chunk, int, Iterator[int], LogModel], None]


class Defect(NamedTuple):
    anomaly: str
    what: str
    plant: Plant
    weak: bool = False  # the verdict stays pass


def candidates(chunk: Chunk) -> Ints:
    """The rows that a defect may strike: acknowledged, as are their neighbours, and within one fetch with these."""
    good = chunk.rows["outcome"][: chunk.high - chunk.low] == OK
    if len(good) < 3:
        return np.empty(0, np.int64)
    row = 1 + np.flatnonzero(good[:-2] & good[1:-1] & good[2:])
    within = (chunk.low + row) % TAIL_RECORDS
    return row[(within > 0) & (within < TAIL_RECORDS - 1)]


def _phantom(chunk: Chunk, row: int, _: Iterator[int], __: LogModel) -> None:
    chunk.rows["kind"][row] = NOWHERE  # left out when the rows are laid out


def _failed_visible(chunk: Chunk, row: int, _: Iterator[int], model: LogModel) -> None:
    _unacknowledge(chunk, row, model)
    chunk.rows["outcome"][row] = FAIL


def _unacknowledge(chunk: Chunk, row: int, model: LogModel) -> None:
    rows, tails = chunk.rows, (chunk.tailed - chunk.low) // TAIL_RECORDS
    rows["outcome"][row], rows["offset"][row] = INFO, NOWHERE
    rows["observed"][row] = model.observed(rows, np.array([row]), chunk.high - chunk.low, tails, chunk.low)[0]


def _unplace(chunk: Chunk, row: int) -> None:
    for name, null in (("offset", NOWHERE), ("position", NOWHERE), ("observed", NEVER), ("complete", NEVER)):
        chunk.rows[name][row] = null
    chunk.rows["outcome"][row] = INFO


def _inconsistent_offset(chunk: Chunk, row: int, _: Iterator[int], __: LogModel) -> None:
    offset, value = chunk.records["offset"], chunk.records["value"]
    here, there = np.flatnonzero(offset == chunk.low + row), np.flatnonzero(offset == chunk.low + row + 1)
    value[here], value[there] = value[there[0]], value[here[0]]


def _duplicate(chunk: Chunk, row: int, _: Iterator[int], __: LogModel) -> None:
    _unplace(chunk, row)
    chunk.records["value"][chunk.records["offset"] == chunk.low + row] = chunk.rows["value"][row - 1]


def _real_time_inversion(chunk: Chunk, row: int, _: Iterator[int], __: LogModel) -> None:
    invoke = int(chunk.rows["complete"][row + 1]) + 1
    chunk.rows["invoke"][row], chunk.rows["complete"][row] = invoke, invoke + 1_000_000


def _stale_end(chunk: Chunk, row: int, ops: Iterator[int], model: LogModel) -> None:
    end, invoke = chunk.low + row, int(chunk.rows["complete"][row]) + 1
    chunk.add_rows(
        1, op=next(ops), process=model.reader, kind=LIST_OFFSETS, invoke=invoke, complete=invoke + 1_000_000,
        offset=end, position=end,
    )  # fmt: skip


def _lagging_watermark(chunk: Chunk, row: int, ops: Iterator[int], model: LogModel) -> None:
    end, invoke = chunk.low + row, int(chunk.rows["complete"][row]) + 1
    chunk.add_rows(
        1, op=next(ops), process=model.reader, kind=READ, invoke=invoke, complete=invoke + 1_000_000, offset=end,
        high_watermark=end, position=end, records=0, repeats=0,
    )  # fmt: skip


def _stale_read(chunk: Chunk, row: int, ops: Iterator[int], model: LogModel) -> None:
    _lagging_watermark(chunk, row, ops, model)
    _stale_end(chunk, row, ops, model)


def _non_monotonic_read(chunk: Chunk, row: int, ops: Iterator[int], model: LogModel) -> None:
    at, end = int(chunk.effect[row]), chunk.low + row + 1
    for invoke, seen in ((at - 1, end), (at + 2, end - 1)):
        chunk.add_rows(
            1, op=next(ops), process=model.reader, kind=LIST_OFFSETS, invoke=invoke, complete=invoke + 2, offset=seen,
            position=seen,
        )  # fmt: skip


def _torn_prefix(chunk: Chunk, row: int, ops: Iterator[int], model: LogModel) -> None:
    at, offset, op = int(chunk.effect[row + 1]), chunk.low + row, next(ops)
    chunk.add_rows(
        1, op=op, process=model.reader, kind=READ, invoke=at - 1, complete=at + 1, offset=offset - 1,
        high_watermark=offset + 2, position=offset + 2, first=offset - 1, last=offset + 1, records=2, repeats=0,
    )  # fmt: skip
    chunk.add_records(op, [offset - 1, offset + 1], chunk.rows["value"][[row - 1, row + 1]])


def _skipped_offset(chunk: Chunk, row: int, _: Iterator[int], model: LogModel) -> None:
    _unplace(chunk, row)
    chunk.keep_records(chunk.records["offset"] != chunk.low + row)
    model.unread[(chunk.low + row) // FINAL_RECORDS] += 1
    if chunk.low + row < chunk.tailed:
        chunk.rows["records"][chunk.high - chunk.low + row // TAIL_RECORDS] -= 1


def _lost_append(chunk: Chunk, row: int, _: Iterator[int], model: LogModel) -> None:
    """The end of the log from `row` on."""
    model.end = end = chunk.low + row
    chunk.keep_records(~chunk.records["final"] | (chunk.records["offset"] < end))
    unseen = np.arange(max(row, chunk.tailed - chunk.low), chunk.high - chunk.low)
    for each in unseen[chunk.rows["outcome"][unseen] == INFO]:
        _unplace(chunk, int(each))


DEFECTS: Final = {
    "lost-append": Defect("lost append", "acknowledged records at the end of a log are gone", _lost_append),
    "phantom": Defect("phantom", "reads return a value that nobody appended", _phantom),
    "failed-visible": Defect("failed but visible", "an append that failed is read", _failed_visible),
    "inconsistent-offset": Defect(
        "inconsistent offset", "two records are read at each other's offsets", _inconsistent_offset
    ),
    "duplicate": Defect("duplicate", "a record stands at two offsets", _duplicate),
    "real-time-inversion": Defect(
        "real-time inversion", "an append stands before one that was over when it began", _real_time_inversion
    ),
    "stale-end": Defect("stale end of log", "an end of the log does not cover an acknowledged append", _stale_end),
    "stale-read": Defect(
        "stale end of log",
        "a reader is told of an end that an append had passed, and finds nothing there",
        _stale_read,
    ),
    "non-monotonic-read": Defect(
        "non-monotonic read", "a reader sees the log shorter than it had been", _non_monotonic_read
    ),
    "torn-prefix": Defect("torn prefix", "a read returns a record without the one before", _torn_prefix),
    "skipped-offset": Defect("skipped offset", "no read returns an offset that lies within its range", _skipped_offset),
    "lagging-watermark": Defect(
        "lagging watermark",
        "a fetch reports a watermark that an append had passed: weak",
        _lagging_watermark,
        weak=True,
    ),
}
