"""When the high watermark advances, and what its advance does (000, 2.7; 004)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic

from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.broker.test_partition import LAG, TOPIC
from tests.cluster_image.protocol.replication.group import Group
from tests.cluster_image.replication.fetches import fetch_as_consumer


@pytest.fixture
def group(tmp_path: Path) -> Group:
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1)
    return group


def test_trigger_a_follower_fetches(group: Group) -> None:
    """By the fetch itself: the leader has the follower's LEO before it answers, and the answer tells of it."""
    done = group.write(1, "a")
    assert done is not None
    group.fetch(1, 2, 3)
    group.ask(1, 2)
    assert group.leadership(1).followers[2].end_offset == 1
    assert not done.done()
    assert group.ask(1, 3).high_watermark == 1
    assert done.result() is ErrorCode.none


def test_trigger_the_isr_shrinks(group: Group) -> None:
    """Replica 3 is offline and holds everything up until it has left the ISR: by the controller, or by the leader."""
    group.write(1, "a")
    group.fetch(1, 2)
    group.ask(1, 2)
    assert group.ends(1) == (1, 0)
    group.tell(1, (1, 2))
    assert group.ends(1) == (1, 1)

    group.tell(1, (1, 2, 3))
    group.write(1, "b")
    for now in (0.5, LAG + 0.5):
        group.fetch(1, 2, now=now)
    assert group.ends(1) == (2, 1)
    group.partitions[1].consider_shrinking(LAG + 1, group.eligible)
    assert group.proposed(1) == [1, 2] and group.ends(1) == (2, 1)
    group.accept(1)
    assert group.ends(1) == (2, 2)


def test_what_was_fetched_in_an_earlier_epoch_commits_nothing(group: Group) -> None:
    """Replica 1 leads in the epochs 1 and 3, and has seen nothing of what came between: 2 may have cut its log."""
    group.write(1, "a")
    group.fetch(1, 2)
    group.ask(1, 2)
    assert group.leadership(1).followers[2].end_offset == 1
    group.partition_epoch += 1
    group.tell(1, (1, 2), leader_epoch=3)
    assert group.ends(1) == (1, 0)
    group.ask(1, 2)
    assert group.ends(1) == (1, 1)


@pytest.mark.parametrize("acks", [1, -1])
def test_trigger_a_sole_leader_is_written_to(tmp_path: Path, acks: int) -> None:
    group = Group(tmp_path, min_isr=1)
    group.tell(1, (1,), leader_epoch=1)
    done = group.write(1, "a", acks=acks)
    assert group.ends(1) == (1, 1)
    assert acks == 1 or (done is not None and done.result() is ErrorCode.none)


def test_writing_alone_advances_nothing_while_others_are_in_sync(group: Group) -> None:
    group.write(1, "a", acks=1)
    assert group.ends(1) == (1, 0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_it_is_the_lowest_end_in_the_maximal_isr(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    group = Group(tmp_path_factory.mktemp("logs"))
    group.tell(1, (1, 2, 3), leader_epoch=1)
    asked = {2: 0, 3: 0}
    before = 0
    for _ in range(12):
        match data.draw(st.sampled_from(["write", "ask", "fetch"])):
            case "write":
                group.write(1, "x", acks=1)
            case how:
                follower = data.draw(st.sampled_from([2, 3]))
                asked[follower] = group.ends(follower)[0]
                (group.ask if how == "ask" else group.fetch)(1, follower)
        lowest = min(asked.values())
        assert group.ends(1)[1] == lowest >= before, "nor does it ever go back"
        before = lowest


def test_all_that_lies_below_it_is_acknowledged_and_nothing_above(group: Group) -> None:
    done = [group.write(1, value) for value in "ab"]
    group.fetch(1, 2, 3)
    done.append(group.write(1, "c"))
    for follower in (2, 3):
        group.ask(1, follower)
    assert group.ends(1) == (3, 2)
    assert [future is not None and future.done() for future in done] == [True, True, False]


def test_what_is_acknowledged_can_be_consumed_at_once(group: Group) -> None:
    done = group.write(1, "a")
    assert done is not None
    group.fetch(1, 2, 3)
    group.ask(1, 2)

    def consumed() -> bytes:
        return fetch_as_consumer(group.partitions[1], 0, -1, 1 << 20).records

    assert (done.done(), consumed()) == (False, b"")
    group.ask(1, 3)
    assert done.done() and consumed(), "one step does both"
    first = consumed()
    group.write(1, "b")
    group.fetch(1, 2, 3)
    group.fetch(1, 2, 3)
    assert consumed().startswith(first) and len(consumed()) > len(first), "the order stays"


def test_its_advance_wakes_consumers_that_wait(group: Group) -> None:
    """A consumer's fetch waits for committed records, not for written ones."""
    partition = FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=0, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        cluster_id=None, max_wait=milliseconds(20_000), min_bytes=1, forgotten_topics_data=(),
        topics=(FetchTopic(topic_id=TOPIC, partitions=(partition,)),),
    )  # fmt: skip
    handler = group.handler(1)

    async def consume() -> Any:
        answer = asyncio.create_task(handler.handle(request))
        await asyncio.sleep(0)
        group.write(1, "a")
        group.fetch(1, 2, 3)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not answer.done(), "written, and not committed"
        group.ask(1, 2)
        group.ask(1, 3)
        return await asyncio.wait_for(answer, 5)

    answer: Any = asyncio.run(consume())
    (data,) = answer.responses[0].partitions
    assert data.high_watermark == 1 and data.records


def test_records_refused_after_the_append_may_be_committed_later(group: Group) -> None:
    done = group.write(1, "a")
    assert done is not None
    group.tell(1, (1,))
    assert done.result() is ErrorCode.not_enough_replicas_after_append
    group.fetch(1, 2)
    group.ask(1, 2)
    assert group.ends(1) == (1, 0), "not below MinISR"
    group.accept(1)  # replica 2 has joined
    assert fetch_as_consumer(group.partitions[1], 0, -1, 1 << 20).records and group.log(1) == [(1, "a")]
