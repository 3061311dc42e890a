"""The properties that traces and metadata logs show: none is violated in runs where nothing is wrong, however much of
the traces is missing; and each is, by a history in which just that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import checkers
from checkers.dataset import check_tables
from checkers.inside.nodes import judge
from checkers.inside.of_nodes import Options
from checkers.properties import HISTORY_PROPERTIES, NODE_PROPERTIES
from checkers.verdict.keeping import without_stamps
from harness.record.history import MemoryRecorder
from harness.runtimes.simulation.runtime import SimulationRuntime
from harness.targets.kafka_api.trace_files import read_traces, record_traces
from harness.targets.kraft.metadata_logs import record_metadata_logs
from harness.targets.target import Target
from spark_history.files import write_parquet
from spark_history.schema import OPERATIONS, TABLES
from tests.checkers.histories.histories import LongHistory
from tests.checkers.histories.node_histories import NodeHistory, Row, killed_at_random, simulated
from tests.cluster_image.stories import script, test_loss

_SNAPSHOTS = {"metadata_log_max_record_bytes_between_snapshots": "200"}


@pytest.fixture(scope="module")
def outage() -> NodeHistory:
    """Power outages of the whole cluster: ELR, unclean recoveries."""
    return simulated(("power-outage-cluster",), 8)


@pytest.fixture(scope="module")
def elections() -> NodeHistory:
    """Of brokers and controllers, all of them clean."""
    return simulated(("kill", "power-outage"), 3)


@pytest.fixture(scope="module")
def trimmed() -> NodeHistory:
    """Metadata logs of which little is left, and snapshots of the rest."""
    return simulated(("kill", "partition"), 4, **_SNAPSHOTS)


@pytest.fixture(scope="module")
def before_elr() -> NodeHistory:
    return simulated(("power-outage",), 3, eligible_leader_replicas_version="0")


@pytest.fixture(params=["outage", "elections", "trimmed", "before_elr"])
def good(request: pytest.FixtureRequest) -> NodeHistory:
    history: NodeHistory = request.getfixturevalue(request.param)
    return history


def test_a_run_in_which_nothing_is_wrong(good: NodeHistory) -> None:
    found = good.judge()
    assert (found.rows, found.tally, found.not_checked) == ([], [], [])
    assert found.trace_rows == len(good.trace) > 200 and found.metadata_records == len(good.metadata_log) > 50
    elr = good.options.elr_enabled
    with_elr = ("MinIsrRecoveryQuorum", "UncleanExclusion")
    assert found.checked == [name for name in NODE_PROPERTIES if elr or name not in with_elr]


def test_whatever_of_the_traces_is_missing_nothing_is_wrong(good: NodeHistory) -> None:
    for seed in range(60):
        random = Random(seed)
        less = killed_at_random(good, random)
        if seed % 3 == 0:
            silent = random.choice(["controller-1", "broker-2"])
            less.silence([row for row in less.trace if row["node"] == silent])
        if seed % 4 == 0:
            less.silence(less.reported("high watermark", "metadata")[:: random.randint(2, 5)])
        assert less.judge().rows == [], seed


def test_copies_of_the_metadata_log_that_end_earlier_are_not_wrong(good: NodeHistory) -> None:
    """Disks are copied one after the other, and a broker follows behind."""
    for seed in range(30):
        random = Random(seed)
        less = good.copy()
        for node in ("broker-1", "broker-2", "broker-3", "controller-2"):
            end = random.randint(0, 10 + max(less.records()))
            less.cut_metadata_log(end, node)
        assert less.judge().rows == [], seed


def test_a_trimmed_log_is_judged_from_its_snapshot(trimmed: NodeHistory) -> None:
    older = min(row["snapshot"] for row in trimmed.metadata_log if row["snapshot"] is not None)
    less = trimmed.copy()
    less.metadata_log = [row for row in less.metadata_log if row["snapshot"] is not None or row["batch"] >= older]
    found = less.judge()
    assert (found.rows, found.not_checked) == ([], []) and "ValidControllerState" in found.checked
    without = less.copy()
    for row in less.metadata_log:
        if row["type"] == "PartitionRecord":
            row["fields"]["leader"] = 9
    assert "ValidControllerState" in {property_ for property_, *_ in less.judge().tally}

    without.metadata_log = [row for row in without.metadata_log if row["snapshot"] is None]
    found = without.judge()
    assert found.rows == [] and "ValidControllerState" not in found.checked
    (reason,) = found.not_checked
    assert reason.endswith("without a snapshot")


def test_of_an_old_run_nothing_is_checked_and_nothing_is_wrong(outage: NodeHistory) -> None:
    empty = judge("r", {}, outage.options)
    assert (empty.checked, empty.rows) == ([], [])
    assert empty.not_checked == ["no node's metadata log was collected", "the nodes left no trace"]
    disks_only = outage.copy()
    disks_only.trace = []
    assert disks_only.judge().checked == ["MetadataLogMatching"]
    trace_only = outage.copy()
    trace_only.metadata_log = []
    found = trace_only.judge()
    assert found.rows == [] and "ElectionSafety" in found.checked and "LeaderCompleteness" not in found.checked
    assert found.unclean_recoveries, "the controllers told of them"


def test_a_controller_whose_disk_is_missing_is_said_to_be(outage: NodeHistory) -> None:
    less = outage.copy()
    less.metadata_log = [row for row in less.metadata_log if row["node"] != "controller-2"]
    found = less.judge()
    assert (found.rows, found.not_checked) == ([], ["not every controller's metadata log was collected"])


def test_each_unclean_recovery_is_told_once(outage: NodeHistory) -> None:
    recoveries = outage.judge().unclean_recoveries
    reported = outage.reported("unclean recovery", node="controller")
    keys = {(row["topic"], row["partition"], row["fields"]["leader_epoch"]) for row in reported}
    assert {(entry["topic"], entry["partition"], entry["leader_epoch"]) for entry in recoveries} == keys
    for entry in recoveries:
        assert entry["strategy"] == "balanced" and entry["leader"] in entry["candidates"] and entry["time"] > 0
        (record, *_) = outage.copies(entry["offset"])
        assert record["fields"]["leader"] == entry["leader"]


# -- broken on purpose ----------------------------------------------------------------------------------------------

Mutation = Callable[[NodeHistory], None]


def two_quorum_leaders(history: NodeHistory) -> None:
    row = history.reported("quorum", node="broker", role="follower")[-1]
    row["fields"]["leader"] = row["fields"]["leader"] % 103 + 1 + 100


def another_record_at_the_same_offset(history: NodeHistory) -> None:
    offset = history.records("PartitionChangeRecord")[0]
    history.copies(offset)[0]["fields"]["isr"] = [3]


def a_hole_in_a_metadata_log(history: NodeHistory) -> None:
    history.metadata_log.remove(history.copies(history.records()[5])[0])


def a_falling_metadata_epoch(history: NodeHistory) -> None:
    history.copies(history.records()[-1])[0]["epoch"] = 0


def committed_metadata_is_gone(history: NodeHistory) -> None:
    history.cut_metadata_log(max(history.records()) - 3)


def another_committed_metadata(history: NodeHistory) -> None:
    """A node that has replayed records of another lineage."""
    for row in history.metadata_log:
        if row["node"] == "broker-2" and row["offset"] > history.records()[-4]:
            row["epoch"] += 7


def elected_without_what_is_committed(history: NodeHistory) -> None:
    elected = [row for row in history.reported("quorum", role="leader") if row["fields"]["epoch"] > 1][-1]
    life = next(life for life in history.lives() if elected in life)
    ends = [row for row in life[: life.index(elected)] if row["event"] in ("metadata append", "metadata")]
    for row in ends:
        row["fields"] = dict.fromkeys(row["fields"], 2)


def committed_metadata_is_truncated(history: NodeHistory) -> None:
    row = history.reported("metadata", node="broker")[-1]
    history.tell_after(row, "metadata truncate", end=row["fields"]["offset"] - 1)


def metadata_watermark_falls(history: NodeHistory) -> None:
    row = history.reported("metadata", node="broker")[-1]
    history.tell_after(row, "metadata", offset=row["fields"]["offset"] - 1)


def _change(history: NodeHistory, of: Callable[[Row], bool] = lambda fields: True) -> int:
    """The offset of a committed change of a partition."""
    return history.records("PartitionChangeRecord", of=of)[-1]


def a_leader_outside_the_isr(history: NodeHistory) -> None:
    offset = _change(history, lambda fields: fields["isr"] is not None and len(fields["isr"]) > 1)
    history.rewrite(offset, leader=9)


def a_fenced_member_of_the_isr(history: NodeHistory) -> None:
    """It was never unfenced."""
    for offset in history.records("BrokerRegistrationChangeRecord", of=lambda f: f["broker_id"] == 2):
        history.rewrite(offset, fenced=0)


def a_stranger_in_the_isr(history: NodeHistory) -> None:
    offset = _change(history, lambda fields: fields["isr"] is not None)
    history.rewrite(offset, isr=[*history.copies(offset)[0]["fields"]["isr"], 77])


def in_isr_and_elr(history: NodeHistory) -> None:
    offset = _change(history, lambda fields: fields["isr"] is not None and len(fields["isr"]) == 1)
    history.rewrite(offset, eligible_leader_replicas=history.copies(offset)[0]["fields"]["isr"])


def elr_beside_a_full_isr(history: NodeHistory) -> None:
    offset = _change(history, lambda fields: fields["isr"] is not None and len(fields["isr"]) == 2)
    others = {1, 2, 3} - set(history.copies(offset)[0]["fields"]["isr"])
    history.rewrite(offset, eligible_leader_replicas=sorted(others))


def a_record_about_nothing(history: NodeHistory) -> None:
    history.rewrite(_change(history), topic_id="00000000-0000-0000-0000-000000000000")


def nobody_is_known_to_have_been_eligible(history: NodeHistory) -> None:
    for offset in history.records("PartitionChangeRecord", of=lambda f: bool(f["last_known_elr"])):
        history.rewrite(offset, last_known_elr=[])


def _leaders_line(history: NodeHistory, *events: str) -> Row:
    """A late line of a leader, followed by others in its term."""
    ids = {row["node"]: row["fields"]["node_id"] for row in history.reported("start")}
    leads: dict[tuple[str, int], bool] = {}
    found = None
    for row in history.trace:
        key = row["node"], row["partition"]
        if row["event"] in ("role", "replica", "start"):
            leads[key] = row["event"] == "role" and row["fields"]["leader"] == ids[row["node"]]
        elif row["event"] in events and leads.get(key) and (row["fields"].get("offset") or 9) > 3:
            found = row
    assert found is not None
    return found


def a_leaders_log_is_cut(history: NodeHistory) -> None:
    row = _leaders_line(history, "append")
    history.tell_after(row, "truncate", end=row["fields"]["end"] - 1)


def a_leaders_watermark_falls(history: NodeHistory) -> None:
    row = _leaders_line(history, "high watermark")
    history.tell_after(row, "high watermark", offset=row["fields"]["offset"] - 2)


def a_watermark_past_the_logs_end(history: NodeHistory) -> None:
    row = history.reported("append", node="broker")[-1]
    history.tell_after(row, "high watermark", offset=row["fields"]["end"] + 1)


def a_log_start_that_is_not_committed(history: NodeHistory) -> None:
    row = _leaders_line(history, "high watermark")
    history.tell_after(row, "log start", offset=row["fields"]["offset"] + 1)


def a_leaders_log_start_falls(history: NodeHistory) -> None:
    row = _leaders_line(history, "high watermark")
    for offset in (row["fields"]["offset"] - 1, row["fields"]["offset"]):
        history.tell_after(row, "log start", offset=offset)


def an_incomplete_leader(history: NodeHistory) -> None:
    """It lacks one record of what was committed in an earlier epoch."""
    unclean = {(e["topic"], e["partition"], e["leader_epoch"]) for e in history.judge().unclean_recoveries}
    for row in history.reported("role"):
        own = next(start["fields"]["node_id"] for start in history.reported("start") if start["node"] == row["node"])
        key = row["topic"], row["partition"], row["fields"]["leader_epoch"]
        if row["fields"]["leader"] == own and row["fields"]["high_watermark"] > 1 and key not in unclean:
            row["fields"] |= {"end": 1, "high_watermark": 1}
            life = next(life for life in history.lives() if row in life)
            mine = [r for r in life if (r["topic"], r["partition"]) == key[:2]]
            history.silence([r for r in mine if r["event"] in ("append", "high watermark", "truncate")])
            return
    raise AssertionError("nobody was elected")


def another_isr_than_the_metadata_says(history: NodeHistory) -> None:
    history.reported("role", "isr", node="broker")[-1]["fields"]["isr"] = [1, 9]


def another_leader_than_the_metadata_says(history: NodeHistory) -> None:
    row = next(row for row in history.reported("role") if row["fields"]["leader"] > 0)
    row["fields"]["leader"] = row["fields"]["leader"] % 3 + 1


def a_state_that_no_controller_gave(history: NodeHistory) -> None:
    row = history.reported("role", "isr", node="broker")[-1]
    row["fields"]["partition_epoch"] += 900


def a_proposal_of_one_who_does_not_lead(history: NodeHistory) -> None:
    row = next(row for row in history.reported("role") if row["fields"]["leader"] not in (-1, int(row["node"][-1])))
    fields = row["fields"]
    history.tell_after(
        row, "isr proposed",
        isr=[1, 2], leader_epoch=fields["leader_epoch"], partition_epoch=fields["partition_epoch"],
    )  # fmt: skip


def a_proposal_of_the_isr_that_stands(history: NodeHistory) -> None:
    leads = [row for row in history.reported("role") if row["fields"]["leader"] == int(row["node"][-1])]
    fields = leads[0]["fields"]
    proposed = {name: fields[name] for name in ("isr", "leader_epoch", "partition_epoch")}
    history.tell_after(leads[0], "isr proposed", **proposed)


def a_member_that_nobody_proposed(history: NodeHistory) -> None:
    history.silence(history.reported("isr proposed"))


def an_unclean_broker_stays_eligible(history: NodeHistory) -> None:
    """All that a partition's state ever says is that it is an ELR member, too."""
    for row in history.metadata_log:
        if row["type"] == "PartitionChangeRecord":
            row["fields"] |= {"eligible_leader_replicas": [1, 2, 3]}


