"""Disks that are damaged, lost or put back while their broker is down, after a clean shutdown."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from checkers.inside.kraft.simulated.durability import DurabilityOracle
from cluster_image.kraft.controller import rules
from cluster_image.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from harness.explore.simulate import Simulated, simulate
from harness.explore.swarm import Swarm
from harness.plan.plan import Plan
from harness.plan.schedule import Fault
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from harness.runtimes.simulation.disk.page_cache import Directory
from nemesis.disk import Disk
from nemesis.disk.stopped import CorruptStopped, Replaced, Restored

SEED = 4
VARIANTS = {"replaced": Replaced, "restored": Restored, "corrupt-stopped": CorruptStopped}


def test_a_copy_is_as_old_as_it_is_and_all_of_it_is_durable() -> None:
    disk = SimulatedDisk(Random(SEED))
    disk.make_directory("t-0")
    disk.write_atomically("t-0/f", b"old")
    disk.open("t-0/f").append(b"er")
    copy = disk.copy(running=False)
    disk.write_atomically("t-0/f", b"new")
    disk.write_atomically("g", b"new")
    lost = disk.put(copy)
    assert sorted(lost.files) == ["g", "t-0/f"] and disk.files() == {"t-0/f": b"older"}
    disk.lose_power()
    assert disk.files() == {"t-0/f": b"older"}
    disk.open("t-0/f").append(b"!")
    assert disk.put(Directory({})).unsynced_files == 1 and disk.files() == {}


def test_a_copy_of_a_disk_in_use_is_what_a_power_cut_leaves() -> None:
    disk = SimulatedDisk(Random(SEED))
    disk.write_atomically("f", b"synced")
    disk.open("f").append(b" and not")
    copies = set()
    for _ in range(20):
        content = dict(disk.copy(running=True).inodes())["f"].content
        copies.add(bytes(content[:6]))
        assert len(content) <= len(b"synced and not")
    assert copies == {b"synced"} and disk.read("f") == b"synced and not"


def test_an_older_proof_of_a_clean_shutdown_may_be_believed_by_the_node_and_no_other() -> None:
    for deceptive, known in ((True, 7), (False, -1)):
        disk, oracle = SimulatedDisk(Random(SEED)), DurabilityOracle()
        disk.write_atomically(CLEAN_SHUTDOWN_FILE, b'{"version": 0, "brokerEpoch": 7}')
        oracle.node_gone("broker-1", lossy=True)
        disk.deceptive = deceptive
        oracle.node_started("broker-1", disk)
        assert oracle._clean_epochs["broker-1"] == known


@pytest.mark.parametrize("name", VARIANTS)
def test_they_are_variants_of_the_family_and_lossy(name: str) -> None:
    nemesis = Disk.variants[name]()
    assert type(nemesis) is VARIANTS[name] and nemesis.name == f"disk:{name}" and nemesis.waits_for_isr


def test_voters_must_not_forget() -> None:
    combined: Any = Plan(run="r", on="simulation", combined=True)
    apart: Any = Plan(run="r", on="simulation")
    for nemesis in (Replaced(), Restored()):
        assert "votes" in (nemesis.impossible(combined) or "") and nemesis.impossible(apart) is None
    assert CorruptStopped().impossible(combined) is None, "the metadata log is not damaged"


def struck(nemesis: str, **choice: Any) -> tuple[Simulated, dict[str, Any]]:
    """A run with one such fault on broker-2, and its evidence."""
    fault = Fault(fault=0, nemesis=nemesis, at=4.0, duration=2.0, choice={"targets": ["broker-2"], **choice})
    plan = Plan(
        run="r", on="simulation", nemesis=(nemesis,), seed=SEED, time_limit=16.0, rate=100.0, partitions=2,
        settings={"log.segment.bytes": "2048"},
    )  # fmt: skip
    done = simulate(plan, (fault,), traced=True)
    assert not done.crash, done.crash
    (row,) = done.tables["faults"].to_pylist()
    return done, json.loads(row["evidence"])["nodes"]["broker-2"]


@pytest.mark.parametrize(
    ("nemesis", "choice"),
    [
        ("disk:replaced", {"what": "disk", "which": 0.0}), ("disk:replaced", {"what": "log", "which": 0.9}),
        ("disk:restored", {"copy": "stopped", "age_s": 3.0}), ("disk:restored", {"copy": "running", "age_s": 3.0}),
    ],
)  # fmt: skip
def test_what_is_gone_counts_as_one_lossy_shutdown_and_nothing_acknowledged_is_lost(
    nemesis: str, choice: dict[str, Any]
) -> None:
    done, seen = struck(nemesis, **choice)
    verdict = done.judge()
    assert done.violation is None and verdict["verdict"] == "pass"
    assert seen["exit_status"] == 0 and sum(seen["lost_by_partition"].values()) > 0
    told = verdict["contract"]
    assert told["within"] and told["worst"] == told["limit"] == 1
    assert set(told["partitions"]) >= set(seen["lost_by_partition"])


@pytest.mark.parametrize("how", ["flip", "truncate"])
def test_a_damaged_segment_is_put_back_or_fetched_again(how: str) -> None:
    done, seen = struck("disk:corrupt-stopped", what=["segment"], how=how, which=0.5, where=0.5, bit=0.5)
    assert done.violation is None and done.judge()["verdict"] == "pass"
    assert seen["exit_status"] == 0 and seen["damaged_bytes"] > 0


@pytest.mark.parametrize("compared", [True, False])
def test_the_epoch_in_the_file_gives_an_older_copy_away(compared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-15582. Seed 9: a controller that asks only whether there is a file elects a broker without what is
    committed."""
    if not compared:
        monkeypatch.setattr(rules, "is_unclean", lambda known, previous: known is not None and previous == -1)
    nemesis = ("disk:restored:copy=stopped", "kill:minority")
    plan = Plan(run="r", on="simulation", nemesis=nemesis, rate=40.0, time_limit=30.0)
    plan = plan.model_copy(update={"partitions": 4, "concurrency": 2})
    violation = simulate(Swarm(("settings", "latency_ms"))(plan, 9)).violation
    assert (violation and violation.property) == (None if compared else "LeaderCandidateCompleteness")


@pytest.mark.parametrize("seed", [5, 26, 43])
def test_bits_that_nobody_has_read_yet_are_nobodys_fault(seed: int) -> None:
    """Of a segment below its log's start, of a batch that another replica has whole, of a producer's number."""
    plan = Plan(
        run="explore", on="simulation", nemesis=("disk:corrupt-stopped", "kill"), must_take_effect="any", rate=40.0,
        partitions=4, concurrency=2, delete_records=1.0, time_limit=30.0, strike="leaders",
        settings={"log.segment.bytes": "1024"},
    )  # fmt: skip
    drawn = Swarm()(plan, seed)
    done = simulate(drawn)
    assert done.violation is None and not done.crash and done.judge()["verdict"] == "pass"
