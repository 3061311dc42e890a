"""Snapshots of the metadata and trimming of its log: files, rules, crashes at any moment, and how followers get one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from cluster_image.kraft.raft import QuorumConfig, rpc, rules
from cluster_image.kraft.raft.control_records import leader_change
from cluster_image.kraft.raft.quorum import Quorum, Role
from cluster_image.kraft.raft.replica import Replica
from cluster_image.kraft.raft.snapshots import (
    RECORDS_A_BATCH,
    SnapshotId,
    SnapshotStore,
    decode,
    encode,
    open_log,
    snapshot_name,
)
from cluster_image.kraft.raft.state import ElectionState, QuorumStateStore
from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.errors import StorageError
from cluster_image.storage.log import Log, LogConfig
from cluster_image.storage.records import RecordError, build_batch, decode_every_record, decode_values, iter_batches
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from tests.cluster_image.storage.simulated_disk import PowerLoss, simulated_disk

from .test_raft_driver import CONFIG as FAST
from .test_raft_driver import OBSERVER, VOTERS, Cluster, running, until
from .test_raft_quorum import CLUSTER, DIRECTORY, answer, boot, elect, fetch

TINY = LogConfig(segment_bytes=200)  # a record or two a segment


# -- the file -------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=12), st.integers(0, 9), st.integers(0, 1 << 40))
def test_a_snapshot_holds_its_records(records: list[bytes], epoch: int, timestamp_ms: int) -> None:
    assert decode(encode(records, epoch, timestamp_ms)) == records


def test_a_snapshot_of_many_records_has_many_batches() -> None:
    records = [b"%d" % n for n in range(2 * RECORDS_A_BATCH + 1)]
    content = encode(records, 3, 7)
    headers = [header for _, _, header in iter_batches(content)]
    assert [h.is_control for h in headers] == [True, False, False, False, True]
    assert {h.leader_epoch for h in headers} == {3}
    assert decode(content) == records


def test_header_and_footer_are_kafkas() -> None:
    """SnapshotHeaderRecord.json and SnapshotFooterRecord.json, version 0; types 3 and 4 of control records."""
    header, footer = decode_every_record(encode([], 3, 7))
    assert header.key == b"\0\0\0\3" and header.value == b"\0\0" + (7).to_bytes(8, "big") + b"\0"
    assert footer.key == b"\0\0\0\4" and footer.value == b"\0\0\0"
    assert snapshot_name(SnapshotId(12, 3)) == "00000000000000000012-0000000003.checkpoint"


@given(st.data())
def test_an_incomplete_or_damaged_snapshot_is_recognised(data: st.DataObject) -> None:
    content = bytearray(encode([b"one", b"two"], 1, 5))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        # Base offsets and epochs lie outside of what a CRC covers.
        starts = [start for start, _, _ in iter_batches(bytes(content))]
        covered = [at for at in range(len(content)) if not any(start <= at < start + 16 for start in starts)]
        content[data.draw(st.sampled_from(covered))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RecordError):
        decode(bytes(content))


def test_a_leader_change_is_no_part_of_a_snapshot() -> None:
    key, value = leader_change(1, (1, 2, 3), (1, 2))
    with pytest.raises(RecordError):
        decode(build_batch([value], keys=[key], timestamp_ms=0, control=True))


# -- a node's disk --------------------------------------------------------------------------------------------


def filled(disk: SimulatedDisk, *epochs: int) -> Replica:
    """A log with one committed record of each of these epochs, each in a segment of its own."""
    log, snapshots = open_log(disk, DIRECTORY, TINY)
    replica = Replica(log, snapshots)
    append(replica, *epochs)
    log.flush()
    return replica


def append(replica: Replica, *epochs: int) -> None:
    for epoch in epochs:
        value = b"%d" % replica.log.end_offset
        replica.append_as_leader(build_batch([value.ljust(100, b" ")], timestamp_ms=0), epoch)
    replica.high_watermark = replica.log.end_offset


def values(log: Log, start: int | None = None) -> list[bytes]:
    found, offset = [], log.start_offset if start is None else start
    while offset < log.end_offset:
        data = log.read(offset, 1 << 20)
        found += [value.strip() for _, _, value in decode_values(data)]
        offset += sum(header.record_count for _, _, header in iter_batches(data))
    return found


def state(end: int) -> list[bytes]:
    return [b"%d" % n for n in range(end)]


def segments(disk: SimulatedDisk) -> list[int]:
    return [int(name[:20]) for name in disk.list(DIRECTORY) if name.endswith(".log")]


def test_the_log_is_trimmed_to_the_older_of_two_snapshots() -> None:
    disk = simulated_disk()
    replica = filled(disk, 1, 1, 2, 2)
    replica.make_snapshot(2, state(2), 0)
    assert replica.log.start_offset == 0, "until there are two"
    replica.make_snapshot(4, state(4), 0)
    assert (replica.snapshots.earliest, replica.snapshots.latest) == (SnapshotId(2, 1), SnapshotId(4, 2))
    assert replica.log.start_offset == 2 and segments(disk) == [2, 3]
    append(replica, 2, 3)
    replica.make_snapshot(6, state(6), 0)
    assert replica.log.start_offset == 4 and segments(disk) == [4, 5]
    assert sum(name.endswith(".checkpoint") for name in disk.list(DIRECTORY)) == 2
    assert values(replica.log) == [b"4", b"5"]


def test_the_newest_segment_stays_and_the_epoch_before_an_empty_log_is_known() -> None:
    disk = simulated_disk()
    replica = filled(disk, 1, 4)
    replica.make_snapshot(1, state(1), 0)
    replica.make_snapshot(2, state(2), 0)
    replica.log.advance_start_to(2)
    assert (replica.log.start_offset, replica.log.end_offset, replica.log.last_epoch) == (2, 2, 4)
    assert replica.log.end_offset_for_epoch(4) == (4, 2)
    append(replica, 5)
    assert values(replica.log) == [b"2"] and replica.log.end_offset_for_epoch(4) == (4, 2)


def test_nothing_is_trimmed_that_is_not_committed() -> None:
    with pytest.raises(rules.InvariantViolation):
        rules.trimmed_start(earliest_snapshot_end=5, high_watermark=4)


def test_a_snapshot_is_named_by_its_exclusive_end_and_the_epoch_before_it() -> None:
    """M71, KAFKA-14618."""
    replica = filled(simulated_disk(), 1, 1, 2)
    assert rules.snapshot_id(replica.log, 2) == (2, 1)
    assert rules.snapshot_id(replica.log, 3) == (3, 2)


def test_a_start_finds_the_latest_complete_snapshot_and_the_log_after_it() -> None:
    disk = simulated_disk()
    replica = filled(disk, 1, 1, 2, 2)
    replica.make_snapshot(1, state(1), 0)
    replica.make_snapshot(3, state(3), 0)
    disk.open(f"{DIRECTORY}/{snapshot_name(SnapshotId(4, 2))}").append(encode(state(4), 2, 0)[:-5])
    log, snapshots = open_log(disk, DIRECTORY, TINY)
    assert snapshots.latest == SnapshotId(3, 2)
    assert [*snapshots.read(SnapshotId(3, 2)), *values(log, 3)] == state(4)
    assert snapshot_name(SnapshotId(4, 2)) not in disk.list(DIRECTORY)


def test_a_log_without_the_snapshot_that_it_starts_after_is_not_used() -> None:
    disk = simulated_disk()
    replica = filled(disk, 1, 1, 1)
    replica.make_snapshot(1, state(1), 0)
    replica.make_snapshot(2, state(2), 0)
    for snapshot in (SnapshotId(1, 1), SnapshotId(2, 1)):
        disk.remove(f"{DIRECTORY}/{snapshot_name(snapshot)}")
    with pytest.raises(StorageError, match="no snapshot"):
        open_log(disk, DIRECTORY, TINY)


def interrupted(disk: SimulatedDisk, at: int, action: Callable[[], None]) -> bool:
    """Do it, and lose power at its operation number `at`; False if it has not so many."""
    left = at

    def before(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerLoss(operation)

    disk.before = before
    try:
        action()
    except PowerLoss:
        return True
    finally:
        disk.before = lambda operation, path: None
    return False


@pytest.mark.parametrize("seed", range(8))
def test_power_may_go_at_any_moment_of_writing_a_snapshot(seed: int) -> None:
    for at in range(100):
        disk = simulated_disk()
        replica = filled(disk, 1, 1, 2, 2, 3, 3)
        replica.make_snapshot(2, state(2), 0)
        replica.make_snapshot(4, state(4), 0)
        goes_on = interrupted(disk, at, lambda replica=replica: replica.make_snapshot(6, state(6), 0))  # type: ignore[misc]
        disk.lose_power(Random(seed))
        log, snapshots = open_log(disk, DIRECTORY, TINY)
        latest = snapshots.latest
        assert latest in (SnapshotId(4, 2), SnapshotId(6, 3)) and (goes_on or latest == SnapshotId(6, 3))
        assert latest is not None
        assert [*snapshots.read(latest), *values(log, latest.end_offset)] == state(6)
        assert log.last_epoch == 3 and log.start_offset in (2, 4)
        if not goes_on:
            assert at > 3
            return
    raise AssertionError("it never ends")


#: A follower's log before its leader's snapshot (5, 4) comes: behind it; just as long; longer, and parted from it.
BEHIND = ((), (1,), (1, 1, 2), (1, 1, 2, 2, 2), (1, 1, 2, 2, 2, 2, 3))


@pytest.mark.parametrize("epochs", BEHIND)
@pytest.mark.parametrize("seed", range(4))
def test_power_may_go_at_any_moment_of_installing_a_snapshot(epochs: tuple[int, ...], seed: int) -> None:
    snapshot, content = SnapshotId(5, 4), encode(state(5), 4, 0)
    for at in range(100):
        disk = simulated_disk()
        replica = filled(disk, *epochs)
        replica.high_watermark = min(2, len(epochs))
        if replica.high_watermark == 2:
            replica.make_snapshot(1, state(1), 0)
            replica.make_snapshot(2, state(2), 0)
        goes_on = interrupted(disk, at, lambda replica=replica: replica._install(snapshot, content))  # type: ignore[misc]
        disk.lose_power(Random(seed))
        log, snapshots = open_log(disk, DIRECTORY, TINY)
        if snapshots.latest == snapshot:
            assert (log.start_offset, log.end_offset, log.last_epoch) == (5, 5, 4)
            assert snapshots.read(snapshot) == state(5)
            log.append_as_leader(build_batch([b"5"], timestamp_ms=0), 6)
            assert values(log) == [b"5"]
        else:
            assert goes_on, "it was said to be there"
            reached = 0 if snapshots.latest is None else snapshots.latest.end_offset
            assert reached == (2 if len(epochs) > 1 else 0)
            assert state(reached) + values(log, reached) == state(len(epochs)), "as it was before"
        if not goes_on:
            return
    raise AssertionError("it never ends")


def test_what_is_committed_is_never_undone_by_a_snapshot() -> None:
    replica = filled(simulated_disk(), 1, 1, 1)
    with pytest.raises(rules.InvariantViolation):
        replica._install(SnapshotId(2, 1), encode(state(2), 1, 0))
    assert values(replica.log) == state(3)


# -- who needs one --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "epoch", "needed"),
    [
        (0, -1, True),
        (9, 3, True),
        (10, 3, False),
        (10, 2, True),  # ends where the log starts, and after another record
        (12, 2, True),  # parts from it below its start
        (12, 3, False),
        (12, 5, False),
    ],
)
def test_who_needs_a_snapshot(offset: int, epoch: int, needed: bool) -> None:
    assert rules.needs_snapshot((10, 3), offset, epoch) is needed
    assert not rules.needs_snapshot(None, offset, epoch), "of a log that has its begin nobody does"


def leader_with_snapshot() -> Quorum:
    """Node 1 leads epoch 3; its log goes from offset 2 to the LeaderChange at 4, snapshots end at 2 and 4."""
    disk = simulated_disk()
    replica = filled(disk, 1, 1, 2, 2)
    replica.make_snapshot(2, state(2), 0)
    replica.make_snapshot(4, state(4), 0)
    replica.log.close()
    QuorumStateStore(disk, DIRECTORY).write(ElectionState(2))
    return elect(boot(disk))


def test_a_leader_names_its_latest_snapshot_to_who_needs_it() -> None:
    leader = leader_with_snapshot()
    assert leader.replica.high_watermark == 4, "what a snapshot holds is committed"
    data = answer(leader, fetch(2, 3, 1, 1), 1.0)
    assert (data.snapshot_id.end_offset, data.snapshot_id.epoch) == (4, 2)
    assert not data.records and data.error_code is ErrorCode.none
    data = answer(leader, fetch(2, 3, 2, 1), 1.0)
    assert data.snapshot_id.end_offset == -1 and data.records


def chunk(snapshot: tuple[int, int] = (4, 2), epoch: int = 3, position: int = 0, size: int = 1 << 20) -> Any:
    return rpc.fetch_snapshot(CLUSTER, 2, epoch, snapshot, position, size)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (chunk(epoch=2), ErrorCode.fenced_leader_epoch),
        (chunk(epoch=4), ErrorCode.unknown_leader_epoch),
        (chunk(snapshot=(3, 2)), ErrorCode.snapshot_not_found),
        (chunk(position=-1), ErrorCode.position_out_of_range),
        (chunk(position=1 << 20), ErrorCode.position_out_of_range),
        (chunk(), ErrorCode.none),
    ],
)
def test_a_leader_answers_fetch_snapshot(request_: Any, error: ErrorCode) -> None:
    assert answer(leader_with_snapshot(), request_, 1.0).error_code is error


@pytest.mark.parametrize(
    ("position", "size", "content"),
    [(-1, 10, b""), (7, 3, b"789"), (7, 1 << 62, b"789"), (10, 10, b""), (1 << 62, 10, b""), (0, 0, b""), (0, -1, b"")],
)
def test_no_numbers_of_a_peer_are_too_much_for_a_real_disk(
    tmp_path: Path, position: int, size: int, content: bytes
) -> None:
    disk = LocalDisk(tmp_path)
    disk.make_directory(DIRECTORY)
    store = SnapshotStore(disk, DIRECTORY)
    store.write(SnapshotId(4, 2), b"0123456789")
    assert store.read_chunk(SnapshotId(4, 2), position, size) == (10, content)


def test_who_does_not_lead_has_no_snapshot_to_give() -> None:
    data = answer(boot(simulated_disk()), chunk())
    assert data.error_code is ErrorCode.not_leader_or_follower


def test_fetching_a_snapshot_is_a_sign_of_life() -> None:
    """Else a leader with much to tell would resign while it tells it (check quorum)."""
    leader = leader_with_snapshot()
    timeout = QuorumConfig().fetch_timeout
    answer(leader, chunk(), 1.0 + timeout * 0.9)
    leader.poll(1.0 + timeout * 1.5)
    assert leader.role is Role.LEADER
    leader.poll(1.0 + timeout * 2)
    assert leader.role is Role.RESIGNED


def follow(follower: Quorum, leader: Quorum, sizes: list[int], now: float = 1.0) -> None:
    """Let a follower ask the leader until it waits for news. sizes: of the chunks that it gets of snapshots."""
    answer(follower, rpc.begin_quorum_epoch(CLUSTER, follower.id, 1, leader.epoch, VOTERS[1]))
    while requests := [send.request for send in follower.poll(now).requests if send.receiver == 1]:
        (request,) = requests
        response = leader.receive(request, now)
        if isinstance(request, rpc.FetchSnapshotRequest):
            sizes.append(len(rpc.partition(response).unaligned_records))  # type: ignore[union-attr]
        elif not isinstance(response, rpc.fetch_response.FetchResponse):
            return
        follower.respond(1, request, response, now)


def test_a_follower_fetches_a_snapshot_in_chunks_and_goes_on_after_it() -> None:
    leader, disk, sizes = leader_with_snapshot(), simulated_disk(), list[int]()
    follower = boot(disk, 2)
    follower.config = QuorumConfig(fetch_bytes=100)
    follow(follower, leader, sizes)
    assert len(sizes) > 2 and max(sizes) == 100 and sum(sizes) == len(encode(state(4), 2, 0))
    assert follower.replica.log.start_offset == 4 and follower.replica.log.end_offset == 5
    assert follower.replica.snapshots.latest == SnapshotId(4, 2)
    leader.receive(fetch(2, 3, 5, 3), 1.0)
    assert leader.replica.high_watermark == 5, "it is known to have all of it"
    disk.lose_power(Random(1))
    again = boot(disk, 2)
    assert (again.replica.high_watermark, again.replica.log.end_offset) == (4, 5)


def test_a_snapshot_that_arrives_damaged_is_fetched_anew() -> None:
    leader, follower = leader_with_snapshot(), boot(simulated_disk(), 2)
    answer(follower, rpc.begin_quorum_epoch(CLUSTER, 2, 1, 3, VOTERS[1]))
    (send,) = follower.poll(1.0).requests
    follower.respond(1, send.request, leader.receive(send.request, 1.0), 1.0)
    (send,) = follower.poll(1.0).requests
    good = encode(state(4), 2, 0)
    bad = rpc.fetch_snapshot_answer(
        ErrorCode.none, 1, 3, (4, 2), size=len(good), position=0, content=good[:-40] + bytes(40)
    )
    follower.respond(1, send.request, bad, 1.0)
    assert follower.replica.log.end_offset == 0 and follower.replica.snapshots.latest is None
    follow(follower, leader, [], now=1.0)
    assert follower.replica.snapshots.latest is None, "not at once"
    follow(follower, leader, [], now=1.1)
    assert follower.replica.snapshots.latest == SnapshotId(4, 2)


def test_a_snapshot_that_is_gone_makes_the_follower_ask_again() -> None:
    leader, follower = leader_with_snapshot(), boot(simulated_disk(), 2)
    answer(follower, rpc.begin_quorum_epoch(CLUSTER, 2, 1, 3, VOTERS[1]))
    (send,) = follower.poll(1.0).requests
    follower.respond(1, send.request, leader.receive(send.request, 1.0), 1.0)
    assert follower.replica.download is not None
    (send,) = follower.poll(1.0).requests
    gone = rpc.fetch_snapshot_answer(ErrorCode.snapshot_not_found, 1, 3, (4, 2))
    follower.respond(1, send.request, gone, 1.0)
    (send,) = follower.poll(1.0).requests
    assert isinstance(send.request, rpc.FetchRequest)


# -- what listeners see ---------------------------------------------------------------------------------------


def on_a_cluster(test: Callable[[Cluster], Any], **settings: Any) -> None:
    async def body() -> None:
        async with running(**settings) as cluster:
            await test(cluster)

    asyncio.run(body())


async def write(cluster: Cluster, count: int) -> None:
    client = cluster.clients[await cluster.leader()]
    for _ in range(count):
        await client.committed(client.append([b"x" * 50]), 1)


def latest(cluster: Cluster, node: int) -> SnapshotId | None:
    quorum = cluster.clients[node].quorum
    assert quorum is not None
    return quorum.replica.snapshots.latest


def test_every_node_writes_snapshots_after_so_many_bytes() -> None:
    async def test(cluster: Cluster) -> None:
        await write(cluster, 20)
        await until(lambda: all(latest(cluster, node) is not None for node in cluster.clients))
        for node in cluster.clients:
            quorum = cluster.clients[node].quorum
            assert quorum is not None
            await until(lambda quorum=quorum: quorum.replica.log.start_offset > 0)  # type: ignore[misc]

    on_a_cluster(test, snapshot_bytes=500)


def test_every_node_writes_a_snapshot_when_a_record_has_waited_long_enough_and_not_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []  # end offsets
    make = Replica.make_snapshot

    def counted(replica: Replica, end_offset: int, *rest: Any) -> None:
        made.append(end_offset)
        make(replica, end_offset, *rest)

    monkeypatch.setattr(Replica, "make_snapshot", counted)

    async def test(cluster: Cluster) -> None:
        def ends() -> dict[int, int]:
            return {node: client.end_offset for node, client in cluster.clients.items()}

        def snapshots() -> dict[int, SnapshotId | None]:
            return {node: latest(cluster, node) for node in cluster.clients}

        await write(cluster, 1)
        while True:  # on a machine that stands still there may be an election, which writes a record
            await until(lambda: all(snapshot and snapshot.end_offset == ends()[node]
                                    for node, snapshot in snapshots().items()))  # fmt: skip
            before, written = len(made), ends()
            await asyncio.sleep(0.3)
            if ends() == written:
                break
        assert len(made) == before, "there is nothing new"

    on_a_cluster(test, snapshot_interval=0.05)


def test_a_node_that_starts_loads_its_snapshot_and_then_the_log() -> None:
    async def test(cluster: Cluster) -> None:
        await write(cluster, 20)
        leader = await cluster.leader()
        follower = next(node for node in VOTERS if node != leader)
        seen = list(cluster.listeners[leader].records)
        await until(lambda: cluster.listeners[follower].records == seen)
        await cluster.stop(follower)
        await cluster.start(follower)
        await until(lambda: cluster.listeners[follower].records == seen)
        assert cluster.listeners[follower].snapshots == 1

    on_a_cluster(test, snapshot_bytes=500)


def test_a_node_that_fell_behind_is_given_a_snapshot_in_place_of_the_log() -> None:
    async def test(cluster: Cluster) -> None:
        leader = await cluster.leader()
        follower = next(node for node in VOTERS if node != leader)
        await write(cluster, 2)
        await until(lambda: len(cluster.listeners[follower].records) == 2)
        cluster.network.cut.add(VOTERS[follower])
        await write(cluster, 20)
        assert cluster.listeners[follower].snapshots == 0
        cluster.network.cut.clear()
        await until(lambda: cluster.listeners[follower].records == cluster.listeners[leader].records)
        assert cluster.listeners[follower].snapshots > 0
        await until(lambda: cluster.listeners[OBSERVER].records == cluster.listeners[leader].records)

    on_a_cluster(test, snapshot_bytes=500)


def test_without_a_listener_there_is_no_snapshot_to_write() -> None:
    assert FAST.snapshot_bytes == 20 << 20, "Kafka's default"
    assert SnapshotStore(_directory(), DIRECTORY).latest is None


def _directory() -> SimulatedDisk:
    disk = simulated_disk()
    disk.make_directory(DIRECTORY)
    return disk
