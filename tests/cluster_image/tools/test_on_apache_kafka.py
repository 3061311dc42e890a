"""Operators' commands against Apache Kafka, whose APIs they use: each of them, and what it leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cluster_image.tools import main
from tests import ROOT
from tests.cluster_image.clients.test_librdkafka import SAYS_NOTHING
from tests.clusters.apache_kafka import ApacheKafka, apache_kafka
from tests.clusters.kafka_jvm import needs_kafka
from tests.clusters.process_cluster import run_node

pytestmark = needs_kafka

PARTITIONS = 12
RECORDS = 20  # of each partition
RECORD = b"x" * 20_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Three brokers with a topic `t`, of which each partition has its RECORDS; broker 4 is a spare."""
    small = {"replica.fetch.max.bytes": str(len(RECORD)), "broker.session.timeout.ms": "3000"}
    with apache_kafka(tmp_path_factory.mktemp("kafka"), 3, spares=1, **small) as started:
        made = tool(started, "create-topic", "t", "--partitions", PARTITIONS, "--replication-factor", 3)
        assert made.returncode == 0, made.stderr
        assert made.stdout.startswith(f"topic t is created with {PARTITIONS} partitions\n")
        producer = Producer(
            {"bootstrap.servers": started.bootstrap, "acks": "all", "batch.num.messages": 1, **SAYS_NOTHING}
        )
        for number in range(PARTITIONS * RECORDS):
            producer.produce("t", RECORD, partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        yield started


def tool(kafka: ApacheKafka, name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """In this process: to start one takes as long as the command does."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = main([name, "--bootstrap", kafka.bootstrap, *map(str, arguments)])
    return subprocess.CompletedProcess(name, status, out.getvalue(), err.getvalue())


def partitions(kafka: ApacheKafka) -> dict[int, Any]:
    """In another process: any thread may ask."""
    (topic,) = json.loads(run_node("describe-topic", "--bootstrap", kafka.bootstrap, "t", "--json").stdout)
    return {each["partition"]: each for each in topic["partitions"]}


def assert_balanced(kafka: ApacheKafka, *brokers: int) -> None:
    found = partitions(kafka)
    held = [broker for each in found.values() for broker in each["replicas"]]
    assert set(held) == set(brokers)
    for counts in (
        [held.count(broker) for broker in brokers],
        [[each["leader"] for each in found.values()].count(broker) for broker in brokers],
    ):
        assert max(counts) - min(counts) <= 1
    assert all(each["leader"] == each["replicas"][0] and not each["adding_replicas"] for each in found.values())


def assert_not_throttled(kafka: ApacheKafka) -> None:
    for kind in ("topics", "brokers"):
        told = kafka.jvm.run(
            "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap, "--describe", "--entity-type", kind
        )
        assert "throttled" not in told


def test_topics_are_made_changed_and_deleted(kafka: ApacheKafka) -> None:
    assert tool(kafka, "create-topic", "u", "--config", "min.insync.replicas=2").returncode == 0
    assert "already exists" in tool(kafka, "create-topic", "u").stderr
    altered = tool(
        kafka, "alter-topic", "u", "--partitions", 3, "--config", "retention.ms=100000",
        "--delete-config", "min.insync.replicas",
    )  # fmt: skip
    assert (altered.returncode, altered.stdout) == (0, "topic u is changed\n"), altered.stderr
    (topic,) = json.loads(tool(kafka, "describe-topic", "u", "--json").stdout)
    assert len(topic["partitions"]) == 3
    assert "Unknown topic config name: retention" in tool(kafka, "alter-topic", "u", "--config", "retention=1").stderr
    deleted = tool(kafka, "delete-topic", "u", "nothing", "--json")
    assert json.loads(deleted.stdout) == {"deleted": ["u"], "refused": {"nothing": "unknown_topic_or_partition"}}
    assert json.loads(tool(kafka, "describe-quorum", "--json").stdout)["leader_id"] == 101


def test_a_broker_comes_and_gets_its_share(kafka: ApacheKafka) -> None:
    """What is planned is carried out, throttled, and the throttle removed."""
    assert "broker 4 has not joined" in tool(kafka, "add-brokers", 4, "--wait", 0.5).stderr
    kafka.start(4)
    assert tool(kafka, "add-brokers", 4, "--no-rebalance").stdout == "brokers 1, 2, 3, 4 are alive\n"
    planned = json.loads(tool(kafka, "rebalance", "--dry-run", "--json").stdout)
    assert (planned["replicas_moved"], planned["least"], planned["carried_out"]) == (9, True, False)
    assert planned["bytes_moved"] == pytest.approx(9 * RECORDS * len(RECORD), rel=0.01)
    added = tool(kafka, "add-brokers", 4, "--throttle", 20_000_000)
    assert added.returncode == 0, added.stderr
    assert "balanced: 9 replicas moved" in added.stdout and "9 of 9 replicas moved" in added.stderr
    carried_out = partitions(kafka)
    for each in planned["partitions"]:
        assert carried_out[each["partition"]]["replicas"] == each["replicas"]
    assert_balanced(kafka, 1, 2, 3, 4)
    assert_not_throttled(kafka)
    assert tool(kafka, "rebalance", "--dry-run").stdout == "the cluster is balanced\n"


def test_a_plan_under_way_is_cancelled_and_its_throttle_goes(kafka: ApacheKafka, tmp_path: Path) -> None:
    before = partitions(kafka)
    held = {index: each["replicas"] for index, each in before.items() if 4 in each["replicas"]}
    lacking = {index: next(b for b in (1, 2, 3) if b not in replicas) for index, replicas in held.items()}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": "t", "partition": index, "replicas": [lacking[index] if b == 4 else b for b in replicas]}
        for index, replicas in held.items()
    ]}))  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "cluster_image", "reassign", "--bootstrap", kafka.bootstrap, "--plan", plan,
         "--throttle", "1000"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        assert first.stderr is not None
        assert "0 of 9 replicas moved" in first.stderr.readline(), "under way"
        first.kill()
    moving = [each for each in partitions(kafka).values() if each["adding_replicas"]]
    assert moving
    cancelled = tool(kafka, "reassign", "--cancel", "--json")
    assert cancelled.returncode == 0, cancelled.stderr
    assert 0 < json.loads(cancelled.stdout)["cancelled"] <= 9
    assert not any(each["adding_replicas"] for each in partitions(kafka).values())
    assert_not_throttled(kafka)
    carried_out = tool(kafka, "reassign", "--plan", plan, "--json")
    assert carried_out.returncode == 0, carried_out.stderr
    assert all(4 not in each["replicas"] for each in partitions(kafka).values())
    assert tool(kafka, "rebalance").returncode == 0
    assert_balanced(kafka, 1, 2, 3, 4)


def test_a_broker_is_emptied_and_unregistered_once_it_has_stopped(kafka: ApacheKafka) -> None:
    def stop_once_it_is_empty() -> None:
        while any(4 in each["replicas"] for each in partitions(kafka).values()):
            time.sleep(0.5)
        kafka.shut_down(4)

    stopping = threading.Thread(target=stop_once_it_is_empty)
    stopping.start()
    removed = tool(kafka, "remove-broker", 4, "--json", "--wait", 40)
    stopping.join()
    assert removed.returncode == 0, removed.stderr
    assert json.loads(removed.stdout)["unregistered"] is True
    assert_balanced(kafka, 1, 2, 3)
    again = tool(kafka, "remove-broker", 4)
    assert (again.returncode, again.stderr) == (2, "remove-broker: broker 4: there is no such broker\n")


def test_a_dead_broker_gets_no_throttle_and_is_replaced_all_the_same(kafka: ApacheKafka) -> None:
    """The last of this file. Apache Kafka takes settings of a broker at that broker only."""
    kafka.start(4)
    assert tool(kafka, "add-brokers", 4).returncode == 0
    kafka.shut_down(4)
    removed = tool(kafka, "remove-broker", 4, "--throttle", 20_000_000)
    assert removed.returncode == 0, removed.stderr
    assert "broker 4 is not alive and gets no throttle\n" in removed.stderr
    assert removed.stdout.endswith("broker 4 is not registered any more\n")
    assert_balanced(kafka, 1, 2, 3)
    assert_not_throttled(kafka)
