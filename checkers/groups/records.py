"""Sets of offsets as arrays: acknowledged records, and ranges of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_history.files import Bools, Ints, equals, integers
from spark_history.log import NEVER, NOWHERE
from spark_history.schema import OPERATIONS

#: What a table of operations needs.
COLUMNS: Final = pa.schema([OPERATIONS.field(name) for name in ("kind", "outcome", "offset", "complete")])


class Ranges(NamedTuple):
    """Disjoint and in order, from `start` to below `end`."""

    start: Ints
    end: Ints

    @property
    def length(self) -> int:
        return int((self.end - self.start).sum())

    def hold(self, offsets: Ints) -> Bools:
        if not len(self.start):
            return np.zeros(len(offsets), bool)
        before = np.searchsorted(self.start, offsets, "right") - 1
        held: Bools = (before >= 0) & (offsets < self.end[before])
        return held


def union(start: Ints, end: Ints) -> Ranges:
    """Of ranges that may overlap, or be empty."""
    start, end = start[end > start], end[end > start]
    if not len(start):
        return Ranges(start, end)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.append(True, start[1:] > reach[:-1])
    return Ranges(start[first], reach[np.append(np.flatnonzero(first)[1:] - 1, len(start) - 1)])


@dataclass(frozen=True)
class Acknowledged:
    """Records of one partition that an append was told the offset of, in order. complete: when it was told."""

    offset: Ints
    complete: Ints

    def end_at(self, time: int) -> int:
        """One past the last that was acknowledged by then."""
        return int(self.offset[self.complete <= time].max(initial=NOWHERE)) + 1


NOTHING: Final = Acknowledged(np.empty(0, np.int64), np.empty(0, np.int64))


def acknowledged(logs: Iterable[tuple[str, int, Iterable[pa.Table]]]) -> Mapping[tuple[str, int], Acknowledged]:
    """By topic and partition. logs: with the tables of their operations, COLUMNS at least, texts as dictionaries."""
    found = {}
    for topic, partition, tables in logs:
        offsets, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for table in tables:
            offset = integers(table, "offset", NOWHERE)
            kept = equals(table, "kind", "append") & equals(table, "outcome", "ok") & (offset != NOWHERE)
            offsets.append(offset[kept])
            times.append(integers(table, "complete", NEVER)[kept])
        offset, complete = np.concatenate(offsets), np.concatenate(times)
        order = np.argsort(offset, kind="stable")
        found[topic, partition] = Acknowledged(offset[order], complete[order])
    return found


@dataclass(frozen=True)
class Known:
    """Records that are known to stand in a log: acknowledged, or handed to a member of whichever group. Where a log has
    an offset without a record (a compacted one, a transaction's marker), nobody skips anything."""

    acknowledged: Ints
    polled: Ranges

    def first(self, low: Ints, high: Ints) -> Ints:
        """The first such record of each [low, high); NEVER: there is none."""
        found = np.full(len(low), NEVER)
        if len(self.acknowledged):
            at = np.searchsorted(self.acknowledged, low)
            there = at < len(self.acknowledged)
            found[there] = self.acknowledged[at[there]]
        if len(self.polled.start):
            at = np.searchsorted(self.polled.end, low, "right")
            there = at < len(self.polled.start)
            found[there] = np.minimum(found[there], np.maximum(self.polled.start[at[there]], low[there]))
        found[found >= high] = NEVER
        return found

    def count(self, low: int, high: int) -> int:
        """How many there are in [low, high)."""
        own = self.acknowledged[np.searchsorted(self.acknowledged, low) : np.searchsorted(self.acknowledged, high)]
        own = np.unique(own)
        start, end = np.clip(self.polled.start, low, high), np.clip(self.polled.end, low, high)
        return int(np.count_nonzero(~self.polled.hold(own))) + int((end - start).sum())
