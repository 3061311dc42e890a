"""One operation on a disk is struck: what is left of it, what the next one does, and what a node makes of it."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from checkers.inside.contract import contract
from cluster_image.storage import Log, StorageError, segment
from cluster_image.storage.disk import LocalDisk, ProcessDied
from cluster_image.storage.records import build_batch
from harness.errors import BadArguments
from harness.explore.simulate import simulate
from harness.explore.swarm import Swarm
from harness.plan import registry
from harness.plan.plan import Plan
from harness.plan.schedule import Fault
from harness.runtimes.simulation.disk.disk import Mount, SimulatedDisk
from harness.runtimes.simulation.disk.strike import HALF, OPERATIONS, Strike
from harness.runtimes.simulation.striking import Striking
from nemesis.at_operation import ErrorOnce, KillAtOperation, PowerAtOperation

SEED = 4


class Machine:
    """As a node: a process that works on a disk."""

    def __init__(self, loaded: bool = False) -> None:
        self.disk = SimulatedDisk(Random(SEED))
        self.running: Any = self
        self.loaded = loaded

    def now_ns(self) -> int:
        return 7

    def lose_power(self) -> dict[str, Any]:
        return {"unsynced_bytes": 1}

    def end(self) -> dict[str, Any]:
        return {"exit_status": 137}

    def struck(self, what: str, operation: int = 1, **choice: Any) -> Mount:
        """What its process uses, while that is waited for."""
        striking = Striking(self, {"what": what, "operation": operation, **choice}, starting=False)
        return self.disk.mount(lambda: True, striking.before, lambda seconds: None)




def batch() -> bytes:
    return build_batch([b"value"], timestamp_ms=1)


# -- operations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "most"), [("power", 8), ("write", 4), ("read", 1), ("short-write", 1), ("fsync", 3)])
def test_what_strikes_counts_its_own_operations_and_hits_each_once(what: str, most: int) -> None:
    words = ["create", "append", HALF, "sync", "rename", "sync_directory", "read", "truncate", "sync"]
    assert sum(word in OPERATIONS[what] for word in words) == most
    hit = []
    for number in range(most + 2):
        strike = Strike(what, number)
        hit += [place for place, word in enumerate(words) if strike.hits(word, "f")]
        assert strike.counted == (number if 0 < number <= most else most)
    assert hit == [place for place, word in enumerate(words) if word in OPERATIONS[what]]


@pytest.mark.parametrize(
    ("what", "choice", "number", "left"),
    [
        ("write", {}, errno.EIO, b""), ("short-write", {"error": "EIO"}, errno.EIO, b"ab"),
        ("short-write", {"error": "ENOSPC"}, errno.ENOSPC, b"ab"),
    ],
)  # fmt: skip
def test_a_write_fails_once(what: str, choice: dict[str, Any], number: int, left: bytes) -> None:
    machine = Machine()
    machine.disk.open("f")
    file = machine.struck(what, **choice).open("f")
    with pytest.raises(OSError) as failed:
        file.append(b"abcd")
    assert failed.value.errno == number and machine.disk.read("f") == left
    file.append(b"efgh")
    assert machine.disk.read("f") == left + b"efgh"


def test_a_read_fails_once() -> None:
    machine = Machine()
    machine.disk.open("f").append(b"abcd")
    file = machine.struck("read", 2).open("f")
    assert file.read_at(0, 4) == b"abcd"
    with pytest.raises(OSError, match=r"\[Errno 5\]"):
        file.read_at(0, 4)
    assert file.read_at(0, 4) == b"abcd"


@pytest.mark.parametrize(("pages", "survives"), [("kept", True), ("dropped", False)])
def test_after_a_failed_sync_the_next_one_succeeds_and_may_have_written_nothing(
    pages: str, survives: bool
) -> None:
    machine = Machine()
    machine.disk.write_atomically("f", b"")
    file = machine.struck("fsync", pages=pages).open("f")
    file.append(b"abcd")
    with pytest.raises(OSError, match=r"\[Errno 5\]"):
        file.sync()
    assert machine.disk.read("f") == b"abcd"
    file.sync()
    machine.disk.lose_power()
    assert (machine.disk.read("f") == b"abcd") is survives


def test_who_is_killed_or_loses_its_power_does_no_more() -> None:
    for what in ("kill", "power"):
        machine = Machine()
        mount = machine.struck(what, 2)
        file = mount.open("f")
        with pytest.raises(ProcessDied):
            file.append(b"abcd")
        assert machine.disk.read("f") == b""


# -- what a node makes of it -------------------------------------------------------------------------------------


def test_a_read_that_fails_is_an_error_of_the_log() -> None:
    machine = Machine()
    log = Log.open(machine.disk, "t-0")
    log.append_as_leader(batch(), 0)
    log.close()
    mount = machine.struck("read", 3)
    with pytest.raises(StorageError, match=r"^reading t-0/0+\.log failed: "):
        opened = Log.open(mount, "t-0", clean=True)
        while True:
            opened.read(0, 1 << 20)


def after_a_failed_sync() -> tuple[SimulatedDisk, Log]:
    """A log whose last record a failed sync dropped, opened by the next process."""
    disk = SimulatedDisk(Random(SEED))
    log = Log.open(disk, "t-0")
    log.append_as_leader(batch(), 0)
    log.flush()
    log.append_as_leader(batch(), 0)
    disk.drop("t-0/00000000000000000000.log")
    return disk, Log.open(disk, "t-0", recovery_point=1)


def test_who_opens_a_log_after_a_failed_sync_believes_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, log = after_a_failed_sync()
    assert log.end_offset == log.flushed_offset == 1 and disk.unsynced() == {}
    monkeypatch.setattr(segment, "believe_the_disk", lambda file: None)
    disk, log = after_a_failed_sync()
    assert log.flushed_offset == 2 and disk.unsynced() != {}, "what it takes for durable is not there"


def test_dropping_clean_pages_keeps_what_a_killed_process_has_written(tmp_path: Path) -> None:
    log = Log.open(LocalDisk(tmp_path), "t-0")
    log.append_as_leader(batch(), 0)
    assert Log.open(LocalDisk(tmp_path), "t-0").end_offset == 1


# -- nemeses -----------------------------------------------------------------------------------------------------


def test_they_are_of_the_simulation_alone() -> None:
    for name in ("disk:error-once", "power:at-operation", "kill:at-operation", "disk:replaced", "disk:restored"):
        nemesis = registry.make_nemeses([name])
        registry.check_runtime(nemesis, "simulation")
        with pytest.raises(BadArguments, match=rf"^nemesis {name} works only in simulation; add --on simulation$"):
            registry.check_runtime(nemesis, "docker")


def test_what_is_drawn_and_what_is_asked_for() -> None:
    drawn = [ErrorOnce().draw(Random(n)).choice for n in range(200)]
    assert {choice["what"] for choice in drawn} == {"error", "read", "write", "short-write", "fsync"}
    assert {choice["when"] for choice in drawn} == {"running", "loading"}
    assert {"again" in choice for choice in drawn} == {True, False} and min(c["operation"] for c in drawn) == 1
    asked = [ErrorOnce(what="fsync").draw(Random(n)).choice for n in range(200)]
    assert asked == [{**choice, "what": "fsync"} for choice in drawn]
    assert {PowerAtOperation().draw(Random(n)).choice["what"] for n in range(9)} == {"power"}
    assert KillAtOperation().effective({"nodes": {"broker-1": {"struck": {"operation": "sync"}}}})
    assert not KillAtOperation().effective({"nodes": {"broker-1": {"counted_operations": 9}}})


def struck(nemesis: str, **choice: Any) -> tuple[Any, dict[str, Any]]:
    """A run with one such fault on broker-2, and its evidence."""
    whole = {"targets": ["broker-2"], "when": "running", "operation": 30, "within_s": 4.0, **choice}
    fault = Fault(fault=0, nemesis=nemesis, at=1.0, duration=1.0, choice=whole)
    plan = Plan(
        run="r", on="simulation", nemesis=(nemesis,), seed=SEED, time_limit=10.0, rate=40.0, partitions=2,
        settings={"log.flush.interval.messages": "1"},
    )  # fmt: skip
    done = simulate(plan, (fault,))
    assert not done.crash, done.crash
    (row,) = done.tables["faults"].to_pylist()
    return done, json.loads(row["evidence"])["nodes"]["broker-2"]


@pytest.mark.parametrize("when", ["running", "loading"])
@pytest.mark.parametrize("what", ["read", "write", "short-write", "fsync"])
def test_one_error_ends_the_broker_and_loses_nothing_that_was_acknowledged(what: str, when: str) -> None:
    operation = 30 if when == "running" else 2
    done, seen = struck("disk:error-once", what=what, when=when, operation=operation, error="EIO", pages="dropped")
    assert done.violation is None and done.judge()["verdict"] == "pass"
    assert seen["struck"]["operation"] in OPERATIONS[what] and seen["counted_operations"] == operation
    assert seen["failed_operations"] == 1 and seen["exit_status"] == 1


@pytest.mark.parametrize("believed", ["disk", "page cache"])
def test_regression_a_sync_that_failed_before_the_start(believed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 13 of an exploration with disk:error-once:what=fsync: the metadata log was taken for durable."""
    if believed == "page cache":
        monkeypatch.setattr(segment, "believe_the_disk", lambda file: None)
    plan = Plan(run="r", on="simulation", nemesis=("disk:error-once:what=fsync",), rate=40.0, time_limit=30.0)
    plan = plan.model_copy(update={"partitions": 4, "concurrency": 2})
    violation = simulate(Swarm(("settings", "latency_ms"))(plan, 13)).violation
    assert (violation and violation.property) == (None if believed == "disk" else "FlushedOffset")


