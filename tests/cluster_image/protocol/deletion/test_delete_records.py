"""DeleteRecords (KIP-107), as a client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from cluster_image.kraft.broker.handlers.delete_records import delete_records
from cluster_image.kraft.broker.partition import Partition, Refused
from tests.cluster_image.protocol.replication.group import Group


def led(directory: Path, records: str = "abcd", **settings: str) -> Group:
    """Replica 1 leads; it and 2 hold these, all committed, and 3 is out of the ISR and has none."""
    group = Group(directory, **settings)
    group.tell(1, (1, 2), leader_epoch=1)
    for value in records:
        group.write(1, value)
    for _ in range(2):
        group.fetch(1, 2)
    return group


def request(offsets: Mapping[int, int], timeout: float, version: int = 2) -> Any:
    module = load_payload_module(21, version, EntityType.request)
    partitions = tuple(module.DeleteRecordsPartition(partition_index=p, offset=o) for p, o in offsets.items())
    return module.DeleteRecordsRequest(
        topics=(module.DeleteRecordsTopic(name="t", partitions=partitions),), timeout=timedelta(seconds=timeout)
    )


Answer = tuple[ErrorCode, int]


async def ask(
    group: Group, offset: int, meanwhile: Callable[[], None] = lambda: None, *, of: int = 1, timeout: float = 60.0,
    version: int = 2,
) -> Answer:  # fmt: skip
    """Error and low watermark. meanwhile: happens once it is being waited for. Does not wait for long."""

    def find(topic: str, index: int) -> Partition:
        return group.partitions[of]

    work = asyncio.create_task(delete_records(request({0: offset}, timeout, version), find))
    for _ in range(5):
        await asyncio.sleep(0)
    meanwhile()
    answer: Any = await asyncio.wait_for(work, 2.0)
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return partition.error_code, int(partition.low_watermark)


def fetched(group: Group, *followers: int) -> Callable[[], None]:
    """These take over their leader's log start, and say so with their next fetch."""

    def fetch() -> None:
        group.fetch(1, *followers)
        group.fetch(1, *followers)

    return fetch


NOT_LEADER = ErrorCode.not_leader_or_follower


@pytest.mark.parametrize("version", [0, 1, 2])
def test_it_is_answered_once_no_replica_has_the_records(tmp_path: Path, version: int) -> None:
    group = led(tmp_path)
    group.fetch(1, 3)
    assert asyncio.run(ask(group, 3, fetched(group, 2, 3), version=version)) == (ErrorCode.none, 3)
    assert group.starts() == [3, 3, 3]


def test_it_is_not_answered_while_a_live_replica_may_have_them(tmp_path: Path) -> None:
    group = led(tmp_path)
    assert asyncio.run(ask(group, 3, fetched(group, 2), timeout=0.1)) == (ErrorCode.request_timed_out, -1)
    assert group.starts() == [3, 3, 0], "what was deleted is deleted"


def test_replicas_that_do_not_live_are_not_waited_for(tmp_path: Path) -> None:
    group = led(tmp_path)
    group.partitions[1].lives = lambda broker: broker != 3
    assert asyncio.run(ask(group, 3, fetched(group, 2))) == (ErrorCode.none, 3)


def test_nor_are_those_that_die_meanwhile(tmp_path: Path) -> None:
    group = led(tmp_path)

    def dies() -> None:
        fetched(group, 2)()
        group.partitions[1].lives = lambda broker: broker != 3
        group.partitions[1].consider_deleted()  # as a timer does

    assert asyncio.run(ask(group, 3, dies)) == (ErrorCode.none, 3)


def test_minus_one_stands_for_the_high_watermark(tmp_path: Path) -> None:
    group = led(tmp_path)
    group.partitions[1].lives = lambda broker: False
    assert asyncio.run(ask(group, -1)) == (ErrorCode.none, 4)


@pytest.mark.parametrize("offset", [5, 6, -2])
def test_what_is_not_committed_cannot_be_deleted(tmp_path: Path, offset: int) -> None:
    group = led(tmp_path)
    group.write(1, "e")
    assert asyncio.run(ask(group, offset)) == (ErrorCode.offset_out_of_range, -1)
    assert group.starts() == [0, 0, 0]


def test_what_is_deleted_already_is_no_error(tmp_path: Path) -> None:
    group = led(tmp_path)
    group.partitions[1].lives = lambda broker: False
    assert asyncio.run(ask(group, 3)) == (ErrorCode.none, 3)
    assert asyncio.run(ask(group, 1)) == (ErrorCode.none, 3)
    assert group.starts()[0] == 3


def test_only_the_leader_deletes(tmp_path: Path) -> None:
    group = led(tmp_path)
    assert asyncio.run(ask(group, 3, of=2)) == (NOT_LEADER, -1)
    assert group.starts() == [0, 0, 0]


def test_who_leads_no_longer_says_so(tmp_path: Path) -> None:
    group = led(tmp_path)

    def deposed() -> None:
        group.tell(2, (1, 2), leader_epoch=2)

    assert asyncio.run(ask(group, 3, deposed)) == (NOT_LEADER, -1)


def test_who_leads_on_in_another_epoch_answers_still(tmp_path: Path) -> None:
    group = led(tmp_path)

    def another_epoch() -> None:
        group.tell(1, (1, 2), leader_epoch=2)
        group.partitions[1].lives = lambda broker: broker == 2
        fetched(group, 2)()

    assert asyncio.run(ask(group, 3, another_epoch)) == (ErrorCode.none, 3)


def test_a_topic_that_is_only_compacted_keeps_its_records(tmp_path: Path) -> None:
    group = led(tmp_path, log_cleanup_policy="compact")
    assert asyncio.run(ask(group, 3)) == (ErrorCode.policy_violation, -1)
    assert group.starts() == [0, 0, 0]


def test_a_partition_that_is_named_twice_and_one_that_is_not_here(tmp_path: Path) -> None:
    group = led(tmp_path)
    module = load_payload_module(21, 2, EntityType.request)
    named = [module.DeleteRecordsPartition(partition_index=p, offset=1) for p in (0, 0, 7)]
    both = module.DeleteRecordsRequest(
        topics=(module.DeleteRecordsTopic(name="t", partitions=tuple(named)),), timeout=timedelta(seconds=1)
    )

    def find(topic: str, index: int) -> Partition:
        if index:
            raise Refused(ErrorCode.unknown_topic_or_partition)
        return group.partitions[1]

    answer: Any = asyncio.run(delete_records(both, find))
    errors = [partition.error_code for partition in answer.topics[0].partitions]
    assert errors == [ErrorCode.invalid_request] * 2 + [ErrorCode.unknown_topic_or_partition]
    assert group.starts() == [0, 0, 0]


def test_nobody_is_left_waiting_when_the_client_goes(tmp_path: Path) -> None:
    group = led(tmp_path)

    async def leave() -> None:
        work = asyncio.create_task(delete_records(request({0: 3}, 60.0), lambda topic, index: group.partitions[1]))
        await asyncio.sleep(0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert len(group.leadership(1).deleting) == 1
        group.partitions[1].consider_deleted()
        assert not group.leadership(1).deleting

    asyncio.run(leave())
