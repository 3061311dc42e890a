"""acks and MinISR (000, 2.5 and 2.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData

from cluster_image.kraft.broker import rules
from cluster_image.kraft.broker.partition import Refused
from cluster_image.kraft.metadata.image import MetadataImage, Topic
from cluster_image.replication.produce import ProduceHandler
from cluster_image.storage.records import build_batch
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.broker.test_partition import TOPIC, batch, future
from tests.cluster_image.protocol.replication.group import Group
from tests.cluster_image.replication.fetches import fetch_as_consumer


@pytest.fixture
def group(tmp_path: Path) -> Group:
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1)
    return group


def produce(group: Group, acks: int, *meanwhile: Callable[[], object]) -> tuple[Any, list[bool]]:
    """The answer of the leader to one batch, and whether it was there after each of these steps."""
    image = MetadataImage()
    image.topics["t"] = image.topics_by_id[TOPIC] = Topic("t", TOPIC)
    handler = ProduceHandler(image, lambda topic, index: group.partitions[1])
    data = PartitionProduceData(index=0, records=batch(b"a"))
    request = ProduceRequest(
        transactional_id=None, acks=acks, timeout=milliseconds(20_000),
        topic_data=(TopicProduceData(name="t", partition_data=(data,)),),
    )  # fmt: skip

    async def run() -> tuple[Any, list[bool]]:
        answer = asyncio.create_task(handler.handle(request))
        answered = []
        for step in (lambda: None, *meanwhile):
            for _ in range(5):
                await asyncio.sleep(0)
            step()
            for _ in range(5):
                await asyncio.sleep(0)
            answered.append(answer.done())
        return await asyncio.wait_for(answer, 5), answered

    return asyncio.run(run())


def error_of(answer: Any) -> ErrorCode:
    error: ErrorCode = answer.responses[0].partition_responses[0].error_code
    return error


def test_acks_all_waits_for_the_whole_isr(group: Group) -> None:
    answer, answered = produce(
        group, -1, lambda: group.fetch(1, 2, 3), lambda: group.ask(1, 2), lambda: group.ask(1, 3)
    )
    assert answered == [False, False, False, True]
    assert error_of(answer) is ErrorCode.none and group.ends(1) == (1, 1)


def test_acks_1_is_answered_at_once(group: Group) -> None:
    answer, answered = produce(group, 1)
    assert answered == [True] and error_of(answer) is ErrorCode.none
    assert group.ends(1) == (1, 0), "written, and not committed"


def test_acks_0_is_never_answered(group: Group) -> None:
    answer, answered = produce(group, 0)
    assert answer is None and answered == [True]
    assert group.ends(1) == (1, 0)


def test_replication_knows_no_acks(group: Group) -> None:
    """Of records with acks 0, 1 and all, each is fetched, counted and shown to consumers alike."""
    for acks in (0, 1, -1):
        group.write(1, str(acks), acks=acks)
    group.fetch(1, 2, 3)
    assert group.log(2) == group.log(1) == [(1, "0"), (1, "1"), (1, "-1")]
    group.ask(1, 2)
    assert group.ends(1) == (3, 0)
    group.ask(1, 3)
    assert group.ends(1) == (3, 3)
    assert fetch_as_consumer(group.partitions[1], 0, -1, 1 << 20).high_watermark == 3


def test_min_isr_and_replication_factor_are_chosen_apart() -> None:
    """With 5 replicas: MinISR of 2, 3 or 4, each with its own number of failures that writes survive. A MinISR above
    the replication factor asks for all there are."""
    for min_isr in (2, 3, 4):
        enough = [rules.enough_replicas(set(range(n)), min_isr, 5) for n in range(1, 6)]
        assert enough == [n >= min_isr for n in range(1, 6)]
    assert rules.enough_replicas({1}, 3, 1) and not rules.enough_replicas({1}, 3, 2)


def test_the_isr_may_be_smaller_than_min_isr(group: Group) -> None:
    group.write(1, "a", acks=1)
    group.partitions[1].consider_shrinking(100.0, group.eligible)
    assert group.proposed(1) == [1]
    group.accept(1)
    assert group.partitions[1].is_leader and group.partitions[1].isr == {1}


def test_acks_all_is_refused_below_min_isr_and_taken_again_at_it(group: Group) -> None:
    """At once, and nothing is written; acks=1 is taken all the same."""
    group.tell(1, (1,))
    answer, answered = produce(group, -1)
    assert answered == [True] and error_of(answer) is ErrorCode.not_enough_replicas
    assert group.ends(1)[0] == 0
    assert error_of(produce(group, 1)[0]) is ErrorCode.none
    group.tell(1, (1, 2))
    assert group.write(1, "b") is not None
    group.tell(1, (1,))
    with pytest.raises(Refused):
        group.write(1, "c")


def test_an_idempotent_retry_after_such_a_refusal_is_acknowledged_and_written_once(group: Group) -> None:
    sent = build_batch([b"a"], timestamp_ms=0, producer_id=5, producer_epoch=0, base_sequence=0)
    partition = group.partitions[1]
    first = partition.append(sent, -1, future).done
    group.tell(1, (1,))
    assert first is not None and first.result() is ErrorCode.not_enough_replicas_after_append
    with pytest.raises(Refused) as refused:
        partition.append(sent, -1, future)
    assert refused.value.error is ErrorCode.not_enough_replicas
    group.tell(1, (1, 2))
    again = partition.append(sent, -1, future)
    assert (again.base_offset, group.ends(1)[0]) == (0, 1), "it is there already"
    group.fetch(1, 2)
    group.ask(1, 2)
    assert again.done is not None and again.done.result() is ErrorCode.none
    assert group.log(1) == [(1, "a")]
