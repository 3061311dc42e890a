"""Idempotent producers with several batches in flight: in order, unchanged, and fenced by their successors."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.network import Connection
from cluster_image.storage.producer_state import ProducerState
from cluster_image.storage.records import iter_batches
from harness.errors import BadArguments
from harness.explore.simulate import Simulated, simulate
from harness.plan.plan import Plan, make_plan
from harness.record.history import MemoryRecorder
from workloads.clients.kio import pipelined
from workloads.clients.kio.pipelined import Identity, PipelinedSender
from workloads.tally import Tally

#: By epoch, sequence number and attempt, how a leader answers.
Answers = dict[tuple[int, int, int], ErrorCode | type[Exception]]


class Leader:
    """Answers in turn, as on one connection. sent: producer epoch and sequence of each batch."""

    closed = False

    def __init__(self, answers: Answers, epoch_known: int = 0) -> None:
        self.answers = answers
        self.epoch_known = epoch_known
        self.sent: list[tuple[int, int]] = []
        self.data: list[bytes] = []
        self.most = self.under_way = 0
        self._attempts: Counter[tuple[int, int]] = Counter()
        self._turn = asyncio.Lock()

    async def request(self, request: Any, *, timeout: float) -> Any:
        if type(request).__name__ == "InitProducerIdRequest":
            return SimpleNamespace(error_code=ErrorCode.none, producer_id=7)
        data = request.topic_data[0].partition_data[0].records
        _, _, header = next(iter_batches(data))
        self.sent.append((header.producer_epoch, header.base_sequence))
        self.data.append(data)
        self._attempts[self.sent[-1]] += 1
        answer = self.answers.get((*self.sent[-1], self._attempts[self.sent[-1]]), ErrorCode.none)
        if header.producer_epoch < self.epoch_known:
            answer = ErrorCode.invalid_producer_epoch
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            async with self._turn:
                await asyncio.sleep(0.001)
        finally:
            self.under_way -= 1
        if isinstance(answer, type):
            raise answer
        offset = header.base_sequence if answer is ErrorCode.none else -1
        partition = SimpleNamespace(index=0, error_code=answer, base_offset=offset)
        return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[partition])])

    def close(self) -> None: ...


class Pacer:
    def __init__(self, batches: int) -> None:
        self.left = batches

    async def take(self, partition: int) -> int:
        if not self.left:
            await asyncio.Event().wait()
        self.left -= 1
        return 2


@pytest.fixture(autouse=True)
def nothing_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TWICE", "HANGS_UP", "AGAIN", "PAUSES"):
        monkeypatch.setattr(pipelined, name, 0.0)


def deliver(answers: Answers, batches: int, *, epoch_known: int = 0) -> tuple[Leader, list[dict[str, Any]]]:
    """What the leader got, and what the history has of each batch."""

    async def run() -> tuple[Leader, list[dict[str, Any]]]:
        leader = Leader(answers, epoch_known)

        async def connect(address: Any) -> Connection:
            return leader  # type: ignore[return-value]

        metadata = SimpleNamespace(
            partitions={0: SimpleNamespace(leader=1, leader_epoch=0)}, brokers={1: ("b", 1)}, ask_again=lambda: None,
            leader_change=lambda partition: asyncio.get_running_loop().create_future(),
        )  # fmt: skip
        client: Any = SimpleNamespace(topic="chaos", request_timeout=5.0, metadata=metadata, connect=connect)
        recorder, tally = MemoryRecorder("r"), Tally()
        tally.begin(1, 0)
        sender = PipelinedSender(
            client, recorder, tally, Pacer(batches), 0, 0, "all", seed=1, clock=iter(range(1, 10**6)).__next__,
            identity=Identity(7, 0) if epoch_known else None,
        )  # fmt: skip
        sender.is_superseded = bool(epoch_known)
        running = asyncio.create_task(sender.run())
        while not running.done() and (tally.counts().operations < 2 * batches):
            await asyncio.sleep(0.005)
        running.cancel()
        await sender.settle()
        return leader, recorder.tables()["operations"].to_pylist()[::2]

    return asyncio.run(run())


def test_five_are_in_flight_once_the_first_is_acknowledged() -> None:
    leader, appends = deliver({}, 20)
    assert [append["offset"] for append in appends] == list(range(0, 40, 2)) and leader.most == 5
    assert leader.sent[0] == (0, 0) and len(leader.sent) == 20


def test_what_was_in_flight_comes_again_in_order_and_one_at_a_time() -> None:
    """Of batches 2 and 4 the first fails, and the second is out of order therefore."""
    leader, appends = deliver(
        {(0, 2, 1): ErrorCode.not_enough_replicas, (0, 4, 1): ErrorCode.out_of_order_sequence_number}, 3
    )
    assert [sequence for _, sequence in leader.sent] == [0, 2, 4, 2, 4]
    assert leader.data[1] == leader.data[3] and leader.data[2] == leader.data[4]
    assert [append["outcome"] for append in appends] == ["ok"] * 3


def test_who_is_out_of_step_goes_on_with_a_higher_epoch() -> None:
    leader, appends = deliver({(0, 2, 1): ErrorCode.out_of_order_sequence_number}, 2)
    assert leader.sent == [(0, 0), (0, 2)]
    assert [append["outcome"] for append in appends] == ["ok", "fail"]
    leader, appends = deliver({(0, 0, 1): TimeoutError, (0, 0, 2): ErrorCode.unknown_producer_id}, 8)
    assert leader.sent[:3] == [(0, 0), (0, 0), (1, 0)]
    assert [append["outcome"] for append in appends] == ["info"] + ["fail"] * 4 + ["ok"] * 3


def test_a_fenced_incarnation_leaves_the_next_epoch_to_its_successor() -> None:
    leader, appends = deliver({}, 8, epoch_known=1)
    assert leader.sent == [(0, 0)]
    assert appends[0]["outcome"] == "fail" and appends[0]["error"] == "INVALID_PRODUCER_EPOCH"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"workload": "idempotent"}, "workload idempotent has producers of its own; append has not"),
        ({"client": "librdkafka"}, "client librdkafka has producers of its own"),
        ({"acks": "1"}, "an idempotent producer needs acks=all, and --acks is 1"),
        ({"target": "v2"}, "of target v2, it knows no producer ids"),
    ],
)
def test_where_there_is_no_choice_of_producers(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(BadArguments, match=f"--producers fenced is not possible: {why}"):
        make_plan(run="r", producers="fenced", **fields)


def simulated(producers: str, *, watched: bool = True, **changes: Any) -> Simulated:
    fields: dict[str, Any] = {
        "run": "r", "on": "simulation", "nemesis": ("kill",), "time_limit": 12.0, "partitions": 2, "rate": 100,
        "seed": 1, "producers": producers, "latency_ms": 5.0,
    }  # fmt: skip
    return simulate(Plan(**fields | changes), watched=watched)


def errors(done: Simulated) -> Counter[str]:
    return Counter(done.tables["operations"]["error"].to_pylist())


def test_only_who_is_fenced_is_refused() -> None:
    idempotent, fenced = simulated("idempotent"), simulated("fenced")
    assert idempotent.judge()["verdict"] == fenced.judge()["verdict"] == "pass", (idempotent, fenced)
    assert not errors(idempotent)["INVALID_PRODUCER_EPOCH"] and errors(fenced)["INVALID_PRODUCER_EPOCH"] > 3
    assert simulated("fenced").trace_hash == fenced.trace_hash != idempotent.trace_hash


def _anything(state: ProducerState, header: object) -> None:
    """A leader that knows no producer."""


@pytest.mark.parametrize("producers", ["idempotent", "fenced"])
def test_a_leader_that_does_not_check_is_found(producers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerState, "check", _anything)
    verdict = simulated(producers, watched=False).judge()  # of the history alone: invariants would stop the run
    assert verdict["verdict"] == "fail" and "duplicate" in verdict["reason"], verdict["reason"]