BROKEN: dict[Mutation, tuple[str, str]] = {
    a_member_that_nobody_proposed: ("ReplicationQuorumSuperset", "member of the ISR that the leader does not count"),
    an_unclean_broker_stays_eligible: ("UncleanExclusion", "unclean broker is eligible"),
    two_quorum_leaders: ("ElectionSafety", "two leaders of an epoch"),
    another_record_at_the_same_offset: ("MetadataLogMatching", "replica divergence"),
    a_hole_in_a_metadata_log: ("MetadataLogMatching", "replica hole"),
    a_falling_metadata_epoch: ("MetadataLogMatching", "decreasing epoch"),
    committed_metadata_is_gone: ("CommittedPrefix", "committed metadata lost"),
    another_committed_metadata: ("CommittedPrefix", "committed metadata differs"),
    elected_without_what_is_committed: ("CommittedPrefix", "elected without what is committed"),
    committed_metadata_is_truncated: ("CommittedPrefix", "committed metadata truncated"),
    metadata_watermark_falls: ("HighWatermarkMonotonicity", "falling metadata high watermark"),
    a_leader_outside_the_isr: ("ValidControllerState", "leader outside the ISR"),
    a_fenced_member_of_the_isr: ("ValidControllerState", "fenced member of an ISR"),
    a_record_about_nothing: ("ValidControllerState", "contradictory record"),
    a_stranger_in_the_isr: ("ValidControllerIsrAndElr", "stranger in ISR or ELR"),
    in_isr_and_elr: ("ValidControllerIsrAndElr", "in ISR and ELR"),
    elr_beside_a_full_isr: ("ValidControllerIsrAndElr", "ELR beside a full ISR"),
    nobody_is_known_to_have_been_eligible: ("MinIsrRecoveryQuorum", "too few known to have been eligible"),
    a_leaders_log_is_cut: ("LeaderAppendOnly", "leader's log shrinks"),
    a_leaders_watermark_falls: ("HighWatermarkMonotonicity", "leader's high watermark falls"),
    a_watermark_past_the_logs_end: ("HighWatermarkMonotonicity", "high watermark past the log's end"),
    a_log_start_that_is_not_committed: ("ValidLogStart", "log start above the high watermark"),
    a_leaders_log_start_falls: ("ValidLogStart", "leader's log start falls"),
    an_incomplete_leader: ("LeaderCompleteness", "incomplete leader"),
    another_isr_than_the_metadata_says: ("RolesMatchMetadata", "role or ISR differs"),
    another_leader_than_the_metadata_says: ("RolesMatchMetadata", "two leaders of a leader epoch"),
    a_state_that_no_controller_gave: ("RolesMatchMetadata", "state that no metadata log gives"),
    a_proposal_of_the_isr_that_stands: ("ProposedIsr", "proposal of the ISR that stands"),
    a_proposal_of_one_who_does_not_lead: ("RolesMatchMetadata", "improper ISR proposal"),
}


