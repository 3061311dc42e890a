"""A log that works, as columns: what clients see of one partition, made a chunk of offsets at a time.

Every batch takes effect at an instant of its own, in the order of offsets, and every operation is invoked before and
completed after the instant at which it takes effect; so the history is linearizable by construction. A chunk needs
of the one before only when it ended, so memory does not grow with the log.

Of the processes the last three follow the log, ask for its end, and read it finally; the others append, and have one
batch at a time under way in each partition. Readers share what they do between more processes where these are few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spark_history.files import Bools, Ints
from spark_history.log import NEVER, NOWHERE

APPEND, READ, LIST_OFFSETS, FINAL_READ = range(4)
KINDS: Final = ("append", "read", "list_offsets", "final_read")
OK, FAIL, INFO = range(3)
OUTCOMES: Final = ("ok", "fail", "info")

CHUNK_OFFSETS: Final = 1 << 20
TAIL_RECORDS: Final = 100  # a fetch of the reader that follows the log
FINAL_RECORDS: Final = 500
MAX_BATCH: Final = 20
ORIGIN: Final = 10**9  # ns, when the run begins
_DURATION: Final = 60 * 10**9  # ns, of a log of few enough records
_GAP: Final = (500, 100_000_000)  # ns between two records
_LATENCY: Final = 20_000_000  # ns
_INDETERMINATE: Final = 1 / 100  # of the batches; all of these took effect
_GHOSTS: Final = 1 / 400  # appends without effect, failed and indeterminate, to each that had one
_ENDS: Final = 1 / 200  # questions for the end of the log to each append

#: The columns of an operation, and what stands for null in each.
NULLS: Final = {
    "process": 0, "kind": APPEND, "value": NOWHERE, "invoke": 0, "complete": NEVER, "outcome": OK, "offset": NOWHERE,
    "high_watermark": NOWHERE, "position": NOWHERE, "observed": NEVER, "first": NOWHERE, "last": NOWHERE,
    "records": NOWHERE, "repeats": NOWHERE, "op": NOWHERE,
}  # fmt: skip
RECORD: Final = ("op", "offset", "value", "final")


@dataclass(frozen=True)
class Shape:
    """How many operations of each kind one log has."""

    appends: int  # that took effect: the length of the log
    ghosts: int
    tails: int
    ends: int
    finals: int

    @staticmethod
    def of(operations: int) -> Shape:
        """Of all kinds together exactly `operations`, at least 1."""
        appends = int((operations - 1) / (1 + 1 / TAIL_RECORDS + 1 / FINAL_RECORDS + _GHOSTS + _ENDS))
        ghosts = int(appends * _GHOSTS)
        tails = sum(_tails(low, high, appends) for low, high in ranges(appends))
        finals = max(1, -(-appends // FINAL_RECORDS))
        return Shape(appends, ghosts, tails, operations - appends - ghosts - tails - finals, finals)


def ranges(appends: int) -> list[tuple[int, int]]:
    """The offsets that are made at a time."""
    return [(low, min(low + CHUNK_OFFSETS, appends)) for low in range(0, max(appends, 1), CHUNK_OFFSETS)]


def _tails(low: int, high: int, appends: int) -> int:
    """Fetches of a range: the last batch of one that others follow is left out, as it may only end with the range."""
    return max(high - low - (MAX_BATCH if high < appends else 0), 0) // TAIL_RECORDS


@dataclass
class Chunk:
    """A range of offsets of one log. Rows 0 to high - low - 1 are the appends that stand there, in order."""

    partition: int
    low: int
    high: int
    last: bool  # of its log
    length: int  # of the whole log
    rows: dict[str, Any]  # NULLS, columns of one length
    records: dict[str, Any]  # RECORD, what reads returned
    effect: Ints  # by offset, ns
    tailed: int  # the offset up to which the log was followed

    def place(self, row: int) -> dict[str, int]:
        return {"partition": self.partition, "offset": self.low + row, "value": int(self.rows["value"][row])}

    def add_rows(self, count: int, **columns: Any) -> None:
        self.rows = concatenate([self.rows, filled(count, columns)], NULLS)

    def add_records(self, op: int, offsets: Sequence[int], values: Any) -> None:
        more = {"op": np.full(len(offsets), op), "offset": np.array(offsets, np.int64), "value": np.asarray(values)}
        self.records = concatenate([self.records, more | {"final": np.zeros(len(offsets), bool)}], RECORD)

    def keep_records(self, mask: Bools) -> None:
        self.records = {name: column[mask] for name, column in self.records.items()}


def filled(count: int, columns: dict[str, Any]) -> dict[str, Any]:
    """Rows with null in every other column."""
    rows: dict[str, Any] = {name: np.full(count, null, np.int64) for name, null in NULLS.items()}
    for name, values in columns.items():
        rows[name][:] = values
    return rows


def concatenate(parts: Sequence[dict[str, Any]], names: Any) -> dict[str, Any]:
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


class LogModel:
    """One partition. first_op: the number of its first operation; the values are the numbers of the appends."""

    def __init__(
        self, partition: int, shape: Shape, processes: int, first_op: int, random: np.random.Generator
    ) -> None:
        self.partition = partition
        self.shape = shape
        self.unread = Counter[int]()  # by final read: how many of its records a defect took away
        self.end = shape.appends  # of the final log
        self._processes = processes
        self._producers = max(processes - 3, 1)
        self._random = random
        self._gap = int(np.clip(_DURATION // max(shape.appends, 1), *_GAP))
        self._next_op = first_op
        self._first_final = first_op + shape.appends + shape.ghosts + shape.tails + shape.ends
        #: Nothing but the final reads is invoked later.
        self.quiet_at = ORIGIN + 2 * self._gap * shape.appends + 10 * _LATENCY

    def chunks(self) -> Iterator[Chunk]:
        """In the order of offsets. The first holds what stands nowhere, too; see final_reads() for the last."""
        begins_at, ends_left = ORIGIN, self.shape.ends
        parts = ranges(self.shape.appends)
        for number, (low, high) in enumerate(parts):
            last = number == len(parts) - 1
            ends = ends_left if last else self.shape.ends // len(parts)
            ends_left -= ends
            chunk = self._make(low, high, last, begins_at, ends)
            begins_at = int(chunk.effect[-1]) if high > low else begins_at
            yield chunk

    def final_reads(self) -> dict[str, Any]:
        """Rows; to be asked for when all chunks are made."""
        end = self.end
        number = np.arange(max(1, -(-end // FINAL_RECORDS)))
        first, last = number * FINAL_RECORDS, np.minimum((number + 1) * FINAL_RECORDS, end) - 1
        records = last - first + 1 - np.array([self.unread[each] for each in number.tolist()], np.int64)
        some = records > 0
        invoke = self.quiet_at + number * 1_000
        return filled(
            len(number),
            {
                "process": self._reader(2), "kind": FINAL_READ, "invoke": invoke, "complete": invoke + _LATENCY,
                "offset": first, "high_watermark": end, "position": end, "first": np.where(some, first, NOWHERE),
                "last": np.where(some, last, NOWHERE), "records": records, "repeats": 0,
                "op": self._first_final + number,
            },
        )  # fmt: skip

    @property
    def reader(self) -> int:
        """The process of what a defect adds."""
        return self._reader(0)

    def _reader(self, number: int) -> int:
        return min(self._producers + number, self._processes - 1)

    def _make(self, low: int, high: int, last: bool, begins_at: int, ends: int) -> Chunk:
        count, tails = high - low, _tails(low, high, self.shape.appends)
        size, effect = self._batches(count, begins_at)
        reads = self._readings(low, last, begins_at, tails, ends, size, effect)
        appends = self._appends(low, size, effect)
        parts = [appends, reads, *([self._ghosts()] if low == 0 else [])]
        rows = concatenate(parts, NULLS)
        invoked = np.argsort(rows["invoke"], kind="stable")
        rows["op"][invoked] = self._next_op + np.arange(len(invoked))
        self._next_op += len(invoked)
        is_append = rows["kind"] == APPEND
        rows["value"][is_append] = rows["op"][is_append]

        until = tails * TAIL_RECORDS
        offset, value = low + np.arange(count), rows["value"][:count]
        tail_op = np.repeat(rows["op"][count : count + tails], TAIL_RECORDS)
        records = {
            "op": np.concatenate((tail_op, self._first_final + offset // FINAL_RECORDS)),
            "offset": np.concatenate((offset[:until], offset)),
            "value": np.concatenate((value[:until], value)),
            "final": np.repeat([False, True], (until, count)),
        }
        unknown = rows["outcome"][:count] == INFO
        rows["observed"][:count][unknown] = self.observed(rows, np.flatnonzero(unknown), count, tails, low)
        return Chunk(
            self.partition, low, high, last, self.shape.appends, rows, records, np.repeat(effect, size), low + until
        )

    def observed(self, rows: dict[str, Any], which: Ints, count: int, tails: int, low: int) -> Ints:
        """When each of these appends was first seen."""
        fetch = which // TAIL_RECORDS
        finally_ = self.quiet_at + (low + which) // FINAL_RECORDS * 1_000 + _LATENCY
        completed = np.append(rows["complete"][count : count + tails], NEVER)
        return np.minimum(completed[np.minimum(fetch, tails)], finally_)

    def _batches(self, count: int, begins_at: int) -> tuple[Ints, Ints]:
        """(records, ns at which it takes effect) of each batch; half of them are single records."""
        random = self._random
        sizes = random.integers(1, MAX_BATCH + 1, count)
        sizes[random.random(count) < 0.5] = 1
        until = np.cumsum(sizes)
        sizes = sizes[: int(np.searchsorted(until, count)) + 1]
        if count:
            sizes[-1] -= int(until[len(sizes) - 1]) - count
        return sizes, begins_at + np.cumsum(random.integers(1, 2 * self._gap * sizes + 1))

    def _appends(self, low: int, size: Ints, effect: Ints) -> dict[str, Any]:
        random, batches, producers = self._random, len(size), self._producers
        invoke = np.maximum(effect - random.integers(0, _LATENCY, batches), 0)
        complete = effect + random.integers(1, _LATENCY, batches)
        # A process has one batch at a time: half-way to its next one this one is over.
        between = effect[:-producers] + (effect[producers:] - effect[:-producers]) // 2
        complete[:-producers] = np.minimum(complete[:-producers], np.maximum(between, effect[:-producers] + 1))
        invoke[producers:] = np.minimum(np.maximum(invoke[producers:], between + 1), effect[producers:])
        known = random.random(batches) >= _INDETERMINATE
        given_up = random.random(batches) < 0.5
        columns = {
            "process": np.arange(batches) % producers, "invoke": invoke,
            "complete": np.where(known | given_up, complete, NEVER), "outcome": np.where(known, OK, INFO),
        }  # fmt: skip
        rows = filled(int(size.sum()), {name: np.repeat(column, size) for name, column in columns.items()})
        rows["position"] = low + np.arange(len(rows["kind"]))
        rows["offset"] = np.where(rows["outcome"] == OK, rows["position"], NOWHERE)
        return rows

    def _readings(
        self, low: int, last: bool, begins_at: int, tails: int, ends: int, size: Ints, effect: Ints
    ) -> dict[str, Any]:
        """The fetches that follow the log, then the questions for its end."""
        random, length = self._random, np.cumsum(size)
        # Of a chunk that others follow, the last batch is out of sight: the reading would stand beyond the chunk.
        latest = begins_at if not len(effect) else int(effect[-1] if last else effect[-1] - 1)
        until = np.arange(1, tails + 1) * TAIL_RECORDS
        since = effect[np.searchsorted(length, until)]
        followed = np.maximum(np.minimum(since + random.integers(0, _LATENCY, tails), latest), since)
        at = np.concatenate((followed, random.integers(begins_at, max(latest, begins_at) + 1, ends)))
        seen = low + np.append(0, length)[np.searchsorted(effect, at, "right")]
        tail = np.arange(tails + ends) < tails
        first = low + np.append(until - TAIL_RECORDS, np.zeros(ends, np.int64))
        columns = {
            "process": np.where(tail, self._reader(0), self._reader(1)), "kind": np.where(tail, READ, LIST_OFFSETS),
            "invoke": np.maximum(at - random.integers(0, _LATENCY, len(at)), 0),
            "complete": at + random.integers(1, _LATENCY, len(at)),
            "offset": np.where(tail, first, seen), "high_watermark": np.where(tail, seen, NOWHERE), "position": seen,
            "first": np.where(tail, first, NOWHERE), "last": np.where(tail, first + TAIL_RECORDS - 1, NOWHERE),
            "records": np.where(tail, TAIL_RECORDS, NOWHERE), "repeats": np.where(tail, 0, NOWHERE),
        }  # fmt: skip
        return filled(tails + ends, columns)

    def _ghosts(self) -> dict[str, Any]:
        random, count = self._random, self.shape.ghosts
        failed = random.random(count) < 0.5
        invoke = random.integers(ORIGIN, max(self.quiet_at - 10 * _LATENCY, ORIGIN + 1), count)
        columns = {
            "process": random.integers(0, self._producers, count), "invoke": invoke,
            "complete": np.where(failed, invoke + random.integers(1, _LATENCY, count), NEVER),
            "outcome": np.where(failed, FAIL, INFO),
        }  # fmt: skip
        return filled(count, columns)
