"""Administrators' commands while leaders fail, and while other commands are under way: 001 has one administrator, who
waits, and leaders that do not fail meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.v2.metadata import paths
from cluster_image.v2.zookeeper import ConnectionLoss, Create, Delete, Operation, SetData

from .cluster import TOPIC, V2Cluster, tell

QUICK = {"replica.lag.time.max.ms": "1000"}
IDLE = {**QUICK, "v2.idle.checks": "true"}


def zookeeper_of(c: V2Cluster, broker: int) -> Any:
    """The client of a broker, the one beneath what repeats its calls."""
    running: Any = c.node(broker).running
    return running.broker._zookeeper._client


def held(client: Any, kind: type[Create | SetData], path: str) -> tuple[asyncio.Event, asyncio.Event]:
    """What a client writes there waits: set once it is about to; to be set for it to go on."""
    reached, go_on = asyncio.Event(), asyncio.Event()
    multi = client.multi

    async def waiting(operations: list[Operation]) -> Any:
        if any(isinstance(each, kind) and each.path == path for each in operations):
            reached.set()
            await go_on.wait()
        return await multi(operations)

    client.multi = waiting
    return reached, go_on


async def made(c: V2Cluster, *replicas: int) -> None:
    assert await c.create(replicas) is ErrorCode.none
    await c.until(lambda: c.serves(replicas[0]) and c.isr() == set(replicas))


async def served(c: V2Cluster) -> int:
    """By whom, once somebody leads."""
    await c.until(lambda: (leader := c.leader()) is not None and c.serves(leader.broker))
    leader = c.leader()
    assert leader is not None
    return leader.broker


async def elected_and_waits(c: V2Cluster) -> int:
    """Who leads after 1, and does not serve yet, as the others cannot reach it."""
    c.cut((2, 3), (1, 3))
    await c.kill(1)
    await c.until(lambda: any((r := c.replica(n)) is not None and r.is_leader for n in (2, 3)))
    leader = next(n for n in (2, 3) if (r := c.replica(n)) is not None and r.is_leader)
    assert not c.serves(leader)
    return leader


def test_a_deletion_that_its_leader_does_not_hear_of_has_not_been_done() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        await c.node(1).pause()
        assert await c.delete(broker=2, timeout_ms=1000) is ErrorCode.request_timed_out
        await c.node(1).resume()
        assert await c.delete(broker=2) is ErrorCode.none
        assert all(c.replica(n) is None for n in (1, 2, 3))
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await served(c)

    tell(story, settings={**QUICK, "zookeeper.session.timeout.ms": "6000"})


def test_a_deletion_whose_leader_dies_closes_all_that_live() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        await c.produced("old")
        await c.until(lambda: c.log_of(2) == c.log_of(3) == ["old"])
        await c.node(1).pause()
        assert await c.delete(broker=2, timeout_ms=20_000) is ErrorCode.none
        await c.kill(1)
        assert c.replica(2) is c.replica(3) is None
        await c.start(1)
        assert await c.create((1, 2, 3), broker=2) is ErrorCode.none
        await c.produced("new")
        await c.until(lambda: [c.log_of(n) for n in (1, 2, 3)] == [["new"]] * 3)

    tell(story, settings=QUICK)


def test_a_deletion_before_a_new_leader_serves() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        leader = await elected_and_waits(c)
        assert await c.delete(broker=leader, timeout_ms=20_000) is ErrorCode.none
        assert c.replica(2) is c.replica(3) is None

    tell(story, settings={"replica.lag.time.max.ms": "3000"})


def test_a_deletion_of_what_is_being_moved() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        c.cut((1, 3))
        assert await c.reassign((1, 3)) is ErrorCode.none
        await c.until(lambda: c.replica(3) is not None)
        assert await c.delete(broker=2) is ErrorCode.none
        assert all(c.replica(n) is None for n in (1, 2, 3)) and c.children(paths.TOPICS) == []

    tell(story, settings=IDLE)


def test_a_deletion_of_what_was_being_moved_that_is_tried_twice() -> None:
    """The first attempt has written over where it was being moved to. Found by exploring, seed 16 of `--target v2
    --nemesis kill,membership:reassign,pause --brokers 4 --short-lived-topics 1 --time-limit 30`."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        c.cut((1, 3))
        assert await c.reassign((1, 3)) is ErrorCode.none
        await c.until(lambda: c.replica(3) is not None)
        await c.node(1).pause()
        assert await c.delete(broker=2, timeout_ms=1000) is ErrorCode.request_timed_out
        await c.node(1).resume()
        assert await c.delete(broker=2) is ErrorCode.none
        assert all(c.replica(n) is None for n in (1, 2, 3)) and c.children(paths.TOPICS) == []

    tell(story, settings={**IDLE, "zookeeper.session.timeout.ms": "6000"})


