"""Slow, read-only and damaged disks, and cold page caches: what they do to files, and what a node makes of it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from docker.errors import APIError

from checkers.inside.contract import contract
from cluster_image.replication.log_manager import LogManager
from cluster_image.storage import Log
from cluster_image.storage.disk import Disk
from cluster_image.storage.log import LogConfig
from cluster_image.storage.records import CorruptRecord, RecordError, build_batch, iter_batches
from harness.cluster import ClusterLost
from harness.explore.simulate import simulate
from harness.plan.plan import Plan
from harness.runtimes.agent.machine import Machine
from harness.runtimes.agent.process import Process
from harness.runtimes.agent.volume import damage, pages, slow
from harness.runtimes.agent.volume import disk as agent_disk
from harness.runtimes.docker.node import DockerNode
from harness.runtimes.nodes.calls import Calls
from harness.runtimes.simulation.disk.damage import FileDamage, chosen
from harness.runtimes.simulation.disk.disk import LONGEST_DELAY, SimulatedDisk
from harness.targets.kraft.target import Kraft
from nemesis.disk import Corrupt, DiskError, DiskFull, ReadOnly, Slow
from nemesis.disk import Disk as DiskFamily
from nemesis.page_cache import Clean, PageCache
from tests.cluster_image.kraft.broker.test_partition import config
from tests.cluster_image.storage.simulated_disk import simulated_disk
from tests.harness.run.fakes import FakeCluster
from workloads.clients.kio.batches import decode

TOPIC = UUID(int=1)
SEGMENTS = ["t-0/00000000000000000000.log", "t-0/00000000000000000002.log"]
CHOICE: dict[str, Any] = {"what": ["segment"], "how": "flip", "which": 0.0, "where": 0.9, "bit": 0.0}


def two_segments(disk: Disk) -> Log:
    """The first has two batches of one record each and is closed."""
    log = Log.open(disk, "t-0", LogConfig(segment_bytes=150))
    for _ in range(3):
        log.append_as_leader(build_batch([b"value"], timestamp_ms=1), 0)
    log.flush()
    assert [name for name in disk.list("t-0") if name.endswith(".log")] == [path[4:] for path in SEGMENTS]
    return log


# -- which files, and where --------------------------------------------------------------------------------------


def test_only_what_a_node_does_not_append_to_is_damaged() -> None:
    paths = [
        *SEGMENTS, "u-0/00000000000000000000.log", "t-0/00000000000000000000.index", "t-0/00000000000000000002.index",
        "__cluster_metadata-0/00000000000000000000.log", "__cluster_metadata-0/00000000000000000009.log",
        "__cluster_metadata-0/leader-epoch-checkpoint", "__cluster_metadata-0/quorum-state",
        "replication-offset-checkpoint", "t-0/leader-epoch-checkpoint", "t-0/partition.metadata",
    ]  # fmt: skip
    assert damage.candidates(paths, "segment") == SEGMENTS[:1]
    assert damage.candidates(paths, "index") == ["t-0/00000000000000000000.index"]
    assert damage.candidates(paths, "checkpoint") == ["replication-offset-checkpoint", "t-0/leader-epoch-checkpoint"]
    assert damage.chosen(paths[1:], {"what": ["segment", "checkpoint"], "which": 0.99}) == "t-0/leader-epoch-checkpoint"
    assert damage.is_candidate(SEGMENTS[0], paths) and not damage.is_candidate(SEGMENTS[1], paths)


def test_a_flip_is_one_bit_and_never_one_that_nothing_proves() -> None:
    content = build_batch([b"value"], timestamp_ms=1) * 3
    starts = [position for position, _, _ in iter_batches(content)]
    seen = set()
    for at in range(len(content)):
        position, after = damage.plan(content, "flip", at / len(content) + 1e-9, 0.4, "0.log")
        assert (content[position] ^ after[0]).bit_count() == 1 and len(after) == 1
        seen.add(position)
    spared = {start + at for start in starts for at in range(12, 21)}
    assert seen == set(range(len(content))) - spared


@pytest.mark.parametrize("how", ["flip", "truncate"])
def test_real_files_are_damaged_and_put_back(tmp_path: Path, how: str) -> None:
    (tmp_path / "t-0").mkdir()
    for path in SEGMENTS:
        (tmp_path / path).write_bytes(bytes(range(100)))
    killed: list[int] = []
    done, killed_at = damage.damage(tmp_path, {**CHOICE, "how": how}, lambda: killed.append(1) or 7)  # type: ignore[func-returns-value]
    assert done is not None and killed == [1] and killed_at == 7 and done.path == SEGMENTS[0]
    damaged = (tmp_path / SEGMENTS[0]).read_bytes()
    assert damaged != bytes(range(100)) and len(damaged) == (100 if how == "flip" else 90)
    assert damage.restore(tmp_path, done)
    assert (tmp_path / SEGMENTS[0]).read_bytes() == bytes(range(100))
    assert not damage.restore(tmp_path, done), "it is whole"


def test_what_a_node_has_changed_or_appends_to_is_not_put_back(tmp_path: Path) -> None:
    def damaged() -> damage.Damage:
        (tmp_path / "t-0").mkdir(exist_ok=True)
        for path in SEGMENTS:
            (tmp_path / path).write_bytes(bytes(range(100)))
        done, _ = damage.damage(tmp_path, {**CHOICE, "how": "truncate"}, lambda: 1)
        assert done is not None
        return done

    appended = damaged()
    with (tmp_path / SEGMENTS[0]).open("ab") as file:
        file.write(b"more")
    assert not damage.restore(tmp_path, appended)

    newest = damaged()
    (tmp_path / SEGMENTS[1]).unlink()  # a node that recovered from it goes on right there
    assert not damage.restore(tmp_path, newest)
    assert (tmp_path / SEGMENTS[0]).stat().st_size == 90

    gone = damaged()
    (tmp_path / SEGMENTS[0]).unlink()
    assert not damage.restore(tmp_path, gone)


def test_nothing_is_killed_when_there_is_nothing_to_damage(tmp_path: Path) -> None:
    def kill() -> int:
        raise AssertionError

    assert damage.damage(tmp_path, CHOICE, kill) == (None, 0)


# -- simulated disks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["flip", "truncate"])
def test_damage_is_on_the_simulated_disk_and_can_be_undone(how: str) -> None:
    disk, choice = simulated_disk(), {**CHOICE, "how": how}
    two_segments(disk)
    whole = disk.read(SEGMENTS[0])
    path = chosen(disk, choice)
    assert path == SEGMENTS[0]
    done = FileDamage.do(disk, path, choice)
    damaged = disk.read(SEGMENTS[0])
    assert damaged != whole and disk.unsynced() == {}
    assert done.undo(disk) and disk.read(SEGMENTS[0]) == whole
    assert not done.undo(disk)
    FileDamage.do(disk, path, choice)
    assert disk.lose_power().unsynced_bytes == 0 and disk.read(SEGMENTS[0]) == damaged


def test_a_read_only_disk_can_be_read_and_nothing_else() -> None:
    disk = simulated_disk()
    disk.write_atomically("a", b"content")
    file = disk.open("a")
    disk.read_only = True
    changes = (
        lambda: file.append(b"x"), lambda: file.truncate(0), file.sync, lambda: disk.open("new"),
        lambda: disk.remove("a"), lambda: disk.rename("a", "b"), lambda: disk.make_directory("d"),
        lambda: disk.sync_directory(""),
    )  # fmt: skip
    for change in changes:
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert disk.refused == len(changes)
    assert disk.read("a") == b"content" and disk.list("") == ["a"]
    disk.read_only = False
    file.append(b"!")
    assert disk.read("a") == b"content!"


def test_a_limit_makes_syncs_longer_by_what_they_write_and_draws_nothing() -> None:
    def syncs(limit: tuple[int, int] | None) -> list[float]:
        disk, spent = SimulatedDisk(Random(3)), []
        process = disk.mount(lambda: True, lambda operation, path: None, spent.append)
        file = process.open("a")
        disk.limit = limit
        for size in (10_000, 0, 1 << 30 >> 10):
            file.append(bytes(size))
            file.sync()
        return spent

    fast, slow = syncs(None), syncs((100_000, 50))
    assert [round(b - a, 9) for a, b in zip(fast, slow, strict=True)] == [0.1, 0.02, LONGEST_DELAY]


# -- what a node makes of it -------------------------------------------------------------------------------------


def test_a_damaged_batch_is_read_but_nobody_takes_it_for_data() -> None:
    """As in Kafka, a leader does not look at what it has closed; its followers and its clients do."""
    disk = simulated_disk()
    log = two_segments(disk)
    FileDamage.do(disk, SEGMENTS[0], CHOICE)
    served = log.read(0, 1 << 20)
    assert served
    follower = Log.open(disk, "follower-0")
    with pytest.raises(CorruptRecord):
        follower.append_as_follower(served)
    assert follower.end_offset == 0, "not even what was whole before it"
    with pytest.raises(RecordError):
        decode(served, 0)


@pytest.mark.parametrize("recovery_point", [0, 2, 3])
def test_an_unclean_start_keeps_a_valid_prefix_of_a_truncated_segment(recovery_point: int) -> None:
    disk = simulated_disk()
    two_segments(disk)
    FileDamage.do(disk, SEGMENTS[0], {**CHOICE, "how": "truncate"})
    log = Log.open(disk, "t-0", recovery_point=recovery_point)
    assert log.end_offset == 1 and [h.base_offset for *_, h in iter_batches(log.read(0, 1 << 20))] == [0]


@pytest.mark.parametrize(("damaged", "trusted"), [("nothing", True), ("a header", False), ("a batch is gone", False)])
def test_a_log_that_lost_something_after_a_clean_shutdown_is_no_proof_of_one(damaged: str, trusted: bool) -> None:
    """The controller takes who shut down cleanly for complete, and may elect it."""
    disk = simulated_disk()
    logs = LogManager(config(), disk)
    logs.load()
    log = logs.get("t", TOPIC, 0, config())
    for _ in range(2):
        log.append_as_leader(build_batch([b"value"], timestamp_ms=1), 0)
    logs.close({}, broker_epoch=17)
    content = disk.files()[SEGMENTS[0]]
    if damaged == "a header":
        content[8] ^= 1  # the first batch's length
    elif damaged == "a batch is gone":
        del content[len(content) // 2 :]
    again = LogManager(config(), disk)
    again.load()
    assert again.previous_epoch == (17 if trusted else -1)


# -- page cache --------------------------------------------------------------------------------------------------


def test_clean_pages_go_and_dirty_ones_stay(tmp_path: Path) -> None:
    clean, dirty = tmp_path / "clean", tmp_path / "dirty"
    with clean.open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    if _resident(clean) == 0:
        pytest.skip("this file system has no page cache of its own")
    dirty.write_bytes(os.urandom(1 << 18))
    assert (_resident(clean), _resident(dirty)) == (1 << 20, 1 << 18)
    evidence = pages.drop_clean(tmp_path)
    assert evidence["resident_before"] == (1 << 20) + (1 << 18)
    assert _resident(clean) == 0 and evidence["dropped_bytes"] >= 1 << 20


def _resident(path: Path) -> int:
    with path.open("rb") as file:
        return pages.resident(file.fileno())


# -- nemeses -----------------------------------------------------------------------------------------------------


def test_knobs_are_in_the_choice_and_the_rest_is_drawn() -> None:
    drawn = [Slow().draw(Random(n)).choice for n in range(50)]
    assert all(1 << 15 <= choice["bytes_per_s"] <= 1 << 20 and 5 <= choice["iops"] <= 50 for choice in drawn)
    fixed = Slow(bytes_per_s=1000, iops=0).draw(Random(0)).choice
    assert fixed == {**drawn[0], "bytes_per_s": 1000}
    files = {(c["what"][0], c["how"]) for c in (Corrupt().draw(Random(n)).choice for n in range(50))}
    assert files == {(what, how) for what in ("segment", "checkpoint") for how in ("flip", "truncate")}
    asked = Corrupt(what="index", how="flip").draw(Random(0)).choice
    assert (asked["what"], asked["how"]) == (["index"], "flip")


def test_what_counts_as_an_effect() -> None:
    def seen(**facts: Any) -> dict[str, Any]:
        return {"nodes": {"broker-1": facts}, **facts}

    assert Slow().effective(seen(write_ms_before=2.0, write_ms_while=9.0))
    assert not Slow().effective(seen(write_ms_before=6.0, write_ms_while=9.0)) and not Slow().effective(seen())
    assert Slow().effective(seen(slowed_syncs=1))
    assert Clean().effective(seen(dropped_bytes=4096)) and not Clean().effective(seen(dropped_bytes=0))
    assert Corrupt().effective(seen(damaged_bytes=1)) and not Corrupt().effective(seen(nothing_to_damage="none"))
    assert ReadOnly().effective(seen(refused_writes=1)) and not ReadOnly().effective(seen(write_error="EROFS"))


def test_only_what_may_lose_data_waits_for_the_isr() -> None:
    variants = {**DiskFamily.variants, **{f"cache-{name}": each for name, each in PageCache.variants.items()}}
    assert {name for name, each in variants.items() if each().waits_for_isr} == {
        "error", "corrupt", "error-once", "replaced", "restored", "corrupt-stopped",
    }  # fmt: skip


@pytest.mark.parametrize("nemesis", [Slow(), ReadOnly(), Corrupt()])
def test_a_node_that_has_ended_is_started_when_it_is_healed(nemesis: Any) -> None:
    cluster = FakeCluster()
    node = cluster.nodes[0]

    async def whole() -> dict[str, Any]:
        return {}

    for name in ("hasten_disk", "make_disk_writable", "restore_file"):
        setattr(node, name, whole)
    node.state = "exited"
    asyncio.run(nemesis.heal(cluster, [node]))
    asyncio.run(nemesis.heal(cluster, [node]))
    assert node.state == "running"


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("disk:slow", "slowed_syncs"), ("disk:read-only", "refused_writes"),
        ("disk:corrupt:what=segment", "damaged_bytes"), ("disk:corrupt:what=checkpoint", "damaged_bytes"),
    ],
)  # fmt: skip
def test_a_simulated_cluster_survives_it(name: str, seen: str) -> None:
    plan = Plan(
        run="r", on="simulation", nemesis=(name,), seed=4, time_limit=20.0, rate=100.0, partitions=2,
        settings={"log.segment.bytes": "2048"},
    )  # fmt: skip
    simulated = simulate(plan)
    assert not simulated.crash and simulated.violation is None
    assert simulated.judge()["verdict"] == "pass"
    rows = [row for row in simulated.tables["faults"].to_pylist() if row["effective"]]
    evidence = [json.loads(row["evidence"]) for row in rows]
    assert evidence and all(each[seen] > 0 for each in evidence if "skipped" not in each)
    assert not any(key in each for each in evidence for key in ("inject_failed", "heal_failed"))


@pytest.mark.parametrize(("path", "brokers_out"), [(SEGMENTS[0], 1), ("replication-offset-checkpoint", 0)])
def test_a_damaged_segment_counts_against_the_contract_and_a_checkpoint_does_not(path: str, brokers_out: int) -> None:
    done = damage.Damage(path, 1, 3, 100, b"a", b"b")
    fault = {
        "fault": 0, "nemesis": "disk:corrupt", "targets": ["broker-1"], "start": 1, "end": 2, "effective": True,
        "evidence": {"nodes": {"broker-1": done.evidence()}, "in_sync_at": 3},
    }  # fmt: skip
    judged = contract({"min_insync_replicas": 2, "acks": "all"}, [fault])
    assert (judged["worst"], judged["within"]) == (brokers_out, True)


class DamagedAgent:
    """Has damaged a segment."""

    async def ask(self, node: str, do: str, **arguments: Any) -> Any:
        assert do == "damage_file"
        return {"killed_at": 7, **damage.Damage(SEGMENTS[0], 1, 3, 100, b"a", b"b").evidence()}


def test_damage_in_a_container_is_told_though_docker_fails_afterwards() -> None:
    class Docker:
        def wait(self, container: str) -> Any:
            raise APIError("500 Server Error")

    api: Any = Docker()
    agent: Any = DamagedAgent()
    node = DockerNode(
        api,
        Calls(),
        agent,
        Kraft(),
        name="broker-1",
        node_id=1,
        role="broker",
        rack="rack-1",
        address=("h", 9092),
    )
    evidence = asyncio.run(node.damage_file(CHOICE))
    assert evidence["damaged_by_partition"] == {"t-0": 1} and "exit_status" not in evidence


def test_damage_counts_though_the_node_cannot_be_started_on_it() -> None:
    """Else the contract would call what the fault has cost a loss of the cluster's own."""
    cluster = FakeCluster()
    node, nemesis = cluster.nodes[0], Corrupt()
    error: list[Exception] = [OSError("Docker is busy"), OSError("Docker is busy"), ClusterLost("the agent is gone")]
    start = node.start

    async def damage_file(choice: Any) -> dict[str, Any]:
        await node.kill()
        return {**await DamagedAgent().ask("", "damage_file"), "exit_status": 137}

    async def fails() -> None:
        raise error.pop(0)

    async def whole() -> dict[str, Any]:
        return {}

    for name, patch in (("damage_file", damage_file), ("start", fails), ("restore_file", whole)):
        setattr(node, name, patch)
    evidence = asyncio.run(nemesis.inject(cluster, [node], CHOICE))
    assert evidence["nodes"][node.name]["damaged_by_partition"] == {"t-0": 1} and nemesis.effective(evidence)
    assert evidence["start_failed"] == "OSError: Docker is busy"
    with pytest.raises(OSError, match="busy"):
        asyncio.run(nemesis.heal(cluster, [node]))
    node.state = "running"
    with pytest.raises(ClusterLost):
        asyncio.run(nemesis.inject(cluster, [node], CHOICE))
    node.start = start  # type: ignore[method-assign]
    asyncio.run(nemesis.heal(cluster, [node]))
    assert node.state == "running"


