"""The image of a node: what it starts with, and how fast."""

from __future__ import annotations

import subprocess

import docker
import pytest

from harness.plan.plan import Plan
from harness.runtimes.docker import engine
from harness.runtimes.docker.images.images import EngineImages, ensure_images
from harness.targets.kafka.target import _IMAGE, Kafka
from tests.harness.targets.test_contract_of_targets import kafka_to_run

#: Fails unless the virtual machine can use the archive, in which case a node would start without it.
SHARED_OR_NOT_AT_ALL = """
. /opt/chaos-kafka/java.sh
libs=$(libs_of first)
run_java 128m "$libs" "-Xshare:on -XX:SharedArchiveFile=$(archive_of "$libs" $1)" kafka.Kafka --version
"""


@pytest.mark.parametrize("script", sorted(path.name for path in _IMAGE.glob("*.sh")))
def test_the_scripts_of_the_image_are_scripts(script: str) -> None:
    assert subprocess.run(["sh", "-n", str(_IMAGE / script)], check=False).returncode == 0


@pytest.mark.docker
@pytest.mark.skipif(not kafka_to_run(), reason="no Kafka, and no Maven client")
@pytest.mark.parametrize("loaded", ["StorageTool", "Kafka"])
def test_a_node_finds_the_classes_that_it_loads_in_an_archive(loaded: str) -> None:
    api: docker.APIClient = engine.connect()
    plan = Plan(run="r", target="kafka:4.2.0")
    package = Kafka("4.2.0").package(plan, EngineImages(api))
    tag = ensure_images(api, lambda _: None, package).node
    command = ["-c", SHARED_OR_NOT_AT_ALL, "sh", loaded]
    said = docker.from_env().containers.run(tag, command, entrypoint="/bin/sh", remove=True, stderr=True)
    assert b"4.2.0" in said