def test_what_is_being_moved_is_moved_elsewhere() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        c.cut((1, 3))
        assert await c.reassign((1, 3)) is ErrorCode.none
        await c.until(lambda: c.replica(3) is not None)
        assert await c.reassign((1, 4)) is ErrorCode.none
        await c.until(lambda: c.replicas() == (1, 4) and c.isr() == {1, 4})
        await c.until(lambda: c.replica(2) is c.replica(3) is None)
        await c.until(lambda: c.children(paths.REASSIGNED) == [])

    tell(story, brokers=4, settings=IDLE)


def test_a_move_that_begins_before_a_new_leader_serves() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        leader = await elected_and_waits(c)
        assert await c.reassign((leader, 4), broker=leader) is ErrorCode.none
        await c.until(lambda: c.serves(leader))
        c.mend()
        await c.until(lambda: c.replicas() == (leader, 4) and c.isr() == {leader, 4})

    tell(story, brokers=4, settings={**IDLE, "replica.lag.time.max.ms": "3000"})


def test_a_move_is_given_up_at_the_moment_of_its_end() -> None:
    """Either it is over, or it has been given up: the replicas of one side stay."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        await c.produced("m1")
        client, at_the_end, go_on = zookeeper_of(c, 1), asyncio.Event(), asyncio.Event()
        multi = client.multi

        async def held(operations: list[Operation]) -> Any:
            assert [type(each) for each in operations] == [Delete, SetData]
            at_the_end.set()
            await go_on.wait()
            return await multi(operations)

        client.multi = held
        assert await c.reassign((3, 4), broker=2) is ErrorCode.none
        await at_the_end.wait()
        assert await c.reassign(None, broker=2) is ErrorCode.none
        go_on.set()
        await c.until(lambda: c.replica(3) is c.replica(4) is None)
        assert c.replicas() == (1, 2) and c.log_of(1) == ["m1"] and c.serves(1)
        await c.produced("m2")

    tell(story, brokers=4, settings=IDLE)


@pytest.mark.parametrize("elsewhere", [None, (1, 2, 3)], ids=["given up", "as it was"])
def test_who_was_to_go_and_has_closed_its_replica_begins_anew(elsewhere: tuple[int, ...] | None) -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        assert await c.reassign((1, 2)) is ErrorCode.none
        await c.produced("m1")
        await c.until(lambda: c.replica(3) is None)
        assert c.replicas() == (1, 2, 3), "as 3 is in the ISR until a request has waited for it"
        assert await c.reassign(elsewhere) is ErrorCode.none
        await c.until(lambda: c.replica(3) is not None and c.log_of(3) == ["m1"])
        await c.produced("m2")
        await c.until(lambda: c.log_of(1) == c.log_of(2) == c.log_of(3) == ["m1", "m2"])

    tell(story, settings=QUICK)


def test_a_leader_that_was_deposed_before_it_had_begun_leaves_its_successors_node_alone() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 3, 1, 2)
        for broker in (1, 2):
            client = zookeeper_of(c, broker)

            async def slowly(path: str, data: bytes = b"", *, create: Any = client.create, **how: bool) -> str:
                made_path: str = await create(path, data, **how)
                if path.endswith("/leader"):
                    await asyncio.sleep(0.05)
                return made_path

            client.create = slowly
        await c.kill(3)
        await c.until(lambda: (leader := c.leader()) is not None and leader.broker in (1, 2))
        first = c.leader()
        assert first is not None
        await c.node(first.broker).pause()
        await c.until(lambda: c.serves(3 - first.broker))
        await c.node(first.broker).resume()
        await asyncio.sleep(20.0)
        leader = c.leader()
        assert leader is not None and leader.broker == 3 - first.broker and c.serves(leader.broker)
        roles = [told for node, event, _, told in c.trace if (node, event) == (f"broker-{first.broker}", "role")]
        assert all(told["leader"] != first.broker for told in roles)

    tell(story, settings=QUICK)


def test_who_is_deposed_while_it_waits_for_its_followers_writes_no_isr() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        first = await elected_and_waits(c)
        second = 5 - first
        await c.node(first).pause()
        await c.until(lambda: (leader := c.leader()) is not None and leader.broker == second)
        await c.node(first).resume()
        await c.until(lambda: (replica := c.replica(first)) is not None and not replica.is_leader, 3.0)
        written = [told for node, event, _, told in c.trace if (node, event) == (f"broker-{first}", "isr written")]
        assert written == []

    tell(story, settings={"replica.lag.time.max.ms": "10000"})


def test_an_isr_that_was_written_unheard_of_deposes_nobody() -> None:
    """With v2.isr.versioned the repetition of the write is refused."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        client, lost = zookeeper_of(c, 1), []
        set_ = client.set

        async def unheard_of(path: str, data: bytes, version: int = -1) -> Any:
            stat = await set_(path, data, version)
            if path == paths.isr(TOPIC, 0) and not lost:
                lost.append(stat)
                raise ConnectionLoss("lost on the way back")
            return stat

        client.set = unheard_of
        c.cut((1, 2))
        assert await c.produce("m1", 1) is ErrorCode.none
        assert lost and c.isr() == {1, 3} and c.serves(1)
        assert await c.produce("m2", 1) is ErrorCode.none

    tell(story, settings={**QUICK, "v2.isr.versioned": "true"})


