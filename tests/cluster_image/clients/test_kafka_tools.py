"""Apache Kafka's own command-line tools against the cluster of this repository: what their scripts in bin/ run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from tests.cluster_image.clients.test_librdkafka import SAYS_NOTHING
from tests.clusters.kafka_jvm import KafkaJvm, kafka_jvm, needs_kafka
from tests.clusters.process_cluster import ProcessCluster, process_cluster

pytestmark = needs_kafka

#: By the name of the script.
TOOLS: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
}
RECORDS: Final = 40  # of each partition of `t`
RECORD: Final = b"x" * 20_000
#: Bytes a second at which the records of a partition move for the rest of the day.
SLOW: Final = 1000


class Tools:
    def __init__(self, cluster: ProcessCluster, jvm: KafkaJvm, directory: Path) -> None:
        self.cluster = cluster
        self._jvm = jvm
        self._directory = directory

    def __call__(self, script: str, *arguments: object, status: int = 0) -> str:
        bootstrap = ("--bootstrap-server", self.cluster.bootstrap)
        given = (*bootstrap, *arguments) if script == "kafka-metadata-quorum" else (*arguments, *bootstrap)
        return self._jvm.run(TOOLS[script], *given, status=status)

    def file(self, name: str, **content: Any) -> Path:
        path = self._directory / name
        path.write_text(json.dumps({"version": 1, **content}))
        return path

    def plan(self, name: str, topic: str, *replicas: list[int]) -> Path:
        """Partitions from 0 on."""
        return self.file(name, partitions=[
            {"topic": topic, "partition": index, "replicas": each} for index, each in enumerate(replicas)
        ])  # fmt: skip

    def reassign(self, action: str, plan: Path, *arguments: object, status: int = 0) -> str:
        return self("kafka-reassign-partitions", action, "--reassignment-json-file", plan, *arguments, status=status)

    def replicas(self, topic: str) -> list[list[int]]:
        told = self("kafka-topics", "--describe", "--topic", topic)
        return [[int(r) for r in each.split(",")] for each in re.findall(r"\tReplicas: ([\d,]+)", told)]

    def under_way(self) -> set[str]:
        return set(re.findall(r"^(\S+): replicas:", self("kafka-reassign-partitions", "--list"), re.MULTILINE))


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """Four brokers, and a topic `t` with three replicas of four partitions, of which each has its RECORDS."""
    directory = tmp_path_factory.mktemp("cluster")
    small = {"replica.fetch.max.bytes": str(len(RECORD))}  # so that a throttled move is not over with its first portion
    with process_cluster(directory, 4, **small) as cluster, kafka_jvm(directory / "jvm.log") as jvm:
        found = Tools(cluster, jvm, directory)
        created = found(
            "kafka-topics", "--create", "--topic", "t", "--partitions", 4, "--replication-factor", 3,
            "--config", "min.insync.replicas=2",
        )  # fmt: skip
        assert created == "Created topic t.\n"
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1, **SAYS_NOTHING}
        )
        for number in range(4 * RECORDS):
            producer.produce("t", RECORD, partition=number % 4)
        assert producer.flush(30) == 0
        yield found


def test_topics(tools: Tools) -> None:
    assert tools("kafka-topics", "--create", "--topic", "u", "--replica-assignment", "1:2,2:3,3:1") != ""
    assert tools("kafka-topics", "--list").split() == ["t", "u"]
    told = tools("kafka-topics", "--describe", "--topic", "t")
    assert "PartitionCount: 4\tReplicationFactor: 3\tConfigs: min.insync.replicas=2\n" in told
    assert tools.replicas("u") == [[1, 2], [2, 3], [3, 1]]
    tools("kafka-topics", "--alter", "--topic", "u", "--partitions", 5)
    assert len(tools.replicas("u")) == 5
    fewer = tools("kafka-topics", "--alter", "--topic", "u", "--partitions", 2, status=1)
    assert "topic u has 5 partitions" in fewer
    assert "exists" in tools("kafka-topics", "--create", "--topic", "u", "--partitions", 1, status=1)
    tools("kafka-topics", "--create", "--topic", "u", "--if-not-exists")
    for problem in ("unavailable", "under-replicated", "under-min-isr"):
        assert tools("kafka-topics", "--describe", f"--{problem}-partitions") == ""
    tools("kafka-topics", "--delete", "--topic", "u")
    assert tools("kafka-topics", "--list").split() == ["t"]
    assert "does not exist" in tools("kafka-topics", "--delete", "--topic", "u", status=1)


def test_settings_of_topics_and_brokers(tools: Tools) -> None:
    topic, broker = ("--entity-type", "topics", "--entity-name", "t"), ("--entity-type", "brokers", "--entity-name", 2)

    def settings(*of: object) -> dict[str, str]:
        return dict(re.findall(r"^  (\S+?)=(\S+) ", tools("kafka-configs", "--describe", *of), re.MULTILINE))

    tools("kafka-configs", "--alter", *topic, "--add-config", "min.insync.replicas=1,retention.ms=1000000")
    assert settings(*topic) == {"min.insync.replicas": "1", "retention.ms": "1000000"}
    tools("kafka-configs", "--alter", *topic, "--delete-config", "retention.ms,min.insync.replicas")
    assert settings(*topic) == {}
    tools("kafka-configs", "--alter", *broker, "--add-config", "leader.replication.throttled.rate=5000")
    assert settings(*broker) == {"leader.replication.throttled.rate": "5000"}
    assert settings("--entity-type", "brokers", "--entity-name", 1) == {}
    tools("kafka-configs", "--alter", *broker, "--delete-config", "leader.replication.throttled.rate")
    assert settings(*broker) == {}
    assert settings(*broker, "--all")["leader.replication.throttled.rate"] == str(2**63 - 1)
    default = ("--entity-type", "brokers", "--entity-default")
    tools("kafka-configs", "--alter", *default, "--add-config", "follower.replication.throttled.rate=7000")
    assert settings(*default) == {"follower.replication.throttled.rate": "7000"}
    tools("kafka-configs", "--alter", *default, "--delete-config", "follower.replication.throttled.rate")
    unknown = tools("kafka-configs", "--alter", *topic, "--add-config", "retention=1", status=1)
    assert "retention" in unknown


def test_a_plan_that_the_tool_generates_is_carried_out_and_its_throttle_removed(tools: Tools) -> None:
    topics = tools.file("topics.json", topics=[{"topic": "t"}])
    generated = tools(
        "kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3,4"
    )
    proposed = json.loads(generated.strip().splitlines()[-1])
    plan = tools.file("proposed.json", **proposed)
    executed = tools.reassign("--execute", plan, "--throttle", 50_000_000)
    assert "The inter-broker throttle limit was set to 50000000 B/s" in executed
    assert "Successfully started partition reassignments for t-0,t-1,t-2,t-3" in executed
    eventually(lambda: not tools.under_way())
    assert "throttled.replicas=" in tools("kafka-topics", "--describe", "--topic", "t")
    verified = tools.reassign("--verify", plan)
    assert verified.count("is completed") == 4 and "Clearing topic-level throttles on topic t" in verified
    assert "throttled" not in tools("kafka-topics", "--describe", "--topic", "t")
    assert tools.replicas("t") == [each["replicas"] for each in proposed["partitions"]]


def test_a_slow_move_is_listed_replaced_and_cancelled(tools: Tools) -> None:
    """Over one that is under way another is only begun if the operator says so, as with Apache Kafka."""
    home = [[2, 3, 4], [3, 4, 2], [4, 2, 3], [2, 3, 4]]
    tools.reassign("--execute", tools.plan("home.json", "t", *home))
    eventually(lambda: not tools.under_way())
    to_one = tools.plan("to-one.json", "t", *([1, *replicas[:2]] for replicas in home))
    tools.reassign("--execute", to_one, "--throttle", SLOW)
    time.sleep(1)  # the first portions are not held back
    moving = tools.under_way()
    assert moving == {"t-0", "t-1", "t-2", "t-3"}
    assert "is still in progress" in tools.reassign("--verify", to_one, "--preserve-throttles")
    other = tools.plan("other.json", "t", [1, 4, 3])
    assert "Cannot execute because there is an existing partition assignment" in tools.reassign(
        "--execute", other, status=1
    )
    tools.reassign("--execute", other, "--additional", "--throttle", SLOW)
    (line,) = (each for each in tools("kafka-reassign-partitions", "--list").splitlines() if each.startswith("t-0:"))
    assert line.endswith("adding: 1. removing: 2.")
    assert "Successfully cancelled partition reassignments for: t-0,t-1,t-2,t-3" in tools.reassign("--cancel", to_one)
    assert tools.under_way() == set()
    assert [sorted(replicas) for replicas in tools.replicas("t")] == [[2, 3, 4]] * 4
    throttles = tools("kafka-configs", "--describe", "--entity-type", "brokers")
    assert "throttled" not in throttles + tools("kafka-topics", "--describe", "--topic", "t")


def test_leaders(tools: Tools) -> None:
    tools.reassign("--execute", tools.plan("turned.json", "t", [3, 2, 4], [4, 3, 2], [2, 4, 3], [3, 4, 2]))
    eventually(lambda: tools.replicas("t")[0] == [3, 2, 4])
    elected = tools("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED)" in elected
    leaders = re.findall(r"\tLeader: (\d+)", tools("kafka-topics", "--describe", "--topic", "t"))
    assert leaders == ["3", "4", "2", "3"]
    again = tools("kafka-leader-election", "--election-type", "preferred", "--topic", "t", "--partition", 0)
    assert "Valid replica already elected for partitions t-0" in again


def test_what_brokers_hold(tools: Tools) -> None:
    told = json.loads(tools("kafka-log-dirs", "--describe", "--topic-list", "t").strip().splitlines()[-1])
    sizes = {
        (broker["broker"], partition["partition"]): partition["size"]
        for broker in told["brokers"] for log_dir in broker["logDirs"] for partition in log_dir["partitions"]
    }  # fmt: skip
    held = {(broker, f"t-{index}") for index, replicas in enumerate(tools.replicas("t")) for broker in replicas}
    assert sizes.keys() == held
    assert all(size >= RECORDS * len(RECORD) for size in sizes.values())


def test_offsets_and_deleted_records(tools: Tools) -> None:
    def offsets(when: str) -> str:
        return tools("kafka-get-offsets", "--topic", "t", "--time", when)

    assert offsets("latest").splitlines() == [f"t:{index}:{RECORDS}" for index in range(4)]
    deleted = tools(
        "kafka-delete-records", "--offset-json-file",
        tools.file("offsets.json", partitions=[{"topic": "t", "partition": 1, "offset": 10}]),
    )  # fmt: skip
    assert "partition: t-1\tlow_watermark: 10" in deleted
    assert offsets("earliest").splitlines() == ["t:0:0", "t:1:10", "t:2:0", "t:3:0"]


def test_the_quorum(tools: Tools) -> None:
    assert tools("kafka-cluster", "cluster-id") == "Cluster ID: processes\n"
    assert tools("kafka-cluster", "list-endpoints").count("unfenced") == 4
    assert "LeaderId:               101\n" in tools("kafka-metadata-quorum", "describe", "--status")


def test_a_broker_is_emptied_stopped_and_unregistered(tools: Tools) -> None:
    """The last of this file."""
    assert "broker 4 is running" in tools("kafka-cluster", "unregister", "--id", 4, status=1)
    off = tools.plan("off.json", "t", [1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2])
    tools.reassign("--execute", off)
    eventually(lambda: not tools.under_way())
    tools.cluster.shut_down(4)
    assert tools("kafka-cluster", "unregister", "--id", 4) == "Broker 4 is no longer registered.\n"
    assert tools("kafka-cluster", "list-endpoints", "--include-fenced-brokers").count("127.0.0.1") == 3
