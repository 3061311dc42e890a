"""What lies on the disks of Kafka's nodes: disks as they should be give no finding, and each damage the one it is."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from checkers.inside.kafka.cut_disks import Cut, check_committed, judge_cut_disks, not_kept, who_served
from checkers.inside.kafka.disks import PROPERTIES, judge_disks
from checkers.inside.metadata.findings import Findings
from cluster_image.storage.records import encode_int64s, iter_batches, with_offset_and_epoch
from harness.record.collected import collected_files
from harness.targets.kafka.disks import _of_node
from spark_history.schema import TRACE

LOG = "chaos-0/00000000000000000000.log"
SECOND = "chaos-0/00000000000000000006.log"
EPOCHS = "chaos-0/leader-epoch-checkpoint"
QUORUM = "__cluster_metadata-0/quorum-state"
Files = dict[str, bytes]


class Disk:
    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def list(self, directory: str) -> list[str]:
        depth = f"{directory}/" if directory else ""
        names = {path.removeprefix(depth).partition("/")[0] for path in self.files if path.startswith(depth)}
        if directory and not names:
            raise FileNotFoundError(directory)
        return sorted(names)

    def read(self, path: str) -> bytes:
        return self.files[path]


def batch(offset: int, epoch: int, count: int = 2) -> bytes:
    return bytes(with_offset_and_epoch(encode_int64s(list(range(count)), timestamp_ms=1), offset, epoch))


def checkpoint(*entries: str) -> bytes:
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode()


def snapshot(producers: int = 0) -> bytes:
    content = struct.pack(">i", producers)
    return struct.pack(">hI", 1, google_crc32c.value(content)) + content


def node(number: int) -> Files:
    """Two segments, epochs 0 (offsets 0 to 3) and 2 (from 4 on), up to 10."""
    return {
        LOG: batch(0, 0) + batch(2, 0) + batch(4, 2),
        SECOND: batch(6, 2) + batch(8, 2),
        EPOCHS: checkpoint("0 0", "2 4", "3 10"),
        "chaos-0/00000000000000000006.snapshot": snapshot(),
        "recovery-point-offset-checkpoint": checkpoint("chaos 0 6"),
        "replication-offset-checkpoint": checkpoint("chaos 0 10"),
        "log-start-offset-checkpoint": b"",
        "meta.properties": f"#\ncluster.id=c\ndirectory.id=d{number}\nnode.id={number}\nversion=1\n".encode(),
        "__cluster_metadata-0/00000000000000000000.log": batch(0, 1) + batch(2, 3),
        "__cluster_metadata-0/leader-epoch-checkpoint": checkpoint("1 0", "3 2"),
        QUORUM: json.dumps({"leaderId": 101, "leaderEpoch": 3, "votedId": -1}).encode(),
    }


def found_in(nodes: Mapping[str, Files], compacted: bool = False) -> tuple[dict[str, set[str]], dict[str, int]]:
    rows = [row for name, files in nodes.items() for row in _of_node(name, Disk(files))]
    findings = Findings("r")
    looked_at = judge_disks(rows, findings, ["chaos"] * compacted)
    found: dict[str, set[str]] = {}
    for of in findings.anomalies():
        for row in of.rows:
            found.setdefault(row["property"], set()).add(row["anomaly"])
    return found, looked_at


def test_disks_as_they_should_be_give_no_finding_and_all_of_them_is_looked_at() -> None:
    found, looked_at = found_in({"broker-1": node(1), "broker-2": node(2)})
    assert found == {}
    assert looked_at.keys() == set(PROPERTIES) and all(looked_at.values()), looked_at


def test_a_log_whose_beginning_retention_has_deleted() -> None:
    files = node(1)
    del files[LOG]
    files["log-start-offset-checkpoint"] = checkpoint("chaos 0 7")
    files[EPOCHS] = checkpoint("2 7", "3 10")
    assert found_in({"broker-1": files})[0] == {}


def test_a_compacted_log_has_gaps() -> None:
    files = node(1)
    files[LOG] = batch(0, 0)
    files[EPOCHS] = checkpoint("0 0", "2 4", "3 10")
    assert found_in({"broker-1": files})[0] == {"SegmentIntegrity": {"gap between segments"}}
    assert found_in({"broker-1": files}, compacted=True)[0] == {}


def change(path: str, how: Callable[[bytes], bytes]) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        files[path] = how(files[path])

    return damage


def put(path: str, content: bytes) -> Callable[[Files], None]:
    return change_to(path, content)


def change_to(path: str, content: bytes) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        files[path] = content

    return damage


def flipped(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def without_batch(number: int) -> Callable[[bytes], bytes]:
    def drop(content: bytes) -> bytes:
        start, end, _ = list(iter_batches(content))[number]
        return content[:start] + content[end:]

    return drop


DAMAGES: list[tuple[Callable[[Files], None], str, str]] = [
    (change(LOG, flipped), "SegmentIntegrity", "damaged segment"),
    (change(LOG, lambda content: content[:-5]), "SegmentIntegrity", "damaged segment"),
    (change(LOG, without_batch(-1)), "SegmentIntegrity", "gap between segments"),
    (change(SECOND, lambda _: batch(5, 2) + batch(8, 2)), "SegmentIntegrity", "segment begins before its name"),
    (change(LOG, lambda _: batch(0, 2) + batch(2, 0) + batch(4, 2)), "SegmentIntegrity", "damaged segment"),
    (put(EPOCHS, checkpoint("0 0", "3 10")), "LeaderEpochCheckpoint", "epoch missing"),
    (put(EPOCHS, checkpoint("0 0", "2 5", "3 10")), "LeaderEpochCheckpoint", "epoch begins elsewhere"),
    (put(EPOCHS, checkpoint("0 0", "2 2", "3 10")), "LeaderEpochCheckpoint", "epoch begins elsewhere"),
    (put(EPOCHS, checkpoint("2 4", "0 0", "3 10")), "LeaderEpochCheckpoint", "epochs out of order"),
    (put(EPOCHS, checkpoint("0 0", "2 4", "3 11")), "LeaderEpochCheckpoint", "epoch beyond the log"),
    (put(EPOCHS, b"0\n5\n0 0\n"), "LeaderEpochCheckpoint", "damaged epoch checkpoint"),
    (put("recovery-point-offset-checkpoint", checkpoint("chaos 0 11")), "RecoveryPointCheckpoint",
     "recovery point beyond the log"),
    (put("recovery-point-offset-checkpoint", checkpoint("chaos 7 3")), "RecoveryPointCheckpoint",
     "recovery point without a log"),
    (put("recovery-point-offset-checkpoint", b"1\n0\n"), "RecoveryPointCheckpoint", "damaged recovery point"),
    (put("replication-offset-checkpoint", checkpoint("chaos 0 11")), "HighWatermarkCheckpoint",
     "high watermark beyond the log"),
    (put("log-start-offset-checkpoint", checkpoint("chaos 0 11")), "LogStartCheckpoint", "log start outside the log"),
    (put(".kafka_cleanshutdown", b"{}"), "CleanShutdown", "clean shutdown of a running node"),
    (change("chaos-0/00000000000000000006.snapshot", flipped), "ProducerSnapshot", "damaged producer snapshot"),
    (put("chaos-0/00000000000000000011.snapshot", snapshot()), "ProducerSnapshot", "producer snapshot beyond the log"),
    (put(QUORUM, b'{"leaderId": 101, "leaderEpoch": 2}'), "QuorumState", "epoch behind the metadata log"),
    (put(QUORUM, b'{"leaderId": 102, "leaderEpoch": 3}'), "QuorumState", "two leaders of an epoch"),
    (put(QUORUM, b""), "QuorumState", "damaged quorum state"),
    (put("meta.properties", b"cluster.id=other\nnode.id=1\n"), "MetaProperties", "nodes of several clusters"),
    (put("meta.properties", b"cluster.id=c\nnode.id=2\n"), "MetaProperties", "one node.id twice"),
    (put("meta.properties", b"cluster.id=c\nnode.id=1\ndirectory.id=d2\n"), "MetaProperties", "one directory.id twice"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "property_", "anomaly"), DAMAGES)
def test_each_damage_is_found_and_named(damage: Callable[[Files], None], property_: str, anomaly: str) -> None:
    files = node(1)
    damage(files)
    found, _ = found_in({"broker-1": files, "broker-2": node(2)})
    assert found == {property_: {anomaly}}


def test_checkpoints_of_a_replica_that_was_moved_away_may_be_left_for_a_while() -> None:
    files = node(1)
    put("replication-offset-checkpoint", checkpoint("chaos 0 10", "chaos 7 6"))(files)
    rows = list(_of_node("broker-1", Disk(files)))
    for assigned, wrong in ({}, 1), ({"chaos-7": ["broker-1"]}, 1), ({"chaos-7": ["broker-2"]}, 0):
        findings = Findings("r")
        judge_disks(rows, findings, assigned=assigned)
        assert len(list(findings.anomalies())) == wrong, assigned


def test_there_is_a_damage_for_each_property() -> None:
    assert {property_ for _, property_, _ in DAMAGES} == set(PROPERTIES)


def test_what_cannot_be_read_costs_nothing_else() -> None:
    class Broken(Disk):
        def read(self, path: str) -> bytes:
            if path == LOG:
                raise PermissionError(13, "Permission denied", path)
            return super().read(path)

    rows: list[dict[str, Any]] = list(_of_node("broker-1", Broken(node(1))))
    (problem,) = [row for row in rows if row["problem"]]
    assert problem["what"] == "segment" and "Permission denied" in problem["problem"]
    assert {"epoch checkpoint", "recovery point", "quorum state"} <= {row["what"] for row in rows}


# --- right after a power cut ---------------------------------------------------------------------------------------


def torn(number: int = 1) -> Files:
    """What was not synced is gone: the second segment ends within a batch, above the recovery point."""
    files = node(number)
    files[SECOND] = files[SECOND][:-20]
    return files


def found_at_cut(files: Files, served: bool = True) -> tuple[dict[str, set[str]], dict[str, int]]:
    rows = [row | {"cut": 1} for row in _of_node("broker-1", Disk(files))]
    findings = Findings("r")
    looked_at = judge_cut_disks(rows, [], findings, {Cut("broker-1", 1): served})
    return {row["property"]: {row["anomaly"]} for of in findings.anomalies() for row in of.rows}, looked_at


def test_what_was_never_synced_may_be_torn() -> None:
    found, looked_at = found_at_cut(torn())
    assert found == {} and all(looked_at.values())
    assert set(looked_at) == {property_ for property_, _ in AT_CUTS.values()}


def _synced_batch_torn(files: Files) -> None:
    files[LOG] = files[LOG][:-5]


def _synced_segment_gone(files: Files) -> None:
    del files[SECOND]
    files["recovery-point-offset-checkpoint"] = checkpoint("chaos 0 8")


def _end_of_the_first_segment_gone(files: Files) -> None:
    """Cut off where a batch ends, so that all there is is whole."""
    _, end, _ = next(iter_batches(files[LOG]))
    assert 0 < end < len(files[LOG])
    files[LOG] = files[LOG][:end]


def _first_segment_empty(files: Files) -> None:
    files[LOG] = b""


def _says_it_was_shut_down(files: Files) -> None:
    files[".kafka_cleanshutdown"] = b""


def _empty_properties(files: Files) -> None:
    files["meta.properties"] = b""


def _half_a_checkpoint(files: Files) -> None:
    files[EPOCHS] = files[EPOCHS][:-4]


def _quorum_state_of_before(files: Files) -> None:
    files[QUORUM] = json.dumps({"leaderId": 101, "leaderEpoch": 2, "votedId": -1}).encode()


AT_CUTS: dict[Callable[[Files], None], tuple[str, str]] = {
    _synced_batch_torn: ("RecoveryPointCheckpoint", "recovery point beyond what the power cut left"),
    _synced_segment_gone: ("RecoveryPointCheckpoint", "recovery point beyond what the power cut left"),
    _end_of_the_first_segment_gone: ("RecoveryPointCheckpoint", "recovery point beyond what the power cut left"),
    _first_segment_empty: ("RecoveryPointCheckpoint", "recovery point beyond what the power cut left"),
    _says_it_was_shut_down: ("CleanShutdown", "clean shutdown of a node that lost its power"),
    _empty_properties: ("MetaProperties", "damaged meta properties after a power cut"),
    _half_a_checkpoint: ("LeaderEpochCheckpoint", "damaged epoch checkpoint after a power cut"),
    _quorum_state_of_before: ("QuorumState", "epoch behind the metadata log"),
}


@pytest.mark.parametrize("damage", AT_CUTS)
def test_what_recovery_goes_by_must_be_whole(damage: Callable[[Files], None]) -> None:
    files = torn()
    damage(files)
    property_, anomaly = AT_CUTS[damage]
    assert found_at_cut(files)[0] == {property_: {anomaly}}


def test_a_node_that_had_not_yet_served_may_still_say_that_it_was_shut_down() -> None:
    files = torn()
    _says_it_was_shut_down(files)
    assert found_at_cut(files, served=False)[0] == {}


def in_turn(*states: tuple[int, int, int] | None) -> set[str]:
    """Anomalies of a node whose quorum-state has these epochs, leaders and votes after each cut, and in the end. None:
    it has none."""
    rows: list[dict[str, Any]] = []
    for number, state in enumerate(states, start=1):
        if state is None:
            rows.append({"node": "controller-1", "cut": number if number < len(states) else None, "what": "log start",
                         "topic": None, "partition": None, "problem": None})  # fmt: skip
        else:
            fields = dict(zip(("leaderEpoch", "leaderId", "votedId"), state, strict=True))
            rows.append({
                "node": "controller-1", "cut": number if number < len(states) else None, "file": "quorum-state",
                "what": "quorum state", "topic": "__cluster_metadata", "partition": 0, "offset": None,
                "epoch": state[0], "fields": json.dumps(fields), "problem": None,
            })  # fmt: skip
    findings = Findings("r")
    at_cuts, final = [row for row in rows if row["cut"]], [row for row in rows if not row["cut"]]
    judge_cut_disks(at_cuts, final, findings, {})
    return {row["anomaly"] for of in findings.anomalies() for row in of.rows}


def test_no_power_cut_takes_back_what_a_controller_has_promised() -> None:
    assert in_turn((3, -1, 101), (3, 102, -1), (3, 102, 101), (4, 101, -1)) == set()
    assert in_turn((3, 102, -1), (2, 101, -1)) == {"epoch of the quorum forgotten"}
    assert in_turn((3, 102, -1), None, (2, 101, -1)) == {"epoch of the quorum forgotten", "quorum-state is gone"}
    assert in_turn((3, -1, 101), (3, 102, -1), (3, -1, 103)) == {"voted for two in an epoch"}
    assert in_turn((3, 102, -1), (3, 103, -1)) == {"followed two in an epoch"}
    assert in_turn((3, 102, -1), (3, 102, -1), None) == {"quorum-state is gone"}


def test_who_was_stopped_and_started_since_its_last_answer_need_not_have_served() -> None:
    """A power cut 0.4 s after a restart: between two looks the node had ended, and had not answered again."""
    rows = [{"run": "r", "node": "broker-1", "number": 0, "time": 10, "event": "answers", "topic": None,
             "partition": None, "fields": "{}"}]  # fmt: skip
    power_cut = {"start": 50, "targets": ["broker-1"], "evidence": {"nodes": {"broker-1": {"disk_at_cut": 1}}}}
    killed = {"start": 40, "targets": ["broker-1"], "evidence": {"nodes": {"broker-1": {"exit_status": 0}}}}
    trace = pa.Table.from_pylist(rows, schema=TRACE)
    assert who_served(trace, [power_cut]) == {Cut("broker-1", 1): True}
    assert who_served(trace, [killed, power_cut]) == {Cut("broker-1", 1): False}


def test_disks_at_power_cuts_are_part_of_what_was_collected_and_missed_when_they_are_gone(tmp_path: Path) -> None:
    for name in ("disks/broker-1/kafka/x", "disks-at-cuts/broker-1-2/kafka/x", "trace/broker-1.jsonl", "logs/broker-1"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    pieces = collected_files(tmp_path)
    assert {(piece.node, (piece.file or "").partition("/")[0]) for piece in pieces} == {
        ("broker-1", "disks"), ("broker-1", "disks-at-cuts"), ("broker-1", "trace"),
    }  # fmt: skip
    fault = {"fault": 0, "evidence": {"nodes": {"broker-1": {"disk_at_cut": 2}}}}
    row = {"node": "broker-1", "cut": 2}
    assert not_kept([row], [fault]) == []
    assert not_kept([], [fault]) == ["nothing of the disk of broker-1 after its power cut 2 is on record"]


@pytest.mark.parametrize(("ends", "lost"), [((16, 16, 9), False), ((16, 9, 9), True), ((9, 9), True), ((9,), False)])
def test_what_was_committed_is_on_a_majority_right_after_a_power_cut(ends: tuple[int, ...], lost: bool) -> None:
    """ends: of the metadata logs of the controllers that were cut; others are taken to have everything."""
    rows = [
        {"node": f"controller-{n}", "cut": 2, "what": "segment", "topic": "__cluster_metadata", "partition": 0,
         "offset": 0, "problem": None, "fields": json.dumps({"next": end})}
        for n, end in enumerate(ends, start=1)
    ]  # fmt: skip
    if lost and len(ends) == 2:
        rows[1] |= {"what": "meta properties", "topic": None}  # all of its metadata log is gone
    nodes = {row["node"]: {"disk_at_cut": 2} for row in rows} | {"broker-1": {"disk_at_cut": 1}}
    fault = {"fault": 7, "start": 100, "evidence": {"nodes": nodes}}
    findings = Findings("r")
    voters = ["controller-1", "controller-2", "controller-3"]
    assert check_committed(rows, {50: 12, 99: 16, 101: 20}, voters, [fault], findings) == len(ends)
    anomalies = [row["anomaly"] for of in findings.anomalies() for row in of.rows]
    assert anomalies == ["committed metadata lost in a power cut"] * lost