@pytest.mark.parametrize("mutation", BROKEN, ids=lambda mutation: mutation.__name__)
def test_each_violation_is_found_and_told(outage: NodeHistory, elections: NodeHistory, mutation: Mutation) -> None:
    elect = (elected_without_what_is_committed, an_incomplete_leader)
    broken = (elections if mutation in elect else outage).copy()
    mutation(broken)
    found = broken.judge()
    expected = BROKEN[mutation]
    assert expected in {(row["property"], row["anomaly"]) for row in found.rows}, found.rows
    assert expected in {entry[:2] for entry in found.tally}
    row = next(row for row in found.rows if (row["property"], row["anomaly"]) == expected)
    assert len(row["message"]) > 40 and row["run"] == "r"


def test_every_property_is_violated_by_some_history() -> None:
    candidates = {"LeaderCandidateCompleteness", "StrongIsr"}  # see below
    assert {property_ for property_, _ in BROKEN.values()} | candidates == set(NODE_PROPERTIES)


def made_up(end: int, isr: list[int], since: int = 0, cut: int | None = None) -> NodeHistory:
    """Broker 1 leads and commits 5 records, then broker 2 is elected; broker 3 follows it with a log up to `end`, by a
    process that began at `since`, and cuts it to `cut` once broker 2 has told that all 5 are committed."""
    no_change = {"replicas": None, "eligible_leader_replicas": [3] if isr == [2] else None, "last_known_elr": None}
    partition = {"topic_id": "t", "partition_id": 0, "leader_recovery_state": -1}
    registered = {"broker_epoch": 1, "fenced": False, "in_controlled_shutdown": False}
    first = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "eligible_leader_replicas": None, "last_known_elr": None}
    records: list[tuple[str, Row]] = [
        ("LeaderChange", {}),
        *(("RegisterBrokerRecord", registered | {"broker_id": broker}) for broker in (1, 2, 3)),
        ("TopicRecord", {"name": "chaos", "topic_id": "t"}),
        ("PartitionRecord", partition | first | {"leader": 1, "leader_epoch": 0, "partition_epoch": 0}),
        ("PartitionChangeRecord", partition | no_change | {"leader": 2, "isr": isr}),
    ]
    log = [
        {"node": "controller-1", "offset": offset, "epoch": 1, "batch": offset, "snapshot": None, "type": type_,
         "fields": fields}
        for offset, (type_, fields) in enumerate(records)
    ]  # fmt: skip
    trace: list[Row] = []

    def tell(node: str, time: int, event: str, **fields: Any) -> None:
        place = {} if event in ("start", "metadata") else {"topic": "chaos", "partition": 0}
        row = {"node": node, "number": len(trace), "time": time, "event": event, "topic": None, "partition": None}
        trace.append(row | place | {"fields": fields})

    def role(node: str, time: int, epoch: int, end: int, watermark: int) -> None:
        state = {"isr": isr, "leader": 2} if epoch else {"isr": [1, 2, 3], "leader": 1}
        tell(node, time, "role", leader_epoch=epoch, partition_epoch=epoch, end=end, high_watermark=watermark, **state)

    tell("controller-1", 0, "start", node_id=101, voters=[101])
    for time, offset in ((10, 4), (20, 6), (50, 7)):
        tell("controller-1", time, "metadata", offset=offset)
    for broker in (1, 2, 3):
        tell(f"broker-{broker}", since if broker == 3 else 0, "start", node_id=broker, voters=[101])
        role(f"broker-{broker}", 30, 0, 0, 0)
        if broker == 1:
            tell("broker-1", 40, "append", end=5)
            tell("broker-1", 40, "high watermark", offset=5)
        else:
            role(f"broker-{broker}", 60, 1, 5 if broker == 2 else end, 4)
        if broker == 2:
            tell("broker-2", 70, "high watermark", offset=5)
        elif broker == 3 and cut is not None:
            tell("broker-3", 80, "truncate", end=cut)
    return NodeHistory(trace, log, Options(2, True), [])