@pytest.mark.parametrize(("nemesis", "gap", "duration"), [
    (DiskFull, (3, 6), (1, 4)), (DiskError, (5, 8), (1, 3)), (ReadOnly, (3, 6), (1, 4)),
])  # fmt: skip
def test_each_that_refuses_keeps_its_own_times(nemesis: Any, gap: Any, duration: Any) -> None:
    draws = [nemesis().draw(Random(number)) for number in range(300)]
    for seen, (least, most) in (([d.gap for d in draws], gap), ([d.duration for d in draws], duration)):
        assert least <= min(seen) < least + 0.1 and most - 0.1 < max(seen) <= most


# -- in containers, as far as none is needed ----------------------------------------------------------------------

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Machine, subprocess.Popen[bytes]]]:
    """Its process does not heed SIGTERM, and cannot die before its limit is lifted."""
    limited = True

    def limit(pid: int, device: str, to: slow.Limit | None) -> None:
        nonlocal limited
        limited = to is not None

    def kill(process: Process) -> int:
        assert not limited
        return killed(process)

    killed = Process.kill
    monkeypatch.setattr(Process, "kill", kill)
    monkeypatch.setattr(slow, "limit", limit)
    monkeypatch.setattr(slow, "is_limited", lambda *_: limited)
    machine = Machine("broker-1", cast(Any, SimpleNamespace(device_number="7:0")))
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        machine.started(process.pid)
        yield machine, process
        process.kill()


def test_a_slow_process_that_does_not_end_is_let_go_before_it_is_killed(
    slow_machine: tuple[Machine, subprocess.Popen[bytes]],
) -> None:
    machine, process = slow_machine
    assert machine.terminate(0.05)["stopped"] is False
    assert process.wait(5) == -signal.SIGKILL
    assert machine.terminate(0.05)["stopped"] is None


def test_a_limit_of_a_process_that_dies_meanwhile_is_no_concern(
    slow_machine: tuple[Machine, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        if dies:
            process.kill()
            process.wait()
        raise OSError(errno.ENODEV, "no such device")

    machine, process = slow_machine
    monkeypatch.setattr(slow, "limit", gone)
    dies = False
    with pytest.raises(OSError, match="no such device"):
        machine.hasten_disk()
    dies = True
    machine.hasten_disk()


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("EROFS", ["has a read-only disk"]), ("EIO", ["has a disk that refuses writes (EIO)"]), ("ENOSPC", []),
        (None, []),
    ],
)  # fmt: skip
def test_a_disk_that_fails_is_seen_though_its_directory_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str | None, found: list[str]
) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    monkeypatch.setattr(agent_disk, "write_error", lambda _: error)
    assert agent_disk.leftovers(tmp_path) == found
