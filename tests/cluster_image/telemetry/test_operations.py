"""What an operator sees of real processes: metrics that Prometheus can read, and the tools."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from prometheus_client.parser import text_string_to_metric_families

from cluster_image.network import Address
from cluster_image.network.tcp import TcpNetwork
from cluster_image.storage.records import build_batch
from cluster_image.wire.messages import milliseconds
from tests.clusters.process_cluster import ProcessCluster, process_cluster, run_node

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Topics `one` of a partition on both brokers, with 5 records, and `two` of 3 partitions that need 3 in sync."""
    with process_cluster(tmp_path_factory.mktemp("cluster")) as started:
        asyncio.run(_fill(started))
        yield started


async def _fill(cluster: ProcessCluster) -> None:
    network = TcpNetwork()
    broker = await network.connect(Address("127.0.0.1", cluster.ports[1]), client_id="test", timeout=5)
    strict = (CreatableTopicConfig(name="min.insync.replicas", value="2"),)
    topics = tuple(
        CreatableTopic(name=name, num_partitions=count, replication_factor=factor, assignments=(), configs=configs)
        for name, count, factor, configs in (("one", 1, 2, ()), ("two", 3, 2, strict))
    )
    answer = await broker.request(CreateTopicsRequest(topics=topics, timeout=milliseconds(5000)), timeout=5)
    assert {t.error_code for t in answer.topics} == {ErrorCode.none}
    metadata = MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    while True:
        answer = await broker.request(metadata, timeout=5)
        leaders = {str(t.name): [p.leader_id for p in t.partitions] for t in answer.topics}
        if len(leaders) == 2 and min(map(min, leaders.values())) > 0:
            break
        await asyncio.sleep(0.05)
    leader = await network.connect(Address("127.0.0.1", cluster.ports[leaders["one"][0]]), client_id="test", timeout=5)
    batch = build_batch([b"a", b"b", None, b"\0\1", b"e"], keys=[b"k", None, None, None, None], timestamp_ms=1000)
    produce = ProduceRequest(
        transactional_id=None, acks=-1, timeout=milliseconds(5000),
        topic_data=(TopicProduceData(name="one", partition_data=(PartitionProduceData(index=0, records=batch),)),),
    )  # fmt: skip
    while True:
        answer = await leader.request(produce, timeout=5)
        error = answer.responses[0].partition_responses[0].error_code
        if error is ErrorCode.none:
            break
        assert error in (ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower), error
        await asyncio.sleep(0.05)
    await network.close()


def scrape(cluster: ProcessCluster, node_id: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.metrics_ports[node_id]}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape_once_followed(cluster: ProcessCluster, node_id: int) -> Samples:
    """A session begins with the answer to a follower's first fetch, which may wait for something to tell."""
    deadline = time.monotonic() + 10
    while True:
        samples = scrape(cluster, node_id)
        if samples["kafka_server_fetchsessioncache_numincrementalfetchsessions", ()] or time.monotonic() > deadline:
            return samples
        time.sleep(0.05)


def leader_of_one(cluster: ProcessCluster) -> int:
    shown = run_node("describe-topic", "--bootstrap", f"127.0.0.1:{cluster.ports[1]}", "--json", "one")
    leader: int = json.loads(shown.stdout)[0]["partitions"][0]["leader"]
    return leader