def test_a_candidate_that_lacks_what_it_had_cut_off_is_found() -> None:
    (row,) = made_up(5, [2, 3], cut=4).judge().rows
    assert (row["property"], row["anomaly"]) == ("StrongIsr", "member of the ISR cuts off what is committed")
    assert "its leader broker-2, which counted on it, had committed everything below 5" in row["message"]
    assert made_up(5, [2, 3], cut=5).judge().rows == [] and made_up(5, [2], cut=4).judge().rows == []


@pytest.mark.parametrize("isr", [[2, 3], [2]])
def test_a_candidate_that_lacks_what_is_committed_is_found(isr: list[int]) -> None:
    """In the ISR, and in the ELR beside an ISR that is too small."""
    assert made_up(5, isr).judge().rows == []
    (row,) = made_up(4, isr).judge().rows
    assert (row["property"], row["anomaly"]) == ("LeaderCandidateCompleteness", "incomplete candidate")
    assert row["message"].startswith("broker-3 may be elected leader of chaos-0") and row["offset"] == 4
    assert made_up(4, isr, since=25).judge().rows == [], "it has not registered in this life: nobody can know yet"


def test_a_snapshot_that_is_not_what_the_log_gives_is_found(trimmed: NodeHistory) -> None:
    broken = trimmed.copy()
    newest = max(row["snapshot"] for row in broken.metadata_log if row["snapshot"] is not None)
    row = next(r for r in broken.metadata_log if r["snapshot"] == newest and r["type"] == "PartitionRecord")
    row["fields"]["leader_epoch"] += 1
    assert ("MetadataLogMatching", "snapshot differs from the log") in {e[:2] for e in broken.judge().tally}


