"""Labelled histories of transactions, of any size: strict serializable by construction, or with one defect planted.

Every transaction takes effect as a whole, at an instant between its invocation and its completion. In the order of
these instants appends to a slot go to its list until that holds APPENDS_PER_KEY, then to a new one, as Jepsen rotates
keys, so that lists stay short; reads return the list as it then is. In the end every list is read once. Some
transactions fail, and some are indeterminate, of which half took effect. Of kafka, producers send and a consumer for
each partition polls what was committed since it last did; transactions leave gaps in the offsets.

An operation is a micro-operation: an append or a read of a list, a send or a record polled. The layout is that of
checkers/transactions/history.py, written a part at a time. The label is in plan.json:

    {"verdict": "pass" or "fail", "anomaly": what must be found, or null, "defect": name or null,
     "at": the first place, "places": [{"key": first key, "ops": [transactions]}, …]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.transactions import history
from checkers.transactions.explanation import KAFKA, LIST_APPEND
from harness.errors import BadArguments
from harness.generate import check_defect, transaction_defects
from harness.generate.transaction_defects import Defect, Micro
from spark_history.files import Bools, Ints, nullable
from spark_history.log import NEVER
from spark_history.schema import MICRO_OPERATIONS, TRANSACTIONS

_DEFECTS: Final[Mapping[str, Mapping[str, Defect]]] = {
    LIST_APPEND: transaction_defects.LIST_APPEND,
    KAFKA: transaction_defects.KAFKA,
}
#: By workload, name and what it is.
DEFECTS_OF: Final[Mapping[str, Mapping[str, str]]] = {
    workload: {name: f"{defect.what}: {defect.anomaly}" for name, defect in defects.items()}
    for workload, defects in _DEFECTS.items()
}

SLOTS: Final = 10  # lists that are appended to at the same time
APPENDS_PER_KEY: Final = 32
PARTITIONS: Final = 64
LONGEST: Final = 4  # micro-operations in a transaction
MAX_PLACES: Final = 5
ORIGIN: Final = 1_000_000_000  # ns
MS: Final = 1_000_000  # ns
NOWHERE: Final = -1

OUTCOMES: Final = ("ok", "fail", "info")
OK, FAIL, INFO = range(3)

Codes = npt.NDArray[np.int8]


def generate(
    directory: Path,
    *,
    operations: int,
    processes: int,
    seed: int,
    defect: str | None = None,
    workload: str = LIST_APPEND,
    places: int | None = None,
) -> dict[str, Any]:
    """Write one run and return its label. Raises BadArguments.

    places: how many times the defect is planted, up to MAX_PLACES unless said.
    """
    check_defect(workload, defect, DEFECTS_OF)
    if operations < 1 or processes < 1:
        raise BadArguments("a history needs at least one operation and one process")
    random = np.random.default_rng(seed)
    model = (_lists if workload == LIST_APPEND else _logs)(random, operations, processes)
    planted = _plant(random, model, _DEFECTS[workload][defect], places) if defect else []
    label: dict[str, Any] = {
        "verdict": "fail" if defect else "pass",
        "anomaly": _DEFECTS[workload][defect].anomaly if defect else None,
        "defect": defect,
    }
    op = _number(model, [each for place in planted for each in place.txns])
    at = [{"key": place.key, "ops": [int(op[each.txn]) for each in place.txns]} for place in planted]
    label |= {"at": at[0] if at else None, "places": at}
    plan = {
        "run": directory.name,
        "workload": workload,
        "source": "generated",
        "operations": operations,
        "processes": processes,
        "seed": seed,
        "label": label,
    }
    writer = history.writer_of(directory, plan)
    for part in _transactions(directory.name, model, planted, op):
        writer.add("transactions", part)
    for part in model.micro.parts(directory.name, op):
        writer.add("micro_operations", part)
    if planted:
        writer.add("micro_operations", _planted_rows(directory.name, planted, op))
    writer.close()
    return label


@dataclass
class _Rows:
    """Micro-operations; `length` rows of a read, or NOWHERE: an append, a send, or a read that returned nothing."""

    txn: Ints
    position: Ints
    read: Bools
    key: Ints
    offset: Ints
    value: Ints
    length: Ints
    kinds: tuple[str, str]

    def parts(self, run: str, op: Ints) -> Iterator[pa.Table]:
        """MICRO_OPERATIONS by key, op and position, all of a key in one part."""
        ops = op[self.txn]
        order = np.lexsort((self.offset, self.position, ops, self.key))
        key = self.key[order]
        firsts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1]))) if len(key) else np.empty(0, np.int64)
        ends = np.cumsum(np.maximum(self.length[order], 1))
        ends_of_keys = ends[np.append(firsts[1:], len(key)) - 1] if len(firsts) else ends
        low = 0
        while low < len(firsts):
            done = int(ends_of_keys[low - 1]) if low else 0
            high = max(int(np.searchsorted(ends_of_keys, done + history.PART_ROWS, "right")), low + 1)
            until = firsts[high] if high < len(firsts) else len(key)
            yield self._part(run, ops, order[firsts[low] : until])
            low = high

    def _part(self, run: str, ops: Ints, rows: Ints) -> pa.Table:
        times = np.maximum(self.length[rows], 1)
        listed = np.repeat(self.length[rows] > 0, times)
        place = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
        rows = np.repeat(rows, times)
        columns = {
            "op": ops[rows],
            "position": self.position[rows].astype(np.int32),
            "key": self.key[rows],
            "offset": nullable(np.where(listed, place, self.offset[rows]), NOWHERE),
            "value": nullable(np.where(listed, place + 1, self.value[rows]), NOWHERE),
        }
        return _table(run, columns, np.where(self.read[rows], 1, 0), self.kinds)


def _table(run: str, columns: dict[str, Any], kind: Ints, kinds: tuple[str, ...]) -> pa.Table:
    arrays = {name: pa.array(column) for name, column in columns.items()}
    arrays["kind"] = pa.DictionaryArray.from_arrays(pa.array(kind.astype(np.int32)), pa.array(kinds)).cast(pa.string())
    arrays["run"] = pa.repeat(run, len(kind))
    return pa.table([arrays[name] for name in MICRO_OPERATIONS.names], schema=MICRO_OPERATIONS)


@dataclass
class _Model:
    """Transactions by number, in no particular order."""

    invoke: Ints
    complete: Ints
    process: Ints
    outcome: Codes
    micro: _Rows


def _number(model: _Model, planted: list[_PlantedTxn]) -> Ints:
    """op by transaction, planted ones last: its place in the order of invocations."""
    invoke = np.concatenate([model.invoke, np.array([each.invoke for each in planted], np.int64)])
    op = np.empty(len(invoke), np.int64)
    op[np.argsort(invoke, kind="stable")] = np.arange(len(invoke))
    return op


def _transactions(run: str, model: _Model, planted: list[_Place], op: Ints) -> Iterator[pa.Table]:
    extra = [each for place in planted for each in place.txns]
    columns = {
        name: np.concatenate([getattr(model, name), np.array([getattr(each, name) for each in extra], np.int64)])
        for name in ("process", "invoke", "complete", "outcome")
    }
    order = np.empty(len(op), np.int64)
    order[op] = np.arange(len(op))
    for low in range(0, len(order), history.PART_ROWS):
        rows = order[low : low + history.PART_ROWS]
        outcome = pa.array(columns["outcome"][rows].astype(np.int32))
        arrays = {
            "run": pa.repeat(run, len(rows)),
            "process": pa.array(columns["process"][rows].astype(np.int32)),
            "op": pa.array(np.arange(low, low + len(rows))),
            "invoke": pa.array(columns["invoke"][rows]),
            "complete": nullable(columns["complete"][rows], NEVER),
            "outcome": pa.DictionaryArray.from_arrays(outcome, pa.array(OUTCOMES)).cast(pa.string()),
            "error": pa.nulls(len(rows), pa.string()),
        }
        yield pa.table([arrays[name] for name in TRANSACTIONS.names], schema=TRANSACTIONS)


def _schedule(random: np.random.Generator, number: int, processes: int, start: int) -> tuple[Ints, Ints, Ints, Ints]:
    """(invoke, instant, complete, process) of so many transactions, in the order of their instants."""
    each = -(-number // processes)
    took = (random.exponential(4 * MS, (processes, each)) + MS).astype(np.int64)
    pause = random.exponential(MS, (processes, each)).astype(np.int64) + 2
    complete = start + np.cumsum(took + pause, axis=1)
    invoke = complete - took
    instant = invoke + 1 + ((took - 2) * random.random((processes, each))).astype(np.int64)
    process = np.broadcast_to(np.arange(processes)[:, None], instant.shape)
    order = np.argsort(instant, axis=None, kind="stable")[:number]
    invoke, instant, complete, process = (column.ravel()[order] for column in (invoke, instant, complete, process))
    return invoke, instant, complete, process


def _lengths(random: np.random.Generator, operations: int) -> Ints:
    lengths = random.integers(1, LONGEST + 1, operations, dtype=np.int64)
    return lengths[: int(np.searchsorted(np.cumsum(lengths), operations)) + 1]


def _outcomes(random: np.random.Generator, number: int) -> tuple[Codes, Bools]:
    """And which of the transactions take effect."""
    drawn = random.random(number)
    outcome = np.full(number, OK, np.int8)
    outcome[drawn < 0.03] = FAIL
    outcome[drawn < 0.02] = INFO
    return outcome, (drawn >= 0.03) | (drawn < 0.01)


def _within(groups: Ints, counted: Bools) -> tuple[Ints, Ints]:
    """How many counted rows of the same group come before each row, and how many there are of each group."""
    order = np.argsort(groups.astype(np.int8), kind="stable")  # few groups: numpy sorts small integers in linear time
    ones = counted[order].astype(np.int64)
    total = np.bincount(groups, counted).astype(np.int64) if len(groups) else np.empty(0, np.int64)
    before = np.cumsum(ones) - ones - np.repeat(np.cumsum(total) - total, np.bincount(groups))
    found = np.empty(len(groups), np.int64)
    found[order] = before
    return found, total


def _lists(random: np.random.Generator, operations: int, processes: int) -> _Model:
    lengths = _lengths(random, operations)
    number = len(lengths)
    invoke, _, complete, process = _schedule(random, number, processes, ORIGIN)
    outcome, happens = _outcomes(random, number)
    txn = np.repeat(np.arange(number), lengths)
    position = np.arange(len(txn)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    slot = random.integers(0, SLOTS, len(txn), dtype=np.int64)
    append = random.random(len(txn)) < 0.5
    visible = append & happens[txn]
    before, total = _within(slot, visible)
    hidden, _ = _within(slot, append & ~happens[txn])
    turn, rank = np.divmod(before, APPENDS_PER_KEY)
    # A list that has just become full is read too.
    full = ~append & (rank == 0) & (before > 0) & (random.random(len(txn)) < 0.5)
    turn, length = turn - full, np.where(full, APPENDS_PER_KEY, rank)
    read = ~append
    value = np.where(visible, rank + 1, np.where(append, 1000 + hidden, NOWHERE))
    length = np.where(read & (outcome[txn] == OK) & (length > 0), length, NOWHERE)
    key = turn * SLOTS + slot
    # In the end, a read of every list.
    ends = complete.max()
    keys = np.concatenate([np.arange(-(-count // APPENDS_PER_KEY)) * SLOTS + each for each, count in enumerate(total)])
    held = np.minimum(total[keys % SLOTS] - keys // SLOTS * APPENDS_PER_KEY, APPENDS_PER_KEY)
    last = np.arange(len(keys)) // LONGEST
    readers = int(last[-1]) + 1 if len(last) else 0
    final = _schedule(random, readers, processes, int(ends) + MS)
    none = np.full(len(keys), NOWHERE)
    micro = _Rows(
        np.concatenate([txn, number + last]),
        np.concatenate([position, np.arange(len(keys)) % LONGEST]),
        np.concatenate([read, np.ones(len(keys), bool)]),
        np.concatenate([key, keys]),
        np.full(len(key) + len(keys), NOWHERE),
        np.concatenate([value, none]),
        np.concatenate([length, held]),
        ("append", "read"),
    )
    return _Model(
        np.concatenate([invoke, final[0]]),
        np.concatenate([np.where(outcome == INFO, NEVER, complete), final[2]]),
        np.concatenate([process, final[3]]),
        np.concatenate([outcome, np.zeros(readers, np.int8)]),
        micro,
    )


def _logs(random: np.random.Generator, operations: int, processes: int) -> _Model:
    producers = max(processes * 2 // 3, 1)
    consumers = max(processes - producers, 1)
    lengths = _lengths(random, max(operations // 2, 1))
    number = len(lengths)
    invoke, instant, complete, process = _schedule(random, number, producers, ORIGIN)
    outcome, happens = _outcomes(random, number)
    txn = np.repeat(np.arange(number), lengths)
    position = np.arange(len(txn)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    partition = random.integers(0, PARTITIONS, len(txn), dtype=np.int8)
    visible = happens[txn]
    # Polls: about one for every record that a producer sends, the last of each consumer when all else is over.
    polls = _schedule(random, max(number * consumers // producers, 1), consumers, ORIGIN)
    ends = int(max(complete.max(), polls[2].max()))
    last = np.arange(consumers)
    began, at, done = (
        np.concatenate([column, ends + more + last * 2])
        for column, more in zip(polls[:3], (MS, 2 * MS, 3 * MS), strict=True)
    )
    consumer = np.concatenate([polls[3], last])
    offset = np.full(len(txn), NOWHERE)
    polled = np.full(len(txn), NOWHERE)  # by which poll
    for each in range(PARTITIONS):
        rows = np.flatnonzero((partition == each) & visible)
        if not len(rows):
            continue
        markers = np.concatenate(([0], np.cumsum(txn[rows[1:]] != txn[rows[:-1]])))
        offset[rows] = np.arange(len(rows)) + markers
        mine = np.flatnonzero(consumer == each % consumers)
        mine = mine[np.argsort(at[mine], kind="stable")]
        polled[rows] = mine[np.searchsorted(at[mine], instant[txn[rows]], "right")]
    value = np.arange(len(txn))
    seen = np.flatnonzero(visible)
    acknowledged = np.where(outcome[txn] == OK, offset, NOWHERE)
    micro = _Rows(
        np.concatenate([txn, number + polled[seen]]),
        np.concatenate([position, np.zeros(len(seen), np.int64)]),
        np.concatenate([np.zeros(len(txn), bool), np.ones(len(seen), bool)]),
        np.concatenate([partition, partition[seen]]).astype(np.int64),
        np.concatenate([acknowledged, offset[seen]]),
        np.concatenate([value, value[seen]]),
        np.full(len(txn) + len(seen), NOWHERE),
        ("send", "poll"),
    )
    return _Model(
        np.concatenate([invoke, began]),
        np.concatenate([np.where(outcome == INFO, NEVER, complete), done]),
        np.concatenate([process, producers + consumer]),
        np.concatenate([outcome, np.zeros(len(began), np.int8)]),
        micro,
    )


@dataclass
class _PlantedTxn:
    txn: int
    invoke: int
    complete: int
    process: int
    outcome: int
    micro: tuple[Micro, ...]


@dataclass
class _Place:
    key: int  # the first of its keys
    txns: list[_PlantedTxn]


def _plant(random: np.random.Generator, model: _Model, defect: Defect, places: int | None) -> list[_Place]:
    """Transactions of a defect, at random moments, with keys and processes that no other has."""
    number = places or int(random.integers(1, MAX_PLACES + 1))
    key, process = int(model.micro.key.max(initial=0)) + 1, int(model.process.max()) + 1
    span = (int(model.invoke.min()), int(model.invoke.max()))
    txn = len(model.invoke)
    found = []
    for _ in range(number):
        moment = int(random.integers(span[0], span[1] + 1))
        txns = []
        for each in defect.transactions:
            outcome = OUTCOMES.index(each.outcome)
            complete = NEVER if outcome == INFO else moment + each.complete * MS
            invoke = moment + each.invoke * MS
            txns.append(_PlantedTxn(txn, invoke, complete, process + each.process, outcome, each.micro))
            txn += 1
        found.append(_Place(key, txns))
        key += 1 + max(micro[1] for each in defect.transactions for micro in each.micro)
        process += 1 + max(each.process for each in defect.transactions)
    return found


def _planted_rows(run: str, planted: list[_Place], op: Ints) -> pa.Table:
    rows = []
    for place in planted:
        for each in place.txns:
            for position, (kind, key, *what) in enumerate(each.micro):
                records: list[tuple[int | None, int | None]]
                if kind == "append":
                    records = [(None, what[0])]
                elif kind == "send":
                    records = [(what[0], what[1])]
                else:
                    records = list(enumerate(what[0]) if kind == "read" else what[0]) or [(None, None)]
                common = {
                    "run": run,
                    "op": int(op[each.txn]),
                    "position": position,
                    "kind": kind,
                    "key": place.key + key,
                }
                rows += [common | {"offset": offset, "value": value} for offset, value in records]
    rows.sort(key=lambda row: (row["key"], row["op"], row["position"]))
    return pa.Table.from_pylist(rows, schema=MICRO_OPERATIONS)
