"""001, admin commands: topics and partitions come and go, whoever lives meanwhile."""

from __future__ import annotations

import asyncio

from kio.schema.errors import ErrorCode

from cluster_image.v2.metadata import paths

from .cluster import TOPIC, V2Cluster, tell


def test_a_topic_is_made_as_001_says() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3), (2, 3, 1)) is ErrorCode.none
        assert (c.replicas(0), c.replicas(1)) == ((1, 2, 3), (2, 3, 1))
        assert c.children(paths.REASSIGNED) == [], "it is done"
        await c.until(lambda: c.serves(1, 0) and c.serves(2, 1))
        await c.until(lambda: c.isr(0) == c.isr(1) == {1, 2, 3})
        assert (c.leader(0), c.leader(1)) == ((1, 0), (2, 0)), "the preferred replicas had their head start"
        assert await c.create((1,)) is ErrorCode.topic_already_exists
        life = [event for node, event, where, _ in c.trace if where == "story-0" and node in ("broker-1", "broker-2")]
        assert life.count("state change requested") == 3 and life.count("state change received") == 2
        assert life.count("state change completed") == 2

    tell(story)


def test_a_topic_is_deleted_everywhere_and_may_be_made_again() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await c.produced("old")
        assert await c.delete() is ErrorCode.none
        assert c.children(paths.TOPICS) == c.children(paths.REASSIGNED) == []
        assert all(c.replica(n) is None for n in (1, 2, 3))
        assert await c.delete() is ErrorCode.unknown_topic_or_partition
        assert await c.create((2, 1)) is ErrorCode.none
        await c.until(lambda: c.serves(2))
        await c.produced("new")
        await c.until(lambda: c.log_of(1) == c.log_of(2) == ["new"])

    tell(story)


def test_a_deletion_waits_for_all_who_live() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await c.until(lambda: c.serves(1))
        await c.node(3).pause()
        assert await c.delete(timeout_ms=1000) is ErrorCode.request_timed_out
        await c.node(3).resume()
        assert await c.delete() is ErrorCode.none
        assert all(c.replica(n) is None for n in (1, 2, 3))

    tell(story)


def test_who_was_away_when_a_topic_was_deleted_deletes_its_replica_when_it_is_back() -> None:
    """001: "handles delete partition or delete topic state changes for dead brokers by queuing up"."""

    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await c.produced("m1")
        await c.until(lambda: c.log_of(3) == ["m1"])
        await c.kill(3)
        await asyncio.sleep(5.0)  # its session is over
        assert await c.delete() is ErrorCode.none
        assert c.children(paths.state(3)), "what it is asked for waits for it"
        await c.start(3)
        await c.until(lambda: c.children(paths.state(3)) == [])
        assert c.replica(3) is None and c.node(3).disk.list("").count(f"{TOPIC}-0") == 0

    tell(story)


def test_partitions_are_added() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2)) is ErrorCode.none
        assert await c.add_partitions(3) is ErrorCode.none
        assert sorted(c.children(paths.topic(TOPIC))) == ["0", "1", "2"]
        await c.until(lambda: all((leader := c.leader(i)) and c.serves(leader.broker, i) for i in range(3)))
        assert await c.add_partitions(2) is ErrorCode.invalid_partitions

    tell(story)


def test_what_a_failed_creation_left_is_cleaned_up_by_the_next() -> None:
    """001, cleanFailedTopicCreationAttempts: a replica's broker is paused, and does not come to its queue."""

    async def story(c: V2Cluster) -> None:
        await c.node(3).pause()
        assert await c.create((1, 3), timeout_ms=1000) is ErrorCode.request_timed_out
        assert c.children(paths.REASSIGNED) == [TOPIC] and c.replicas() == ()
        await c.node(3).resume()
        await c.until(lambda: c.is_ready(3) and not c.children(paths.state(3)))
        assert await c.create((1, 2)) is ErrorCode.none
        assert c.replicas() == (1, 2) and c.children(paths.REASSIGNED) == []
        await c.until(lambda: c.replica(3) is None)

    tell(story)


def test_two_who_make_the_same_topic_do_not_undo_each_others_work() -> None:
    """Whoever has no answer asks another broker."""

    async def story(c: V2Cluster) -> None:
        errors = await asyncio.gather(
            c.create((1, 2, 3), (2, 3, 1), broker=1), c.create((1, 2, 3), (2, 3, 1), broker=2)
        )
        assert sorted(error.name for error in errors) == ["none", "topic_already_exists"]
        await c.until(lambda: c.serves(1, 0) and c.serves(2, 1))
        closed = [where for _, event, where, told in c.trace if told.get("kind") == "close-replica"]
        assert closed == [] and c.replicas(0) == (1, 2, 3)

    tell(story)


def test_a_topic_that_was_made_again_while_a_broker_was_away_has_none_of_the_old_records_there() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await c.produced("old")
        await c.until(lambda: c.log_of(3) == ["old"])
        await asyncio.sleep(6.0)  # its high watermark is in the checkpoint
        await c.kill(3)
        await asyncio.sleep(5.0)
        assert await c.delete() is ErrorCode.none
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await c.produced("new")
        await c.start(3)
        await c.until(lambda: c.log_of(3) == ["new"])

    tell(story)
