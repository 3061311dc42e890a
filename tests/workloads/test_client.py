"""The client against fake brokers: what it reports of an append, and how fast it finds its way around faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.storage.records import RecordError, build_batch, encode_int64s, with_offset_and_epoch
from harness.errors import HarnessFailure
from harness.plan.plan import Plan
from harness.record.history import Recorder, load_journal
from tests.clusters.fake_broker import CREATE_TOPICS, FETCH, METADATA, PRODUCE, FakeCluster, FakeNode, fake_cluster
from workloads.append import AppendWorkload
from workloads.clients.kio import outcomes
from workloads.clients.kio.batches import decode
from workloads.pacing import Pacer, batch_size, turn_s

TIMEOUT_S = 1.0


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(bounded())


class Session:
    """A workload running against a fake cluster, and the history that it leaves."""

    def __init__(self, cluster: FakeCluster, directory: Path, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self._directory = directory
        self.recorder = Recorder(directory, "run-1", flush_interval=None)
        self.workload = AppendWorkload(plan, cluster, self.recorder, request_timeout=TIMEOUT_S)  # type: ignore[arg-type]
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._running = asyncio.create_task(self.workload.run(self._stop))

    async def end(self) -> None:
        assert self._running is not None
        self._stop.set()
        await self._running

    async def history(self) -> dict[str, Any]:
        """Closes everything. Tables as pandas."""
        await self.workload.close()
        self.recorder.close()
        return {name: table.to_pandas() for name, table in load_journal(self._directory / "journal").items()}


@asynccontextmanager
async def session(directory: Path, *, nodes: int = 2, **plan: Any) -> AsyncIterator[Session]:
    settings: dict[str, Any] = {"partitions": 4, "rate": 600, "concurrency": 2, "replication_factor": nodes}
    settings |= {"run": "run-1", "brokers": nodes, "min_insync_replicas": 1} | plan
    async with fake_cluster(partitions=settings["partitions"], nodes=nodes) as cluster:
        yield Session(cluster, directory, Plan(**settings))


def appends(history: dict[str, Any]) -> Any:
    operations = history["operations"]
    return operations[operations.kind == "append"]


def broken_nodes(session: Session, do: Callable[[FakeNode], None]) -> None:
    for node in session.cluster.nodes:
        do(node)


async def a_while_with(session: Session, do: Callable[[FakeNode], None], seconds: float = 0.4) -> None:
    broken_nodes(session, do)
    session.begin()
    await asyncio.sleep(seconds)
    await session.end()


def test_a_run_without_faults_is_recorded_exactly(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path) as s:
            await s.workload.set_up()
            before = time.monotonic_ns()
            s.begin()
            await asyncio.sleep(1)
            await s.end()
            await s.workload.final_read()
            after = time.monotonic_ns()
            counts = s.workload.counts()
            history = await s.history()
            done = appends(history)
            assert len(done) > 300
            assert set(done.outcome) == {"ok"}
            assert set(done.process) == {0, 1}
            assert set(done.partition) == {0, 1, 2, 3}
            assert before <= done.invoke.min() and done.complete.max() <= after
            assert (done.invoke < done.complete).all()
            assert counts.acknowledged == len(done) and counts.failed == counts.indeterminate == 0
            for partition, log in s.cluster.logs.items():
                there = decode(log.read(0), 0)
                logged = done[done.partition == partition].sort_values("offset")
                assert logged.offset.tolist() == there.offsets.tolist()
                assert logged.value.tolist() == there.values.tolist()
            operations, reads = history["operations"], history["reads"]
            everything = {(r.partition, r.offset, r.value) for r in done.itertuples()}
            by_kind = reads.merge(operations[["op", "kind"]], on="op")
            found = {
                kind: {(r.partition, r.offset, r.value) for r in by_kind[by_kind.kind == kind].itertuples()}
                for kind in ("read", "final_read")
            }
            assert found["final_read"] == everything
            assert found["read"] <= everything
            assert len(found["read"]) > len(everything) / 2  # the readers end with the run, wherever they are
            ends = operations[operations.kind == "list_offsets"]
            assert set(ends.process) <= {2, 3, 4} and set(ends[ends.process == 4].partition) == {0, 1, 2, 3}

    run(scenario())


@pytest.mark.parametrize(
    ("do", "outcome", "error"),
    [
        (lambda n: n.errors.update({PRODUCE: ErrorCode.not_enough_replicas}), "fail", "NOT_ENOUGH_REPLICAS"),
        (lambda n: n.errors.update({PRODUCE: ErrorCode.not_leader_or_follower}), "fail", "NOT_LEADER_OR_FOLLOWER"),
        (lambda n: n.errors.update({PRODUCE: ErrorCode.unknown_server_error}), "info", "UNKNOWN_SERVER_ERROR"),
        (
            lambda n: setattr(n, "after_append", ErrorCode.not_enough_replicas_after_append),
            "info",
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        ),
        (lambda n: setattr(n, "after_append", ErrorCode.request_timed_out), "info", "REQUEST_TIMED_OUT"),
        # A leader deposed while it waits for its followers answers like this, with a base offset.
        (lambda n: setattr(n, "after_append", ErrorCode.not_leader_or_follower), "info", "NOT_LEADER_OR_FOLLOWER"),
        (lambda n: n.drops.add(PRODUCE), "info", "CONNECTION_LOST"),
        (lambda n: n.delays.update({PRODUCE: 60}), "info", "CLIENT_TIMEOUT"),
    ],
)
def test_errors_are_told_apart(tmp_path: Path, do: Callable[[FakeNode], None], outcome: str, error: str) -> None:
    async def scenario() -> None:
        async with session(tmp_path) as s:
            await s.workload.set_up()
            await a_while_with(s, do)
            done = appends(await s.history())
            assert len(done)
            assert set(zip(done.outcome, done.error, strict=True)) == {(outcome, error)}
            assert done.offset.isna().all()
            if outcome == "fail":
                assert all(log.end == 0 for log in s.cluster.logs.values())

    run(scenario())


def test_no_error_after_which_kafka_may_have_appended_is_a_fail() -> None:
    for error in (
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.unknown_server_error,
        ErrorCode.kafka_storage_error,
        ErrorCode.not_enough_replicas_after_append,
    ):
        assert outcomes.of_append(error, -1) == "info"
    assert outcomes.of_append(ErrorCode.not_leader_or_follower, -1) == "fail"
    assert outcomes.of_append(ErrorCode.not_leader_or_follower, 17) == "info"
    assert outcomes.of_append(ErrorCode.none, 17) == "ok"


def test_appends_without_acks_are_indeterminate_but_no_errors(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path, acks="0") as s:
            await s.workload.set_up()
            await a_while_with(s, lambda node: None)
            done = appends(await s.history())
            assert set(done.outcome) == {"info"}
            assert done.error.isna().all()
            assert done.complete.notna().all()

    run(scenario())


def test_appends_that_could_not_be_sent_are_fails(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path) as s:
            await s.workload.set_up()
            for node in s.cluster.nodes:
                await s.cluster.stop(node)
            s.begin()
            await asyncio.sleep(0.5)
            await s.end()
            done = appends(await s.history())
            assert set(zip(done.outcome, done.error, strict=True)) == {("fail", "CONNECTION_FAILED")}
            assert len(done) < 500, "no back-off"

    run(scenario())


def test_a_silent_leader_holds_up_only_its_own_partitions_and_its_successor_takes_over_at_once(tmp_path: Path) -> None:
    """Power cut: no answer and no reset. Waiting for the timeout would cost TIMEOUT_S."""

    async def scenario() -> None:
        async with session(tmp_path) as s:
            await s.workload.set_up()
            s.begin()
            await asyncio.sleep(0.3)
            dead, alive = s.cluster.nodes
            for key in (PRODUCE, FETCH, METADATA):
                dead.delays[key] = 60
            await asyncio.sleep(0.2)
            moved_at = time.monotonic_ns()
            for partition, log in s.cluster.logs.items():
                if log.leader == dead.id:
                    s.cluster.move(partition, alive.id)
            await asyncio.sleep(1.5)
            await s.end()
            history = await s.history()
            done = appends(history)
            done = done[done.outcome == "ok"]
            from_dead = done[done.partition.isin((0, 2))]
            resumed = from_dead[from_dead.invoke > moved_at].complete.min()
            assert (resumed - moved_at) / 1e9 < TIMEOUT_S
            others = done[done.partition.isin((1, 3))].sort_values("complete")
            assert others.complete.diff().max() / 1e9 < TIMEOUT_S
            reads = history["operations"].query("kind == 'read' and outcome == 'ok' and partition in (0, 2)")
            assert (reads[reads.invoke > moved_at].complete.min() - moved_at) / 1e9 < 2 * TIMEOUT_S

    run(scenario())


def test_clients_come_back_after_every_connection_was_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path) as s:
            await s.workload.set_up()
            s.begin()
            await asyncio.sleep(0.3)
            for node in s.cluster.nodes:
                await s.cluster.stop(node)
            await asyncio.sleep(0.3)
            back_at = time.monotonic_ns()
            for node in s.cluster.nodes:
                await s.cluster.start(node)
            await asyncio.sleep(1.2)
            await s.end()
            done = appends(await s.history())
            for _, acknowledged in done[(done.outcome == "ok") & (done.invoke > back_at)].groupby("partition"):
                assert (acknowledged.complete.min() - back_at) / 1e9 < 1
            assert set(done[(done.outcome == "ok") & (done.invoke > back_at)].partition) == {0, 1, 2, 3}

    run(scenario())


def test_old_metadata_does_not_bring_back_a_deposed_leader(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path) as s:
            await s.workload.set_up()
            metadata = s.workload._client.metadata
            s.cluster.move(0, 2)
            metadata.ask_again()
            while metadata.partitions[0].leader != 2:
                await metadata.updated(1)
            s.cluster.logs[0].leader, s.cluster.logs[0].leader_epoch = 1, 0  # what a node cut off still believes
            for _ in range(3):
                metadata.ask_again()
                await metadata.updated(1)
            assert metadata.partitions[0].leader == 2
            await s.history()

    run(scenario())


def test_final_reads_survive_a_change_of_leader_and_lost_connections(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path) as s:
            await s.workload.set_up()
            await a_while_with(s, lambda node: None, 0.5)
            dead, alive = s.cluster.nodes
            dead.drops.add(FETCH)
            reading = asyncio.create_task(s.workload.final_read())
            await asyncio.sleep(0.3)
            assert not reading.done()
            for partition, log in s.cluster.logs.items():
                if log.leader == dead.id:
                    s.cluster.move(partition, alive.id)
            await reading
            history = await s.history()
            final = history["operations"].query("kind == 'final_read'").op
            found = history["reads"][history["reads"].op.isin(final)]
            assert len(found) == sum(log.end for log in s.cluster.logs.values())

    run(scenario())


def test_a_log_that_lost_its_tail_is_read_on_from_its_new_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path, partitions=1, nodes=1) as s:
            await s.workload.set_up()
            s.begin()
            await asyncio.sleep(0.5)
            log = s.cluster.logs[0]
            del log.batches[2:], log.ends[2:]
            log.end = log.ends[-1]
            lost_at = time.monotonic_ns()
            await asyncio.sleep(1)
            await s.end()
            await s.workload.final_read()
            history = await s.history()
            operations = history["operations"]
            refused = operations[operations.error == "OFFSET_OUT_OF_RANGE"]
            assert set(refused.kind) == {"read"}
            later = operations[
                (operations.kind == "read") & (operations.outcome == "ok") & (operations.invoke > lost_at)
            ]
            assert set(history["reads"].op) & set(later.op)

    run(scenario())


def test_a_topic_that_is_refused_for_good_is_a_harness_failure(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path) as s:
            broken_nodes(s, lambda n: n.errors.update({CREATE_TOPICS: ErrorCode.invalid_partitions}))
            with pytest.raises(HarnessFailure, match="INVALID_PARTITIONS"):
                await s.workload.set_up()
            await s.history()

    run(scenario())


def test_set_up_waits_for_brokers_that_are_not_there_yet(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path) as s:
            broken_nodes(s, lambda n: n.errors.update({CREATE_TOPICS: ErrorCode.invalid_replication_factor}))
            ready = asyncio.create_task(s.workload.set_up())
            await asyncio.sleep(0.3)
            broken_nodes(s, lambda n: n.errors.clear())
            await ready
            await s.history()

    run(scenario())


def test_a_workload_that_fails_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with session(tmp_path) as s:
            await s.workload.set_up()
            s.recorder._failure = OSError("disk full")
            with pytest.raises(HarnessFailure, match="disk full"):
                await s.workload.run(asyncio.Event())
            s.recorder._failure = None
            await s.history()

    run(scenario())


def test_decode_starts_at_the_offset_asked_for_and_checks_crcs() -> None:
    first = with_offset_and_epoch(encode_int64s([10, 11, 12], timestamp_ms=0), 5, 0)
    marker = with_offset_and_epoch(build_batch([b"x"], keys=[b"y"], timestamp_ms=0, control=True), 8, 1)
    fetched = decode(first + marker, 6)
    assert (fetched.offsets.tolist(), fetched.values.tolist(), fetched.next_offset) == ([6, 7], [11, 12], 9)
    assert decode(b"", 4).next_offset == 4
    with pytest.raises(RecordError):
        decode(first[:-2] + b"!" + first[-1:], 5)


def test_batches_are_small_and_many_at_low_rates() -> None:
    assert [batch_size(rate) for rate in (1, 150, 2000, 20_000, 1e9)] == [1, 1, 13, 133, 1000]


def test_batches_are_as_large_as_somebody_says_at_the_same_rate() -> None:
    assert turn_s(40, 4) == pytest.approx(0.1) and turn_s(40, 4, 5) == pytest.approx(0.5)

    async def scenario() -> None:
        pacer = Pacer(1_000, 1, 50)
        pacing = asyncio.create_task(pacer.run())
        await asyncio.sleep(0.3)
        assert [await pacer.take(0) for _ in range(3)] == [50, 50, 50]
        assert pacer.turn_s == pytest.approx(0.05)
        pacing.cancel()

    run(scenario())


def test_the_pacer_keeps_its_rate_and_leaves_out_what_nobody_takes() -> None:
    async def scenario() -> None:
        pacer = Pacer(10_000, 2)
        taken = 0

        async def take() -> None:
            nonlocal taken
            while True:
                taken += await pacer.take(0)

        tasks = [asyncio.create_task(pacer.run()), asyncio.create_task(take())]
        await asyncio.sleep(2)
        assert 8_000 < taken < 11_000  # half the rate, over two seconds
        waiting = 0
        for task in tasks:
            task.cancel()
        while True:
            try:
                async with asyncio.timeout(0.01):
                    waiting += await pacer.take(1)
            except TimeoutError:
                break
        assert waiting <= 5_200  # one second of the partition that nobody served

    run(scenario())