def test_after_an_unclean_election_what_was_committed_before_counts_no_more(outage: NodeHistory) -> None:
    """The leader that unclean recovery elects may lack anything."""
    less = outage.copy()
    entry = less.judge().unclean_recoveries[0]
    (row,) = [
        row
        for row in less.reported("role", leader=entry["leader"], leader_epoch=entry["leader_epoch"])
        if row["node"] == f"broker-{entry['leader']}" and row["partition"] == entry["partition"]
    ]
    row["fields"] |= {"end": 0, "high_watermark": 0}
    assert less.judge().rows == []


def test_what_a_bug_of_the_cluster_does_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """004: a follower that truncates by its high watermark is elected without a committed record."""
    runtimes: list[SimulationRuntime] = []

    def traced(target: Target) -> SimulationRuntime:
        runtimes.append(SimulationRuntime(target, traced=True))
        return runtimes[-1]

    monkeypatch.setattr(script, "SimulationRuntime", traced)
    assert script.tell(test_loss.m2_is_lost, (test_loss.B, test_loss.A), 2, bug="M01", watched=False).violation is None
    assert script.tell(test_loss.nothing_is_lost, (test_loss.B, test_loss.A), 2).violation is None
    found = []
    for runtime in runtimes:
        assert runtime.cluster is not None and runtime.cluster.traces is not None
        recorder = MemoryRecorder("r")
        record_traces(read_traces(runtime.cluster.traces.texts()), recorder)
        record_metadata_logs({node.name: node.disk for node in runtime.cluster.nodes}, recorder)
        found.append(judge("r", recorder.tables(), Options(2, True)))
    buggy, sound = found
    assert [row["property"] for row in buggy.rows] == ["LeaderCompleteness"] and sound.rows == []
    said = "broker-1 began to lead story-0 in leader epoch 1 with a log that ends at 1"
    assert buggy.rows[0]["message"].startswith(said)