@pytest.mark.parametrize("nemesis", ["power:at-operation", "kill:at-operation"])
def test_a_node_is_struck_again_while_it_loads_its_logs(nemesis: str) -> None:
    what = nemesis.partition(":")[0]
    done, seen = struck(nemesis, what=what, again=3)
    assert done.violation is None and done.judge()["verdict"] == "pass"
    assert seen["struck"]["number"] == 30 and seen["again"]["struck"]["number"] == 3
    assert seen["exit_status"] == seen["again"]["exit_status"] == 137
    assert seen["lost_at"] < seen["again"]["lost_at"]


def test_what_is_lost_counts_from_the_moment_at_which_it_was_lost() -> None:
    fault = {
        "fault": 0, "nemesis": "disk:restored", "start": 10**9, "end": 9 * 10**9, "targets": ["broker-1"],
        "evidence": {"nodes": {"broker-1": {"unsynced_records": 1, "lost_by_partition": {"t-0": 1}}}},
    }  # fmt: skip
    fault["evidence"]["nodes"]["broker-1"]["lost_at"] = 4 * 10**9  # type: ignore[index]
    found = contract({"acks": "all", "min_insync_replicas": 2}, [fault], origin=0)
    assert found["partitions"]["t-0"]["at_s"] == 4.0
