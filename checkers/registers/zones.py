"""Zones: registers whose writes are all distinct, exact and in O(n log n) (Gibbons and Korach, "Testing shared
memories", SIAM J. Comput. 26(4), 1997), all keys of a file in one pass of NumPy.

A write and the reads that returned its value are a cluster; the initial value is a write before everything. With

    f = the earliest completion in the cluster        s = the latest invocation in the cluster

some operation of cluster A certainly precedes some operation of cluster B if f_A < s_B, and since each value is written
once, all of A must then come before all of B. A history is linearizable if and only if every read returned a value
that was written, no read completed before its write was invoked, and no two clusters clash: f_A < s_B and f_B < s_A.

Between f and s lies the cluster's zone. It is forward if f < s: the register certainly held the value throughout.
Otherwise it is backward: the value was there for at least an instant between s and f. Two clusters clash if and only
if two forward zones overlap, or a backward zone lies within a forward one.

Many keys: the times of each key are shifted into a window of their own, so that no two keys' clusters can clash.

Independent violations: forward zones are taken by their ends, and those that overlap the last one taken are left out:
the fewest that have to go for the rest to be disjoint. Each zone left out is one violation, and so is each one taken
that has a backward zone inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers.naming import NIL
from checkers.registers.columns import FAIL, OK, READ, WRITE, Columns
from spark_history.files import Bools, Ints
from spark_history.log import NEVER

#: Sum of the keys' durations that one pass can hold, ns.
_HORIZON: Final = 1 << 62
#: A table indexed by value is made if it is at most this many times as long as there are operations.
_DENSE: Final = 4


@dataclass(frozen=True)
class Simple:
    """Which keys zones can decide."""

    starts: Ints  # first row of each key
    index: Ints  # of each row, which key
    decidable: Bools  # by key


def find_simple(columns: Columns, initial: int) -> tuple[Simple, Ints]:
    """Keys with reads and writes alone, whose writes are distinct and differ from `initial`; and of each row the
    row that wrote its value, of reads and writes that may have taken effect: -1 for the initial value, -2 for none."""
    key = columns.key
    starts = _starts(key)
    index = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(key))))
    decidable = np.ones(len(starts), bool)
    effective = columns.outcome != FAIL
    write = effective & (columns.kind == WRITE)
    decidable[index[effective & (columns.kind > WRITE)]] = False
    decidable[index[write & (columns.value == initial)]] = False
    writes = np.flatnonzero(write)
    reads = np.flatnonzero((columns.kind == READ) & (columns.outcome == OK))
    writer = np.full(len(key), -2)
    slot, limit = _slots(columns.value, index, writes, len(starts))
    table = np.full(limit + 1, -2)
    mine = slot[writes]
    table[mine] = writes
    decidable[index[writes[table[mine] != writes]]] = False  # written again later
    found = table[slot[reads]]
    if len(writes):
        source = np.maximum(found, 0)
        elsewhere = (index[source] != index[reads]) | (columns.value[source] != columns.value[reads])
        found[elsewhere] = -2
    found[columns.value[reads] == initial] = -1
    writer[writes], writer[reads] = writes, found
    return Simple(starts, index, decidable), writer


def _slots(value: Ints, index: Ints, writes: Ints, keys: int) -> tuple[Ints, int]:
    """A number below the limit for each row: writes of different keys or values differ. Rows whose value nothing of
    their key wrote may have any."""
    wanted = value[writes]
    plain = wanted[wanted != NIL]
    if not len(plain):
        return index, keys
    low, high = int(plain.min()), int(plain.max())
    span = high - low + 2  # and nil
    room = _DENSE * len(value) + 1000
    if span * keys > room:
        if span > room or np.bincount(np.where(wanted == NIL, 0, wanted - low + 1)).max() > 1:
            distinct = np.unique(wanted)
            codes = np.minimum(np.searchsorted(distinct, value), len(distinct) - 1)
            pair = index * len(distinct) + codes
            pairs = np.unique(pair[writes])
            return np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1), len(pairs)
        keys, index = 1, np.zeros(1, np.int64)  # all keys' values are distinct
    inside = (value >= low) & (value <= high)
    return index * span + np.where(inside, value - low + 1, 0), span * keys


def windows(columns: Columns) -> Iterator[Columns]:
    """Whole keys each, so few that their times fit side by side in an int64: nearly always all at once."""
    starts = _starts(columns.key)
    spans = _spans(columns, starts)
    if spans.sum(dtype=float) < _HORIZON:
        yield columns
        return
    low, total = 0, 0
    for start, span in zip(starts.tolist(), spans.tolist(), strict=True):
        if total + span >= _HORIZON and start > low:
            yield columns.take(slice(low, start))
            low, total = start, 0
        total += span
    yield columns.take(slice(low, len(columns)))


def _starts(key: Ints) -> Ints:
    return np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.int64)


def _spans(columns: Columns, starts: Ints) -> Ints:
    """How long each key's window is, ns."""
    if not len(starts):
        return starts
    last = np.append(starts[1:], len(columns)) - 1
    finite = np.where(columns.complete == NEVER, columns.invoke, columns.complete)
    latest = np.maximum(np.maximum.reduceat(finite, starts), columns.invoke[last])
    spans: Ints = latest - columns.invoke[starts] + 3
    return spans