def test_a_creation_that_has_failed_before_its_first_request_is_begun_anew() -> None:
    async def story(c: V2Cluster) -> None:
        client = zookeeper_of(c, 2)
        await client.create(paths.topic(TOPIC), b"being made")
        await client.create(paths.partition(TOPIC, 0))
        assert await c.create((1, 2, 3)) is ErrorCode.none
        assert c.replicas() == (1, 2, 3)
        await served(c)

    tell(story)


def test_partitions_that_could_not_be_added_are_added_the_next_time() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        await c.node(3).pause()
        assert await c.add_partitions(2, timeout_ms=800) is ErrorCode.request_timed_out
        await c.node(3).resume()
        await c.until(lambda: not c.children(paths.state(3)))
        assert await c.add_partitions(2) is ErrorCode.none
        await c.until(lambda: (leader := c.leader(1)) is not None and c.serves(leader.broker, 1))
        assert len(c.replicas(1)) == 3 and c.children(paths.REASSIGNED) == []

    tell(story)


def test_a_broker_that_was_removed_while_it_was_away_is_one_again() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        await c.node(2).pause()
        await c.until(lambda: c.znode(paths.broker(2)) is None)
        assert await c.remove(2) is ErrorCode.none
        await c.node(2).resume()
        await c.until(lambda: c.znode(paths.broker(2)) is not None and c.znode(paths.state(2)) is not None)
        assert c.is_ready(2)

    tell(story, settings=QUICK)


@pytest.mark.parametrize("topic", [".", "..", "a/b", "", "x" * 250])
def test_a_topic_is_named_as_kafka_has_it(topic: str) -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1,), topic=topic) is ErrorCode.invalid_topic_exception
        assert c.children(paths.TOPICS) == []

    tell(story)


@pytest.mark.parametrize("replicas", [(1, 9), (1, 1), ()])
def test_replicas_are_distinct_and_on_brokers_that_there_are(replicas: tuple[int, ...]) -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create(replicas) is ErrorCode.invalid_replica_assignment
        assert c.znode(paths.partition(TOPIC, 0)) is None

    tell(story)


def test_a_leader_hears_of_reassignments_once_for_all_that_it_leads() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        running: Any = c.node(1).running
        for _ in range(20):
            running.broker._replicas.reassignments.look_again()
            await asyncio.sleep(0.05)
        watchers = zookeeper_of(c, 1)._child_watchers
        assert len(watchers[paths.REASSIGNED]) == 1

    tell(story)


def test_who_starts_while_a_partition_is_being_deleted_does_not_begin_it_anew() -> None:
    """It has been asked to close its replica, which it does not come to have until it has looked for what it has."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2, 3)
        await c.kill(3)
        client = zookeeper_of(c, 1)
        await client.create(paths.reassigned_topic(TOPIC))
        await client.create(paths.reassigned(TOPIC, 0), b"")
        await c.until(lambda: not c.children(paths.state(1)) and not c.children(paths.state(2)) and c.leader() is None)
        await c.start(3)
        await c.until(lambda: c.is_ready(3) and not c.children(paths.state(3)))
        assert c.replica(3) is None and c.node(3).disk.list("").count(f"{TOPIC}-0") == 0
        assert await c.delete() is ErrorCode.none
        assert await c.create((1, 2, 3)) is ErrorCode.none
        assert await served(c) == 1

    tell(story)


def test_a_move_that_begins_while_the_last_other_of_its_topic_ends() -> None:
    """Which takes the node of the topic with it."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        client = zookeeper_of(c, 1)
        multi = client.multi
        others = iter((True,))

        async def after_another_has_ended(operations: list[Operation]) -> Any:
            begins = any(isinstance(each, Create) and each.path == paths.reassigned(TOPIC, 0) for each in operations)
            if begins and next(others, False):
                await client.delete(paths.reassigned_topic(TOPIC))
            return await multi(operations)

        client.multi = after_another_has_ended
        assert await c.reassign((2, 3), broker=1) is ErrorCode.none
        await c.until(lambda: c.replicas() == (2, 3))

    tell(story, settings=IDLE)


