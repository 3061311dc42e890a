"""What lies on the disks of a Kafka cluster that was healed and runs: do its files agree with each other?

Rows are of table `disk_state` (harness/targets/kafka/disks.py). Only what Kafka itself relies on is asked for:

| property | what must hold |
| --- | --- |
| SegmentIntegrity | every batch of every segment is whole, in order, and its CRC is right; segments follow each other |
| LeaderEpochCheckpoint | it is in order, and tells of each epoch in the log at which offset that begins |
| RecoveryPointCheckpoint | what a broker need not recover after a crash is in its log |
| HighWatermarkCheckpoint | what a replica takes for committed is in its log |
| LogStartCheckpoint | a log begins where it says, or after that, within its segments |
| CleanShutdown | no node that runs says that it was shut down cleanly: after a crash it would skip its recovery |
| ProducerSnapshot | what is remembered of producers can be read, and is of offsets that the log reaches |
| QuorumState | it can be read; its epoch is no lower than the metadata log's; no epoch has two leaders |
| MetaProperties | nodes of one cluster, each under its own id, no two with the same directory |
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from checkers.inside.metadata.findings import Findings
from checkers.inside.metadata.replay import Place

Row = Mapping[str, Any]
METADATA: Final = "__cluster_metadata"
PROPERTIES: Final = (
    "SegmentIntegrity", "LeaderEpochCheckpoint", "RecoveryPointCheckpoint", "HighWatermarkCheckpoint",
    "LogStartCheckpoint", "CleanShutdown", "ProducerSnapshot", "QuorumState", "MetaProperties",
)  # fmt: skip
_PROPERTY_OF: Final = {
    "log start": "LogStartCheckpoint",
    "segment": "SegmentIntegrity", "epoch": "LeaderEpochCheckpoint", "epoch checkpoint": "LeaderEpochCheckpoint",
    "recovery point": "RecoveryPointCheckpoint", "high watermark": "HighWatermarkCheckpoint",
    "clean shutdown": "CleanShutdown", "producer snapshot": "ProducerSnapshot",
    "quorum state": "QuorumState", "meta properties": "MetaProperties",
}  # fmt: skip


def property_of(what: str) -> str:
    """That rows of this kind are looked at for."""
    return _PROPERTY_OF[what]


class Disk:
    """Of one node, its rows by kind and partition."""

    def __init__(self, node: str, rows: Iterable[Row]) -> None:
        self.node = node
        self.rows: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            self.rows[row["what"]].append(row)

    def of(self, what: str) -> dict[Place, list[Row]]:
        """Rows that could be read."""
        found: dict[Place, list[Row]] = defaultdict(list)
        for row in self.rows[what]:
            if row["topic"] is not None and row["problem"] is None:
                found[row["topic"], row["partition"]].append(row)
        return found


class Extent:
    """What of a log its segments hold: from the first one's name to the end of the last one's batches."""

    def __init__(self, segments: Sequence[Row]) -> None:
        parts = sorted((row["offset"], json.loads(row["fields"])) for row in segments)
        self.start = parts[0][0]
        self.end = max([parts[-1][0], *(part["next"] for _, part in parts if part["next"] is not None)])
        self.gaps = [
            (part["next"], base)
            for (_, part), (base, _) in itertools.pairwise(parts)
            if part["next"] is not None and part["next"] != base
        ]


def judge_disks(
    rows: Sequence[Row], found: Findings, compacted: Collection[str] = (), down: Collection[str] = (),
    assigned: Mapping[str, Collection[str]] | None = None,
) -> dict[str, int]:  # fmt: skip
    """rows: of DISK_STATE. compacted: topics of which offsets may be missing between segments. down: nodes that did not
    run in the end: what they have not recovered from is held against nobody. assigned: by partition, the nodes that
    hold it in the end, where that is known. Returns how many rows were looked at, by property."""
    rows = [row for row in rows if row["node"] not in down]
    by_node: dict[str, list[Row]] = defaultdict(list)
    looked_at = dict.fromkeys(PROPERTIES, 0)
    for row in rows:
        by_node[row["node"]].append(row)
        if row["what"] in _PROPERTY_OF:
            looked_at[_PROPERTY_OF[row["what"]]] += row["what"] != "log start"
            if row["problem"] is not None:
                place = None if row["topic"] is None else (row["topic"], row["partition"])
                found.add(_PROPERTY_OF[row["what"]], f"damaged {row['what']}",
                          f"{row['file']} on {row['node']} cannot be read: {row['problem']}", place=place)  # fmt: skip
    disks = [Disk(node, own) for node, own in sorted(by_node.items())]
    looked_at["CleanShutdown"] += len(disks)  # of each it is looked whether there is one
    for disk in disks:
        extents = {place: Extent(segments) for place, segments in disk.of("segment").items()}
        looked_at["LogStartCheckpoint"] += len(extents)  # where there is no entry, the first segment's name says it
        _check_segments(disk, extents, found, compacted)
        _check_epochs(disk, extents, found, compacted)
        _check_checkpoints(disk, extents, assigned or {}, found)
        for row in disk.rows["clean shutdown"]:
            found.add(
                "CleanShutdown", "clean shutdown of a running node",
                f"{row['file']} is on {disk.node}, which runs: after a crash it would skip its recovery",
            )  # fmt: skip
    _check_quorum(disks, found)
    _check_identities(disks, found)
    return looked_at


def _check_segments(disk: Disk, extents: Mapping[Place, Extent], found: Findings, compacted: Collection[str]) -> None:
    for place, segments in disk.of("segment").items():
        for row in segments:
            first = json.loads(row["fields"])["first"]
            if first is not None and first < row["offset"]:
                found.add(
                    "SegmentIntegrity", "segment begins before its name",
                    f"{row['file']} on {disk.node} begins at offset {first}", place=place, offset=first,
                )  # fmt: skip
        for end, base in () if place[0] in compacted else extents[place].gaps:
            found.add("SegmentIntegrity", "gap between segments",
                      f"the log of {_name(place)} on {disk.node} has a segment that ends at offset {end} and one that "
                      f"begins at {base}", place=place, offset=end)  # fmt: skip


def _check_epochs(disk: Disk, extents: Mapping[Place, Extent], found: Findings, compacted: Collection[str]) -> None:
    name = "LeaderEpochCheckpoint"
    in_log = disk.of("epoch")
    log_starts = {place: rows[0]["offset"] for place, rows in disk.of("log start").items()}
    damaged = {(row["topic"], row["partition"]) for what in ("epoch checkpoint", "segment")
               for row in disk.rows[what] if row["problem"] is not None}  # fmt: skip
    entries = disk.of("epoch checkpoint")
    for place in {*in_log, *entries} - damaged:
        if place not in extents:
            continue
        told = [(row["epoch"], row["offset"]) for row in entries.get(place, ())]
        where = f"leader-epoch-checkpoint of {_name(place)} on {disk.node}"
        for (epoch, offset), (following, next_offset) in itertools.pairwise(told):
            if following <= epoch or next_offset < offset:
                found.add(name, "epochs out of order",
                          f"{where} has epoch {following} from offset {next_offset} after epoch {epoch} from {offset}",
                          place=place, offset=next_offset)  # fmt: skip
        starts = dict(told)
        firsts: dict[int, int] = {}
        for row in in_log.get(place, ()):
            firsts[row["epoch"]] = min(row["offset"], firsts.get(row["epoch"], row["offset"]))
        log_start, whole = (max(log_starts.get(place, 0), extents[place].start),
                            not (place[0] in compacted or extents[place].gaps))  # fmt: skip
        for epoch, first in sorted((epoch, max(first, log_start)) for epoch, first in firsts.items()):
            start = starts.get(epoch)
            if start is None:
                found.add(name, "epoch missing", f"{where} has no epoch {epoch}, of which the log has records from "
                          f"offset {first} on", place=place, offset=first)  # fmt: skip
            elif start > first or (log_start <= start < first and whole):  # below, who knows
                found.add(name, "epoch begins elsewhere", f"{where} has epoch {epoch} begin at offset {start}, and the "
                          f"log at {first}", place=place, offset=first)  # fmt: skip
        for epoch, start in told:
            if start > extents[place].end:
                end = extents[place].end
                found.add(name, "epoch beyond the log", f"{where} has epoch {epoch} begin at offset {start}, and the "
                          f"log ends at {end}", place=place, offset=start)  # fmt: skip


def _check_checkpoints(
    disk: Disk, extents: Mapping[Place, Extent], assigned: Mapping[str, Collection[str]], found: Findings
) -> None:
    has_log = {(row["topic"], row["partition"]) for row in disk.rows["segment"]}
    for what, name in (("recovery point", "RecoveryPointCheckpoint"), ("high watermark", "HighWatermarkCheckpoint")):
        for place, rows in disk.of(what).items():
            offset = rows[0]["offset"]
            if place in extents and offset > extents[place].end:
                found.add(name, f"{what} beyond the log",
                          f"the {what} of {_name(place)} on {disk.node} is {offset}, and its log ends at "
                          f"{extents[place].end}", place=place, offset=offset)  # fmt: skip
            elif (
                place not in has_log and offset > 0 and place[0] != METADATA
                # A replica that was moved away is gone some seconds before the checkpoints are written anew.
                and disk.node in assigned.get(_name(place), (disk.node,))
            ):  # fmt: skip
                found.add(name, f"{what} without a log", f"{disk.node} has {what} {offset} of {_name(place)}, and no "
                          "log of it", place=place, offset=offset)  # fmt: skip
    for place, rows in disk.of("log start").items():
        offset = rows[0]["offset"]
        if place in extents and not extents[place].start <= offset <= extents[place].end:
            found.add("LogStartCheckpoint", "log start outside the log",
                      f"the log start of {_name(place)} on {disk.node} is {offset}, and its segments hold "
                      f"{extents[place].start} to {extents[place].end}", place=place, offset=offset)  # fmt: skip
    for place, rows in disk.of("producer snapshot").items():
        for row in rows:
            if place in extents and row["offset"] > extents[place].end:
                found.add("ProducerSnapshot", "producer snapshot beyond the log",
                          f"{row['file']} on {disk.node} is of an offset that its log, which ends at "
                          f"{extents[place].end}, does not reach", place=place, offset=row["offset"])  # fmt: skip


def check_quorum_state(disk: Disk, where: str, found: Findings) -> None:
    """It is no older than the metadata log beside it. where: which disk that is, in words."""
    last = max((json.loads(row["fields"])["last_epoch"] for row in disk.rows["segment"] if row["topic"] == METADATA),
               default=-1)  # fmt: skip
    for row in disk.rows["quorum state"]:
        if row["problem"] is None and row["epoch"] < last:
            found.add("QuorumState", "epoch behind the metadata log",
                      f"quorum-state on {where} is of epoch {row['epoch']}, and its metadata log has records of epoch "
                      f"{last}")  # fmt: skip


def _check_quorum(disks: Sequence[Disk], found: Findings) -> None:
    leaders: dict[int, dict[int, str]] = defaultdict(dict)
    for disk in disks:
        check_quorum_state(disk, disk.node, found)
        for row in (row for row in disk.rows["quorum state"] if row["problem"] is None):
            state = json.loads(row["fields"])
            if (leader := state.get("leaderId", -1)) >= 0:
                leaders[row["epoch"]].setdefault(leader, disk.node)
    for epoch, of in sorted(leaders.items()):
        if len(of) > 1:
            told = " and ".join(f"{node} that node {leader} does" for leader, node in sorted(of.items()))
            found.add("QuorumState", "two leaders of an epoch", f"who leads epoch {epoch} of the quorum? {told}")


def _check_identities(disks: Sequence[Disk], found: Findings) -> None:
    clusters: dict[str, list[str]] = defaultdict(list)
    directories: dict[str, list[str]] = defaultdict(list)
    ids: dict[str, list[str]] = defaultdict(list)
    for disk in disks:
        for row in (row for row in disk.rows["meta properties"] if row["problem"] is None):
            own = json.loads(row["fields"])
            clusters[own.get("cluster.id", "")].append(disk.node)
            if directory := own.get("directory.id"):
                directories[directory].append(disk.node)
            ids[own.get("node.id", "")].append(disk.node)
    if len(clusters) > 1:
        told = "; ".join(f"{', '.join(nodes)} of {cluster or 'none'}" for cluster, nodes in sorted(clusters.items()))
        found.add("MetaProperties", "nodes of several clusters", f"by their meta.properties nodes are: {told}")
    for what, of in (("directory.id", directories), ("node.id", ids)):
        for value, nodes in sorted(of.items()):
            if len(nodes) > 1:
                found.add("MetaProperties", f"one {what} twice", f"{' and '.join(nodes)} have {what} {value}")


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