def test_a_broker_tells_its_partitions_and_requests(cluster: ProcessCluster) -> None:
    leader = leader_of_one(cluster)
    both = {node: scrape_once_followed(cluster, node) for node in (1, 2)}
    for node, samples in both.items():
        assert samples["chaos_event_loop_responsive", ()] == 1
        assert samples["kafka_server_kafkaserver_brokerstate", ()] == 3
        assert samples["kafka_server_brokerfenced", ()] == 0
        assert samples["kafka_server_fetchsessioncache_numincrementalfetchsessions", ()] == 1  # the other broker's
        assert samples["kafka_server_leaderreplication_bytes_total", ()] == 0  # nothing is throttled
        assert samples["kafka_server_followerreplication_bytes_total", ()] == 0
        assert samples["kafka_server_replicamanager_partitioncount", ()] == 4
        assert samples["kafka_server_replicamanager_underreplicatedpartitions", ()] == 0
        assert samples["kafka_server_replicamanager_underminisrpartitioncount", ()] == 0
        assert samples["kafka_server_raft_metrics_current_leader", ()] == 101
        assert samples["kafka_server_raft_metrics_current_state", (("state", "follower"),)] == 1
        assert samples["kafka_log_log_logendoffset", (("partition", "0"), ("topic", "one"))] == 5
        assert samples["kafka_cluster_partition_isleader", (("partition", "0"), ("topic", "one"))] == (node == leader)
    assert sum(s["kafka_server_replicamanager_leadercount", ()] for s in both.values()) == 4
    at_minimum = sum(s["kafka_server_replicamanager_atminisrpartitioncount", ()] for s in both.values())
    assert at_minimum == 3  # those of topic two
    follower = (("partition", "0"), ("replica", str(3 - leader)), ("topic", "one"))
    assert both[leader]["kafka_cluster_partition_followerlag", follower] == 0
    assert both[leader]["kafka_network_requestmetrics_requests_total", (("request", "Produce"),)] >= 1


def test_a_controller_tells_of_the_cluster(cluster: ProcessCluster) -> None:
    samples = scrape(cluster, 101)
    prefix = "kafka_controller_kafkacontroller_"
    assert samples[f"{prefix}activecontrollercount", ()] == 1
    assert samples[f"{prefix}activebrokercount", ()] == 2
    assert samples[f"{prefix}fencedbrokercount", ()] == 0
    assert samples[f"{prefix}globaltopiccount", ()] == 2
    assert samples[f"{prefix}globalpartitioncount", ()] == 4
    assert samples[f"{prefix}offlinepartitionscount", ()] == 0
    assert samples["kafka_controller_controllerstats_uncleanleaderelections_total", ()] == 0
    end = samples["kafka_server_raft_metrics_log_end_offset", ()]
    assert end == samples["kafka_server_raft_metrics_high_watermark", ()] > 0
    assert samples["kafka_server_broker_metadata_metrics_last_applied_record_offset", ()] == end - 1
    assert {labels[0][1] for name, labels in samples if name == "kafka_server_raft_metrics_replica_lag"} >= {"101", "1"}


def test_a_metrics_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path, 0)
    with socket.create_server(("127.0.0.1", cluster.metrics_ports[101])):
        ended = run_node(cluster.properties(101))
    assert ended.returncode == 2
    port = cluster.metrics_ports[101]
    sentence = f"metrics.port: 127.0.0.1:{port} cannot be listened on (Address already in use)"
    assert ended.stderr == f"{cluster.directory / '101.properties'}: {sentence}\n"


def test_describe_quorum_asks_any_node(cluster: ProcessCluster) -> None:
    for node in (101, 1):
        shown = run_node("describe-quorum", "--bootstrap", f"127.0.0.1:{cluster.ports[node]}", "--json")
        assert (shown.returncode, shown.stderr) == (0, "")
        quorum = json.loads(shown.stdout)
        assert quorum["leader_id"] == 101
        assert quorum["replicas"][0]["role"] == "leader"
        assert {r["id"] for r in quorum["replicas"] if r["role"] == "observer"} == {1, 2}
        assert quorum["high_watermark"] == quorum["replicas"][0]["log_end_offset"]
        assert all(0 <= r["lag"] <= 5 and r["caught_up_ms_ago"] < 60_000 for r in quorum["replicas"])
    shown = run_node("describe-quorum", "--bootstrap", f"127.0.0.1:{cluster.ports[2]}")
    assert shown.stdout.splitlines()[2].split()[:2] == ["101", "leader"]


