"""Log Matching: replicas that hold the same epoch at an offset hold the same log up to it (Raft, figure 3; Kafka:
section 3 of the KIP-966 description, leader epochs).

For two replicas let m be the highest offset at which both hold a record of the same leader epoch. Then at every
offset up to m epoch and value must be equal. Above m they may differ: a replica that has not been the leader's
follower since may still hold records that were never committed. Besides, one replica's log must have no holes, unless
it is compacted or has markers of transactions, and its epochs must not decrease.

Replicas against the final log: once all faults are healed and every replica is back in its ISR, each member of the ISR
holds exactly what the final reads returned, for these end at the high watermark, and everything below that is in the
log of every member, unless it was deleted from the begin of them all: then they start alike. Nor does it end below a
high watermark that the leader of the last leader epoch has told (000, section on the ISR). That is only judged of runs
that did recover: else who is in the ISR changes while logs are copied.

Anomalies: replica divergence, replica hole, decreasing epoch; missing on a replica, differs from the final log, ends
below the high watermark, starts elsewhere than its leader's log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import ANOMALIES, Anomalies, Found, stretches
from checkers.properties import LOG_MATCHING
from spark_history.files import Ints, equals, integers, read_parquet
from spark_history.ingest import History, LogHistory
from spark_history.log import NOWHERE
from spark_history.schema import LAID_OUT_READS, REPLICA_LOGS
from spark_history.spark.tasks import Engine, Unit, run_tasks

COLUMNS: Final = pa.schema([REPLICA_LOGS.field(name) for name in ("node", "offset", "leader_epoch", "value")])


@dataclass(frozen=True)
class InSync:
    """Which replicas must hold the final log, of one run. by_log: of each partition (chaos-0) its last ISR, as names of
    nodes, and whether all of that node's log was collected: else only what it holds counts, and not what it lacks.
    watermarks: by partition, (high watermark, the leader that told it, its leader epoch). compacted: replicas may have
    removed different records. log_starts: by partition, as LogStarts of of_nodes.py. start_moves: records are deleted
    from the begin of logs: what a replica lacks below where its log starts, it does not lack."""

    by_log: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)
    watermarks: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    compacted: bool = False
    log_starts: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    start_moves: bool = False

    def start_of(self, log: str, node: str) -> int | None:
        """Below which nothing is asked of a replica; None: that is not known, as logs may start anywhere."""
        if not self.start_moves:
            return 0
        start: int | None = self.log_starts[log][2].get(node) if log in self.log_starts else None
        return start


@dataclass(frozen=True)
class ReplicaMatching:
    found: Found
    records: Mapping[tuple[str, str], int]  # on replicas, by (node, partition); none: no replica log was collected


def check(
    history: History, engine: Engine, in_sync: InSync | None = None, *, sparse: bool = False
) -> ReplicaMatching:
    """in_sync: None: replicas are not held against the final log. sparse: a log may have holes. Raises
    HistoryError."""
    results = iter(run_tasks(engine, compare_replicas, [unit for log in history.logs for unit in _units(history, log)]))
    rows: list[dict[str, Any]] = []
    tally = []
    records: Counter[tuple[str, str]] = Counter()
    for log in history.logs:
        segments = [json.loads(next(results)["facts"][0].as_py()) for _ in _units(history, log)]
        anomalies = Anomalies(history.run, log.topic, log.partition)
        judge(segments, anomalies, in_sync, sparse=sparse)
        rows += anomalies.rows
        tally += [(history.run, *entry) for entry in anomalies.tally]
        records.update(records_of(log.name, segments))
    return ReplicaMatching(Found(pa.Table.from_pylist(rows, schema=ANOMALIES), tally), records)


def records_of(log: str, segments: Sequence[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """Records on replicas, by (node, partition). segments: of one log, as compare() gives them."""
    records: Counter[tuple[str, str]] = Counter()
    for segment in segments:
        records.update({(node, log): of["records"] for node, of in segment["replicas"].items()})
    return records


def _units(history: History, log: LogHistory) -> list[Unit]:
    paths = [segment.paths for segment in log.segments if "replica_logs" in segment.paths]  # generated ones have none
    return [{name: str(history.path / of[name]) for name in ("replica_logs", "reads")} for of in paths]


_FINAL: Final = pa.schema([LAID_OUT_READS.field(name) for name in ("offset", "value", "final")])


def compare_replicas(unit: Unit) -> pa.Table:
    """See compare(); as JSON."""
    reads = read_parquet(unit["reads"], _FINAL)
    facts = compare(read_parquet(unit["replica_logs"], COLUMNS), final_log(reads))
    return pa.table({"facts": [json.dumps(facts)]})


def final_log(reads: pa.Table) -> tuple[Ints, Ints]:
    """Offsets and values that final reads returned, in order. reads: LAID_OUT_READS."""
    final = np.asarray(reads["final"].combine_chunks(), bool)
    offset, value = (integers(reads, name, NOWHERE)[final] for name in ("offset", "value"))
    once = np.append(True, offset[1:] != offset[:-1])[: len(offset)]
    return offset[once], value[once]


_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True)
class _Replica:
    offset: Ints
    leader_epoch: Ints
    value: Ints


def compare(records: pa.Table, final: tuple[Ints, Ints] = (_NONE, _NONE)) -> dict[str, Any]:
    """One segment of a log. final: offsets and values of the final log, in order.

    replicas: by node, its first, last and number of records, the epochs of first and last, its holes and where an
    epoch decreased, and the ranges of offsets of the final log that it lacks, or at which it holds something else.
    pairs: of each two nodes, the highest offset of equal epoch, and the ranges in which they differ with what each
    holds at their start. final: the range that stands for the whole of it where a replica holds nothing, or none.
    """
    columns = [integers(records, name, NOWHERE) for name in ("offset", "leader_epoch", "value")]
    replicas = {}
    for node in sorted(pc.unique(records["node"]).to_pylist()):
        mine = np.flatnonzero(equals(records, "node", node))
        if not _grows(columns[0][mine]):
            mine = mine[np.argsort(columns[0][mine], kind="stable")]
        replicas[node] = _Replica(*(column[mine] for column in columns))
    return {
        "replicas": {node: _facts_of(replica) | _held_of(replica, *final) for node, replica in replicas.items()},
        "final": [[int(final[0][0]), int(final[0][-1]), len(final[0])]] if len(final[0]) else [],
        "pairs": [
            {"nodes": [first, second], **_facts_of_pair(replicas[first], replicas[second])}
            for first, second in combinations(replicas, 2)
        ],
    }


def _grows(offset: Ints) -> bool:
    return bool((offset[1:] >= offset[:-1]).all())


def _rows_of(ordered: Ints, wanted: Ints) -> Ints:
    """np.searchsorted(ordered, wanted), at most len(ordered) - 1; without a search where nothing is left out between
    first and last, as in the log of a replica that works."""
    low, last = int(ordered[0]), len(ordered) - 1
    if int(ordered[-1]) - low == last and bool((np.diff(ordered) == 1).all()):
        return np.clip(wanted - low, 0, last)
    return np.minimum(np.searchsorted(ordered, wanted), last)


def _facts_of(replica: _Replica) -> dict[str, Any]:
    offset, epoch = replica.offset, replica.leader_epoch
    step = np.diff(offset)
    return {
        "records": len(offset),
        "ends": [int(offset[0]), int(offset[-1])],
        "epochs": [int(epoch[0]), int(epoch[-1])],
        "holes": [[int(offset[row]), int(offset[row + 1])] for row in np.flatnonzero(step != 1)[:_KEPT]],
        "decreases": [[int(offset[row + 1]), int(epoch[row]), int(epoch[row + 1])]
                      for row in np.flatnonzero(np.diff(epoch) < 0)[:_KEPT]],
    }  # fmt: skip


_KEPT: Final = 100


def _held_of(replica: _Replica, offset: Ints, value: Ints) -> dict[str, Any]:
    """lacks: [low, high, records] each; others: [low, high, what the replica holds at low, the final log there or
    None]."""
    if not len(offset):
        return {"lacks": [], "others": []}
    at = _rows_of(replica.offset, offset)
    there = replica.offset[at] == offset
    other = there & (replica.value[at] != value)
    low, high = np.searchsorted(replica.offset, (offset[0], offset[-1] + 1))
    extra = replica.offset[low:high]
    extra = extra[~np.isin(extra, offset)] if len(extra) > np.count_nonzero(there) else _NONE
    others: list[list[int | None]] = []
    for low, high in stretches(offset[other])[:_KEPT]:
        row = int(np.searchsorted(offset, low))
        others.append([low, high, int(replica.value[at[row]]), int(value[row])])
    for low, high in stretches(np.unique(extra))[:_KEPT]:
        row = int(np.searchsorted(replica.offset, low))
        others.append([low, high, int(replica.value[row]), None])
    lacks = [[low, high, high - low + 1] for low, high in stretches(offset[~there])]
    return {"lacks": lacks[:_KEPT], "others": others}


def _facts_of_pair(first: _Replica, second: _Replica) -> dict[str, Any]:
    # A damaged log may hold an offset twice, which is told by itself ("holes"): its first record stands for it here.
    once = all(bool((np.diff(each.offset) > 0).all()) for each in (first, second))
    offset: Ints
    if once:
        at = _rows_of(second.offset, first.offset)
        of_first = np.flatnonzero(second.offset[at] == first.offset)
        offset, of_second = first.offset[of_first], at[of_first]
    else:
        offset, of_first, of_second = np.intersect1d(first.offset, second.offset, return_indices=True)
    epochs = first.leader_epoch[of_first], second.leader_epoch[of_second]
    values = first.value[of_first], second.value[of_second]
    same_epoch = epochs[0] == epochs[1]
    differ = ~same_epoch | (values[0] != values[1])
    held = {}
    for low, high in stretches(offset[differ]):
        row = int(np.searchsorted(offset, low))
        held[low] = [low, high, *(int(column[row]) for column in (epochs[0], values[0], epochs[1], values[1]))]
    return {"same_until": int(offset[same_epoch].max(initial=NOWHERE)), "differ": list(held.values())}


def judge(
    segments: Sequence[Mapping[str, Any]], anomalies: Anomalies, in_sync: InSync | None = None,
    *, sparse: bool = False,
) -> None:  # fmt: skip
    """What compare() found in the segments of one log, in their order. in_sync, sparse: see check()."""
    log = f"{anomalies.topic}-{anomalies.partition}"
    if in_sync is not None:
        _judge_against_final(log, segments, anomalies, in_sync)
    for node in sorted({node for segment in segments for node in segment["replicas"]}):
        parts_of = [segment["replicas"][node] for segment in segments if node in segment["replicas"]]
        _judge_replica(log, node, parts_of, anomalies, sparse)
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for segment in segments:
        for pair in segment["pairs"]:
            pairs.setdefault(tuple(pair["nodes"]), []).append(pair)
    for (first, second), parts in pairs.items():
        same_until = max(part["same_until"] for part in parts)
        for low, high, epoch, value, other_epoch, other_value in (row for part in parts for row in part["differ"]):
            if low > same_until:
                continue
            high = min(high, same_until)
            anomalies.add(
                LOG_MATCHING,
                "replica divergence",
                f"{log}: {first} and {second} hold the same epoch at offset {same_until}, but at offset {low} {first} "
                f"holds {value} of epoch {epoch} and {second} {other_value} of epoch {other_epoch}"
                + (f"; they differ up to offset {high}" if high > low else ""),
                offset=low,
                value=value,
                count=high - low + 1,
            )


def _judge_against_final(
    log: str, segments: Sequence[Mapping[str, Any]], anomalies: Anomalies, in_sync: InSync
) -> None:
    found = dict.fromkeys((node for segment in segments for node in segment["replicas"]), False)
    _judge_log_starts(log, in_sync.by_log.get(log, found), anomalies, in_sync)
    for node, whole in in_sync.by_log.get(log, found).items():
        start = in_sync.start_of(log, node)
        asked = whole and not in_sync.compacted and start is not None
        end = start or 0
        for segment in segments:
            replica = segment["replicas"].get(node)
            end = max(end, 0 if replica is None else replica["ends"][1] + 1)
            lacks = segment["final"] if replica is None else replica["lacks"]
            for low, high, records in lacks if asked else ():
                first = max(low, start or 0)
                if first > high:
                    continue
                anomalies.add(
                    LOG_MATCHING, "missing on a replica",
                    f"{log}: {node}, which is in the ISR, does not hold {_range(first, high)} of the final log",
                    offset=first, count=min(records, high - first + 1),
                )  # fmt: skip
            for low, high, own, final in () if replica is None else replica["others"]:
                if final is None and (in_sync.compacted or in_sync.start_moves):
                    continue
                says = "nothing" if final is None else f"{final}"
                anomalies.add(
                    LOG_MATCHING, "differs from the final log",
                    f"{log}: at {_range(low, high)} {node}, which is in the ISR, holds {own}, and the final log {says}",
                    offset=low, value=own, count=high - low + 1,
                )  # fmt: skip
        watermark, leader, epoch = in_sync.watermarks.get(log, (0, "", 0))
        if asked and end < watermark:
            anomalies.add(
                LOG_MATCHING, "ends below the high watermark",
                f"{log}: the log of {node}, which is in the ISR, ends at {end}, and {leader}, leader of epoch {epoch}, "
                f"had told that everything below {watermark} is committed",
                offset=end, count=watermark - end,
            )  # fmt: skip


def _judge_log_starts(log: str, members: Iterable[str], anomalies: Anomalies, in_sync: InSync) -> None:
    if log not in in_sync.log_starts:
        return
    leader, settled, by_node = in_sync.log_starts[log]
    for node in members:
        start = by_node.get(node)
        if start is not None and not settled <= start <= by_node[leader]:
            anomalies.add(
                LOG_MATCHING, "starts elsewhere than its leader's log",
                f"{log}: the log of {node}, which is in the ISR, starts at {start}, and that of {leader}, which leads, "
                f"at {by_node[leader]}" + (f", and a while before at {settled}" if settled < by_node[leader] else ""),
                offset=start, count=max(settled - start, start - by_node[leader]),
            )  # fmt: skip


def _range(low: int, high: int) -> str:
    return f"offset {low}" if low == high else f"offsets {low} to {high}"


def _judge_replica(
    log: str, node: str, parts: Sequence[Mapping[str, Any]], anomalies: Anomalies, sparse: bool
) -> None:
    holes = [hole for part in parts for hole in part["holes"]]
    decreases = [decrease for part in parts for decrease in part["decreases"]]
    for before, after in pairwise(parts):
        last, first = before["ends"][1], after["ends"][0]
        if first != last + 1:
            holes.append([last, first])
        if after["epochs"][0] < before["epochs"][1]:
            decreases.append([first, before["epochs"][1], after["epochs"][0]])
    for last, first in holes:
        if sparse and first > last:
            continue
        what = f"holds offset {first} twice" if first == last else f"goes from offset {last} to {first}"
        anomalies.add(
            LOG_MATCHING, "replica hole", f"{log}: the log on {node} {what}",
            offset=last + 1, count=max(first - last - 1, 1),
        )  # fmt: skip
    for offset, before_, after_ in decreases:
        anomalies.add(
            LOG_MATCHING, "decreasing epoch",
            f"{log}: on {node} the leader epoch goes down from {before_} to {after_} at offset {offset}", offset=offset,
        )  # fmt: skip
