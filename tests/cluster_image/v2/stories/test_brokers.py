"""001, "Broker startup", and brokers that come, are away, and go for good."""

from __future__ import annotations

import asyncio

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from cluster_image.v2.metadata import paths

from .cluster import V2Cluster, tell

#: Longer than a session.
AWAY_S = 5.0


def test_a_broker_announces_itself_last_and_for_as_long_as_its_session() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3)) is ErrorCode.none
        assert c.znode(paths.broker(3)) == b"broker-3:9092;rack-3"
        await c.kill(3)
        await c.until(lambda: c.znode(paths.broker(3)) is None)
        restarting = asyncio.create_task(c.start(3))
        await c.until(lambda: c.znode(paths.broker(3)) is not None)
        assert c.replica(3) is not None, "its replicas are started before it is announced"
        await restarting

    tell(story)


def test_who_was_paused_past_its_session_registers_again_and_follows() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2, 3)) is ErrorCode.none
        await c.until(lambda: c.serves(1))
        await c.node(1).pause()
        await c.until(lambda: (leader := c.leader()) is not None and leader.broker != 1 and c.serves(leader.broker))
        assert c.znode(paths.broker(1)) is None
        await c.node(1).resume()
        await c.until(lambda: c.znode(paths.broker(1)) is not None)
        leader = c.leader()
        assert leader is not None
        await c.until(lambda: (replica := c.replica(1)) is not None and replica.leader == leader.broker)
        await c.produced("m1")
        await c.until(lambda: c.log_of(1) == c.log_of(leader.broker) == ["m1"])

    tell(story)


def test_a_broker_tells_its_settings_and_that_topics_have_none_of_their_own() -> None:
    async def told(c: V2Cluster, kind: int, name: str) -> tuple[ErrorCode, dict[str, str]]:
        resource = DescribeConfigsResource(resource_type=i8(kind), resource_name=name, configuration_keys=None)
        (result,) = (await c.ask(1, DescribeConfigsRequest(resources=(resource,)))).results
        return result.error_code, {each.name: each.value for each in result.configs}

    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2)) is ErrorCode.none
        error, settings = await told(c, 4, "1")
        assert error is ErrorCode.none and settings["v2.leader.epochs"] == "true"
        assert "zookeeper.connect" not in settings and "node.id" not in settings
        assert await told(c, 2, "story") == (ErrorCode.none, {})
        assert (await told(c, 2, "other"))[0] is ErrorCode.unknown_topic_or_partition
        assert (await told(c, 4, "2"))[0] is ErrorCode.invalid_request

    tell(story, settings={"v2.leader.epochs": "true"})


def test_only_leaders_listen_for_reassignments() -> None:
    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2)) is ErrorCode.none
        await c.until(lambda: c.serves(1))
        await c.until(lambda: c.watched(paths.REASSIGNED) == {c.session(1)})
        assert {c.session(n) for n in (1, 2, 3)} == set().union(*(c.watched(paths.state(n)) for n in (1, 2, 3)))

    tell(story)


def test_replicas_are_placed_on_brokers_that_live() -> None:
    async def story(c: V2Cluster) -> None:
        await c.kill(3)
        await asyncio.sleep(AWAY_S)
        assert await c.create_anywhere(4, 2) is ErrorCode.none
        assert {broker for index in range(4) for broker in c.replicas(index)} == {1, 2}
        assert await c.create_anywhere(1, 3) is ErrorCode.topic_already_exists

    tell(story)


def test_a_topic_that_nobody_leads_is_deleted_all_the_same() -> None:
    """By 001 it would wait for a leader that is not there."""

    async def story(c: V2Cluster) -> None:
        assert await c.create((3,)) is ErrorCode.none
        await c.produced("m1")
        await c.kill(3)
        await c.until(lambda: c.leader() is None)
        await asyncio.sleep(AWAY_S)
        assert await c.delete() is ErrorCode.none
        assert c.children(paths.state(3)), "what it is asked for waits for it"
        await c.start(3)
        await c.until(lambda: not c.children(paths.state(3)))
        assert c.replica(3) is None

    tell(story)


def test_what_a_broker_is_no_replica_of_it_does_not_start() -> None:
    """001: "this should not happen". It does where what was asked for has been undone meanwhile."""

    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 2)) is ErrorCode.none
        await c.until(lambda: c.serves(1))
        await c.ask_for("start-replica", 3, 0, by=1)
        await c.until(lambda: not c.children(paths.state(3)))
        done = [
            told["done"] for node, event, _, told in c.trace if (node, event) == ("broker-3", "state change completed")
        ]
        assert done == [0] and c.replica(3) is None

    tell(story)


def test_a_broker_that_is_removed_takes_its_queue_along() -> None:
    """003, take brokers offline: "This command will also delete the state change path"."""

    async def story(c: V2Cluster) -> None:
        assert await c.create((1, 3)) is ErrorCode.none
        assert await c.remove(3) is ErrorCode.invalid_request, "it lives"
        await c.kill(3)
        await asyncio.sleep(AWAY_S)
        await c.ask_for("start-replica", 3, 0, by=1)
        assert c.znode(paths.state(3)) is not None, "it outlives its broker"
        assert await c.remove(3) is ErrorCode.none
        assert c.znode(paths.state(3)) is None
        assert await c.remove(3) is ErrorCode.broker_id_not_registered

    tell(story)
