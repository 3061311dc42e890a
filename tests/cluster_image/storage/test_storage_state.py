"""Disks, checkpoints, the clean-shutdown file, leader epochs and idempotent producers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_image.storage import (
    CleanShutdownFile,
    Duplicate,
    InvalidProducerEpoch,
    Log,
    OffsetCheckpoint,
    OutOfOrderSequence,
    ProducerState,
)
from cluster_image.storage.disk import Disk, LocalDisk
from cluster_image.storage.epoch_cache import EpochCache
from cluster_image.storage.records import build_batch, parse_header, with_offset_and_epoch
from tests.cluster_image.storage.simulated_disk import PowerLoss, simulated_disk


@pytest.fixture(params=["local", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return LocalDisk(tmp_path) if request.param == "local" else simulated_disk()


class TestDisk:
    """Real and simulated disks keep to the same words."""

    def test_files(self, disk: Disk) -> None:
        disk.make_directory("a/b")
        file = disk.open("a/b/f")
        file.append(b"0123")
        file.append(b"456789")
        assert (file.size(), file.read_at(2, 3), file.read_at(8, 100), file.read_at(50, 1)) == (10, b"234", b"89", b"")
        file.truncate(4)
        file.append(b"x")
        file.sync()
        file.close()
        assert disk.read("a/b/f") == b"0123x"
        assert disk.open("a/b/f").size() == 5

    def test_names(self, disk: Disk) -> None:
        disk.make_directory("d")
        disk.make_directory("d")
        for name in ("d/2", "d/1"):
            disk.open(name).close()
        assert (disk.list("d"), disk.list("")) == (["1", "2"], ["d"])
        disk.rename("d/2", "d/1")
        assert disk.list("d") == ["1"]
        assert (disk.exists("d/1"), disk.exists("d/2"), disk.exists("e/1")) == (True, False, False)
        disk.remove("d/1")
        disk.sync_directory("d")
        assert disk.list("d") == []

    def test_what_is_missing(self, disk: Disk) -> None:
        for attempt in (
            lambda: disk.read("f"),
            lambda: disk.remove("f"),
            lambda: disk.list("f"),
            lambda: disk.open("e/f"),
        ):
            with pytest.raises(FileNotFoundError):
                attempt()
        assert disk.list("") == []

    def test_replacing_a_file(self, disk: Disk) -> None:
        disk.open("f.tmp").append(b"left by a crash, and longer")
        for content in (b"first", b"2nd"):
            disk.write_atomically("f", content)
            assert disk.read("f") == content
        assert disk.list("") == ["f"]


@given(st.integers(0, 2**32), st.integers(0, 8))
def test_a_power_cut_never_leaves_half_a_replacement(seed: int, calls: int) -> None:
    disk = simulated_disk()
    disk.write_atomically("f", b"old" * 50)
    remaining = calls

    def before(operation: str, path: str) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            raise PowerLoss

    disk.before = before
    try:
        disk.write_atomically("f", b"new" * 60)
        allowed = [b"new" * 60]
    except PowerLoss:
        allowed = [b"old" * 50, b"new" * 60]
    disk.before = lambda operation, path: None
    disk.lose_power(Random(seed))
    assert disk.read("f") in allowed


class TestCleanShutdownFile:
    def test_is_proof_once(self, disk: Disk) -> None:
        assert CleanShutdownFile(disk).take() is None
        CleanShutdownFile(disk).write(47)
        assert CleanShutdownFile(disk).take() == 47
        assert CleanShutdownFile(disk).take() is None

    def test_survives_a_power_cut_when_written_and_does_not_return_when_taken(self) -> None:
        for seed in range(50):
            disk = simulated_disk()
            CleanShutdownFile(disk).write(5)
            disk.lose_power(Random(seed))
            assert CleanShutdownFile(disk).take() == 5
            disk.lose_power(Random(seed))
            assert CleanShutdownFile(disk).take() is None

    @pytest.mark.parametrize(
        "content",
        [
            b"", b"{}", b"[1]", b"\0" * 40, b'{"brokerEpoch": "x"}', b'{"brokerEpoch": null}',
            b'{"brokerEpoch": 9223372036854775808}',
        ],
    )  # fmt: skip
    def test_damaged_is_no_proof(self, disk: Disk, content: bytes) -> None:
        disk.write_atomically(".kafka_cleanshutdown", content)
        assert CleanShutdownFile(disk).take() is None


class TestOffsetCheckpoint:
    def test_comes_back(self, disk: Disk) -> None:
        checkpoint = OffsetCheckpoint(disk, "replication-offset-checkpoint")
        assert checkpoint.read() == {} and checkpoint.find() is None
        checkpoint.write({})
        assert checkpoint.find() == {}
        checkpoint.write({("b", 10): 5, ("b", 9): 2**40, ("a", 0): 0})
        assert checkpoint.read() == {("a", 0): 0, ("b", 9): 2**40, ("b", 10): 5}
        assert disk.read("replication-offset-checkpoint") == b"0\n3\na 0 0\nb 9 1099511627776\nb 10 5\n"

    @pytest.mark.parametrize(
        "content", [b"", b"1\n0\n", b"0\n2\na 0 0\n", b"0\n1\na 0\n", b"0\nx\n", b"\xff\xff", b"\0" * 9]
    )
    def test_damaged_is_as_missing(self, disk: Disk, content: bytes) -> None:
        disk.write_atomically("c", content)
        assert OffsetCheckpoint(disk, "c").read() == {} and OffsetCheckpoint(disk, "c").find() is None


class TestEpochCache:
    def test_an_epoch_keeps_its_start_when_a_later_empty_one_goes(self) -> None:
        """Leader of epoch 18, which wrote nothing; then follower of a log that went on in epoch 17."""
        cache = EpochCache()
        for epoch, start_offset in ((7, 56), (17, 78), (18, 89), (17, 89)):
            cache.assign(epoch, start_offset)
        assert cache.entries == ((7, 56), (17, 78))
        assert cache.end_offset_for(7, 96) == (7, 78)

    def test_an_epoch_without_records_leaves_no_trace(self) -> None:
        cache = EpochCache()
        for epoch, offset in ((1, 0), (2, 5), (3, 5)):
            assert cache.assign(epoch, offset)
        assert cache.entries == ((1, 0), (3, 5))
        assert not cache.assign(3, 9)
        assert cache.last_epoch_before(5) == 1

    @pytest.mark.parametrize(
        ("entries", "epoch", "expected"),
        [
            ([], 4, (4, 20)),  # nothing known
            ([(1, 0), (3, 7)], 3, (3, 20)),
            ([(1, 0), (3, 7)], 9, (3, 20)),
            ([(1, 0), (3, 7)], 2, (1, 7)),
            ([(1, 0), (3, 7)], 1, (1, 7)),
            ([(2, 4), (3, 7)], 1, (1, 4)),  # case G: no such epoch, nor a lower one
        ],
    )
    def test_where_an_epoch_ends(self, entries: list[tuple[int, int]], epoch: int, expected: tuple[int, int]) -> None:
        cache = EpochCache()
        for entry in entries:
            cache.assign(*entry)
        assert cache.end_offset_for(epoch, 20) == expected


def batch(producer: int, epoch: int, sequence: int, count: int = 1) -> bytes:
    return build_batch(
        [b"x"] * count, timestamp_ms=0, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    )


class TestProducerState:
    def test_retries_are_found_and_gaps_refused(self) -> None:
        state = ProducerState()
        for index in range(7):
            header = parse_header(with_offset_and_epoch(batch(1, 0, index * 2, 2), index * 2, 0))
            assert state.check(header) is None
            state.update(header)
        assert state.check(parse_header(batch(1, 0, 12, 2))) == Duplicate(12, 13)
        assert state.check(parse_header(batch(1, 0, 4, 2))) == Duplicate(4, 5)
        for forgotten_or_odd in (batch(1, 0, 2, 2), batch(1, 0, 16, 2), batch(1, 0, 12, 1)):
            with pytest.raises(OutOfOrderSequence):
                state.check(parse_header(forgotten_or_odd))
        assert state.check(parse_header(batch(1, 0, 14, 2))) is None

    def test_epochs(self) -> None:
        state = ProducerState()
        assert state.check(parse_header(batch(1, 3, 17))) is None  # nothing known of it: KIP-360
        state.update(parse_header(batch(1, 3, 17)))
        with pytest.raises(InvalidProducerEpoch):
            state.check(parse_header(batch(1, 2, 18)))
        with pytest.raises(OutOfOrderSequence):
            state.check(parse_header(batch(1, 4, 18)))
        assert state.check(parse_header(batch(1, 4, 0))) is None

    def test_sequence_numbers_wrap(self) -> None:
        state = ProducerState()
        state.update(parse_header(batch(1, 0, 2**31 - 2, 2)))
        assert state.check(parse_header(batch(1, 0, 0))) is None

    def test_without_a_producer_id_nothing_is_checked(self) -> None:
        state = ProducerState()
        header = parse_header(build_batch([b"x"], timestamp_ms=0))
        state.update(header)
        assert state.check(header) is None

    def test_truncation_remembers_five_batches_again(self) -> None:
        log = Log.open(simulated_disk(), "t-0")
        for sequence in range(12):
            log.append_as_leader(batch(1, 0, sequence), 0)
        log.truncate_to(9)
        for sequence in range(4, 9):
            assert log.producers.check(parse_header(batch(1, 0, sequence))) == Duplicate(sequence, sequence)
        with pytest.raises(OutOfOrderSequence):
            log.producers.check(parse_header(batch(1, 0, 3)))

    @given(
        st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1), st.integers(1, 3)), max_size=30), st.integers(0, 60)
    )
    def test_truncation_and_restart_give_the_state_of_what_is_left(
        self, produced: list[tuple[int, int, int]], offset: int
    ) -> None:
        """Compare with a log into which only the kept batches were ever written."""
        whole, kept = Log.open(simulated_disk(), "t-0"), Log.open(disk := simulated_disk(), "t-0")
        epochs = {1: 0, 2: 0}
        sequences = {1: 0, 2: 0}
        probes = []
        for producer, bump, count in produced:
            if bump:
                epochs[producer] += 1
                sequences[producer] = 0
            data = batch(producer, epochs[producer], sequences[producer], count)
            sequences[producer] += count
            probes.append(parse_header(data))
            whole.append_as_leader(data, 0)
            if whole.end_offset <= offset and kept.end_offset == whole.end_offset - count:
                kept.append_as_leader(data, 0)
        whole.truncate_to(offset)
        for header in probes:
            expected = _verdict(kept.producers, header)
            assert _verdict(whole.producers, header) == expected
            assert _verdict(Log.open(disk, "t-0").producers, header) == expected


def _verdict(state: ProducerState, header: object) -> object:
    try:
        return state.check(header)  # type: ignore[arg-type]
    except (OutOfOrderSequence, InvalidProducerEpoch) as error:
        return type(error)
