"""Partition changes and replica transitions (000, 2.10 and 2.2.3), on one broker among three."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.partition import Refused
from tests.cluster_image.kraft.broker.test_partition import TOPIC, batch, future, leaders_batch
from tests.cluster_image.protocol.replication.broker import ME, Broker, living
from tests.cluster_image.protocol.replication.group import Group
from tests.cluster_image.replication.fetches import fetch_as_follower


def state_of(fetched: Any) -> tuple[int, int, int, int]:
    """Broker epoch, leader epoch, fetch offset, last fetched epoch."""
    return fetched.broker_epoch, fetched.leader_epoch, fetched.offset, fetched.last_epoch


# -- 2.10.1 to 2.10.6, by what is fetched -----------------------------------------------------------------------


def test_follower_to_leader() -> None:
    async def story(broker: Broker) -> None:
        partition = broker.create(0, leader=2)
        broker.create(1, leader=2)
        assert {leader: sorted(asked) for leader, asked in (await broker.fetches()).items()} == {2: [0, 1]}
        broker.change(0, {"leader": ME, "isr": (1, 3)})
        assert partition.is_leader
        assert {leader: sorted(asked) for leader, asked in (await broker.fetches()).items()} == {2: [1]}

    living(story)


def test_leader_to_follower() -> None:
    async def story(broker: Broker) -> None:
        partition = broker.create(0, leader=ME)
        for _ in range(3):
            partition.append(batch(), 1, future)
        assert await broker.fetches() == {}
        broker.change(0, {"leader": 3, "isr": (2, 3)})
        fetched = await broker.fetches()
        assert list(fetched) == [3] and list(fetched[3]) == [0]
        assert state_of(fetched[3][0]) == (77, 1, 3, 0)

    living(story)


def test_follower_to_follower_in_the_same_epoch() -> None:
    """Its ISR changes: the same request goes on, not a new one."""

    async def story(broker: Broker) -> None:
        partition = broker.create(0, leader=2)
        before = await broker.fetches()
        (link,) = [link for link in broker.links if link.asked is not None]
        request = link.asked
        broker.change(0, {"isr": (2, 3)})
        await asyncio.sleep(0.01)
        assert partition.isr == {2, 3}
        assert link.asked is request and not link.closed and len(broker.links) == 1
        assert await broker.fetches() == before

    living(story)


def test_follower_to_follower_in_a_new_epoch() -> None:
    """To another leader, and then to the same one in yet another epoch."""

    async def story(broker: Broker) -> None:
        partition = broker.create(0, leader=2)
        await broker.fetches()
        assert partition.apply_fetch(0, 0, leaders_batch(0, 0, b"a", b"b"), 0, None)
        broker.change(0, {"leader": 3, "isr": (1, 3)})
        fetched = await broker.fetches()
        assert list(fetched) == [3] and state_of(fetched[3][0]) == (77, 1, 2, 0)

        assert partition.apply_fetch(1, 2, leaders_batch(2, 1, b"c"), 0, None)
        broker.change(0, {"leader": 3})
        await asyncio.sleep(0.05)
        (link,) = [link for link in broker.links if link.asked is not None and not link.closed]
        (data,) = link.asked.topics[0].partitions
        assert data.current_leader_epoch == 2, "the request of the epoch before is not waited for"
        fetched = await broker.fetches()
        assert list(fetched) == [3] and state_of(fetched[3][0]) == (77, 2, 3, 1)

    living(story)


def test_no_leader_is_fetched_from_by_nobody() -> None:
    async def story(broker: Broker) -> None:
        broker.create(0, leader=2)
        await broker.fetches()
        broker.change(0, {"leader": -1, "isr": ()})
        assert await broker.fetches() == {}
        broker.change(0, {"leader": 2, "isr": (2,)})
        assert list(await broker.fetches()) == [2]

    living(story)


def test_a_removed_replica_is_fetched_no_more() -> None:
    async def story(broker: Broker) -> None:
        broker.create(0, leader=2)
        broker.create(1, leader=2)
        await broker.fetches()
        broker.change(0, {"replicas": (2, 3), "isr": (2, 3), "leader": 2})
        assert {leader: sorted(asked) for leader, asked in (await broker.fetches()).items()} == {2: [1]}

    living(story)


def test_a_removed_leader_is_no_leader() -> None:
    async def story(broker: Broker) -> None:
        partition = broker.create(0, leader=ME)
        done = partition.append(batch(), -1, future).done
        broker.change(0, {"replicas": (2, 3), "isr": (2, 3), "leader": 2})
        assert done is not None and done.result() is ErrorCode.not_leader_or_follower
        assert broker.manager.get((TOPIC, 0)) is None, "nobody is served from it"
        with pytest.raises(Refused):
            fetch_as_follower(partition, 2, 12, 0, 1, 0, 1 << 20, 0.0, lambda replica, epoch: True)
        with pytest.raises(Refused):
            partition.append(batch(), 1, future)

    living(story)


# -- what the replica itself does -------------------------------------------------------------------------------


def test_a_new_leader_knows_nothing_of_its_followers(tmp_path: Path) -> None:
    """Whether it has led before or not; and its LESO is its LEO."""
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1)
    for value in "ab":
        group.write(1, value, acks=1)
    group.fetch(1, 2, 3)
    assert group.leadership(1).epoch_start == 0
    group.tell(2, (1, 2, 3), leader_epoch=2)
    assert group.leadership(2).epoch_start == group.ends(2)[0] == 2
    group.tell(1, (1, 2, 3), leader_epoch=3)
    leadership = group.leadership(1)
    assert leadership.epoch_start == group.ends(1)[0] == 2
    assert leadership.proposal is None and leadership.maximal_isr == {1, 2, 3}
    for state in leadership.followers.values():
        assert (state.end_offset, state.broker_epoch) == (-1, -1)


@pytest.mark.parametrize(("isr", "committed"), [((1,), 2), ((1, 2), 0)], ids=["alone", "not alone"])
def test_a_new_leader_alone_in_the_isr_commits_all_it_has(tmp_path: Path, isr: tuple[int, ...], committed: int) -> None:
    group = Group(tmp_path, min_isr=1)
    group.put(1, 1, 1)
    group.tell(2, (1, 2, 3), leader_epoch=1)
    group.tell(1, isr, leader_epoch=2)
    assert group.ends(1) == (2, committed)


def test_leader_to_leader_in_the_same_epoch(tmp_path: Path) -> None:
    """The ISR changes: the watermark may advance; nothing known of the followers is forgotten."""
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1)
    waiting = group.write(1, "a")
    group.fetch(1, 2)
    group.ask(1, 2)
    state = group.leadership(1).followers[2]
    group.tell(1, (1, 2))
    assert waiting is not None and waiting.result() is ErrorCode.none
    assert group.ends(1) == (1, 1) and group.leadership(1).epoch_start == 0
    assert group.leadership(1).followers[2] is state and state.end_offset == 1


def test_leader_to_leader_in_a_new_epoch(tmp_path: Path) -> None:
    """It lost its leadership and has it again, and saw neither. Who is out of sync must fetch in this epoch to join;
    what the leader has is what it had."""
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    group.write(1, "a")
    group.fetch(1, 2)
    group.ask(1, 2)
    group.fetch(1, 3)
    group.partition_epoch += 1
    group.tell(1, (1, 2), leader_epoch=3)
    leadership = group.leadership(1)
    assert leadership.epoch_start == 1 and group.ends(1) == (1, 1)
    assert leadership.followers[3].end_offset == -1 and leadership.followers[3].last_caught_up == float("-inf")
    group.fetch(1, 2)
    assert group.proposed(1) is None
    group.fetch(1, 3)
    assert group.proposed(1) == [1, 2, 3]


def test_a_fetch_succeeds_only_once_both_sides_know_of_the_change(tmp_path: Path) -> None:
    """Replica 2 leads after 1. Whoever learns of it first, the fetch between them is refused until the other has."""
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1)
    group.fetch(1, 3)

    def refusal(leader: int, follower: int) -> ErrorCode:
        with pytest.raises(Refused) as refused:
            group.ask(leader, follower)
        return refused.value.error

    group.tell(2, (2, 3), leader_epoch=2, to=(3,))  # the follower first
    assert refusal(1, 3) is ErrorCode.unknown_leader_epoch
    assert refusal(2, 3) is ErrorCode.unknown_leader_epoch
    group.tell(2, (2, 3), to=(1, 2))
    assert refusal(1, 3) is ErrorCode.not_leader_or_follower
    group.fetch(2, 3)
    group.tell(3, (2, 3), leader_epoch=3, to=(3,))  # the leader first
    assert refusal(3, 1) is ErrorCode.fenced_leader_epoch
    group.tell(3, (2, 3), to=(1, 2))
    group.fetch(3, 1)
    group.fetch(3, 2)
