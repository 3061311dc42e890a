"""What lies on the disk of a Kafka node in the moment after a power cut, before it starts again.

Much of it may be torn: Kafka recovers from that. What must hold is what it goes by when it does:

| property | what must hold |
| --- | --- |
| RecoveryPointCheckpoint | below the recovery point every batch is whole, for a broker does not look there again |
| CleanShutdown | a node that served does not say that it was shut down cleanly, for it would look at nothing |
| LeaderEpochCheckpoint | it can be read, or the broker gives its log directory up |
| QuorumState | it can be read, is no older than the metadata log, and takes back neither epoch, vote nor leader |
| CommittedPrefix | a majority of the controllers has what was committed, however many were cut at one time |
| MetaProperties | it can be read, or the node does not start |
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from checkers.inside.kafka.disks import METADATA, Disk, Row, check_quorum_state, property_of
from checkers.inside.metadata.findings import Findings

#: Fields of quorum-state, each with what it says that the node did.
_ONCE_AN_EPOCH: Final = {"votedId": "voted for", "leaderId": "followed"}
#: Without these, whole, a node does not start.
_NEEDED: Final = ("epoch checkpoint", "quorum state", "meta properties")


class Cut(NamedTuple):
    """number: of the node's power cuts, from 1."""

    node: str
    number: int

    def __str__(self) -> str:
        return f"{self.node} after its power cut {self.number}"


def judge_cut_disks(
    rows: Sequence[Row], final: Sequence[Row], found: Findings, served: Mapping[Cut, bool],
    compacted: Collection[str] = (),
) -> dict[str, int]:  # fmt: skip
    """rows: of DISK_STATE, those with a cut; final: those without. served: did the node answer until its power went?
    compacted: topics of which offsets may be missing between segments. Returns how many rows were looked at, by
    property."""
    by_cut: dict[Cut, list[Row]] = defaultdict(list)
    looked_at: dict[str, int] = defaultdict(int)
    for row in rows:
        by_cut[Cut(row["node"], row["cut"])].append(row)
        if row["what"] in _NEEDED:
            looked_at[property_of(row["what"])] += 1
            if row["problem"] is not None:
                place = None if row["topic"] is None else (row["topic"], row["partition"])
                cut = Cut(row["node"], row["cut"])
                found.add(property_of(row["what"]), f"damaged {row['what']} after a power cut",
                          f"{row['file']} on {cut} cannot be read: {row['problem']}", place=place)  # fmt: skip
    for cut, own in sorted(by_cut.items()):
        disk = Disk(cut.node, own)
        looked_at["RecoveryPointCheckpoint"] += _check_recovery_points(cut, disk, found, compacted)
        check_quorum_state(disk, str(cut), found)
        if served.get(cut):
            looked_at["CleanShutdown"] += 1
            for row in disk.rows["clean shutdown"]:
                found.add("CleanShutdown", "clean shutdown of a node that lost its power",
                          f"{row['file']} is on {cut}, though it had begun to serve: it does not look at what of its "
                          "logs is torn")  # fmt: skip
    _check_quorum_states_in_turn([*rows, *final], found)
    return dict(looked_at)


def _check_recovery_points(cut: Cut, disk: Disk, found: Findings, compacted: Collection[str]) -> int:
    segments: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in disk.rows["segment"]:
        segments[row["topic"], row["partition"]].append(row)
    points = disk.of("recovery point")
    for place, rows in points.items():
        if place not in segments:
            continue  # it was deleted, or has no entry of its own yet
        offset, whole = rows[0]["offset"], _whole_until(segments[place], compacted=place[0] in compacted)
        if offset > whole:
            found.add("RecoveryPointCheckpoint", "recovery point beyond what the power cut left",
                      f"the recovery point of {place[0]}-{place[1]} on {cut} is {offset}, and its log is whole only up "
                      f"to {whole}", place=place, offset=whole)  # fmt: skip
    return len(points)


def _whole_until(segments: Sequence[Row], *, compacted: bool = False) -> int:
    """Of the first segments, one after the other, up to which offset batches are whole. -1: there are none."""
    end = -1
    for row in sorted(segments, key=lambda row: row["offset"]):
        if 0 <= end < row["offset"] and not compacted:
            break  # the end of the one before is gone
        following = json.loads(row["fields"])["next"]
        end = row["offset"] if following is None else following
        if row["problem"] is not None:
            break
    return end


