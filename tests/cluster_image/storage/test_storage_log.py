"""The log against a model, with crashes at any point; and what damage to its files may do."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cluster_image.storage import Log, LogConfig, NonContiguousAppend, OffsetOutOfRange, StorageError
from cluster_image.storage.records import (
    CorruptRecord,
    decode_int64s,
    encode_int64s,
    iter_batches,
    with_offset_and_epoch,
)
from cluster_image.storage.segment import segment_name
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from tests.cluster_image.storage.simulated_disk import PowerLoss, simulated_disk

#: A batch as the model keeps it: first offset, leader epoch, values.
Batch = tuple[int, int, tuple[int, ...]]
DIRECTORY = "data/t-0"


def batches_in(log: Log) -> list[Batch]:
    """Read the whole log, as a consumer would."""
    found: list[Batch] = []
    offset = log.start_offset
    while chunk := log.read(offset, 300):
        found += [(batch.base_offset, batch.leader_epoch, batch.values) for batch in decode_int64s(chunk)]
        offset = found[-1][0] + len(found[-1][2])
    return found


def leader_epochs_in(log: Log) -> list[int]:
    """The leader epoch of each batch, without looking into any."""
    epochs: list[int] = []
    offset = log.start_offset
    while chunk := log.read(offset, 300):
        for _, _, header in iter_batches(chunk):
            epochs.append(header.leader_epoch)
            offset = header.next_offset
    return epochs


def end_of(batches: list[Batch], start: int = 0) -> int:
    return batches[-1][0] + len(batches[-1][2]) if batches else start


def below(batches: list[Batch], offset: int) -> list[Batch]:
    return [batch for batch in batches if end_of([batch]) <= offset]


class LogMachine(RuleBasedStateMachine):
    """Whatever happens, the log holds a prefix of what was appended, and all that was flushed."""

    @initialize(segment_bytes=st.sampled_from([1, 200, 500, 10_000]), interval=st.sampled_from([None, None, 1, 5]))
    def start(self, segment_bytes: int, interval: int | None) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes, flush_interval_messages=interval)
        self.disk = simulated_disk()
        self.log = Log.open(self.disk, DIRECTORY, self.config)
        self.model: list[Batch] = []
        self.origin = 0  # where the log starts
        self.epoch = 0
        self.next_value = 0

    def new_values(self, count: int) -> tuple[int, ...]:
        self.next_value += count
        return tuple(range(self.next_value - count, self.next_value))

    @rule(requests=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1), new_epoch=st.booleans())
    def append_as_leader(self, requests: list[list[int]], new_epoch: bool) -> None:
        if new_epoch:
            self.epoch += 1
            self.log.assign_epoch_start_offset(self.epoch, self.log.end_offset)
        for sizes in requests:
            self.log.append_as_leader(self.client_batches(sizes), self.epoch)

    def client_batches(self, sizes: list[int]) -> bytes:
        data = b""
        for size in sizes:
            values = self.new_values(size)
            self.model.append((end_of(self.model, self.origin), self.epoch, values))
            data += encode_int64s(values, timestamp_ms=1)
        return data

    @rule(steps=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1)), min_size=1))
    def append_as_follower(self, steps: list[tuple[int, int]]) -> None:
        data = b""
        for size, step in steps:
            self.epoch += step
            offset = end_of(self.model, self.origin)
            values = self.new_values(size)
            self.model.append((offset, self.epoch, values))
            data += with_offset_and_epoch(encode_int64s(values, timestamp_ms=1), offset, self.epoch)
            if size % 2:
                self.log.append_as_follower(data)
                data = b""
        if data:
            self.log.append_as_follower(data)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.origin, self.log.end_offset + 2))
        self.log.truncate_to(offset)
        self.model = below(self.model, offset)

    @rule(gap=st.integers(0, 50))
    def start_anew(self, gap: int) -> None:
        self.origin = self.log.end_offset + gap
        self.log.truncate_fully_and_start_at(self.origin)
        self.model = []

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.flushed_offset == self.log.end_offset

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close()
        self.log = Log.open(self.disk, DIRECTORY, self.config, clean=True)
        assert (self.log.recovery.truncated_bytes, self.log.recovery.removed_segments) == (0, 0)

    @rule(known=st.booleans())
    def kill(self, known: bool) -> None:
        """SIGKILL keeps the page cache."""
        self.log = Log.open(
            self.disk, DIRECTORY, self.config, recovery_point=self.log.flushed_offset if known else None
        )

    @rule(seed=st.integers(0, 2**32), recovery_point=st.none() | st.integers(0, 100))
    def lose_power(self, seed: int, recovery_point: int | None) -> None:
        flushed = self.log.flushed_offset
        self.disk.lose_power(Random(seed))
        self.reopen_after_power_loss(flushed, self.model, recovery_point)

    @rule(seed=st.integers(0, 2**32), after=st.integers(0, 12), what=st.sampled_from(["append", "truncate", "flush"]))
    def lose_power_in_the_middle(self, seed: int, after: int, what: str) -> None:
        random = Random(seed)
        flushed, before = self.log.flushed_offset, list(self.model)
        offset = random.randint(self.origin, self.log.end_offset)
        data = self.client_batches([2, 5])
        actions: dict[str, Callable[[], object]] = {
            "append": lambda: self.log.append_as_leader(data, self.epoch),
            "truncate": lambda: self.log.truncate_to(offset),
            "flush": self.log.flush,
        }
        self.disk.before = _raise_after(after, PowerLoss())
        with contextlib.suppress(PowerLoss):
            actions[what]()
        self.disk.before = lambda operation, path: None
        self.disk.lose_power(random)
        if what == "truncate":
            flushed = min(flushed, end_of(below(before, offset), self.origin))
        self.reopen_after_power_loss(flushed, self.model if what == "append" else before, None)

    def reopen_after_power_loss(self, flushed: int, possible: list[Batch], recovery_point: int | None) -> None:
        self.log = Log.open(self.disk, DIRECTORY, self.config, recovery_point=recovery_point)
        assert self.log.end_offset >= flushed
        self.model = below(possible, self.log.end_offset)
        assert self.log.flushed_offset == self.log.end_offset

    @invariant()
    def log_equals_model(self) -> None:
        assert batches_in(self.log) == self.model
        assert (self.log.start_offset, self.log.end_offset) == (self.origin, end_of(self.model, self.origin))
        assert self.log.last_epoch == (self.model[-1][1] if self.model else -1)
        assert self.origin <= self.log.flushed_offset <= self.log.end_offset
        for epoch in range(self.epoch + 2):
            assert self.log.end_offset_for_epoch(epoch) == self.expected_end_of(epoch)

    def expected_end_of(self, epoch: int) -> tuple[int, int]:
        known = [batch_epoch for _, batch_epoch, _ in self.model if batch_epoch <= epoch]
        later = [offset for offset, batch_epoch, _ in self.model if batch_epoch > epoch]
        return (max(known) if known else epoch), (later[0] if later else self.log.end_offset)


def _raise_after(calls: int, error: BaseException) -> Callable[[str, str], None]:
    def before(operation: str, path: str) -> None:
        nonlocal calls
        if calls == 0:
            raise error
        calls -= 1

    return before


TestLogAgainstModel = LogMachine.TestCase
TestLogAgainstModel.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)


def filled_disk(batches_per_epoch: int = 7) -> tuple[SimulatedDisk, list[Batch]]:
    """A log of several segments and leader epochs, all of it on disk."""
    disk = simulated_disk()
    log = Log.open(disk, DIRECTORY, LogConfig(segment_bytes=600))
    for index in range(30):
        log.append_as_leader(
            encode_int64s(range(index, index + 1 + index % 4), timestamp_ms=1), index // batches_per_epoch
        )
    written = batches_in(log)
    log.close()
    return disk, written


def segments(disk: SimulatedDisk) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(".log")]


DAMAGE = st.tuples(
    st.sampled_from(["flip", "cut", "zero", "grow with zeros", "grow with junk", "remove", "empty"]),
    st.integers(0, 2**20),
    st.integers(1, 200),
)


def damage(disk: SimulatedDisk, kind: str, where: int, length: int) -> None:
    paths = segments(disk)
    if not paths:
        return
    path = paths[where % len(paths)]
    content = disk.files()[path]
    at = where % (len(content) + 1)
    if kind == "flip" and at < len(content):
        content[at] ^= 1 << length % 8
    elif kind == "cut":
        del content[at:]
    elif kind == "zero":
        content[at : at + length] = bytes(min(length, len(content) - at))
    elif kind.startswith("grow"):
        content += bytes(length) if kind == "grow with zeros" else Random(where).randbytes(length)
    elif kind == "remove" and path != paths[0]:
        disk.remove(path)
    elif kind == "empty":
        content.clear()


@settings(deadline=None)
@given(st.lists(DAMAGE, min_size=1, max_size=3), st.booleans(), st.none() | st.integers(0, 100))
def test_any_damage_leaves_a_prefix_and_a_usable_log(
    damages: list[tuple[str, int, int]], clean: bool, recovery_point: int | None
) -> None:
    disk, written = filled_disk()
    for kind, where, length in damages:
        damage(disk, kind, where, length)
    log = Log.open(disk, DIRECTORY, LogConfig(segment_bytes=600), clean=clean, recovery_point=recovery_point)
    if not clean and recovery_point is None:
        # A leader epoch lies outside the CRC: raised in the last batch of its epoch, nothing can tell.
        found = [(offset, values) for offset, _, values in batches_in(log)]
        assert found == [(offset, values) for offset, _, values in written[: len(found)]]
    epochs = leader_epochs_in(log)
    assert epochs == sorted(epochs)
    log.append_as_leader(encode_int64s([1], timestamp_ms=1), 2**31 - 1)
    end, recovered = log.end_offset, log.end_offset_for_epoch(3)
    log.close()
    again = Log.open(disk, DIRECTORY, LogConfig(segment_bytes=600))
    if not clean and recovery_point is None:
        assert again.end_offset == end
        assert again.recovery.truncated_bytes == again.recovery.removed_segments == 0
        assert again.end_offset_for_epoch(3) == recovered


def test_a_missing_middle_segment_keeps_the_part_before_it() -> None:
    disk, written = filled_disk()
    names = segments(disk)
    disk.remove(names[2])
    log = Log.open(disk, DIRECTORY)
    assert segments(disk) == names[:2]
    assert log.recovery.removed_segments == len(names) - 3
    assert segment_name(log.end_offset) in names[2]
    assert batches_in(log) == below(written, log.end_offset)


@pytest.mark.parametrize("seed", range(20))
def test_truncated_records_do_not_return_after_a_power_cut(seed: int) -> None:
    """Appends could otherwise meet an old segment that continues them."""
    disk, _ = filled_disk(batches_per_epoch=1000)
    before = [bytes(disk.files()[path]) for path in segments(disk)]
    log = Log.open(disk, DIRECTORY)
    log.truncate_to(log.end_offset // 2)
    kept = [bytes(disk.files()[path]) for path in segments(disk)]
    assert 1 < len(kept) < len(before)
    assert 0 < len(kept[-1]) < len(before[len(kept) - 1])
    disk.lose_power(Random(seed))
    assert [disk.files()[path] for path in segments(disk)] == kept
    Log.open(disk, DIRECTORY).truncate_fully_and_start_at(7000)
    disk.lose_power(Random(seed))
    assert segments(disk) == [f"{DIRECTORY}/{segment_name(7000)}"]


def test_zeros_after_the_last_batch_are_cut_off() -> None:
    disk, written = filled_disk()
    disk.files()[segments(disk)[-1]].extend(bytes(4096))
    log = Log.open(disk, DIRECTORY)
    assert (batches_in(log), log.recovery.truncated_bytes) == (written, 4096)


@pytest.mark.parametrize("recovery_point", [None, 10_000])
def test_damage_below_an_impossible_recovery_point_is_found(recovery_point: int | None) -> None:
    disk, _ = filled_disk()
    disk.files()[segments(disk)[0]][70] ^= 1
    log = Log.open(disk, DIRECTORY, recovery_point=recovery_point)
    assert (batches_in(log), log.end_offset) == ([], 0)


def test_a_recovery_point_from_before_a_truncation_is_not_believed() -> None:
    """The records it spoke of are gone; those in their place were never synced, and one is damaged."""
    disk, _ = filled_disk()
    log = Log.open(disk, DIRECTORY)
    recovery_point = log.flushed_offset
    log.truncate_to(recovery_point // 2)
    intact = log.end_offset
    batch = encode_int64s(range(5), timestamp_ms=1)
    while log.end_offset < recovery_point + 5:
        log.append_as_leader(batch, 9)
    disk.files()[segments(disk)[-1]][-4 * len(batch) - 1] ^= 1
    reopened = Log.open(disk, DIRECTORY, recovery_point=recovery_point)
    assert intact < reopened.end_offset == log.end_offset - 5 * 5 < recovery_point - 5


def test_a_false_proof_of_a_clean_shutdown_is_not_believed() -> None:
    """A torn end contradicts it, so the flipped bit in the middle is looked for, and found."""
    disk, written = filled_disk()
    disk.files()[segments(disk)[1]][70] ^= 1
    disk.files()[segments(disk)[-1]].pop()
    log = Log.open(disk, DIRECTORY, clean=True)
    assert segment_name(log.end_offset) in segments(disk)[1]
    assert batches_in(log) == below(written, log.end_offset)


def test_the_log_decides_over_the_leader_epoch_checkpoint() -> None:
    disk, _ = filled_disk()
    expected = Log.open(disk, DIRECTORY).end_offset_for_epoch(1)
    for checkpoint in (b"0\n2\n1 3\n9 4000\n", b"0\n7\n1 3\n", b"", b"\xff\xfe\0\0"):
        disk.write_atomically(f"{DIRECTORY}/leader-epoch-checkpoint", checkpoint)
        log = Log.open(disk, DIRECTORY)
        assert (log.end_offset_for_epoch(1), log.last_epoch) == (expected, 4)


def test_a_start_offset_past_the_end_empties_the_log() -> None:
    """Records below the log start were deleted on purpose; what a crash left below it is of no use."""
    disk, _ = filled_disk()
    log = Log.open(disk, DIRECTORY, start_offset=1000)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (1000, 1000, -1)
    assert log.append_as_leader(encode_int64s([1], timestamp_ms=1), 9) == 1000


@pytest.mark.parametrize("failing", ["append", "sync", "create", "sync_directory"])
@pytest.mark.parametrize("calls", range(8))
def test_after_a_failed_write_the_log_refuses_changes_and_still_reads(failing: str, calls: int) -> None:
    disk = simulated_disk()
    log = Log.open(disk, DIRECTORY, LogConfig(segment_bytes=500, flush_interval_messages=2))
    written: list[Batch] = []
    remaining = calls

    def before(operation: str, path: str) -> None:
        nonlocal remaining
        if operation == failing and (remaining := remaining - 1) < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    disk.before = before
    with pytest.raises(StorageError, match="No space left"):
        for value in range(100):
            log.append_as_leader(encode_int64s([value], timestamp_ms=1), 0)
            written.append((value, 0, (value,)))
    disk.before = lambda operation, path: None
    flushed = log.flushed_offset
    for change in (lambda: log.append_as_leader(encode_int64s([1], timestamp_ms=1), 0), lambda: log.truncate_to(0)):
        with pytest.raises(StorageError, match="No space left"):
            change()
    assert batches_in(log)[: len(written)] == written
    with pytest.raises(StorageError, match="No space left"):
        log.close()
    disk.lose_power(Random(calls))
    reopened = Log.open(disk, DIRECTORY)
    assert reopened.end_offset >= flushed
    # The record of the failed append may have survived.
    assert batches_in(reopened) == [(v, 0, (v,)) for v in range(reopened.end_offset)]


def test_a_failed_sync_is_never_taken_back() -> None:
    """After fsync reported an error, the next one may succeed though the data is gone."""
    disk = simulated_disk()
    log = Log.open(disk, DIRECTORY)
    log.append_as_leader(encode_int64s([1], timestamp_ms=1), 0)
    disk.before = _raise_after(0, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StorageError):
        log.flush()
    disk.before = lambda operation, path: None
    with pytest.raises(StorageError):
        log.flush()
    assert log.flushed_offset == 0


def test_nothing_is_appended_of_a_request_with_one_bad_batch() -> None:
    log = Log.open(simulated_disk(), DIRECTORY)
    good = encode_int64s([1, 2], timestamp_ms=1)
    bad = bytearray(good)
    bad[-1] ^= 1
    with pytest.raises(CorruptRecord):
        log.append_as_leader(good + bytes(bad), 0)
    assert (log.end_offset, batches_in(log)) == (0, [])


@pytest.mark.parametrize(("offset", "epoch"), [(1, 5), (3, 5), (2, 4), (2, -1)])
def test_a_follower_refuses_what_does_not_continue_its_log(offset: int, epoch: int) -> None:
    log = Log.open(simulated_disk(), DIRECTORY)
    batch = encode_int64s([1, 2], timestamp_ms=1)
    log.append_as_leader(batch, 5)
    with pytest.raises(NonContiguousAppend):
        log.append_as_follower(with_offset_and_epoch(batch, offset, epoch))
    assert log.end_offset == 2


def test_no_log_begins_below_0() -> None:
    """Where records were deleted up to its middle, a batch that begins before the log is taken (found by fuzzing)."""
    disk = simulated_disk()
    log = Log.open(disk, DIRECTORY)
    with pytest.raises(NonContiguousAppend):
        log.append_as_follower(with_offset_and_epoch(encode_int64s([1, 2], timestamp_ms=1), -1, 4))
    assert (log.start_offset, log.end_offset) == (0, 0)


@given(st.data())
def test_reads_are_whole_batches_within_both_bounds(data: st.DataObject) -> None:
    disk, written = filled_disk()
    log = Log.open(disk, DIRECTORY)
    offset = data.draw(st.integers(0, log.end_offset))
    max_bytes, max_offset = data.draw(st.integers(0, 500)), data.draw(st.integers(0, log.end_offset + 1))
    min_one = data.draw(st.booleans())
    chunk = log.read(offset, max_bytes, max_offset, min_one)
    headers = [header for _, _, header in iter_batches(chunk)]
    fitting = [batch for batch in written if end_of([batch]) > offset and end_of([batch]) <= max_offset]
    assert [header.base_offset for header in headers] == [batch[0] for batch in fitting[: len(headers)]]
    assert len(chunk) <= max_bytes or (min_one and len(headers) == 1)
    if min_one:
        assert bool(headers) == bool(fitting)


def test_reading_outside_the_log_is_refused() -> None:
    log = Log.open(simulated_disk(), DIRECTORY)
    log.truncate_fully_and_start_at(10)
    assert log.read(10, 100) == b""
    for offset in (9, 11):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100)


def test_a_log_begins_where_its_first_segment_does() -> None:
    """Nothing but the segments tells: the checkpoint of log start offsets is for finding out that one is lost."""
    disk = simulated_disk()
    log = Log.open(disk, DIRECTORY)
    log.truncate_fully_and_start_at(10)
    log.append_as_leader(encode_int64s([1], timestamp_ms=1), 0)
    log.close()
    reopened = Log.open(disk, DIRECTORY)
    assert (reopened.start_offset, reopened.end_offset) == (10, 11)
    with pytest.raises(OffsetOutOfRange):
        reopened.read(9, 100)


def test_truncation_below_the_start_follows_the_leader_there() -> None:
    log = Log.open(simulated_disk(), DIRECTORY)
    log.truncate_fully_and_start_at(10)
    log.append_as_leader(encode_int64s([1], timestamp_ms=1), 0)
    log.truncate_to(4)
    assert (log.start_offset, log.end_offset) == (4, 4)


def test_flush_by_time() -> None:
    log = Log.open(simulated_disk(), DIRECTORY, LogConfig(flush_interval_ms=1000))
    log.maybe_flush(now=100.0)
    log.append_as_leader(encode_int64s([1], timestamp_ms=1), 0)
    log.maybe_flush(now=100.9)
    assert log.flushed_offset == 0
    log.maybe_flush(now=101.0)
    assert log.flushed_offset == 1


def test_a_leader_knows_its_epoch_before_it_wrote_anything() -> None:
    """Log divergence, case D: the end of an older epoch is where the new leader's begins."""
    log = Log.open(simulated_disk(), DIRECTORY)
    log.append_as_leader(encode_int64s([1, 2], timestamp_ms=1), 1)
    log.assign_epoch_start_offset(3, log.end_offset)
    assert log.end_offset_for_epoch(1) == (1, 2)
    assert log.end_offset_for_epoch(2) == (1, 2)
    assert log.end_offset_for_epoch(3) == (3, 2)
    assert log.end_offset_for_epoch(0) == (0, 0)
    assert log.last_epoch == 1
