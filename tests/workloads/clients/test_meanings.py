"""What each client says when a record cannot be appended, provoked on a cluster here, and what that means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.plan import registry
from tests.clusters.local_cluster import LocalCluster, local_cluster
from tests.workloads.clients.driving import PATIENCE_S, driving

CLIENTS: Final = ("librdkafka", "java", "kafka-python", "aiokafka")
#: How a client is told to send a record once.
ONCE: Final[Mapping[str, Mapping[str, str]]] = {
    "librdkafka": {"retries": "0"},
    "java": {"retries": "0", "enable_idempotence": "false"},
    "kafka-python": {"retries": "0", "enable_idempotence": "false"},
}
#: ... to give up after a second, and in what it calls that.
SOON: Final[Mapping[str, Mapping[str, str]]] = {
    "librdkafka": {"delivery_timeout_ms": "1000"},
    "java": {"delivery_timeout_ms": "1000", "request_timeout_ms": "900"},
    "kafka-python": {"delivery_timeout_ms": "1000", "request_timeout_ms": "900"},
    "aiokafka": {"request_timeout_ms": "1000"},
}


class Said(NamedTuple):
    error: str
    stage: str
    outcome: str


@asynccontextmanager
async def cluster_with(directory: Path, **topic: str) -> AsyncIterator[LocalCluster]:
    """And a topic t of one partition. topic: its settings, with _ for each dot."""
    async with local_cluster(directory) as cluster:
        config = {name.replace("_", "."): value for name, value in topic.items()}
        await asyncio.to_thread(_create, cluster.bootstrap, config)
        yield cluster


def _create(bootstrap: str, config: dict[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 3, config=config)], operation_timeout=10)["t"].result(10)


async def said(client: str, bootstrap: str, partition: int = 0, count: int = 1, **settings: str) -> list[Said]:
    """Of `count` values, what became of those that failed."""
    kind = registry.make_client(client)
    outcomes = kind.outcomes("all", {kind.own_name(name): value for name, value in settings.items()})
    found: list[Said] = []
    async with driving(client, "producer", bootstrap, **settings) as told:
        await told.produce("t", count, partition=partition)
        while count:
            answer = await told.hear("produced")
            count -= answer["count"]
            if "error" in answer:
                outcome = outcomes.of(answer["error"], answer["stage"])
                found += [Said(answer["error"], answer["stage"], outcome)] * answer["count"]
    return found


def run(story: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * PATIENCE_S):
            await story()

    asyncio.run(bounded())


TOO_LARGE: Final = {
    "librdkafka": "MSG_SIZE_TOO_LARGE", "java": "RecordTooLargeException",
    "kafka-python": "MessageSizeTooLargeError", "aiokafka": "MessageSizeTooLargeError",
}  # fmt: skip


def test_too_large_for_the_topic(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster_with(tmp_path, max_message_bytes="20") as cluster:
            for client, error in TOO_LARGE.items():
                assert await said(client, cluster.bootstrap) == [Said(error, "delivery", "fail")], client

    run(story)


NOT_ENOUGH: Final = {
    "librdkafka": "NOT_ENOUGH_REPLICAS", "java": "NotEnoughReplicasException", "kafka-python": "NotEnoughReplicasError",
}  # fmt: skip
GAVE_UP: Final = {
    "librdkafka": "_MSG_TIMED_OUT", "java": "TimeoutException", "kafka-python": "KafkaTimeoutError",
    "aiokafka": "NotEnoughReplicasError",
}  # fmt: skip


def test_too_few_in_the_isr_is_certain_for_who_sends_once_alone(tmp_path: Path) -> None:
    """Who sends again tells how the last attempt ended, or that its time has passed: of those before nobody knows."""

    async def story() -> None:
        async with cluster_with(tmp_path, min_insync_replicas="3") as cluster:
            await cluster.stop(3)
            for client, error in NOT_ENOUGH.items():
                once = await said(client, cluster.bootstrap, **ONCE[client])
                assert once == [Said(error, "delivery", "fail")], client
            for client, error in GAVE_UP.items():
                again = await said(client, cluster.bootstrap, **SOON[client])
                assert again == [Said(error, "delivery", "info")], client

    run(story)


REFUSED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "java": ("TimeoutException", {"max_block_ms": "500"}),
    "kafka-python": ("ValueError", {}),
    "aiokafka": ("AssertionError", {}),
}


def test_what_a_client_refuses_at_once_it_has_not_sent(tmp_path: Path) -> None:
    """A partition that there is not; and more than librdkafka's queue holds."""

    async def story() -> None:
        async with cluster_with(tmp_path) as cluster:
            for client, (error, settings) in REFUSED.items():
                refused = await said(client, cluster.bootstrap, partition=9, **settings)
                assert refused == [Said(error, "send", "fail")], client
            full = await said("librdkafka", cluster.bootstrap, count=100, queue_buffering_max_messages="10")
            assert len(full) == 90 and set(full) == {Said("_QUEUE_FULL", "send", "fail")}

    run(story)


def test_a_topic_that_there_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with local_cluster(tmp_path) as cluster:
            refused = await said("aiokafka", cluster.bootstrap)
            assert refused == [Said("UnknownTopicOrPartitionError", "send", "fail")]
            refused = await said("kafka-python", cluster.bootstrap, max_block_ms="500")
            assert refused == [Said("KafkaTimeoutError", "send", "fail")]

    run(story)


def test_what_is_in_no_table_is_unknown() -> None:
    for client in CLIENTS:
        kind = registry.make_client(client)
        once = kind.outcomes("all", {kind.retries_setting: "0"})
        for error in ("NOT_LEADER_FOR_PARTITION", "NotLeaderOrFollowerException", "NotLeaderForPartitionError"):
            assert once.of(error, "delivery") == "info"


def test_settings_are_the_clients_own() -> None:
    known = {"librdkafka": "linger.ms", "java": "linger.ms", "kafka-python": "linger_ms", "aiokafka": "linger_ms"}
    for client, name in known.items():
        kind = registry.make_client(client)
        kind.check_setting(name, "5")
        with pytest.raises(Exception, match=r"no such setting|No such configuration"):
            kind.check_setting("no.such", "5")
        with pytest.raises(Exception, match="linger"):
            kind.check_setting(name, "long")
        with pytest.raises(Exception, match="the harness knows where the brokers are"):
            kind.check_setting(kind.bootstrap_setting, "x:1")
    with pytest.raises(Exception, match=r"give it as delivery.timeout.ms, which is the same"):
        registry.make_client("librdkafka").check_setting("message.timeout.ms", "5")


def test_who_waits_for_no_acknowledgement_knows_nothing() -> None:
    for client in CLIENTS:
        kind = registry.make_client(client)
        assert kind.outcomes("0", {}).acknowledged == "info"
        assert kind.outcomes("1", {}).acknowledged == kind.outcomes("all", {}).acknowledged == "ok"


def test_who_repeats_and_promises_no_idempotence_may_write_twice() -> None:
    """As checkers.log.scope.Options has it."""
    for client, by_default in (("librdkafka", False), ("java", True), ("kafka-python", True), ("aiokafka", False)):
        kind = registry.make_client(client)
        assert kind.is_idempotent("all", {}) is by_default, client
        assert kind.is_idempotent("all", {kind.idempotence_setting: "true"})
        assert kind.is_idempotent("all", {kind.idempotence_setting: "false"}) is False
        assert kind.is_idempotent("1", {}) is False
    assert registry.make_client("librdkafka").is_idempotent("all", {"retries": "0"})