def test_a_leader_that_is_closed_while_it_gives_up_does_so_once() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        client = zookeeper_of(c, 1)
        delete = client.delete

        async def twice(path: str, version: int = -1) -> None:
            if path == paths.leader(TOPIC, 0):
                await delete(path, version)
            await delete(path, version)

        client.delete = twice
        assert await c.delete(broker=2) is ErrorCode.none
        assert c.is_ready(1) and c.replica(1) is None

    tell(story)


def test_a_partition_that_its_leader_completes_while_it_is_to_be_cleaned_up_stays() -> None:
    """An attempt to make it has ended in a time-out, and the next begins by deleting what it finds unfinished."""

    async def story(c: V2Cluster) -> None:
        await c.node(3).pause()
        assert await c.create((1, 2, 3), timeout_ms=1000) is ErrorCode.request_timed_out
        client, go_on = zookeeper_of(c, 2), asyncio.Event()
        get = client.get

        async def held(path: str, *rest: Any) -> Any:
            found = await get(path, *rest)
            if path == paths.reassigned(TOPIC, 0):
                await go_on.wait()
            return found

        client.get = held
        again = asyncio.create_task(c.create((1, 2, 3), broker=2))
        await c.node(3).resume()
        await c.until(lambda: c.replicas() == (1, 2, 3) and not c.children(paths.REASSIGNED))
        await c.produced("m1")
        go_on.set()
        assert await again is ErrorCode.none
        await c.until(lambda: c.log_of(1) == c.log_of(2) == c.log_of(3) == ["m1"])

    tell(story, settings=IDLE)


def test_what_was_begun_and_is_half_cleaned_up_is_closed_by_all() -> None:
    """Whoever cleaned up has failed after it had said that it is to be deleted, and so has its leader: nobody knows
    where it was begun."""

    async def story(c: V2Cluster) -> None:
        await c.node(3).pause()
        assert await c.create((1, 2, 3), timeout_ms=1000) is ErrorCode.request_timed_out
        await c.node(3).resume()
        await c.until(lambda: not c.children(paths.state(3)) and c.leader() is not None)
        leader = await served(c)
        await c.kill(leader)
        other = leader % 3 + 1
        await zookeeper_of(c, other).set(paths.reassigned(TOPIC, 0), b"")
        await c.until(lambda: c.leader() is None)
        assert await c.delete(broker=other) is ErrorCode.none
        assert all(c.replica(n) is None for n in (1, 2, 3)) and c.children(paths.REASSIGNED) == []

    tell(story)


def test_who_was_frozen_while_it_made_a_topic_and_has_lost_its_lock_writes_nothing_more() -> None:
    """Another has made it meanwhile, elsewhere. By what the first writes of it a replica would be left for ever."""

    async def story(c: V2Cluster) -> None:
        about_to_write, go_on = held(zookeeper_of(c, 1), Create, paths.reassigned(TOPIC, 0))
        first = asyncio.create_task(c.create((1, 2), broker=1))
        await about_to_write.wait()
        await c.node(1).pause()
        await c.until(lambda: c.znode(paths.commanded(TOPIC)) is None)
        assert await c.create((2, 3), broker=2) is ErrorCode.none
        await c.node(1).resume()
        go_on.set()
        assert await first is ErrorCode.request_timed_out
        await c.until(lambda: c.is_ready(1) and not c.children(paths.state(1)))
        assert c.replicas() == (2, 3) and c.replica(1) is None
        assert c.children(paths.REASSIGNED) == c.children(paths.COMMANDS) == []

    tell(story, settings=QUICK)


def test_what_is_being_deleted_is_not_moved() -> None:
    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        await c.node(2).pause()
        assert await c.delete(timeout_ms=1000) is ErrorCode.request_timed_out
        assert await c.reassign((1, 3)) is ErrorCode.unknown_topic_or_partition
        assert c.znode(paths.reassigned(TOPIC, 0)) == b""
        await c.node(2).resume()
        assert await c.delete() is ErrorCode.none
        assert all(c.replica(n) is None for n in (1, 2, 3)) and c.children(paths.TOPICS) == []

    tell(story, settings=IDLE)


def test_who_leaves_and_starts_at_the_moment_of_the_end_is_closed_once_more() -> None:
    """ZooKeeper still names it as it starts; nobody would ask it again."""

    async def story(c: V2Cluster) -> None:
        await made(c, 1, 2)
        at_the_end, go_on = held(zookeeper_of(c, 1), SetData, paths.replicas(TOPIC, 0))
        assert await c.reassign((1, 3)) is ErrorCode.none
        await at_the_end.wait()
        assert c.replica(2) is None
        await c.kill(2)
        await c.start(2)
        assert c.replica(2) is not None
        go_on.set()
        await c.until(lambda: c.replicas() == (1, 3) and c.replica(2) is None)

    tell(story, settings=IDLE)
