"""Log Matching: replicas that hold the same epoch at an offset hold the same log up to it (Raft, figure 3; Kafka:
section 3 of the KIP-966 description, leader epochs).

For two replicas let m be the highest offset at which both hold a record of the same leader epoch. Then at every
offset up to m epoch and value must be equal. Above m they may differ: a replica that has not been the leader's
follower since may still hold records that were never committed. Besides, one replica's log must have no holes and
its epochs must not decrease.

Anomalies: replica divergence, replica hole, decreasing epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import ANOMALIES, LOG_MATCHING, Anomalies, Found, stretches
from spark_history.files import Ints, equals, integers, read_parquet
from spark_history.ingest import History, LogHistory
from spark_history.log import NOWHERE
from spark_history.schema import REPLICA_LOGS
from spark_history.tasks import Unit, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS: Final = pa.schema([REPLICA_LOGS.field(name) for name in ("node", "offset", "leader_epoch", "value")])


@dataclass(frozen=True)
class ReplicaMatching:
    found: Found
    records: Mapping[str, int]  # records on replicas, by run; 0: no replica log was collected


def check(histories: Sequence[History], spark: SparkSession) -> ReplicaMatching:
    """Raises HistoryError."""
    logs = [(history, log) for history in histories for log in history.logs]
    results = iter(run_tasks(spark, compare_replicas, [unit for history, log in logs for unit in _units(history, log)]))
    rows: list[dict[str, Any]] = []
    tally = []
    records = {history.run: 0 for history in histories}
    for history, log in logs:
        segments = [json.loads(next(results)["facts"][0].as_py()) for _ in _units(history, log)]
        anomalies = Anomalies(history.run, log.topic, log.partition)
        judge(segments, anomalies)
        rows += anomalies.rows
        tally += [(history.run, *entry) for entry in anomalies.tally]
        records[history.run] += sum(of["records"] for segment in segments for of in segment["replicas"].values())
    return ReplicaMatching(Found(pa.Table.from_pylist(rows, schema=ANOMALIES), tally), records)


def _units(history: History, log: LogHistory) -> list[Unit]:
    paths = (segment.paths.get("replica_logs") for segment in log.segments)  # generated histories have none
    return [{"path": str(history.path / path)} for path in paths if path is not None]


def compare_replicas(unit: Unit) -> pa.Table:
    """See compare(); as JSON."""
    return pa.table({"facts": [json.dumps(compare(read_parquet(unit["path"], COLUMNS)))]})


@dataclass(frozen=True)
class _Replica:
    offset: Ints
    leader_epoch: Ints
    value: Ints


def compare(records: pa.Table) -> dict[str, Any]:
    """One segment of a log.

    replicas: by node, its first, last and number of records, the epochs of first and last, its holes and where an
    epoch decreased. pairs: of each two nodes, the highest offset of equal epoch, and the ranges in which they differ
    with what each holds at their start.
    """
    columns = [integers(records, name, NOWHERE) for name in ("offset", "leader_epoch", "value")]
    replicas = {}
    for node in sorted(pc.unique(records["node"]).to_pylist()):
        mine = np.flatnonzero(equals(records, "node", node))
        mine = mine[np.argsort(columns[0][mine], kind="stable")]
        replicas[node] = _Replica(*(column[mine] for column in columns))
    return {
        "replicas": {node: _facts_of(replica) for node, replica in replicas.items()},
        "pairs": [
            {"nodes": [first, second], **_facts_of_pair(replicas[first], replicas[second])}
            for first, second in combinations(replicas, 2)
        ],
    }


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


def _facts_of_pair(first: _Replica, second: _Replica) -> dict[str, Any]:
    # A damaged log may hold an offset twice, which is told by itself ("holes"): its first record stands for it here.
    once = all(bool((np.diff(each.offset) > 0).all()) for each in (first, second))
    offset, of_first, of_second = np.intersect1d(first.offset, second.offset, assume_unique=once, return_indices=True)
    epochs = first.leader_epoch[of_first], second.leader_epoch[of_second]
    values = first.value[of_first], second.value[of_second]
    same_epoch = epochs[0] == epochs[1]
    differ = ~same_epoch | (values[0] != values[1])
    held = {}
    for low, high in stretches(offset[differ]):
        row = int(np.searchsorted(offset, low))
        held[low] = [low, high, *(int(column[row]) for column in (epochs[0], values[0], epochs[1], values[1]))]
    return {"same_until": int(offset[same_epoch].max(initial=NOWHERE)), "differ": list(held.values())}


def judge(segments: Sequence[Mapping[str, Any]], anomalies: Anomalies) -> None:
    """What compare() found in the segments of one log, in their order."""
    log = f"{anomalies.topic}-{anomalies.partition}"
    for node in sorted({node for segment in segments for node in segment["replicas"]}):
        _judge_replica(log, node, [s["replicas"][node] for s in segments if node in s["replicas"]], anomalies)
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


def _judge_replica(log: str, node: str, parts: Sequence[Mapping[str, Any]], anomalies: Anomalies) -> None:
    holes = [hole for part in parts for hole in part["holes"]]
    decreases = [decrease for part in parts for decrease in part["decreases"]]
    for before, after in pairwise(parts):
        last, first = before["ends"][1], after["ends"][0]
        if first != last + 1:
            holes.append([last, first])
        if after["epochs"][0] < before["epochs"][1]:
            decreases.append([first, before["epochs"][1], after["epochs"][0]])
    for last, first in holes:
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