@dataclass(frozen=True)
class Zones:
    """Of the clusters of many keys: first the initial value of each key, then a cluster a write. Times shifted."""

    keys: int
    reads: Ints  # rows of reads that count
    cluster: Ints  # which cluster each of these is of
    writes: Ints  # rows
    invoke: Ints  # of every row
    complete: Ints
    f: Ints
    s: Ints
    kept: Bools

    @staticmethod
    def of(columns: Columns, simple: Simple, writer: Ints, reads: Ints) -> Zones:
        """reads: rows of those that returned a value written before they completed, of keys that are decidable."""
        starts, index = simple.starts, simple.index
        spans = _spans(columns, starts)
        origin = np.cumsum(spans) - spans
        shift = origin - columns.invoke[starts] + 1
        if len(starts) > 1:
            shift = shift[index]
        invoke = columns.invoke + shift
        complete = np.where(
            columns.complete == NEVER, NEVER, columns.complete + np.where(columns.complete == NEVER, 0, shift)
        )
        writes = np.flatnonzero((columns.kind == WRITE) & (columns.outcome != FAIL))
        if not simple.decidable.all():
            writes = writes[simple.decidable[index[writes]]]
        number = np.empty(len(columns), np.int64)
        number[writes] = np.arange(len(starts), len(starts) + len(writes))
        sources = writer[reads]
        cluster = np.where(sources < 0, index[reads], number[sources])
        f = np.concatenate([origin, complete[writes]])
        read_at = np.full(len(f), -1)
        read_at[cluster] = invoke[reads]  # in the order of invocation: the latest stays
        s = np.maximum(np.concatenate([origin, invoke[writes]]), read_at)
        np.minimum.at(f, cluster, complete[reads])
        kept = (read_at >= 0) | (f < NEVER)  # not a write that may never have happened, and that nobody saw
        return Zones(len(starts), reads, cluster, writes, invoke, complete, f, s, kept)

    def clashes(self) -> tuple[Ints, Ints]:
        """Of each violation the cluster that has to go, and one that it clashes with."""
        f, s = self.f, self.s
        clusters = np.flatnonzero(self.kept)
        forward = f[clusters] < s[clusters]
        forwards, backwards = clusters[forward], clusters[~forward]
        forwards = forwards[np.argsort(f[forwards], kind="stable")]
        out = partner = np.empty(0, np.int64)
        ends = np.maximum.accumulate(s[forwards])
        if (ends[:-1] > f[forwards[1:]]).any():
            out, partner = self._overlaps(forwards, ends)
            forwards = forwards[~np.isin(forwards, out)]
        if not len(forwards) or not len(backwards):
            return out, partner
        # Those left are disjoint: the one that could hold a backward zone is the last to begin before it.
        around = np.searchsorted(f[forwards], s[backwards]) - 1
        inside = (around >= 0) & (s[forwards[np.maximum(around, 0)]] > f[backwards])
        if not inside.any():
            return out, partner
        holder, held = forwards[around[inside]], backwards[inside]
        order = np.lexsort((f[held], holder))
        holder, held = holder[order], held[order]
        first = np.append(True, holder[1:] != holder[:-1])
        return np.append(out, holder[first]), np.append(partner, held[first])

    def _overlaps(self, forwards: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """forwards: by f; ends: the running maximum of their s."""
        f, s = self.f, self.s
        # Stretches of zones that hang together by overlaps; those of one zone are no concern here.
        begins = np.append(True, ends[:-1] <= f[forwards[1:]])
        stretch = np.cumsum(begins) - 1
        entangled = forwards[np.bincount(stretch)[stretch] > 1]
        entangled = entangled[np.lexsort((f[entangled], s[entangled]))]
        taken, end = -1, -1
        out, partner = [], []
        for cluster, begin, until in zip(entangled.tolist(), f[entangled].tolist(), s[entangled].tolist(), strict=True):
            if begin >= end:
                taken, end = cluster, until
            else:
                out.append(cluster)
                partner.append(taken)
        return np.array(out, np.int64), np.array(partner, np.int64)
