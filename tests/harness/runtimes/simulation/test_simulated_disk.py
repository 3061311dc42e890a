"""The simulated disk: held to the same cases as a real ext4 volume, and what only a simulated one can be made to do."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest

from cluster_image.storage.disk import File, LocalDisk, ProcessDied
from cluster_image.storage.records import encode_int64s
from harness.runtimes.agent import kernel
from harness.runtimes.agent.machine import Volume
from harness.runtimes.agent.volume import loss
from harness.runtimes.simulation.disk.disk import Mount, SimulatedDisk
from tests.cluster_image.storage.disk_contract import CASES, Case, noise
from tests.cluster_image.storage.simulated_disk import PowerLoss

SEEDS = range(80)


class SimulatedMachine:
    def __init__(self, seed: int) -> None:
        self.whole = SimulatedDisk(Random(seed))
        self.kill()

    def kill(self) -> None:
        self.disk = mount(self.whole)

    def cut_power(self) -> None:
        self.whole.lose_power()
        self.kill()

    def fill(self) -> None:
        self.whole.full = True

    def free(self) -> None:
        self.whole.full = False


class Ext4Machine:
    """A directory of its own on the volume."""

    def __init__(self, volume: Volume, name: str) -> None:
        self._volume = volume
        self._filler = volume.directory / "filler"
        self._root = volume.directory / name
        self._root.mkdir()
        LocalDisk(volume.directory).sync_directory("")
        self.disk = _ClosableDisk(self._root)

    def kill(self) -> None:
        for file in self.disk.files:
            file.close()

    def cut_power(self) -> None:
        self.kill()
        kernel.shut_down_file_system(self._volume.directory)
        self._volume.unmount()
        self._volume.mount()

    def fill(self) -> None:
        size = 1 << 30
        with self._filler.open("wb") as file:
            while size >= 512:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    size //= 2

    def free(self) -> None:
        self._filler.unlink()


class _ClosableDisk(LocalDisk):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.files: list[File] = []

    def open(self, path: str) -> File:
        self.files.append(super().open(path))
        return self.files[-1]


@pytest.fixture(scope="module")
def ext4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Volume]:
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    if not shutil.which("mkfs.ext4"):
        pytest.skip("no mkfs.ext4")
    folder = tmp_path_factory.mktemp("ext4")
    volume = Volume(folder / "image", folder / "mounted", "ext4")
    try:
        try:
            volume.make(64 << 20)()
            volume.attach(owner=0)
        except OSError as error:
            pytest.skip(f"no loop-mounted ext4 here: {error}")
        yield volume
    finally:
        with suppress(OSError):  # it was not mounted
            kernel.unmount(volume.directory, lazily=True)
        if volume._descriptor >= 0:
            os.close(volume._descriptor)  # with which the loop device frees itself


each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@each_case
def test_contract_on_ext4(case: Case, ext4: Volume, request: pytest.FixtureRequest) -> None:
    machine = Ext4Machine(ext4, request.node.callspec.id)
    try:
        assert case.run(machine) in case.outcomes
    finally:
        machine.kill()


def test_power_is_really_cut_on_ext4(ext4: Volume) -> None:
    """Or its cases would say nothing."""
    machine = Ext4Machine(ext4, "proof")
    machine.disk.open("f").append(b"never synced")
    machine.cut_power()
    assert machine.disk.list("") == []


@each_case
def test_contract_in_simulation(case: Case) -> None:
    assert {case.run(SimulatedMachine(seed)) for seed in SEEDS} == case.outcomes


# -- a machine's processes ----------------------------------------------------------------------------------------


def mount(
    disk: SimulatedDisk,
    alive: Callable[[], bool] = lambda: True,
    before: Callable[[str, str], None] = lambda operation, path: None,
    spent: Callable[[float], None] = lambda seconds: None,
) -> Mount:
    return disk.mount(alive, before, spent)


def test_what_is_left_of_a_dead_process_reaches_nothing() -> None:
    disk, alive = SimulatedDisk(Random(0)), True
    mine = mount(disk, alive=lambda: alive)
    file = mine.open("f")
    file.append(b"a")
    alive = False
    uses: list[Callable[[], object]] = [
        lambda: file.append(b"b"),
        lambda: file.truncate(0),
        lambda: file.read_at(0, 1),
        file.size,
        file.sync,
        file.close,
        lambda: mine.open("g"),
        lambda: mine.exists("f"),
        lambda: mine.list(""),
        lambda: mine.read("f"),
        lambda: mine.write_atomically("f", b""),
        lambda: mine.make_directory("d"),
        lambda: mine.remove("f"),
        lambda: mine.rename("f", "g"),
        lambda: mine.sync_directory(""),
    ]
    for use in uses:
        with pytest.raises(ProcessDied):
            use()
    assert disk.files() == {"f": b"a"}
    assert mount(disk).read("f") == b"a"


def test_a_process_can_die_in_the_middle_of_an_append() -> None:
    disk = SimulatedDisk(Random(0))
    calls = 0

    def before(operation: str, path: str) -> None:
        nonlocal calls
        calls += operation in ("append", "append half")
        if calls == 2:
            raise ProcessDied

    file = mount(disk, before=before).open("f")
    with pytest.raises(ProcessDied):
        file.append(b"0123456789")
    assert mount(disk).read("f") == b"01234"


def test_what_a_file_that_was_open_in_a_power_cut_writes_goes_nowhere() -> None:
    disk = SimulatedDisk(Random(0))
    disk.write_atomically("f", b"a")
    file = disk.open("f")
    disk.lose_power()
    file.append(b"b" * 100)
    file.sync()
    assert disk.files() == {"f": b"a"}


def test_every_change_and_sync_is_announced() -> None:
    disk = SimulatedDisk(Random(0))
    heard: list[tuple[str, str]] = []
    mine = mount(disk, before=lambda operation, path: heard.append((operation, path)))
    mine.make_directory("d")
    mine.write_atomically("d/f", b"content")
    mine.remove("d/f")
    assert heard == [
        ("make_directory", "d"),
        ("sync_directory", "d"),
        ("create", "d/f.tmp"),
        ("truncate", "d/f.tmp"),
        ("append", "d/f.tmp"),
        ("append half", "d/f.tmp"),
        ("sync", "d/f.tmp"),
        ("rename", "d/f"),
        ("sync_directory", "d"),
        ("remove", "d/f"),
    ]


def test_a_sync_takes_time_and_now_and_then_much() -> None:
    def times(seed: int) -> list[float]:
        spent: list[float] = []
        file = mount(SimulatedDisk(Random(seed)), spent=spent.append).open("f")
        for _ in range(1000):
            file.append(b"x")
            file.sync()
        return spent

    spent = times(0)
    assert len(spent) == 1000
    assert all(0.0003 <= seconds <= 0.002 or 0.020 <= seconds <= 0.060 for seconds in spent)
    assert 2 <= sum(seconds > 0.01 for seconds in spent) <= 60
    assert spent == times(0) != times(1)


# -- power ----------------------------------------------------------------------------------------------------------


def written(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("d")
    disk.write_atomically("d/f", noise(5000))
    disk.open("d/f").append(noise(3000, seed=1))
    disk.open("g").append(noise(900, seed=2))
    return disk


def test_one_power_cut_does_not_shift_the_next() -> None:
    """Whatever there was to draw for in the first, the second draws the same."""
    differs = False
    for seed in SEEDS:
        busy, idle = written(seed), SimulatedDisk(Random(seed))
        busy.lose_power()
        idle.lose_power()
        for disk in (busy, idle):
            disk.write_atomically("h", noise(100))
            disk.open("h").append(noise(3000, seed=1))
            disk.lose_power()
        assert busy.files()["h"] == idle.files()["h"]
        differs |= busy.files()["h"] != noise(100)
    assert differs


def test_a_stream_handed_in_decides_alone() -> None:
    survivors = []
    for seed in range(10):
        disk = written(seed)
        disk.lose_power(Random(9))
        survivors.append(disk.files())
    assert survivors.count(survivors[0]) == 10


def test_unsynced_counts_what_a_cut_could_take() -> None:
    disk = written(0)
    assert disk.unsynced() == {"d/f": 3000, "g": 900}
    disk.open("d/f").sync()
    disk.open("g").truncate(400)
    assert disk.unsynced() == {"g": 400}
    disk.lose_power()
    assert disk.unsynced() == {}


def test_the_loss_is_told_exactly() -> None:
    seen = set()
    for seed in SEEDS:
        disk = written(seed)
        before = {path: bytes(content) for path, content in disk.files().items()}
        found = disk.lose_power()
        after = {path: bytes(content) for path, content in disk.files().items()}
        assert list(found.files) == [path for path in before if after.get(path) != before[path]]
        for path, file in found.files.items():
            assert (file.before, file.after) == (before[path], after.get(path))
            left = file.after or b""
            assert file.before[: file.differs_at] == left[: file.differs_at]
            assert file.before[file.differs_at : file.differs_at + 1] != left[file.differs_at : file.differs_at + 1]
        assert found.unsynced_files == len(found.files)
        assert found.unsynced_bytes == sum(len(file.before) - file.differs_at for file in found.files.values())
        seen |= {(path, file.after is None) for path, file in found.files.items()}
    assert seen == {("d/f", False), ("g", True)} | ({("g", False)} & seen)


def test_a_loss_does_not_change_with_what_is_written_later() -> None:
    disk = written(0)
    found = disk.lose_power(Random(0))
    before = dict(found.files)
    disk.open("d/f").append(b"more")
    assert found.files == before
    assert disk.files()["d/f"] != found.files["d/f"].after


def test_evidence_is_that_of_the_docker_agent(tmp_path: Path) -> None:
    """On the same files, saved as real ones."""
    reported = set()
    for seed in SEEDS:
        disk, random = SimulatedDisk(Random(seed)), Random(seed)
        for directory in ("chaos-0", "chaos-1", "__cluster_metadata-0"):
            disk.make_directory(directory)
            file = disk.open(f"{directory}/0.log")
            disk.sync_directory(directory)
            for _ in range(random.randrange(20)):
                file.append(encode_int64s(range(random.randint(1, 5)), timestamp_ms=1))
                if random.random() < 0.1:
                    file.sync()
            file.append(b"torn" * random.randrange(3))
        disk.open("checkpoint").append(noise(1000))
        before, after = tmp_path / f"before-{seed}", tmp_path / f"after-{seed}"
        disk.save(before)
        evidence = disk.lose_power().evidence()
        after.mkdir()
        disk.save(after)
        assert evidence == loss.lost(loss.final(before), loss.final(after))
        reported |= {key for key, value in evidence.items() if value}
    assert reported == set(evidence)


def test_nothing_unsynced_is_nothing_lost() -> None:
    disk = SimulatedDisk(Random(0))
    disk.write_atomically("f", noise(1000))
    found = disk.lose_power()
    assert (found.files, found.unsynced_bytes, found.unsynced_files) == ({}, 0, 0)
    assert found.evidence()["lost_by_partition"] == {}


# -- a disk that is full or fails -----------------------------------------------------------------------------------


def test_a_full_disk_refuses_what_needs_room() -> None:
    sizes = set()
    for seed in SEEDS:
        disk = SimulatedDisk(Random(seed))
        disk.write_atomically("f", b"old")
        disk.write_atomically("g", b"g")
        file = disk.open("f")
        disk.full = True
        for use in (
            lambda: file.append(noise(5)),  # noqa: B023
            lambda: disk.open("new"),  # noqa: B023
            lambda: disk.make_directory("d"),  # noqa: B023
            lambda: disk.rename("g", "new"),  # noqa: B023
        ):
            with pytest.raises(OSError) as error:
                use()
            assert error.value.errno == errno.ENOSPC
        assert disk.refused == 4
        assert disk.list("") == ["f", "g"]
        assert noise(5).startswith(disk.read("f")[3:])
        sizes.add(len(disk.read("f")) - 3)
        disk.rename("g", "f")
        disk.remove("f")
        disk.sync_directory("")
        disk.full = False
        disk.open("new")
        assert disk.list("") == ["new"]
    assert sizes == {0, 1, 2, 3, 4}, "any part of what was refused may have been written"


def test_a_failing_disk_answers_with_errors() -> None:
    disk = SimulatedDisk(Random(0))
    disk.write_atomically("f", b"content")
    file = disk.open("f")
    disk.failing = True
    for use in (
        lambda: file.append(b"x"),
        lambda: file.read_at(0, 1),
        file.sync,
        lambda: disk.read("f"),
        lambda: disk.sync_directory(""),
    ):
        with pytest.raises(OSError) as error:
            use()
        assert error.value.errno == errno.EIO
    assert disk.failed == 5
    disk.failing = False
    assert disk.read("f").startswith(b"content")


def failed_sync(seed: int) -> tuple[SimulatedDisk, bytes]:
    """A sync fails, the next one does not, and all looks well. What a process reads."""
    disk = SimulatedDisk(Random(seed))
    disk.write_atomically("f", noise(100))
    file = disk.open("f")
    file.append(noise(2000, seed=1))
    disk.failing = True
    with pytest.raises(OSError):
        file.sync()
    disk.failing = False
    file.append(noise(50, seed=2))
    file.sync()
    assert disk.read("f") == noise(100) + noise(2000, seed=1) + noise(50, seed=2)
    return disk, disk.read("f")


@pytest.mark.parametrize("find_out", [SimulatedDisk.lose_power, SimulatedDisk.evict])
def test_a_failed_sync_may_lose_what_a_later_one_seems_to_have_saved(
    find_out: Callable[[SimulatedDisk], object],
) -> None:
    dropped = noise(100) + bytes(2000) + noise(50, seed=2)
    outcomes = set()
    for seed in SEEDS:
        disk, seen = failed_sync(seed)
        expected = disk.unsynced()
        find_out(disk)
        assert expected == ({} if disk.files()["f"] == seen else {"f": 2000})
        outcomes.add(bytes(disk.files()["f"]))
        disk.lose_power()
        assert bytes(disk.files()["f"]) in outcomes
    assert outcomes == {seen, dropped}


def test_what_was_dropped_is_mended_by_truncating_and_writing_it_again() -> None:
    for seed in SEEDS:
        disk, seen = failed_sync(seed)
        file = disk.open("f")
        file.truncate(1000)
        file.append(noise(500, seed=3))
        file.sync()
        disk.lose_power()
        left = disk.files()["f"]
        assert left[:100] + left[1000:] == seen[:100] + noise(500, seed=3)
        assert bytes(left[100:1000]) in (seen[100:1000], bytes(900))


def test_a_dropped_page_that_was_cut_off_shows_in_a_truncation_that_is_lost() -> None:
    """The file as it was on the disk comes back, not as it was read."""
    outcomes = set()
    for seed in SEEDS:
        disk, seen = failed_sync(seed)
        dropped = seen[:100] + bytes(2000) + seen[2100:]
        disk.open("f").truncate(1000)
        disk.lose_power()
        left = bytes(disk.files()["f"])
        assert left in (seen[: len(left)], dropped[: len(left)]) or len(left) > 1000
        if len(left) == len(seen):
            outcomes.add(left)
    assert {seen, dropped} <= outcomes


def test_power_can_go_while_it_is_being_used() -> None:
    disk = SimulatedDisk(Random(0))

    def cut(operation: str, path: str) -> NoReturn:
        disk.lose_power()
        raise PowerLoss

    with pytest.raises(PowerLoss):
        mount(disk, before=cut).write_atomically("f", b"x")
    assert disk.files() == {}