# -- as part of a verdict -------------------------------------------------------------------------------------------


def recorded(history: NodeHistory, directory: Path) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Plan and tables of a run of which only this is known, also as its directory."""
    tables = {**MemoryRecorder("r").tables(), **history.tables()}
    plan = {"run": "r", "nemesis": [], "min_insync_replicas": history.options.min_insync_replicas}
    (directory / "journal").mkdir(parents=True)
    (directory / "plan.json").write_text(json.dumps(plan))
    for name, rows in tables.items():
        write_parquet(directory / "journal" / f"{name}-000000.parquet", rows.cast(TABLES[name]))
    write_parquet(directory / "journal" / "pending-000000.parquet", OPERATIONS.empty_table())
    return plan, tables


@pytest.mark.spark
def test_a_violation_fails_the_run_in_its_directory_and_in_memory(
    spark: Any, outage: NodeHistory, tmp_path: Path
) -> None:
    broken = outage.copy()
    a_leaders_log_is_cut(broken)
    for name, history in (("good", outage), ("broken", broken)):
        plan, tables = recorded(history, tmp_path / name)
        verdict = without_stamps(checkers.check(tmp_path / name, spark))
        assert verdict == check_tables(plan, tables)
        assert verdict["verdict"] == {"good": "unknown", "broken": "fail"}[name]
        assert verdict["nodes"]["trace_rows"] == len(history.trace) and not verdict["nodes"]["not_checked"]
        assert verdict["nodes"]["metadata_records"] == len(history.metadata_log)
        assert set(verdict["nodes"]["checked"]) == set(NODE_PROPERTIES) <= set(verdict["anomalies"])
        assert verdict["unclean_recoveries"] and "possible loss" in verdict["unclean_recoveries"][0]["message"]
    assert "leader's log shrinks (1)" in verdict["reason"]
    assert "leads chaos-" in verdict["anomalies"]["LeaderAppendOnly"]["example"]
    witnesses = pq.read_table(tmp_path / "broken" / "anomalies.parquet").to_pylist()
    assert "LeaderAppendOnly" in [row["property"] for row in witnesses]


@pytest.mark.spark
def test_a_run_of_before_traces_were_recorded_is_judged_by_the_rest(spark: Any, tmp_path: Path) -> None:
    history = LongHistory(400, partitions=1, seconds=1)
    verdict = checkers.check(history.write(tmp_path / "old"), spark)
    assert (verdict["verdict"], verdict["nodes"]["checked"]) == ("pass", [])
    assert verdict["nodes"]["not_checked"] == ["no node's metadata log was collected", "the nodes left no trace"]
    assert set(verdict["anomalies"]) == set(HISTORY_PROPERTIES)
