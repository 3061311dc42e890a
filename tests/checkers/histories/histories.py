"""Synthetic histories: small random ones with a brute-force judge, and long ones of a log that works.

`search` is Wing and Gong's: it tries every order of the operations of one log against a log that only grows, and so
is the definition that checkers.log.linearizability must agree with.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.anomalies import Anomalies
from checkers.log.candidates import ALL_CANDIDATES, settle_tables
from checkers.log.linearizability import judge
from checkers.log.real_time import NOTHING, Carry
from checkers.log.scope import ANYWHERE, Options, Scope
from checkers.log.segment import Segment
from checkers.properties import WEAK
from spark_history.files import compact, integers
from spark_history.layout import ReadIndex, lay_out
from spark_history.log import FinalReads, Range
from spark_history.prefix import scan_after
from spark_history.schema import FAULTS, OPERATIONS, READS, REPLICA_LOGS

TOPIC = "chaos"


@dataclass(frozen=True)
class Op:
    kind: str
    invoke: int
    complete: int | None
    outcome: str = "ok"
    value: int | None = None
    offset: int | None = None
    records: tuple[tuple[int, int], ...] = ()  # (offset, value) of a read
    high_watermark: int | None = None

    @property
    def bound(self) -> int:
        """The least length of the log that a read proves."""
        return max([self.high_watermark or 0, *(offset + 1 for offset, _ in self.records)])

    @property
    def is_final_log(self) -> bool:
        """Does this final read, if it is the only one, cover the log from its fetch offset to its end?"""
        assert self.offset is not None
        last = max((offset for offset, _ in self.records), default=-1)
        return self.bound <= self.offset or (last >= self.offset and last + 1 >= self.bound)


@dataclass(frozen=True)
class Rules:
    """What the plan says of a log: checkers.log.scope.Options."""

    compacted: bool = False
    log_start: int = 0
    keys: int = 0
    markers: bool = False
    retention: bool = False


#: In a log: what no read returns.
MARKER: Final = -1


def search(history: Sequence[Op], rules: Rules = Rules()) -> bool:
    """Is there a linearization? Exponential; histories of about seven operations. At most one final read."""
    ops = [op for op in history if op.outcome == "ok" or (op.outcome == "info" and op.kind == "append")]
    must = frozenset(number for number, op in enumerate(ops) if op.outcome == "ok")
    final = [op.records[0][0] if op.records else op.offset for op in ops if op.kind == "final_read"]
    longest = max((op.bound if op.kind.endswith("read") else (op.offset or 0) + 1 for op in ops), default=0)
    asked_from = rules.log_start if rules.log_start != ANYWHERE else (final[0] or 0) if final else 0

    @cache
    def extend(done: frozenset[int], log: tuple[int | None, ...]) -> bool:
        if must <= done:
            return True
        soonest = min(ops[number].complete for number in must - done)  # type: ignore[type-var]
        for number, op in enumerate(ops):
            if number not in done and op.invoke <= soonest:
                after = _apply(op, log, rules)
                if after is not None and extend(done | {number}, after):
                    return True
        if rules.markers and len(log) < longest and extend(done, (*log, MARKER)):
            return True
        # Of what lies below the start of the log anything may have been written by anybody.
        return len(log) < asked_from and extend(done, (*log, None))

    return extend(frozenset(), ())


def _apply(op: Op, log: tuple[int | None, ...], rules: Rules) -> tuple[int | None, ...] | None:
    """The log after `op` takes effect on it; None if it cannot now."""
    if op.kind == "append":
        return (*log, op.value) if op.offset in (None, len(log)) else None
    if op.kind == "list_offsets":
        return log if len(log) == op.offset else None
    assert op.offset is not None
    exact = op.kind == "final_read" and op.is_final_log
    if len(log) < op.bound or (exact and len(log) != op.bound):
        return None
    if exact and rules.keys and not _keeps_each_key(op, log, rules):
        return None
    if not op.records:
        return log
    offsets = [offset for offset, _ in op.records]
    if offsets != sorted(set(offsets)) or any(log[offset] != value for offset, value in op.records):
        return None
    first = offsets[0]
    start = first if rules.log_start == ANYWHERE else max(min(op.offset, first), min(first, rules.log_start))
    left_out = set(range(start, offsets[-1] + 1)) - set(offsets)
    return log if rules.compacted or all(log[offset] == MARKER for offset in left_out) else None


def _keeps_each_key(op: Op, log: tuple[int | None, ...], rules: Rules) -> bool:
    """Of the values of each key the final read returned the last one."""
    kept = {offset for offset, _ in op.records}
    start = op.records[0][0] if rules.log_start == ANYWHERE and op.records else max(op.offset or 0, rules.log_start)
    last = {value % rules.keys: offset for offset, value in enumerate(log) if value is not None}
    return all(offset in kept or offset < start for offset in last.values())


def random_rules(random: Random) -> Rules:
    compacted = random.random() < 0.3
    start, keys = random.choice([0, 0, 0, 0, 1, 2, ANYWHERE]), random.choice([0, 2, 3]) if compacted else 0
    return Rules(compacted, start, keys, not compacted and random.random() < 0.3)


def random_history(random: Random, operations: int = 7, rules: Rules = Rules()) -> list[Op]:
    """What clients of a correct log may see, in the order in which it happened."""
    log: list[int] = []
    history: list[Op] = []
    number = 0
    for _ in range(random.randint(2, operations)):
        if number >= operations:
            break
        now = 10 * (number + 1)
        invoke, complete = now - random.randint(0, 25), now + random.randint(0, 25)
        choice = random.random()
        if choice < 0.55:
            outcome = random.choices(["ok", "info", "fail"], [6, 2, 1])[0]
            given_up = complete if outcome != "info" or random.random() < 0.4 else None
            done = outcome == "ok" or (outcome == "info" and random.random() < 0.7)
            for _ in range(random.choice([1, 1, 1, 2, 3])):  # a batch
                value = number + 100
                offset = len(log) if outcome == "ok" else None
                history.append(Op("append", invoke, given_up, outcome, value=value, offset=offset))
                number += 1
                if done:
                    log.append(value)
            if rules.markers and random.random() < 0.4:
                log.append(MARKER)
            continue
        if choice < 0.75:
            history.append(Op("list_offsets", invoke, complete, offset=len(log)))
        else:
            history.append(_read("read", invoke, complete, log, random, rules))
        number += 1
    if random.random() < 0.6:
        now = 10 * (len(history) + 1)
        if random.random() < 0.7:  # else it overlaps
            now = max([now, *(op.complete + 1 for op in history if op.complete is not None)])
        history.append(_read("final_read", now, now + random.randint(0, 9), log, random, rules))
    return history


def _read(kind: str, invoke: int, complete: int, log: Sequence[int], random: Random, rules: Rules) -> Op:
    final = kind == "final_read"
    start = random.randint(0, 2) if rules.log_start == ANYWHERE else random.choice([0, rules.log_start])
    start = min(start, len(log))
    first = start if final else random.randint(0, len(log))
    count = len(log) - first if final and random.random() < 0.9 else random.randint(0, len(log) - first)
    records = tuple((offset, log[offset]) for offset in range(first, first + count))
    if rules.compacted:
        last = {value % rules.keys: offset for offset, value in enumerate(log)} if rules.keys else {}
        kept = {len(log) - 1, *last.values()}
        records = tuple(record for record in records if record[0] in kept or random.random() < 0.7)
    elif rules.log_start > 0 and first == 0:  # what was below the start may be gone
        records = tuple(record for record in records if record[0] >= random.choice([0, rules.log_start]))
    records = tuple(record for record in records if record[1] != MARKER)
    last = records[-1][0] + 1 if records else first
    watermark = len(log) if final else random.randint(last, len(log))
    return Op(kind, invoke, complete, offset=first, records=records, high_watermark=watermark)


def mutate(history: Sequence[Op], random: Random) -> list[Op]:
    """One thing changed, which may or may not make it wrong."""
    mutated = list(history)
    number = random.randrange(len(history))
    op = history[number]
    changes: list[Op] = []
    shift = random.randint(-40, 40)
    changes.append(
        dataclasses.replace(op, invoke=op.invoke + shift, complete=None if op.complete is None else op.complete + shift)
    )
    if op.offset is not None and op.kind != "final_read":
        changes.append(dataclasses.replace(op, offset=max(0, op.offset + random.choice([-1, 1]))))
    if op.high_watermark is not None:
        changes.append(dataclasses.replace(op, high_watermark=max(0, op.high_watermark + random.choice([-1, 1]))))
    if op.kind == "append":
        outcome = random.choice(["info", "fail"])
        changes.append(dataclasses.replace(op, outcome=outcome, offset=None))
    if op.records:
        row = random.randrange(len(op.records))
        before, (offset, value), after = op.records[:row], op.records[row], op.records[row + 1 :]
        other = random.choice([item.value for item in history if item.value is not None] + [999])
        assert other is not None
        changes.append(dataclasses.replace(op, records=(*before, (offset, other), *after)))
        changes.append(dataclasses.replace(op, records=(*before, *after)))
        changes.append(dataclasses.replace(op, records=op.records[:row]))
        del value
    mutated[number] = random.choice(changes)
    return mutated


def tables(history: Sequence[Op], run: str = "r", partition: int = 0) -> tuple[pa.Table, pa.Table]:
    """OPERATIONS and READS of one log, with ids in the order of invocation."""
    operations, reads = [], []
    for number, op in enumerate(sorted(history, key=lambda op: op.invoke)):
        operations.append(
            {
                "run": run, "process": number, "op": number, "kind": op.kind, "topic": TOPIC, "partition": partition,
                "value": op.value, "invoke": op.invoke, "complete": op.complete, "outcome": op.outcome,
                "offset": op.offset, "high_watermark": op.high_watermark, "leader_epoch": 1, "error": None,
            }
        )  # fmt: skip
        for offset, value in op.records if op.outcome == "ok" else ():
            row = {"run": run, "op": number, "topic": TOPIC, "partition": partition}
            reads.append(row | {"offset": offset, "value": value})
    return pa.Table.from_pylist(operations, schema=OPERATIONS), pa.Table.from_pylist(reads, schema=READS)


def check_log(
    history: Sequence[Op],
    *,
    segment_offsets: int | None = None,
    acks_all: bool = True,
    retries: bool = False,
    rules: Rules = Rules(),
) -> Anomalies:
    """The checker on one log, without files and Spark. segment_offsets: cut the log into segments of so many."""
    operations, reads = (table.cast(compact(table.schema)) for table in tables(history))
    longest = max((op.bound if op.kind.endswith("read") else (op.offset or 0) + 1 for op in history), default=0)
    longest = max([longest, *(offset + 1 for op in history for offset, _ in op.records)])
    step = segment_offsets or longest + 1
    lows = range(0, max(longest, 1), step)
    parts = [Range(low, low + step if low != lows[-1] else None) for low in lows]
    laid_out = []
    for part in parts:
        index = ReadIndex(operations, part)
        index.add(*(integers(reads, name, -1) for name in ("op", "offset", "value")))
        laid_out.append(lay_out(operations, index, part))
    final = FinalReads.merge([part.final_reads for part in laid_out])
    end = max(part.end for part in laid_out)
    options = Options(
        acks_all, compacted=rules.compacted, keys=rules.keys, log_start=rules.log_start, retries=retries,
        markers=rules.markers, retention=rules.retention,
    )  # fmt: skip
    segments = [
        Segment(
            Scope("r", TOPIC, 0, part.low, part.high, final, end, 0, options),
            rows.operations,
            rows.reads,
        )
        for part, rows in zip(parts, laid_out, strict=True)
    ]
    alone = [Anomalies("r", TOPIC, 0) for _ in segments]
    judged = [judge(segment, NOTHING, own) for segment, own in zip(segments, alone, strict=True)]
    anomalies = Anomalies("r", TOPIC, 0)
    if len(segments) == 1:
        anomalies = alone[0]
    else:
        carries = scan_after([each.timeline.summary() for each in judged], Carry.earlier, NOTHING)
        for number, (segment, carry) in enumerate(zip(segments, carries, strict=True)):
            before = len(anomalies.rows)
            judged[number] = judge(segment, carry, anomalies)
            if judged[number].timeline.latest <= carry.time:  # the claim by which segments are judged once
                assert alone[number].rows == anomalies.rows[before:]
    candidates = {
        kind: pa.concat_tables([each.candidates[kind].cast(schema) for each in judged])
        for kind, schema in ALL_CANDIDATES.items()
    }
    settle_tables(segments[0].scope, segments, candidates, anomalies)
    return anomalies


def names(anomalies: Anomalies) -> set[str]:
    """The anomalies that make a run fail."""
    return {anomaly for property_, anomaly, _, _ in anomalies.tally if property_ not in WEAK}


# A long history of a log that works.

SECOND = 10**9


@dataclass
class LongHistory:
    """NumPy-made history of `appends` records over `partitions` logs, read by two readers and finally; every batch of
    20 records goes to one partition. Arrays can be changed before it is written."""

    appends: int
    partitions: int = 8
    run: str = "long"
    seconds: int = 60
    seed: int = 1

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        count, batch = self.appends, 20
        self.partition = np.repeat(random.integers(0, self.partitions, count // batch + 1), batch)[:count]
        self.value = np.arange(count) + 1_000
        self.offset = np.empty(count, np.int64)
        for partition in range(self.partitions):
            mine = self.partition == partition
            self.offset[mine] = np.arange(np.count_nonzero(mine))
        self.invoke = (np.arange(count) // batch * batch) * (self.seconds * SECOND // max(count, 1)) + SECOND
        self.complete = self.invoke + 20_000_000
        self.outcome = np.full(count, "ok", dtype=object)
        self.in_final = np.ones(count, bool)
        self.on_replica = {f"broker-{node}": np.ones(count, bool) for node in (1, 2, 3)}
        self.final_reads = True
        self.extra: list[dict[str, Any]] = []  # rows of OPERATIONS

    def write(self, directory: Path, plan: dict[str, Any] | None = None, faults: Iterable[dict[str, Any]] = ()) -> Path:
        """As harness/record/history.py does: a part a second, then the final reads and replica logs."""
        journal = directory / "journal"
        journal.mkdir(parents=True)
        defaults = {"run": self.run, "nemesis": [], "acks": "all", "min_insync_replicas": 2}
        (directory / "plan.json").write_text(json.dumps(defaults | (plan or {})))
        order, next_op, number = np.argsort(self.invoke, kind="stable"), 0, 0
        for rows in np.array_split(order, self.seconds):
            operations = [self._appends(rows, next_op)]
            next_op += len(rows)
            reads = []
            for _ in range(2):
                fetched, records = self._fetch("read", rows, next_op, late=30_000_000)
                next_op += fetched.num_rows
                operations.append(fetched)
                reads.append(records)
            _write(journal, "operations", number, pa.concat_tables(operations))
            _write(journal, "reads", number, pa.concat_tables(reads))
            number += 1
        if self.extra:
            rows_ = [dict.fromkeys(OPERATIONS.names) | {"run": self.run, "topic": TOPIC} | row for row in self.extra]
            for position, row in enumerate(rows_):
                row["op"] = next_op + position
            next_op += len(rows_)
            _write(journal, "operations", number, pa.Table.from_pylist(rows_, schema=OPERATIONS))
            number += 1
        if self.final_reads:
            kept = order[self.in_final[order]]
            fetched, records = self._fetch("final_read", kept, next_op, late=5 * SECOND)
            _write(journal, "operations", number, fetched)
            _write(journal, "reads", number, records)
            _write(journal, "replica_logs", number, self._replicas())
        _write(journal, "faults", 0, pa.Table.from_pylist(list(faults), schema=FAULTS))
        _write(journal, "pending", number, OPERATIONS.empty_table())
        return directory

    def _appends(self, rows: Any, op: int) -> pa.Table:
        ok = self.outcome[rows] == "ok"
        size = len(rows)
        columns = {
            "run": _text(self.run, size), "process": (rows // 20 % 4).astype(np.int32), "op": op + np.arange(size),
            "kind": _text("append", size), "topic": _text(TOPIC, size),
            "partition": self.partition[rows].astype(np.int32), "value": self.value[rows],
            "invoke": self.invoke[rows], "complete": self.complete[rows],
            "outcome": pa.array(self.outcome[rows], pa.string()), "offset": pa.array(self.offset[rows], mask=~ok),
            "high_watermark": pa.nulls(size, pa.int64()), "leader_epoch": np.ones(size, np.int32),
            "error": pa.nulls(size, pa.string()),
        }  # fmt: skip
        return pa.table(columns, schema=OPERATIONS)

    def _fetch(self, kind: str, rows: Any, op: int, late: int) -> tuple[pa.Table, pa.Table]:
        """Fetches of up to 500 records that return `rows`, each partition from its lowest offset to its highest."""
        rows = rows[self.outcome[rows] != "fail"]
        rows = rows[np.lexsort((self.offset[rows], self.partition[rows]))]
        partition, offset = self.partition[rows], self.offset[rows]
        new = np.ones(len(rows), bool)
        new[1:] = (partition[1:] != partition[:-1]) | (offset[1:] - offset[:-1] != 1)
        start = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
        fetch = np.cumsum(new | ((np.arange(len(rows)) - start) % 500 == 0)) - 1
        firsts = np.flatnonzero(np.diff(fetch, prepend=-1))
        lasts = np.append(firsts[1:], len(rows)) - 1
        size = len(firsts)
        invoke = self.complete[rows[lasts]] + late
        if kind == "final_read":
            invoke[:] = self.invoke.max() + late
        watermark = self._acknowledged(partition[firsts], invoke + 5_000_000)
        columns = {
            "run": _text(self.run, size), "process": np.full(size, 9, np.int32), "op": op + np.arange(size),
            "kind": _text(kind, size), "topic": _text(TOPIC, size), "partition": partition[firsts].astype(np.int32),
            "value": pa.nulls(size, pa.int64()), "invoke": invoke, "complete": invoke + 5_000_000,
            "outcome": _text("ok", size), "offset": offset[firsts], "high_watermark": watermark,
            "leader_epoch": np.ones(size, np.int32), "error": pa.nulls(size, pa.string()),
        }  # fmt: skip
        records = {
            "run": _text(self.run, len(rows)), "op": op + fetch, "topic": _text(TOPIC, len(rows)),
            "partition": partition.astype(np.int32), "offset": offset, "value": self.value[rows],
        }  # fmt: skip
        return pa.table(columns, schema=OPERATIONS), pa.table(records, schema=READS)

    def _acknowledged(self, partition: Any, time: Any) -> Any:
        """How long each partition's final log was at a time, as far as that log remembers."""
        length = np.zeros(len(partition), np.int64)
        for number in range(self.partitions):
            mine = (self.partition == number) & self.in_final & (self.outcome != "fail")
            asked = partition == number
            length[asked] = np.searchsorted(np.sort(self.complete[mine]), time[asked], "right")
        return length

    def _replicas(self) -> pa.Table:
        parts = []
        for node, mask in self.on_replica.items():
            rows = np.flatnonzero(mask)
            columns = {
                "run": _text(self.run, len(rows)), "node": _text(node, len(rows)), "topic": _text(TOPIC, len(rows)),
                "partition": self.partition[rows].astype(np.int32), "offset": self.offset[rows],
                "leader_epoch": np.ones(len(rows), np.int32), "value": self.value[rows],
            }  # fmt: skip
            parts.append(pa.table(columns, schema=REPLICA_LOGS))
        return pa.concat_tables(parts)


def _text(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [text]).cast(pa.string())


def _write(journal: Path, table: str, number: int, rows: pa.Table) -> None:
    repetitive = [name for name in rows.column_names if name not in ("op", "value", "offset")]
    pq.write_table(rows, journal / f"{table}-{number:06}.parquet", compression="zstd", use_dictionary=repetitive)