def _check_quorum_states_in_turn(rows: Sequence[Row], found: Findings) -> None:
    """Of each node after each cut, and in the end (cut: None)."""
    last: dict[str, tuple[str, int, dict[str, int]]] = {}  # when, epoch, fields
    states = {(row["node"], row["cut"]): row for row in rows if row["what"] == "quorum state"}
    looks = dict.fromkeys((row["node"], row["cut"]) for row in rows)
    for node, cut in sorted(looks, key=lambda look: (look[0], look[1] or float("inf"))):
        row = states.get((node, cut))
        if row is None and node in last:
            found.add("QuorumState", "quorum-state is gone",
                      f"quorum-state on {node} was there {last[node][0]}, and is not "
                      f"{'in the end' if cut is None else f'after its power cut {cut}'}")  # fmt: skip
        if row is None or row["problem"] is not None:
            continue
        state = json.loads(row["fields"])
        said = {field: number for field in _ONCE_AN_EPOCH if (number := state.get(field, -1)) >= 0}
        when = "in the end" if row["cut"] is None else f"after its power cut {row['cut']}"
        before, epoch, earlier = last.get(node, ("", -1, {}))
        if row["epoch"] < epoch:
            found.add("QuorumState", "epoch of the quorum forgotten",
                      f"quorum-state on {node} is of epoch {row['epoch']} {when}, and was of {epoch} {before}",
                      )  # fmt: skip
        if row["epoch"] == epoch:
            for field, did in _ONCE_AN_EPOCH.items():
                if earlier.get(field, said.get(field)) != said.get(field, earlier.get(field)):
                    found.add("QuorumState", f"{did} two in an epoch",
                              f"in epoch {epoch} {node} {did} {earlier[field]} {before}, and {said[field]} {when}",
                              )  # fmt: skip
            said = {**earlier, **said}
        last[node] = when, row["epoch"], said


def check_committed(
    rows: Sequence[Row], told: Mapping[int, int], voters: Sequence[str], faults: Sequence[Mapping[str, Any]],
    found: Findings,
) -> int:  # fmt: skip
    """Who was not cut by the same fault, or whose disk was not kept, is taken to have everything. told: by time
    (monotonic ns), up to which offset the quorum's leader said that the metadata log is committed. Returns how many
    cuts of voters were looked at."""
    ends: dict[Cut, list[Row]] = defaultdict(list)
    for row in rows:
        if row["what"] == "segment" and row["topic"] == METADATA:
            ends[Cut(row["node"], row["cut"])].append(row)
    kept = {Cut(row["node"], row["cut"]) for row in rows}
    looked_at = 0
    for fault in faults:
        committed = max((offset for time, offset in told.items() if time < fault["start"]), default=0)
        cuts = [cut for cut in _cuts(fault) if cut.node in voters and cut in kept]
        looked_at += len(cuts)
        lacking = {cut.node: _whole_until(ends[cut]) for cut in cuts if _whole_until(ends[cut]) < committed}
        if 2 * (len(voters) - len(lacking)) <= len(voters):
            have = ", ".join(f"{node} has it up to {end}" for node, end in lacking.items())
            found.add("CommittedPrefix", "committed metadata lost in a power cut",
                      f"metadata was committed up to offset {committed}, and after fault {fault['fault']} "
                      f"{len(lacking)} of {len(voters)} controllers lack some of it: {have}")  # fmt: skip
    return looked_at


def _cuts(fault: Mapping[str, Any]) -> Iterator[Cut]:
    """That a fault made, of which the disk was kept. fault: a row of FAULTS, evidence parsed."""
    for node, seen in (fault["evidence"].get("nodes") or {}).items():
        for each in (seen, seen.get("first_cut")) if isinstance(seen, Mapping) else ():
            if isinstance(each, Mapping) and (number := each.get("disk_at_cut")):
                yield Cut(node, int(number))


def not_kept(rows: Sequence[Row], faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of which power cuts the disk was not copied, or is not on record, a sentence each. rows: of DISK_STATE, those
    with a cut; faults: rows of FAULTS, evidence parsed."""
    there = {Cut(row["node"], row["cut"]) for row in rows}
    lacking = (cut for fault in faults for cut in _cuts(fault) if cut not in there)
    return [f"nothing of the disk of {cut} is on record" for cut in lacking] + [
        f"the disk of {node} was not copied after the power cut of fault {fault['fault']}: {seen['disk_not_kept']}"
        for fault in faults
        for node, seen in (fault["evidence"].get("nodes") or {}).items()
        if isinstance(seen, Mapping) and seen.get("disk_not_kept")
    ]


def who_served(trace: pa.Table, faults: Sequence[Mapping[str, Any]]) -> dict[Cut, bool]:
    """By power cut, whether the node had answered when it was asked last before, and since the fault before on that
    node began: it is asked twice a second, and may have been stopped and started in between. faults: rows of FAULTS,
    evidence parsed."""
    rows = trace.filter(pc.is_in(trace["event"].cast(pa.string()), pa.array(["answers", "silent"]))).to_pylist()
    served = {}
    for fault in faults:
        for cut in _cuts(fault):
            before = [row for row in rows if row["node"] == cut.node and row["time"] < fault["start"]]
            last = max(before, key=lambda row: row["time"], default=None)
            earlier = (each for each in faults if cut.node in each["targets"] and each["start"] < fault["start"])
            since = max((each["start"] for each in earlier), default=0)
            served[cut] = last is not None and last["event"] == "answers" and last["time"] > since
    return served
