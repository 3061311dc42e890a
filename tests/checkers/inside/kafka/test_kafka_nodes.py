"""What Kafka's metadata logs and the answers of its nodes show: a run as it should be gives no finding, and each damage
the one it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pyarrow as pa
import pytest

from checkers.inside.kafka.nodes import judge
from checkers.inside.of_nodes import Options
from spark_history.schema import COLLECTED, DISK_STATE, METADATA_LOG, TRACE

Record = tuple[int, str, dict[str, Any]]  # epoch of the quorum, type, fields
NODES = {"broker-1": 1, "broker-2": 2, "broker-3": 3, "controller-1": 101, "controller-2": 102, "controller-3": 103}
TOPIC = "00000000-0000-0000-0000-000000000001"


def registers(broker: int, offset: int, incarnation: str, *, epoch: int | None = None, quorum: int = 1) -> Record:
    return quorum, "RegisterBrokerRecord", {
        "broker_id": broker, "broker_epoch": offset if epoch is None else epoch, "incarnation_id": incarnation,
        "fenced": True, "in_controlled_shutdown": False,
    }  # fmt: skip


def unfences(broker: int, epoch: int, quorum: int = 1) -> Record:
    fields = {"broker_id": broker, "broker_epoch": epoch, "fenced": -1, "in_controlled_shutdown": 0}
    return quorum, "BrokerRegistrationChangeRecord", fields


def changes(epoch: int = 2, leader: int = -2, **fields: Any) -> Record:
    nothing = dict.fromkeys(("replicas", "isr", "eligible_leader_replicas", "last_known_elr"))
    return epoch, "PartitionChangeRecord", {
        "topic_id": TOPIC, "partition_id": 0, **nothing, "leader_recovery_state": -1, "leader": leader, **fields,
    }  # fmt: skip


class Run:
    """Every node has the same metadata log of two quorum epochs; broker 1 restarts, and broker 2 leads meanwhile."""

    def __init__(self) -> None:
        self.records: list[Record] = [
            (1, "LeaderChange", {"leader_id": 101}),
            (1, "FeatureLevelRecord", {"name": "eligible.leader.replicas.version", "feature_level": 1}),
            registers(1, 2, "a"), registers(2, 3, "b"), registers(3, 4, "c"),
            registers(2, 5, "b", epoch=3),  # again, for it had no answer: the same incarnation
            unfences(1, 2), unfences(2, 3), unfences(3, 4),
            (1, "TopicRecord", {"name": "chaos", "topic_id": TOPIC}),
            (1, "PartitionRecord", {
                "topic_id": TOPIC, "partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3],
                "eligible_leader_replicas": None, "last_known_elr": None, "leader": 1, "leader_epoch": 0,
                "partition_epoch": 0, "leader_recovery_state": 0,
            }),
            (2, "LeaderChange", {"leader_id": 102}),
            changes(isr=[2, 3], leader=2),
            registers(1, 13, "d", quorum=2), unfences(1, 13, 2),
            changes(isr=[2, 3, 1]),
        ]  # fmt: skip
        self.logs = {node: deepcopy(self.records) for node in NODES}
        self.told: list[tuple[str, str, str, dict[str, Any]]] = [
            *((node, "start", "", {"node_id": id, "voters": [101, 102, 103]}) for node, id in NODES.items()),
            *((node, "answers", "", {}) for node in NODES),
            self.leads(101, 1), self.committed(101, 1, 11),
            self.has("broker-1", leader=1, leader_epoch=0, isr=[1, 2, 3]),
            self.leads(102, 2), self.committed(102, 2, 14), self.committed(102, 2, 16),
            self.has("broker-2", leader=2, leader_epoch=1, isr=[1, 2, 3]),
        ]  # fmt: skip

        self.disks: list[dict[str, Any]] = []
        self.faults: list[dict[str, Any]] = []

    @staticmethod
    def leads(node: int, epoch: int) -> tuple[str, str, str, dict[str, Any]]:
        fields = {"leader": node, "epoch": epoch, "role": "leader"}
        return f"controller-{node - 100}", "quorum", "__cluster_metadata-0", fields

    @staticmethod
    def committed(node: int, epoch: int, offset: int) -> tuple[str, str, str, dict[str, Any]]:
        fields = {"leader": node, "epoch": epoch, "offset": offset}
        return f"controller-{node - 100}", "metadata", "__cluster_metadata-0", fields

    @staticmethod
    def has(node: str, **fields: Any) -> tuple[str, str, str, dict[str, Any]]:
        return node, "told", "chaos-0", {"replicas": [1, 2, 3], **fields}

    def everywhere(self, offset: int, record: Record) -> None:
        for log in self.logs.values():
            log[offset] = record

    def judged(self) -> tuple[dict[str, set[str]], dict[str, str]]:
        log = [
            {"run": "r", "node": node, "offset": offset, "epoch": epoch, "batch": offset, "snapshot": None,
             "type": type_, "fields": json.dumps(fields)}
            for node, records in self.logs.items()
            for offset, (epoch, type_, fields) in enumerate(records)
        ]  # fmt: skip
        trace = []
        for number, (node, event, where, fields) in enumerate(self.told):
            topic, partition = (where.rpartition("-")[0], int(where.rpartition("-")[2])) if where else (None, None)
            trace.append({"run": "r", "node": node, "number": number, "time": number * 10**9, "event": event,
                          "topic": topic, "partition": partition, "fields": json.dumps(fields)})  # fmt: skip
        tables = {
            "trace": pa.Table.from_pylist(trace, schema=TRACE),
            "metadata_log": pa.Table.from_pylist(log, schema=METADATA_LOG),
            "disk_state": pa.Table.from_pylist(self.disks, schema=DISK_STATE),
            "collected": COLLECTED.empty_table(),
        }  # fmt: skip
        of = judge("r", tables, Options(2, True, "kafka"), self.faults)
        found: dict[str, set[str]] = {}
        for row in of.rows:
            found.setdefault(row["property"], set()).add(row["anomaly"])
        return found, dict(of.looked_at)


def test_a_run_as_it_should_be_gives_no_finding_and_all_of_it_is_looked_at() -> None:
    found, looked_at = Run().judged()
    assert found == {}
    assert set(looked_at) == {property_ for _, property_ in DAMAGES.values()}
    assert not [told for told in looked_at.values() if told.startswith("0 ")]


def _another_registration_of_the_same_epoch(run: Run) -> None:
    run.everywhere(13, registers(1, 13, "d", epoch=2, quorum=2))
    run.everywhere(14, unfences(1, 2, 2))


def _two_leaders_of_an_epoch(run: Run) -> None:
    run.logs["controller-3"][11] = 2, "LeaderChange", {"leader_id": 103}


def _commits_less_than_before(run: Run) -> None:
    run.told.insert(-1, run.committed(102, 2, 12))


def _a_record_that_one_has_otherwise(run: Run) -> None:
    run.logs["controller-2"][12] = changes(isr=[3], leader=3)


def _a_minority_has_what_was_committed(run: Run) -> None:
    for node in ("controller-1", "controller-3"):
        del run.logs[node][12:]


def _a_leader_outside_its_isr(run: Run) -> None:
    run.everywhere(12, changes(isr=[2, 3], leader=1))


def _in_isr_and_elr(run: Run) -> None:
    run.everywhere(15, changes(isr=[2, 3, 1], eligible_leader_replicas=[3]))


def _elects_one_that_was_neither_in_isr_nor_elr(run: Run) -> None:
    run.everywhere(12, changes(isr=[], leader=-1, last_known_elr=[2]))
    run.everywhere(15, changes(isr=[1], leader=1, leader_recovery_state=1))
    run.told[-1] = run.has("broker-2", leader=1, leader_epoch=2, isr=[1])


def _tells_of_a_leader_that_nobody_elected(run: Run) -> None:
    run.told[-1] = run.has("broker-2", leader=3, leader_epoch=1, isr=[1, 2, 3])


DAMAGES: dict[Callable[[Run], None], tuple[str, str]] = {
    _another_registration_of_the_same_epoch: ("broker epoch does not rise", "BrokerEpochMonotonicity"),
    _two_leaders_of_an_epoch: ("two leaders of an epoch", "ElectionSafety"),
    _commits_less_than_before: ("falling metadata high watermark", "HighWatermarkMonotonicity"),
    _a_record_that_one_has_otherwise: ("replica divergence", "MetadataLogMatching"),
    _a_minority_has_what_was_committed: ("committed metadata lost", "CommittedPrefix"),
    _a_leader_outside_its_isr: ("leader outside the ISR", "ValidControllerState"),
    _in_isr_and_elr: ("in ISR and ELR", "ValidControllerIsrAndElr"),
    _elects_one_that_was_neither_in_isr_nor_elr: ("unclean election that nobody permitted", "UncleanElection"),
    _tells_of_a_leader_that_nobody_elected: ("told what was not decided", "RolesMatchMetadata"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found_and_named(damage: Callable[[Run], None]) -> None:
    run = Run()
    damage(run)
    found, _ = run.judged()
    anomaly, property_ = DAMAGES[damage]
    assert anomaly in found.get(property_, set()), found


@pytest.mark.parametrize("last", ["answers", "silent"])
def test_who_had_served_when_its_power_was_cut_is_told_by_its_last_answer(last: str) -> None:
    """Only a node that had deleted the mark of its last shutdown must not have it again."""
    run = Run()
    cut = len(run.told) + 1
    run.told.append(("broker-1", last, "", {}))
    cut_of = {"broker-1": {"disk_at_cut": 1}}
    run.faults.append({"start": cut * 10**9, "targets": ["broker-1"], "evidence": {"nodes": cut_of}})
    run.disks.append({"run": "r", "node": "broker-1", "cut": 1, "file": ".kafka_cleanshutdown",
                      "what": "clean shutdown", "fields": "{}"})  # fmt: skip
    run.told.append(("broker-1", "answers", "", {}))  # later
    found, looked_at = run.judged()
    assert ("CleanShutdown" in found) == ("right after power cuts" in looked_at["CleanShutdown"]) == (last == "answers")


def voters(*ids: int, directory: str = "d") -> Record:
    return 2, "KRaftVoters", {"voters": [{"voter_id": id, "voter_directory_id": f"{directory}{id}"} for id in ids]}


def test_voters_of_a_dynamic_quorum_change_one_at_a_time() -> None:
    run = Run()
    for log in run.logs.values():
        log += [voters(101, 102, 103), voters(101, 103), voters(101, 103), voters(101, 102, 103)]
    found, looked_at = run.judged()
    assert found == {} and looked_at["VotersOneByOne"] == "24 sets of voters on record"
    for log in run.logs.values():
        log[-1] = voters(102, 103)  # one came and another went
    assert run.judged()[0] == {"VotersOneByOne": {"several voters changed at once"}}
    for log in run.logs.values():
        log[-1] = voters(101, 103, directory="other")
    assert run.judged()[0] == {"VotersOneByOne": {"several voters changed at once"}}


def feature(level: int) -> Record:
    return 2, "FeatureLevelRecord", {"name": "eligible.leader.replicas.version", "feature_level": level}


def fences(broker: int, epoch: int) -> Record:
    fields = {"broker_id": broker, "broker_epoch": epoch, "fenced": 1, "in_controlled_shutdown": 0}
    return 2, "BrokerRegistrationChangeRecord", fields


def test_the_last_member_may_stay_in_its_isr_until_elr_is_on() -> None:
    run = Run()
    for offset, record in enumerate([changes(isr=[2], leader=-1), fences(2, 3), feature(0), feature(1)], start=12):
        run.everywhere(offset, record)
    run.everywhere(1, (1, *feature(0)[1:]))
    run.told.pop()
    assert run.judged()[0] == {}  # a rolling upgrade: the feature is switched on in the end
    for offset, record in enumerate([feature(1), changes(isr=[2], leader=-1), fences(2, 3), feature(1)], start=12):
        run.everywhere(offset, record)
    assert run.judged()[0] == {"ValidControllerState": {"fenced member of an ISR"}}


@pytest.mark.parametrize("ends_reassignment", [False, True])
def test_an_election_from_outside_the_isr_is_unclean_though_no_record_says_so(ends_reassignment: bool) -> None:
    """The leader that a reassignment takes away may have had the next one in its ISR by the same record."""
    run = Run()
    moving: dict[str, Any] = {"replicas": [1, 2, 3], "adding_replicas": [], "removing_replicas": [1]}
    moved = {"replicas": [2, 3], "adding_replicas": [], "removing_replicas": []}
    first = changes(isr=[1, 2], leader=1, **(moving if ends_reassignment else {}))
    last = changes(isr=[3], leader=3, **(moved if ends_reassignment else {}))
    for offset, record in enumerate([first, feature(1), feature(1), last], start=12):
        run.everywhere(offset, record)
    run.told.pop()
    expected = {} if ends_reassignment else {"UncleanElection": {"unclean election that nobody permitted"}}
    assert run.judged()[0] == expected
