"""Workload idempotent: a batch is sent again until it is acknowledged, and is one operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.network import Connection
from cluster_image.storage.producer_state import ProducerState
from cluster_image.storage.records import iter_batches
from harness.errors import BadArguments
from harness.explore.simulate import simulate
from harness.plan import registry, schedule
from harness.plan.plan import Plan, make_plan
from harness.record.history import MemoryRecorder
from workloads.clients.kio.idempotence import together
from workloads.clients.kio.outcomes import Outcome
from workloads.idempotent import IdempotentSender
from workloads.tally import Tally

#: What a leader answers to one attempt: an error, and where the batch is; or that there is no answer.
Answer = tuple[ErrorCode, int] | type[Exception]


class FakeLeader:
    """A connection to a leader whose answers are given. Afterwards: the batches it was sent."""

    closed = False

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.sent: list[bytes] = []
        self.producer_ids = 0

    async def request(self, request: Any, *, timeout: float) -> Any:
        if type(request).__name__ == "InitProducerIdRequest":
            self.producer_ids += 1
            return SimpleNamespace(error_code=ErrorCode.none, producer_id=self.producer_ids)
        self.sent.append(request.topic_data[0].partition_data[0].records)
        answer = self.answers.pop(0)
        if isinstance(answer, type):
            raise answer
        partition = SimpleNamespace(index=0, error_code=answer[0], base_offset=answer[1])
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


def deliver(leader: FakeLeader, batches: int = 1) -> list[dict[str, Any]]:
    """The operations that the history has then, but for those of a batch the first."""

    async def run() -> list[dict[str, Any]]:
        async def connect(address: Any) -> Connection:
            return leader  # type: ignore[return-value]

        metadata = SimpleNamespace(
            partitions={0: SimpleNamespace(leader=1, leader_epoch=0)}, brokers={1: ("b", 1)}, ask_again=lambda: None,
            leader_change=lambda partition: asyncio.get_running_loop().create_future(),
        )  # fmt: skip
        client: Any = SimpleNamespace(topic="chaos", request_timeout=0.2, metadata=metadata, connect=connect)
        recorder, tally = MemoryRecorder("r"), Tally()
        tally.begin(1, 0)
        clock = iter(range(1, 10**6)).__next__
        sender = IdempotentSender(client, recorder, tally, Pacer(batches), 0, 0, "all", clock=clock)  # type: ignore[arg-type]
        running = asyncio.create_task(sender.run())
        while leader.answers:
            await asyncio.sleep(0.01)
        running.cancel()
        await sender.settle()
        rows: list[dict[str, Any]] = recorder.tables()["operations"].to_pylist()
        return rows[::2]

    return asyncio.run(run())


def numbers(batch: bytes) -> tuple[int, int, int]:
    _, _, header = next(iter_batches(batch))
    return header.producer_id, header.producer_epoch, header.base_sequence


def test_a_batch_is_sent_again_as_it_was_until_it_is_acknowledged() -> None:
    leader = FakeLeader(TimeoutError, ConnectionError, (ErrorCode.not_leader_or_follower, -1), (ErrorCode.none, 7))
    (append,) = deliver(leader)
    assert (append["outcome"], append["offset"], append["error"]) == ("ok", 7, None)
    assert len(leader.sent) == 4 and len({*leader.sent}) == 1 and leader.producer_ids == 1


def test_the_next_batch_goes_on_with_the_sequence() -> None:
    leader = FakeLeader((ErrorCode.none, 0), TimeoutError, (ErrorCode.none, 2), (ErrorCode.none, 4))
    assert [append["offset"] for append in deliver(leader, batches=3)] == [0, 2, 4]
    assert [numbers(batch) for batch in leader.sent] == [(1, 0, 0), (1, 0, 2), (1, 0, 2), (1, 0, 4)]


def test_a_duplicate_is_in_the_log_wherever() -> None:
    leader = FakeLeader(TimeoutError, (ErrorCode.duplicate_sequence_number, -1))
    (append,) = deliver(leader)
    assert (append["outcome"], append["offset"]) == ("ok", None)


def test_who_is_out_of_step_goes_on_as_a_new_producer() -> None:
    leader = FakeLeader((ErrorCode.out_of_order_sequence_number, -1), (ErrorCode.none, 3))
    first, second = deliver(leader, batches=2)
    assert (first["outcome"], second["outcome"], second["offset"]) == ("info", "ok", 3)
    assert [numbers(batch) for batch in leader.sent] == [(1, 0, 0), (2, 0, 0)]


def test_a_batch_is_given_up_in_time() -> None:
    leader = FakeLeader(*[(ErrorCode.not_enough_replicas, -1)] * 6, (ErrorCode.none, 0))
    appends = deliver(leader, batches=2)  # 0.05 + 0.1 + 0.2 + 0.4 + 0.5 s of backing off are above 0.8 s
    assert (appends[0]["outcome"], appends[0]["error"]) == ("fail", "NOT_ENOUGH_REPLICAS")
    assert appends[1]["outcome"] == "ok" and numbers(leader.sent[-1]) == (2, 0, 0)


def test_who_is_told_to_end_while_it_backs_off_sends_no_more() -> None:
    leader = FakeLeader((ErrorCode.not_enough_replicas, -1))
    (append,) = deliver(leader)  # ends once there are no answers left, and before the next attempt
    assert append["outcome"] == "fail" and len(leader.sent) == 1


@pytest.mark.parametrize(
    ("attempts", "outcome"),
    [(["fail", "fail"], "fail"), (["info", "fail"], "info"), (["fail", "info"], "info"), (["info", "ok"], "ok")],
)
def test_all_attempts_are_one_outcome(attempts: list[Outcome], outcome: Outcome) -> None:
    found: Outcome = "fail"
    for attempt in attempts:
        found = together(found, attempt)
    assert found == outcome


def test_acks_below_all_are_refused() -> None:
    with pytest.raises(BadArguments, match="an idempotent producer needs acks=all, and --acks is 1"):
        make_plan(run="r", workload="idempotent", acks="1")


def _forgetful(state: ProducerState, header: object) -> None:
    """A leader that knows no producer."""


@pytest.mark.parametrize("check", [None, _forgetful])
def test_a_cluster_that_forgets_producers_has_duplicates(
    check: Callable[..., None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if check is not None:
        monkeypatch.setattr(ProducerState, "check", check)
    plan = Plan(
        run="r", on="simulation", workload="idempotent", nemesis=("kill",), time_limit=12.0, partitions=2, rate=500,
        seed=1,
    )  # fmt: skip
    faults = schedule.build(registry.make_nemeses(plan.nemesis), plan.seed, plan.time_limit, plan.pace)
    verdict = simulate(plan, faults, watched=False).judge()  # of the history alone: invariants would stop the run
    assert verdict["verdict"] == ("pass" if check is None else "fail"), verdict["reason"]
    assert check is None or "duplicate" in verdict["reason"]
