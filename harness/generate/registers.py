"""Histories of registers of any size, linearizable by construction or with a known defect.

All processes work on one key at a time, then on the next (Jepsen's independent/sequential-generator). Every operation
takes effect at an instant drawn between its invocation and its completion: in the order of these instants, each key's
register holds what was written last, and a read returns that. Operations of unknown outcome took effect or did not;
a process that had one goes on under a new number, as in Jepsen.

A defect is a short script of operations (register_defects.py) with values of their own, run while no other operation is
in progress: at such a place nothing else can explain it.

Written as checkers/registers lays histories out: in the order of keys, and of invocations, which is the same here. Many
keys share a file; a key of millions of operations has a file of its own, of several row groups. Memory is bounded by
ROWS, whatever the number of operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.stored import FILE_ROWS, FILES, Writer
from harness.errors import BadArguments
from harness.generate import check_defect
from harness.generate.register_defects import DEFECTS, DEFECTS_OF
from spark_history.files import CATEGORIES
from spark_history.regular import replacing
from spark_history.schema import REGISTERS

PLACES: Final = 5  # where a defect is planted
ROWS: Final = 500_000  # of a row group
UNIT_NS: Final = 1_000_000  # of a script's times
MEAN_NS: Final = 2_000_000  # of an operation's duration
PAUSE_NS: Final = 1_000_000  # mean, between two operations of a process
START_NS: Final = 1_000_000_000
_KINDS: Final = ("read", "write", "cas")
_OUTCOMES: Final = ("ok", "fail", "info")
_NIL: Final = -1


def generate(
    directory: Path,
    *,
    operations: int,
    processes: int,
    seed: int,
    defect: str | None,
    keys: int = 1,
    cas: float = 0.0,
    info: float = 0.01,
    fail: float = 0.01,
    values: int | None = None,
    writes: float = 0.5,
    places: int = PLACES,
) -> dict[str, Any]:
    """Write a run to `directory` (plan.json and history/) and return its label.

    operations: in all, a few more with a defect. keys: among which these are divided evenly. writes: share of the
    operations that are writes or cas; cas: share of these that are compare-and-set, half of which fail. info, fail:
    share of operations with that outcome, beside cas. values: how many different ones are written, over and over (None:
    all writes are distinct). places: where a defect is planted, each on a key and at a time drawn at random.
    Raises BadArguments.
    """
    workload = "cas-register" if cas else "register"
    check_defect(workload, defect, DEFECTS_OF)
    shape = _Shape(operations, processes, keys, cas, info, fail, values, writes)
    shape.check(places)
    made = _Made(np.random.default_rng(seed), shape)
    planted = _planted(made.rng, shape, places) if defect else {}
    at: list[dict[str, Any]] = []
    label = {
        "verdict": "pass" if defect is None else "fail",
        "anomaly": None if defect is None else DEFECTS[defect].anomalies[bool(cas or values)],
        "at": {"places": at},
    }
    plan: dict[str, Any] = {
        "run": directory.name,
        "workload": workload,
        "source": "generated",
        "initial": None,
        "operations": operations,
        "processes": processes,
        "keys": keys,
        "seed": seed,
        "defect": defect,
        "label": label,
    }
    writer = Writer(directory, plan, {"registers": REGISTERS})
    _write(writer, _pieces(made, defect, planted, at), shape.file_rows)
    plan["operations"] = made.operations
    if defect is None and not made.acknowledged:
        label["verdict"] = "unknown"  # it proves nothing
    writer.close()
    return label


@dataclass(frozen=True)
class _Shape:
    """What is asked for: see generate()."""

    operations: int
    processes: int
    keys: int
    cas: float
    info: float
    fail: float
    values: int | None
    writes: float

    def check(self, places: int) -> None:
        """Raises BadArguments."""
        for name in ("operations", "processes", "keys"):
            if getattr(self, name) < 1:
                raise BadArguments(f"{name} must be at least 1, not {getattr(self, name)}")
        if places < 1:
            raise BadArguments(f"places must be at least 1, not {places}")
        if self.keys > self.operations:
            raise BadArguments(f"{self.operations:,} operations cannot be divided among {self.keys:,} keys")
        if self.values is not None and self.values < 1:
            raise BadArguments(f"values must be at least 1, not {self.values}")
        for name in ("cas", "info", "fail", "writes"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadArguments(f"the share of {name} must lie between 0 and 1, not {getattr(self, name):g}")
        if self.info + self.fail > 1:
            raise BadArguments("the shares of info and fail are more than 1 together")

    def share(self, key: int) -> int:
        """Operations of one key."""
        return self.operations // self.keys + (key < self.operations % self.keys)

    @property
    def file_rows(self) -> int:
        """At least so many rows are in a file."""
        return max(min(ROWS, self.operations // FILES), FILE_ROWS)


def _planted(rng: np.random.Generator, shape: _Shape, places: int) -> dict[int, list[int]]:
    """By key, after how many of its operations the script runs."""
    planted: dict[int, list[int]] = {}
    for _ in range(places):
        key = int(rng.integers(shape.keys))
        planted.setdefault(key, []).append(int(rng.integers(shape.share(key) + 1)))
    return {key: sorted(spots) for key, spots in planted.items()}


@dataclass
class _Made:
    """What the history has come to."""

    rng: np.random.Generator
    shape: _Shape
    now: int = START_NS
    operations: int = 0
    acknowledged: int = 0
    next_value: int = 0
    crashed: np.ndarray = field(init=False)  # by thread: how often a process of it had an unknown outcome

    def __post_init__(self) -> None:
        self.crashed = np.zeros(self.shape.processes, np.int64)
        if self.shape.values is not None:
            self.next_value = self.shape.values

    def fresh(self, number: int) -> int:
        """The first of as many values that nothing else writes."""
        self.next_value += number
        return self.next_value - number

    def piece(self, key: int, counts: np.ndarray, held: int) -> tuple[dict[str, np.ndarray], int]:
        """Operations of keys from `key` on, counts[i] of the i-th; held: what their registers hold at first, _NIL:
        nil. Returns columns, and what the last register holds."""
        rng, total = self.rng, int(counts.sum())
        index = np.repeat(np.arange(len(counts)), counts)
        starts = np.cumsum(counts) - counts
        place = np.arange(total) - starts[index]
        thread, turn = place % self.shape.processes, place // self.shape.processes
        invoke, complete = self._times(index, thread, turn, total)
        point = invoke + ((complete - invoke) * rng.random(total)).astype(np.int64)

        drawn = rng.random(total)
        outcome = np.where(
            drawn < self.shape.info, 2, np.where(drawn < self.shape.info + self.shape.fail, 1, 0)
        ).astype(np.int8)
        changes = rng.random(total) < self.shape.writes
        swaps = changes & (rng.random(total) < self.shape.cas)
        kind = np.where(swaps, 2, np.where(changes, 1, 0)).astype(np.int8)
        outcome[swaps & (outcome == 0) & (rng.random(total) < 0.5)] = 1
        effective = changes & ((outcome == 0) | ((outcome == 2) & (rng.random(total) < 0.5)))
        if self.shape.values is None:
            first = self.fresh(total)
            value = first + place + starts[index]
        else:
            value = rng.integers(self.shape.values, size=total)

        # What the register holds just before each operation: the last value written before, of the same key.
        order = np.lexsort((point, index))
        rank = np.arange(total)
        last = np.maximum.accumulate(np.where(effective[order], rank, -1))
        before = np.append(-1, last[:-1])
        own = before >= starts[index[order]]
        current = np.empty(total, np.int64)
        current[order] = np.where(own, value[order][np.maximum(before, 0)], held)
        end = int(value[order][last[-1]]) if last[-1] >= starts[-1] else held

        expected = np.full(total, _NIL)
        expected[swaps] = current[swaps]
        expected[swaps & (outcome == 1)] = rng.integers(max(self.next_value, 1), size=total)[swaps & (outcome == 1)]
        value = np.where(kind == 0, np.where(outcome == 0, current, _NIL), value)
        lost = (outcome == 2) & (rng.random(total) < 0.5)  # no answer at all
        rows = np.lexsort((invoke, index))
        process = self._processes(thread, turn, index, outcome)
        columns = {
            "process": process[rows],
            "kind": kind[rows],
            "key": key + index[rows],
            "value": value[rows],
            "expected": expected[rows],
            "invoke": invoke[rows],
            "complete": np.where(lost, _NIL, complete)[rows],
            "outcome": outcome[rows],
        }
        return self._numbered(columns), end

    def _times(
        self, index: np.ndarray, thread: np.ndarray, turn: np.ndarray, total: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each thread's operations follow each other; each key begins when the one before is done."""
        length = (1 + self.rng.exponential(MEAN_NS, total)).astype(np.int64)
        pause = (1 + self.rng.exponential(PAUSE_NS, total)).astype(np.int64)
        order = np.lexsort((turn, thread, index))
        both = np.cumsum((length + pause)[order])
        first = np.flatnonzero(turn[order] == 0)
        base = np.repeat((both - (length + pause)[order])[first], np.diff(np.append(first, total)))
        complete = np.empty(total, np.int64)
        complete[order] = both - base
        starts = np.flatnonzero(np.append(True, index[1:] != index[:-1]))
        lasts = np.maximum.reduceat(complete, starts) + 1
        offset = self.now + np.cumsum(lasts) - lasts
        self.now = int(offset[-1] + lasts[-1])
        complete += offset[index]
        return complete - length, complete

    def _processes(self, thread: np.ndarray, turn: np.ndarray, index: np.ndarray, outcome: np.ndarray) -> np.ndarray:
        order = np.lexsort((turn, index, thread))
        crash = (outcome == 2)[order]
        before = np.cumsum(crash) - crash
        first = np.flatnonzero(np.append(True, np.diff(thread[order]) != 0))
        own = before - np.repeat(before[first], np.diff(np.append(first, len(order))))
        number = np.empty(len(order), np.int64)
        number[order] = own
        process = thread + self.shape.processes * (self.crashed[thread] + number)
        self.crashed += np.bincount(thread[outcome == 2], minlength=self.shape.processes)
        return process

    def _numbered(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = len(columns["key"])
        columns["op"] = np.arange(self.operations, self.operations + count)
        self.operations += count
        self.acknowledged += int(np.count_nonzero(columns["outcome"] == 0))
        return columns

    def script(self, defect: str, key: int, held: int) -> tuple[dict[str, np.ndarray], int]:
        lines = sorted(DEFECTS[defect].script, key=lambda line: line[4])
        first = self.fresh(3)
        start = self.now + UNIT_NS
        self.now = start + UNIT_NS * (max(line[5] for line in lines) + 1)
        threads = np.array([line[0] for line in lines])
        # A script may need more processes than there are: these come only for it.
        numbers = [
            int(thread + self.shape.processes * self.crashed[thread])
            if thread < self.shape.processes
            else -2 - int(thread)
            for thread in threads
        ]
        spare = int(self.shape.processes * (self.crashed.max(initial=0) + 2))
        columns = {
            "process": np.array([number if number >= 0 else spare - number for number in numbers]),
            "kind": np.array([_KINDS.index(line[1]) for line in lines], np.int8),
            "key": np.full(len(lines), key),
            "value": np.array([first + line[2] for line in lines]),
            "expected": np.array([_NIL if line[3] is None else first + line[3] for line in lines]),
            "invoke": np.array([start + UNIT_NS * line[4] for line in lines]),
            "complete": np.array([start + UNIT_NS * line[5] for line in lines]),
            "outcome": np.array([_OUTCOMES.index(line[6]) for line in lines], np.int8),
        }
        after = DEFECTS[defect].after
        return self._numbered(columns), held if after is None else first + after


_Piece = tuple[pa.Table, bool]  # and whether its last key ends with it


def _pieces(
    made: _Made, defect: str | None, planted: Mapping[int, list[int]], at: list[dict[str, Any]]
) -> Iterator[_Piece]:
    shape, size = made.shape, made.shape.file_rows
    key = 0
    while key < shape.keys:
        share = shape.share(key)
        if key in planted or share > size:
            yield from _one_key(made, key, defect, planted.get(key, []), at)
            key += 1
            continue
        until = min([shape.keys, key + max(size // share, 1), *(other for other in planted if other > key)])
        counts = np.array([shape.share(each) for each in range(key, until)])
        yield _table(made.piece(key, counts, _NIL)[0]), True
        key = until


def _one_key(made: _Made, key: int, defect: str | None, spots: list[int], at: list[dict[str, Any]]) -> Iterator[_Piece]:
    """In pieces between which nothing is in progress."""
    share, size = made.shape.share(key), made.shape.file_rows
    done, held = 0, _NIL
    for spot in [*spots, share]:
        while done < spot:
            count = min(spot - done, size)
            columns, held = made.piece(key, np.array([count]), held)
            done += count
            yield _table(columns), done == share and (not spots or spots[-1] < share)
        if defect is not None and spots:
            spots = spots[1:]
            columns, held = made.script(defect, key, held)
            at.append({"key": key, "ops": columns["op"].tolist()})
            yield _table(columns), done == share and not spots


def _table(columns: Mapping[str, np.ndarray]) -> pa.Table:
    def texts(name: str, names: tuple[str, ...]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(columns[name], pa.int8()), list(names))

    count = len(columns["op"])
    arrays = {
        name: pa.array(columns[name], REGISTERS.field(name).type, mask=columns[name] == _NIL)
        for name in ("process", "op", "key", "value", "expected", "invoke", "complete")
    }
    arrays |= {"kind": texts("kind", _KINDS), "outcome": texts("outcome", _OUTCOMES)}
    arrays["error"] = pa.nulls(count, pa.dictionary(pa.int8(), pa.string()))
    return pa.table({name: arrays[name] for name in REGISTERS.names if name != "run"})


def _write(writer: Writer, pieces: Iterator[_Piece], size: int) -> None:
    """In files of at least `size` rows that end where keys end, row group by row group."""
    for first in pieces:
        options = {
            "compression": "zstd",
            "compression_level": 1,
            "use_dictionary": [name for name in first[0].column_names if name in CATEGORIES],
            "write_page_checksum": True,
        }
        path = writer.next_path("registers")
        with replacing(path) as temporary, pq.ParquetWriter(temporary, first[0].schema, **options) as file:
            rows = 0
            gathered: list[pa.Table] = []
            for table, ends in chain([first], pieces):
                writer.count("registers", table)
                gathered.append(table)
                rows += table.num_rows
                full = ends and rows >= size
                if full or sum(each.num_rows for each in gathered) >= ROWS:
                    file.write_table(pa.concat_tables(gathered).combine_chunks())
                    gathered = []
                if full:
                    break
            if gathered:
                file.write_table(pa.concat_tables(gathered).combine_chunks())
