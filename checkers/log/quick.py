"""Finds, among many short runs at once, those that have no anomaly and so need only be counted.

Judging a log takes a hundred NumPy calls however short it is. Here all logs of many runs are one: log after log, each
one's times moved to after those of the log before, so that no two logs contradict each other. A run is clean if in
each of its logs

* the final log is known from offset 0, every offset of it once, and every value in it is that of an append;
* every acknowledged append stands in it at its offset, and no failed one does;
* every read returned what the final log holds, each offset of its range once and in order, and knew of no more; and
* no operation was invoked after one at a higher position had completed.

These are stronger than the definition (linearizability.py), so a clean run has no anomaly, not even a weak one. Any
other run is judged by itself, also if its history contradicts itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.log.scope import Options
from checkers.log.segment import APPEND, FAIL, FINAL_READ, INFO, KINDS, LIST_OFFSETS, OK, OUTCOMES
from spark_history.files import Ints, categories, codes, integers
from spark_history.log import NEVER, NOWHERE

_MOST: Final = 1 << 40  # of numbers that share 63 bits with that of a log


def count_clean(
    operations: pa.Table, reads: pa.Table, lengths: tuple[Ints, Ints], options: Sequence[Options]
) -> list[dict[str, int] | None]:
    """For each run its counts (log_linearizability.count_operations) if it is clean; None: to be judged by itself.

    operations, reads: OPERATIONS and READS of all runs, one run after the other; lengths: rows of each run in both.
    """
    runs = _Runs(operations, reads, lengths, options)
    try:
        runs.look()
    except _Outlandish:
        return [None] * len(options)
    return runs.counts()


class _Outlandish(Exception):
    """Numbers so large that they cannot be put into one with others."""


class _Runs:
    def __init__(
        self, operations: pa.Table, reads: pa.Table, lengths: tuple[Ints, Ints], options: Sequence[Options]
    ) -> None:
        self._options = options
        self._clean = np.array([each.acks_all and not each.sparse and not each.log_start for each in options], bool)
        operations = operations.unify_dictionaries().combine_chunks()
        reads = reads.unify_dictionaries().combine_chunks()
        self._run = np.repeat(np.arange(len(options)), lengths[0])
        self._read_run = np.repeat(np.arange(len(options)), lengths[1])
        self._kind, self._outcome = codes(operations, "kind", KINDS), codes(operations, "outcome", OUTCOMES)
        self._op, self._value, self._offset = (integers(operations, n, NOWHERE) for n in ("op", "value", "offset"))
        self._watermark = integers(operations, "high_watermark", NOWHERE)
        self._invoke, self._complete = integers(operations, "invoke", 0), integers(operations, "complete", NEVER)
        self._record_op, self._record_offset, self._record_value = (
            integers(reads, name, NOWHERE) for name in ("op", "offset", "value")
        )
        self._number_logs(operations, reads)

    def _number_logs(self, operations: pa.Table, reads: pa.Table) -> None:
        """Logs in the order of runs; -1: a record of a log that no operation is of."""
        topics, of_operation = _topics(operations)
        names, of_record = _topics(reads)
        known = {topic: number for number, topic in enumerate(topics)}
        of_record = np.array([*(known.get(name, -1) for name in names), -1], np.int64)[of_record]
        partition, of = integers(operations, "partition", NOWHERE), integers(reads, "partition", NOWHERE)
        most = max(int(partition.max(initial=0)), int(of.max(initial=0))) + 1
        negative = min(partition.min(initial=0), of.min(initial=0), of_operation.min(initial=0)) < 0
        self._outlandish = bool(negative) or most * (len(topics) + 1) * len(self._clean) > _MOST
        key = (self._run * len(topics) + of_operation) * most + partition
        logs, self._log = np.unique(key, return_inverse=True)
        key = np.where(of_record >= 0, (self._read_run * len(topics) + of_record) * most + of, -1)
        at = np.minimum(np.searchsorted(logs, key), max(len(logs) - 1, 0))
        self._record_log = np.where(logs[at] == key, at, -1) if len(logs) else np.full(len(key), -1)
        self._run_of_log = np.zeros(len(logs), np.int64)
        self._run_of_log[self._log] = self._run

    def _odd(self, runs: Any) -> None:
        self._clean[runs] = False

    def look(self) -> None:
        """Raises _Outlandish."""
        biggest = max(int(each.max(initial=0)) for each in (self._op, self._value, self._offset, self._watermark))
        smallest = min(int(each.min(initial=0)) for each in (self._op, self._value, self._offset, self._record_value))
        biggest = max(biggest, int(self._record_offset.max(initial=0)), int(self._record_value.max(initial=0)))
        if self._outlandish or biggest >= _MOST or smallest < NOWHERE or len(self._run_of_log) >= 1 << 22:
            raise _Outlandish
        ok, append = self._outcome == OK, self._kind == APPEND
        wrong = (self._complete < self._invoke) | (ok & (self._complete == NEVER)) | (self._kind < 0) | (self._op < 0)
        wrong |= (self._outcome < 0) | (append & (self._value < 0)) | (append & ok & (self._offset < 0))
        wrong |= ok & (self._kind == LIST_OFFSETS) & (self._offset < 0)
        self._odd(self._run[wrong])
        last = self._match_records(ok)
        end, base = self._final_log(ok, last)
        position = self._place(ok, append, end, base, last)
        self._in_order(position, append)
        self._end = end
        self._found = append & (self._outcome == INFO) & (position >= 0)

    def _match_records(self, ok: Any) -> Ints:
        """Every record is one of a read that is on record, and each read's follow on each other. Returns the last
        offset that each operation returned."""
        key = (self._run << 40) + self._op
        order = np.argsort(key, kind="stable")
        key = key[order]
        self._odd(self._run[order[1:][key[1:] == key[:-1]]])
        wanted = (self._read_run << 40) + self._record_op
        at = np.minimum(np.searchsorted(key, wanted), max(len(key) - 1, 0))
        row = order[at] if len(order) else at
        self._row = row
        last, records = np.full(len(self._op), NOWHERE), np.zeros(len(self._op), np.int64)
        if not len(row):
            return last
        kind = self._kind[row]
        lost = (key[at] != wanted) | ~ok[row] | (self._log[row] != self._record_log)
        lost |= (kind == APPEND) | (kind == LIST_OFFSETS) | (self._record_offset < 0)
        self._odd(self._read_run[lost])
        new = np.append(True, row[1:] != row[:-1])
        self._odd(self._read_run[1:][~new[1:] & (np.diff(self._record_offset) != 1)])
        starts = np.flatnonzero(new)
        np.add.at(records, row[starts], 1)
        self._odd(self._run[records > 1])  # its records do not stand together
        first = self._record_offset[starts]
        asked = self._offset[row[starts]]
        # A fetch may begin within a batch, but not before what it returns; a final one says that its range is known.
        final = kind[starts] == FINAL_READ
        self._odd(self._read_run[starts[((asked != NOWHERE) & (asked < first)) | (final & (asked != first))]])
        last[row[starts]] = self._record_offset[np.append(starts[1:], len(row)) - 1]
        return last

    def _final_log(self, ok: Any, last: Ints) -> tuple[Ints, Ints]:
        """(end of each log, where it begins in a table of all final logs), once every offset is known there."""
        logs = len(self._run_of_log)
        final = np.flatnonzero(ok & (self._kind == FINAL_READ))
        end, start = np.full(logs, NOWHERE), np.full(logs, NEVER)
        np.maximum.at(end, self._log[final], np.maximum(self._watermark[final], last[final] + 1))
        np.minimum.at(start, self._log[final], self._offset[final])
        self._odd(self._run_of_log[(end < 0) | (start != 0)])
        end = np.maximum(end, 0)
        end[~self._clean[self._run_of_log]] = 0
        size = int(end.sum())
        if size > 16 * (len(self._op) + len(self._row)):
            raise _Outlandish
        base = np.cumsum(end) - end
        self._table = np.full(size, NOWHERE)
        mine = self._clean[self._read_run]
        log, offset, value = self._record_log[mine], self._record_offset[mine], self._record_value[mine]
        inside = offset < end[log]
        self._odd(self._run_of_log[log[~inside]])
        slot = (base[log] + offset)[inside]
        finally_ = (self._kind[self._row[mine]] == FINAL_READ)[inside]
        self._table[slot[finally_]] = value[inside][finally_]
        self._odd(self._run_of_log[log[inside][self._table[slot] != value[inside]]])
        self._log_of_slot = np.repeat(np.arange(logs), end)
        self._odd(self._run_of_log[self._log_of_slot[self._table == NOWHERE]])
        return end, base

    def _place(self, ok: Any, append: Any, end: Ints, base: Ints, last: Ints) -> Ints:
        """The position of every operation that has one."""
        rows = np.flatnonzero(append)
        key = (self._log[rows] << 40) + self._value[rows]
        order = np.argsort(key, kind="stable")
        key, rows = key[order], rows[order]
        self._odd(self._run[rows[1:][key[1:] == key[:-1]]])
        wanted = (self._log_of_slot << 40) + np.maximum(self._table, 0)
        at = np.minimum(np.searchsorted(key, wanted), max(len(key) - 1, 0))
        position = np.full(len(self._op), NOWHERE)
        if len(wanted):
            if not len(key):
                self._odd(self._run_of_log[self._log_of_slot])
                return position
            row, found = rows[at], key[at] == wanted
            self._odd(self._run_of_log[self._log_of_slot[~found | (self._outcome[row] == FAIL)]])
            times = np.bincount(row[found], minlength=len(position))
            self._odd(self._run[times > 1])
            position[row[found]] = (np.arange(len(wanted)) - base[self._log_of_slot])[found]
        self._odd(self._run[append & ok & (position != self._offset)])
        readings = ok & ~append
        seen = np.where(self._kind == LIST_OFFSETS, self._offset, np.maximum(self._watermark, last + 1))
        position[readings] = seen[readings]
        self._odd(self._run[readings & (position > end[self._log])])
        return position

    def _in_order(self, position: Ints, append: Any) -> None:
        rows = np.flatnonzero((position >= 0) & self._clean[self._run])
        if not len(rows):
            return
        log = self._log[rows]
        complete = np.where(self._outcome[rows] == OK, self._complete[rows], NEVER)
        since = int(self._invoke[rows].min())
        span = max(int(self._invoke[rows].max()), int(complete[complete != NEVER].max(initial=since))) - since + 1
        longest = 2 * (int(position[rows].max()) + 1)
        if span * len(self._run_of_log) >= 1 << 62 or longest * len(self._run_of_log) >= 1 << 62:
            raise _Outlandish
        key = log * longest + 2 * position[rows] + append[rows]
        order = np.argsort(key, kind="stable")
        key, rows, log, complete = key[order], rows[order], log[order], complete[order]
        invoke = self._invoke[rows] - since + log * span
        complete = np.where(complete == NEVER, NEVER, complete - since + log * span)
        first = np.append(np.minimum.accumulate(complete[::-1])[::-1], NEVER)
        suspects = np.flatnonzero(invoke > first[1:])
        beyond = np.searchsorted(key, key[suspects], "right")
        self._odd(self._run[rows[suspects[invoke[suspects] > first[beyond]]]])

    def counts(self) -> list[dict[str, int] | None]:
        runs, pairs = len(self._clean), len(KINDS) * len(OUTCOMES)
        pair = self._kind.astype(np.int64) * len(OUTCOMES) + self._outcome
        known = (self._kind >= 0) & (self._outcome >= 0)
        each = np.bincount((self._run * pairs + pair)[known], minlength=runs * pairs).reshape(runs, pairs)
        names = [f"{kind} {outcome}" for kind in KINDS for outcome in OUTCOMES]
        since = np.array([options.since for options in self._options], np.int64)
        struck = (pair == 0) & (self._complete >= since[self._run])
        columns = {
            "acknowledged": each[:, 0],
            "acknowledged since": np.bincount(self._run[struck], minlength=runs),
            "undecided": np.zeros(runs, np.int64),
            "indeterminate found": np.bincount(self._run[self._found], minlength=runs),
            "records read": np.bincount(self._read_run, minlength=runs),
            "records in final log": np.bincount(self._run_of_log, self._end, minlength=runs).astype(np.int64),
        }
        logs = np.bincount(self._run_of_log, minlength=runs)
        return [
            dict(zip(names, each[run].tolist(), strict=True)) | {name: int(of[run]) for name, of in columns.items()}
            if self._clean[run] and logs[run]
            else None
            for run in range(runs)
        ]


def _topics(table: pa.Table) -> tuple[list[str], Ints]:
    chunks = table["topic"].chunks
    names, numbers = categories(chunks[0]) if chunks else ([], np.empty(0, np.int32))
    return names, numbers.astype(np.int64)
