"""Runs of transactions as operations of a Jepsen history: :f :txn (:send, :poll where it is only that) of
micro-operations, as Elle and Jepsen's kafka workload have them, and what kafka's clients did to their consumers.

Micro-operations lie by key, and an event needs them by transaction. So each becomes a text, in a file for the
transactions of some numbers, and these are read again when it is the transactions' turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_history.files import Ints, equals, integers
from spark_history.jepsen.events.edn import Keyword
from spark_history.jepsen.export.export import OPERATIONS_AT_ONCE, SCRATCH, errors, fields, operations_of
from spark_history.jepsen.export.notation import Notation, choose, join, lists, named, numbers, pick, transformed
from spark_history.jepsen.export.tables import common, files, read_part, slices, text_of
from spark_history.jepsen.operations import NULL
from spark_history.jepsen.transactions import FROM_START, KINDS, REBALANCE_LOG
from spark_history.schema import MICRO_OPERATIONS

#: Transactions whose micro-operations are held at once.
NUMBERS: Final = OPERATIONS_AT_ONCE
_APPEND, _READ, _SEND, _POLL, _WRITE = range(5)
_WORDS: Final = ("append", "r", "send", "poll", "w")
#: Micro-operations as texts, by transaction and position. A poll of several partitions is as many rows, `done` of each
#: what it polled of one.
_TEXTS: Final = pa.schema(
    [("op", pa.int64()), ("position", pa.int64()), ("kind", pa.int8()), ("asked", pa.string()), ("done", pa.string())]
)


def render_transactions(directory: Path, plan: Mapping[str, Any], notation: Notation, end: int) -> Iterator[pa.Table]:
    """OPERATION rows, of a history that ended at `end`. Raises HistoryError."""
    registers = plan.get("workload") == "rw-register"
    kafka, rebalanced = plan.get("workload") == "kafka", plan.get("rebalanced") or {}
    key = named(plan.get("key_names"), notation, NULL)
    with tempfile.TemporaryDirectory(prefix="chaos-export-") as scratch:
        micro = _Micro(Path(scratch), notation, registers=registers)
        for part in files(directory, "micro_operations"):
            rows = read_part(part, MICRO_OPERATIONS)
            micro.add(rows, key, named(plan.get("names"), notation, NULL))
        micro.close()
        for rows in slices(directory, "transactions"):
            op = integers(rows, "op", NULL)
            asked, done, kinds = micro.of(op)
            outcome = text_of(rows, "outcome")
            reported = done if kafka else pick(equals(rows, "outcome", "ok"), done, asked)
            f = choose(("txn", "send", "poll"), kinds if kafka else np.zeros(len(op), np.int64))
            more = join(_rebalances(op, rebalanced, key, notation), errors(rows, notation))
            texts = fields(notation, f, outcome, (asked, reported), ("", more))
            yield operations_of(common(rows), outcome, texts, end)
    if kafka:
        yield from _render_assignments(directory, key, notation, end)


def _rebalances(op: Ints, rebalanced: Mapping[str, Any], key: Any, notation: Notation) -> pa.Array:
    """The field :rebalance-log of those that have one."""
    texts = {int(each): keys for each, keys in rebalanced.items() if keys}
    reported = np.isin(op, list(texts))
    if not reported.any():
        return pa.array([""]).take(pa.array(np.zeros(len(op), np.int64)))
    name, of = notation.more(REBALANCE_LOG), notation.value(Keyword("keys"))

    def text(keys: Any) -> str:
        named_ = key(np.array(keys, np.int64)).to_pylist()
        return f"{name}{notation.vector([notation.map({of: notation.vector(named_)})])}"

    return pa.array(
        [text(texts[each]) if of_it else "" for each, of_it in zip(op.tolist(), reported.tolist(), strict=True)]
    )


def _render_assignments(directory: Path, key: Any, notation: Notation, end: int) -> Iterator[pa.Table]:
    for rows in slices(directory, "assignments"):
        named_ = [
            notation.nothing if keys is None else notation.vector(key(np.array(keys, np.int64)).to_pylist())
            for keys in rows["keys"].to_pylist()
        ]
        flag = f"{notation.more(FROM_START)}true"
        more = pa.array([flag if each else "" for each in rows["from_start"].to_pylist()], pa.string())
        reported, outcome = pa.array(named_, pa.string()), text_of(rows, "outcome")
        after = join(more, errors(rows, notation))
        texts = fields(notation, text_of(rows, "kind"), outcome, (reported, reported), (more, after))
        columns = common(rows)
        # Numbers of their own: -1 and those from 0 up are taken.
        yield operations_of({**columns, "op": -2 - columns["op"]}, outcome, texts, end)


class _Micro:
    """Micro-operations as texts, by the numbers of their transactions."""

    def __init__(self, scratch: Path, notation: Notation, *, registers: bool) -> None:
        """registers: a read returned one value, and no list."""
        self._scratch, self._notation, self._registers = scratch, notation, registers
        self._writers: dict[int, pq.ParquetWriter] = {}
        self._words = [notation.value(Keyword(word)) for word in _WORDS]
        self._load = lru_cache(maxsize=2)(self._read)

    def add(self, rows: pa.Table, key: Any, value: Any) -> None:
        """A part of MICRO_OPERATIONS; key, value: what numbers stand for, as texts."""
        texts = self._texts(rows, key, value)
        bucket = texts["op"].to_numpy() // NUMBERS
        order = np.argsort(bucket, kind="stable")
        texts, bucket = texts.take(pa.array(order)), bucket[order]
        starts = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1])[: len(bucket)])
        ends = np.append(starts[1:], len(bucket))[: len(starts)]
        for low, high in zip(starts.tolist(), ends.tolist(), strict=True):
            number = int(bucket[low])
            if number not in self._writers:
                path = self._scratch / f"{number}.parquet"
                self._writers[number] = pq.ParquetWriter(path, _TEXTS, **SCRATCH)
            self._writers[number].write_table(texts.slice(low, high - low))

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _read(self, number: int) -> pa.Table:
        if number not in self._writers:
            return _TEXTS.empty_table()
        return pq.read_table(self._scratch / f"{number}.parquet", schema=_TEXTS)

    def _texts(self, rows: pa.Table, key: Any, value: Any) -> pa.Table:
        """Rows of _TEXTS, one for each micro-operation and key."""
        names = ("key", "op", "position", "offset", "value")
        columns = {name: integers(rows, name, NULL) for name in names}
        kind = np.select([equals(rows, "kind", name) for name in KINDS], range(len(KINDS)), _POLL)
        if not _in_order([columns[name] for name in ("key", "op", "position")]):
            order = np.lexsort((columns["position"], columns["op"], columns["key"]))  # stable: records keep their order
            columns, kind = {name: column[order] for name, column in columns.items()}, kind[order]
        size = len(kind)
        new = np.ones(size, bool)
        new[1:] = np.logical_or.reduce([columns[name][1:] != columns[name][:-1] for name in names[:3]])
        starts = np.flatnonzero(new)
        kinds = kind[starts]
        of_key, gap = key(columns["key"][starts]), self._notation.gap
        records = self._records(columns, kind, starts, value)
        first = value(columns["value"][starts])
        offset = columns["offset"][starts]
        words = choose(self._words, kinds)
        opened = join("[", words, gap, of_key, gap)
        asked = join(opened, pick(kinds == _READ, self._notation.nothing, first), "]")
        acknowledged = pick(offset == NULL, self._notation.nothing, numbers(offset))
        listed = (kinds == _READ) & (not self._registers)
        found = pick(kinds == _SEND, join("[", acknowledged, gap, first, "]"), pick(listed, records, first))
        polled = kinds == _POLL
        done = join(opened, found, "]")
        if polled.any():
            spelt = transformed(of_key, lambda text: self._notation.key(str(text)))
            done = pick(polled, join(spelt, self._notation.colon, records), done)
            asked = pick(polled, f"[{self._words[_POLL]}]", asked)
        columns = {name: columns[name][starts] for name in ("op", "position")}
        arrays = [pa.array(columns["op"]), pa.array(columns["position"]), pa.array(kinds.astype(np.int8)), asked, done]
        return pa.table(arrays, schema=_TEXTS)

    def _records(self, columns: Mapping[str, Ints], kind: Any, starts: Ints, value: Any) -> pa.Array:
        """What each read or poll returned, as a vector."""
        gap = self._notation.gap
        live = ((kind == _READ) | (kind == _POLL)) & (columns["value"] != NULL)
        rows = np.flatnonzero(live)
        texts, offset, polled = value(columns["value"][rows]), columns["offset"][rows], kind[rows] == _POLL
        if polled.any():
            at = pick(offset == NULL, self._notation.nothing, numbers(offset))
            texts = pick(polled, join("[", at, gap, texts, "]"), texts)
        counts = np.add.reduceat(live.astype(np.int64), starts) if len(starts) else np.empty(0, np.int64)
        ends = np.cumsum(counts)
        return join("[", lists(texts, ends - counts, ends, gap), "]")

    def of(self, op: Ints) -> tuple[pa.Array, pa.Array, Ints]:
        """Of these transactions what was asked, what was done, and 1 or 2: all of it are sends, or polls; else 0."""
        parts = [self._load(int(number)) for number in np.unique(op // NUMBERS)]
        texts = pa.concat_tables(parts or [_TEXTS.empty_table()]).combine_chunks()
        ops, position = texts["op"].to_numpy(), texts["position"].to_numpy()
        order = np.lexsort((position, ops))
        ops, position = ops[order], position[order]
        starts = np.flatnonzero(np.append(True, (ops[1:] != ops[:-1]) | (position[1:] != position[:-1]))[: len(ops)])
        rows = order[starts]
        kinds = texts["kind"].to_numpy()[rows]
        asked = _column(texts, "asked").take(pa.array(rows))
        done = _column(texts, "done").take(pa.array(order))
        done = lists(done, starts, np.append(starts[1:], len(ops))[: len(starts)], ", ")  # of a poll, entries of a map
        if (kinds == _POLL).any():
            done = pick(kinds == _POLL, join(f"[{self._words[_POLL]}{self._notation.gap}{{", done, "}]"), done)
        lows, highs = (np.searchsorted(ops[starts], op, side) for side in ("left", "right"))
        gap = self._notation.gap
        sends = np.concatenate(([0], np.cumsum(kinds == _SEND)))
        polls = np.concatenate(([0], np.cumsum(kinds == _POLL)))
        many = highs - lows
        all_of = np.where((sends[highs] - sends[lows] == many) & (many > 0), 1, 0)
        all_of = np.where((polls[highs] - polls[lows] == many) & (many > 0), 2, all_of)
        return join("[", lists(asked, lows, highs, gap), "]"), join("[", lists(done, lows, highs, gap), "]"), all_of


def _in_order(columns: Sequence[Ints]) -> bool:
    """Do rows rise by these, the most significant first?"""
    later, same = (np.full(max(len(columns[0]) - 1, 0), each) for each in (False, True))
    for column in columns:
        later |= same & (column[1:] > column[:-1])
        same &= column[1:] == column[:-1]
    return bool((later | same).all())


def _column(table: pa.Table, name: str) -> pa.Array:
    chunks = table[name].chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.string())
