"""What Apache Kafka is told, what is promised of it, and what is refused before a node starts."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kio.schema.alter_partition_reassignments.v1 import request as of_4
from kio.schema.types import BrokerId, TopicName

from cluster_image.wire.integers import i32
from harness.errors import BadArguments
from harness.plan import registry
from harness.plan.plan import Plan
from harness.run.order import Order
from harness.targets.kafka import log_lines, properties, versions
from harness.targets.kafka.admin import ApacheAdmin
from harness.targets.kafka.target import Kafka
from harness.targets.timing import Timing
from tests.harness.targets.kafka.kafka_files import make_jars


def plan(target: str = "kafka:4.2.0", **fields: Any) -> Plan:
    return Plan(run="r", target=target, **fields)


def node(role: str = "broker", combined: bool = False) -> Any:
    quorum = ("10.0.0.1", 9093) if combined else None
    address = ("10.0.0.1", 9092)
    return SimpleNamespace(
        name=f"{role}-1", id=1, role=role, rack="rack-1", address=address, controller_address=quorum,
        quorum_address=address if role == "controller" else quorum,
    )  # fmt: skip


def written(node_: Any, of: Plan) -> dict[str, str]:
    text = registry.make_target(of.target).configurations(of, [node_], "cluster")[node_.name]
    return dict(line.partition("=")[::2] for line in text.splitlines())


def test_each_role_has_its_listeners() -> None:
    assert written(node(), plan())["listeners"] == "PLAINTEXT://10.0.0.1:9092"
    assert written(node("controller"), plan())["listeners"] == "CONTROLLER://10.0.0.1:9092"
    both = written(node(combined=True), plan(combined=True))
    assert both["listeners"] == "PLAINTEXT://10.0.0.1:9092,CONTROLLER://10.0.0.1:9093"
    assert both["process.roles"] == "broker,controller" and both["controller.quorum.voters"] == "1@10.0.0.1:9093"


def test_a_dynamic_quorum_is_formatted_with_its_first_voters_and_found_by_their_addresses() -> None:
    dynamic = plan(settings={"chaos.quorum": "dynamic"})
    controller = written(node("controller"), dynamic)
    assert "controller.quorum.voters" not in controller
    assert controller["controller.quorum.bootstrap.servers"] == "10.0.0.1:9092"
    option, voter = controller["chaos.format.options"].split()
    directory = voter.removeprefix("1@10.0.0.1:9092:")
    assert option == "--initial-controllers" and len(base64.urlsafe_b64decode(directory + "==")) == 16
    assert written(node("controller"), dynamic) == controller  # whoever reads it, and each time
    assert written(node(), dynamic)["chaos.format.options"] == "--no-initial-controllers"
    assert written(node(), plan())["chaos.format.options"] == ""


def test_settings_go_to_the_nodes_and_times_follow_them() -> None:
    short = written(node(), plan())
    assert short["replica.lag.time.max.ms"] == "4000" and plan().timing == Timing(3.0, 4.0, 6.0)
    kafkas = plan(timeouts="kafka")
    assert "replica.lag.time.max.ms" not in written(node(), kafkas) and kafkas.timing == Timing(9.0, 30.0, 6.0)
    own = plan(settings={"replica.lag.time.max.ms": "10000"})
    assert written(node(), own)["replica.lag.time.max.ms"] == "10000" and own.timing.lag == 10.0


def test_another_broker_in_a_nodes_place_has_another_folder() -> None:
    target = registry.make_target("kafka:4.2.0")
    text = target.configurations(plan(), [node()], "cluster")["broker-1"]
    other = target.renumbered(text, 4, "other")
    assert "node.id=4\n" in other and f"log.dirs=/data/other/{properties.LOGS}\n" in other
    assert target.renumbered(other, 1, "") == text


@pytest.mark.parametrize(
    ("version", "features", "options"),
    [
        ("4.2.0", {versions.ELR: "0"}, ["--feature", f"{versions.ELR}=0"]),
        ("3.9.1", {versions.METADATA: "20"}, ["--feature", f"{versions.METADATA}=20"]),
        ("3.9.1", {versions.METADATA: "3.8-IV0"}, ["--release-version", "3.8-IV0"]),
        ("3.7.2", {versions.METADATA: "3.6"}, ["--release-version", "3.6"]),
    ],
)
def test_features_at_format(version: str, features: dict[str, str], options: list[str]) -> None:
    assert properties.format_options(features, version) == options


@pytest.mark.parametrize(
    ("version", "features", "elr"),
    [("3.9.1", {}, False), ("4.0.0", {}, False), ("4.0.0", {versions.ELR: "1"}, True), ("4.1.0", {}, True),
     ("4.2.0", {versions.ELR: "0"}, False)],
)  # fmt: skip
def test_without_elr_less_is_promised(version: str, features: dict[str, str], elr: bool) -> None:
    exceptions = plan(f"kafka:{version}", features=features).promise["exceptions"]
    assert any("without ELR" in each for each in exceptions) != elr


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": "kafka"}, "needs a version, such as kafka:4.2.0, or --kafka-home"),
        ({"target": "kafka:2.8.1"}, "Kafka 2.8.1 is not supported; 3.7 to 4.3 are"),
        ({"target": "kafka:new"}, "'new' is no version of Kafka"),
        ({"target": "kraft:4.2.0"}, "target kraft takes nothing after its name"),
        ({"target": "kraft", "features": {"a": "1"}}, "--feature: target kraft has no use for it"),
        ({"target": "kafka:3.9.1", "features": {versions.ELR: "1"}}, "Kafka 3.9.1 has no ELR; 4.0 and later have"),
        ({"target": "kafka:4.2.0", "features": {versions.ELR: "x"}}, "its level is a number, such as 1"),
        ({"target": "kafka:4.2.0", "upgrade_to": "3.9.1", "nemesis": ("membership:upgrade",)}, "is not after 4.2.0"),
        ({"target": "kafka:4.2.0", "upgrade_to": "4.2.0", "nemesis": ("membership:upgrade",)}, "is not after 4.2.0"),
        ({"target": "kafka:3.7.2", "features": {"kraft.version": "1"}}, "3.9 and later take others"),
        ({"target": "kafka:4.2.0", "on": "simulation"}, "works only in docker and ssh, and not in simulation"),
        ({"target": "kafka:4.2.0", "bug": "M01"}, "has no bugs to switch on"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(run="r", **fields)


@pytest.mark.parametrize(
    "setting", ["log.dirs=/x", "min.insync.replicas=1", "chaos.format=no", "chaos.heap=1k", "chaos.x=1"]
)
def test_settings_that_are_the_harness_own(setting: str) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(BadArguments, match=f"--set {name}"):
        Kafka("4.2.0").check_setting(name, value)


def test_what_a_target_cannot_have_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"--workload compacted is not possible with target kraft: its log has no"):
        plan("kraft", workload="compacted")
    assert plan("kafka:3.9.1", workload="compacted").log == {"cleanup.policy": "compact", "keys": 50}


class OldBroker:
    """A connection to a broker of 3.9: what it serves, and no more."""

    async def request(self, request: Any, *, timeout: float) -> Any:
        keys = [SimpleNamespace(api_key=45, max_version=0), SimpleNamespace(api_key=18, max_version=4)]
        return SimpleNamespace(api_keys=keys)


def test_a_broker_of_before_4_is_asked_for_reassignments_as_it_knows_them() -> None:
    partition = of_4.ReassignablePartition(partition_index=i32(2), replicas=(BrokerId(3), BrokerId(1)))
    topic = of_4.ReassignableTopic(name=TopicName("chaos"), partitions=(partition,))
    asked = of_4.AlterPartitionReassignmentsRequest(topics=(topic,))
    admin = ApacheAdmin(lambda: (), cast(Any, None))
    fitting = asyncio.run(admin.fitting(cast(Any, OldBroker()), asked))
    assert fitting.__version__ == 0
    (only,) = fitting.topics[0].partitions
    assert (fitting.topics[0].name, only.partition_index, only.replicas) == ("chaos", 2, (3, 1))


def exceptions(**fields: Any) -> str:
    return " ".join(plan(**fields).promise["exceptions"])


def test_what_is_promised_follows_the_metadata_version_and_the_settings() -> None:
    without = "without ELR"
    assert exceptions() == ""
    for level in ("3.9", "4.0-IV3", "25"):
        assert without in exceptions(features={versions.METADATA: level})
        assert exceptions(features={versions.METADATA: level, versions.ELR: "1"}) == ""
    for level in ("4.1-IV0", "26"):
        assert exceptions(features={versions.METADATA: level}) == ""
    assert "unclean.leader.election.enable=true" in exceptions(settings={"unclean.leader.election.enable": "TRUE"})


@pytest.mark.parametrize(("version", "named"), [("3.9.1", "kafka:3.9.1"), ("4.9.0", "kafka")])
def test_a_build_is_named_by_the_version_that_it_turns_out_to_be(tmp_path: Path, version: str, named: str) -> None:
    """What is promised of it depends on that."""
    make_jars(tmp_path / "kafka" / "libs", version)
    prepared = Order({"target": "kafka", "kafka_home": str(tmp_path / "kafka"), "on": "docker"}, tmp_path).prepared()
    assert prepared.tried.target == named
    assert ("without ELR" in str(prepared.tried.promise)) == (version == "3.9.1")


def test_a_build_of_before_3_7_is_refused(tmp_path: Path) -> None:
    make_jars(tmp_path / "kafka" / "libs", "2.8.0")
    with pytest.raises(BadArguments, match=r"Kafka 2\.8\.0 is not supported"):
        Order({"target": "kafka", "kafka_home": str(tmp_path / "kafka"), "on": "docker"}, tmp_path).prepared()


def test_places_in_a_plan_can_be_read_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jars(tmp_path / "kafka" / "libs", "4.2.0")
    monkeypatch.chdir(tmp_path)
    prepared = Order({"target": "kafka", "kafka_home": "kafka", "on": "docker"}, tmp_path).prepared()
    assert prepared.tried.kafka_home == str(tmp_path / "kafka")


class Knowing:
    """A network with one broker, which has a definition of one setting (3: INT) and not of another (0: UNKNOWN)."""

    asked: Any = None

    async def connect(self, address: object, *, client_id: str, timeout: float) -> Knowing:
        return self

    async def request(self, request: Any, *, timeout: float) -> Any:
        self.asked = request.resources[0]
        types = {"num.io.threads": 3, "replica.lag.time.max": 0}
        described = [SimpleNamespace(name=name, config_type=types[name]) for name in self.asked.configuration_keys]
        return SimpleNamespace(results=[SimpleNamespace(configs=described)])

    def close(self) -> None: ...


def test_settings_that_nodes_do_not_know_are_named_once_they_are_ready() -> None:
    settings = {"num.io.threads": "4", "replica.lag.time.max": "5", "chaos.heap": "1g"}
    cluster, network = cast(Any, SimpleNamespace(brokers=[node()])), Knowing()
    ignored = Kafka("4.2.0").ignored(cluster, network, plan(settings=settings))
    assert asyncio.run(ignored) == ["replica.lag.time.max"]
    assert (network.asked.resource_type, network.asked.resource_name) == (4, "1")
    network.asked = None
    own = Kafka("4.2.0").ignored(cluster, network, plan(settings={"chaos.heap": "1g"}))
    assert list(asyncio.run(own)) == [] and network.asked is None


LOG = """chaos: nothing
[2026-01-01 00:00:00,000] ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)
org.apache.kafka.common.config.ConfigException: Invalid value abc for configuration log.segment.bytes: Not a number
\tat org.apache.kafka.common.config.ConfigDef.parseType(ConfigDef.java:786)
"""


def test_why_a_node_ended() -> None:
    assert log_lines.why_ended(LOG.partition("\n")[2]) == (
        "ConfigException: Invalid value abc for configuration log.segment.bytes: Not a number"
    )
    assert log_lines.why_ended("chaos: there is no Java in this image\n") == "there is no Java in this image"
    assert log_lines.why_ended("[x] FATAL Halting (kafka.Kafka)\n") == "Halting"
    assert log_lines.why_ended("nothing special\n\n") == "nothing special"