def test_describe_topic_shows_replicas_isr_and_elr(cluster: ProcessCluster) -> None:
    bootstrap = f"127.0.0.1:1,127.0.0.1:{cluster.ports[2]}"  # nobody at the first
    shown = run_node("describe-topic", "--bootstrap", bootstrap, "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    one, two = json.loads(shown.stdout)
    assert (one["topic"], len(one["partitions"]), two["topic"], len(two["partitions"])) == ("one", 1, "two", 3)
    partition = one["partitions"][0]
    assert sorted(partition["replicas"]) == sorted(partition["isr"]) == [1, 2]
    assert partition["elr"] == partition["last_known_elr"] == partition["offline_replicas"] == []
    shown = run_node("describe-topic", "--bootstrap", bootstrap, "two", "three")
    assert shown.returncode == 1
    assert shown.stdout.splitlines()[1].split()[:3] == ["PARTITION", "LEADER", "EPOCH"]
    assert "there is no topic three" in shown.stderr


def test_dump_log_shows_batches_and_records(cluster: ProcessCluster) -> None:
    path = cluster.directory / "1" / "one-0" / f"{0:020d}.log"
    shown = run_node("dump-log", "--records", "--json", path)
    assert (shown.returncode, shown.stderr) == (0, "")
    file, batch, *records = map(json.loads, shown.stdout.splitlines())
    assert file["bytes"] == batch["bytes"] == path.stat().st_size
    assert (batch["base_offset"], batch["last_offset"], batch["records"]) == (0, 4, 5)
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [
        (0, "k", "a"), (1, None, "b"), (2, None, None), (3, None, "0x0001"), (4, None, "e"),
    ]  # fmt: skip


def test_dump_log_decodes_the_metadata_log(cluster: ProcessCluster) -> None:
    shown = run_node("dump-log", "--records", cluster.directory / "101" / "__cluster_metadata-0")
    assert (shown.returncode, shown.stderr) == (0, "")
    words = {line.split()[1] for line in shown.stdout.splitlines() if line.startswith("    ")}
    assert words >= {"LeaderChangeMessage", "RegisterBrokerRecord", "TopicRecord", "PartitionRecord", "ConfigRecord"}
    assert "TopicRecord name=one topic_id=" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("describe-quorum", "--bootstrap", "127.0.0.1:1"), "127.0.0.1:1 does not answer (Connection refused)"),
        (("describe-topic", "--bootstrap", "nowhere.invalid:1"), "nowhere.invalid:1 does not answer"),
        (("dump-log", "/nowhere"), "/nowhere: No such file or directory"),
        (("dump-log", "Makefile"), "Makefile is no log segment, snapshot or checkpoint"),
        (("describe-topic", "--bootstrap", "nonsense"), "'nonsense' is not host:port"),
        (("describe-topic", "--bootstrap", "a:1", "--timeout", "-1"), "'-1' is not a number of seconds"),
        (("describe-topic", "--bootstrap", "a:1", "--nonsense"), "arguments: --nonsense; --help tells more"),
        (("describe-topics",), "No such file or directory, and no tool of this name; tools are describe-quorum, "),
        (("/bin/true",), "/bin/true: 'utf-8' codec can't decode"),
        (("--describe",), "python -m cluster_image: the following arguments are required: TOOL; --help tells more"),
        ((), "python -m cluster_image: the following arguments are required: TOOL; --help tells more"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    ended = run_node(*arguments)
    assert ended.returncode == 2
    assert sentence in ended.stderr and ended.stderr.count("\n") == 1


def test_a_silent_server_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ended = run_node("describe-quorum", "--bootstrap", address, "--timeout", "0.5")
    assert (ended.returncode, ended.stderr) == (
        2,
        f"describe-quorum: {address} does not answer (no response in time)\n",
    )
