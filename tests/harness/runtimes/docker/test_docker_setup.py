"""Set-up and configuration of the Docker runtime, as far as no engine is needed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import RuntimeUnavailable
from harness.plan.plan import Plan
from harness.runtimes.docker import engine, subnet
from harness.runtimes.docker.images import images
from harness.runtimes.docker.runtime import DockerCluster, _check_memory, memory_available
from harness.runtimes.nodes.cluster import new_cluster_id, write_configurations
from harness.runtimes.owner import is_alive, owner
from harness.targets.kraft.target import Kraft
from harness.targets.target import Package
from tests import ROOT
from tests.clusters.stand_in import FOLDER


def test_no_engine_is_one_sentence_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(RuntimeUnavailable, match=r"^No Docker Engine answers at .*make docker"):
        engine.connect()


def test_dead_engine_socket_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "docker.sock"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        with pytest.raises(RuntimeUnavailable, match="No Docker Engine answers"):
            engine.connect()


def test_no_permission_names_the_socket_and_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "docker.sock"
    path.touch()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may always
    with pytest.raises(RuntimeUnavailable, match=r"^No permission for Docker's socket .*usermod -aG docker"):
        engine.connect()


def test_engine_of_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    with pytest.raises(RuntimeUnavailable, match="tcp://elsewhere:2375"):
        engine.connect()


def test_owner_is_alive_until_its_process_ends() -> None:
    assert is_alive(owner())
    pid, _, started = owner().partition(":")
    assert not is_alive(f"{pid}:{int(started) - 1}")  # an earlier process of the same pid
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        other = f"{child.pid}:{started}"
    assert not is_alive(other)
    assert not is_alive("")


def test_no_cluster_id_begins_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-storage format --cluster-id takes none that does; one of 64 did."""
    made = iter([uuid.UUID(int=0xF8 << 120), uuid.UUID(int=1 << 120)])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(made))
    assert new_cluster_id() == "AQAAAAAAAAAAAAAAAAAAAA"


def test_configuration_of_every_node(tmp_path: Path) -> None:
    plan = Plan(run="r", settings={"log.flush.interval.messages": "1", "min.insync.replicas": "1"})
    cluster = DockerCluster(None, plan, Kraft())
    nodes = cluster.add_nodes(subnet.Subnet("10.200.7.0/24"))
    written = write_configurations(Kraft(), plan, nodes, tmp_path)

    def properties(name: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in written[name].read_text().splitlines())

    broker, controller = properties("broker-2"), properties("controller-1")
    assert (broker["node.id"], broker["process.roles"], broker["broker.rack"]) == ("2", "broker", "rack-2")
    assert (controller["node.id"], controller["process.roles"], controller["broker.rack"]) == (
        "101", "controller", "rack-1",
    )  # fmt: skip
    assert broker["listeners"] == "10.200.7.12:9092"
    voters = broker["controller.quorum.voters"].split(",")
    assert voters[0] == f"101@{controller['listeners']}"
    assert len(voters) == 3
    assert controller["controller.quorum.voters"] == broker["controller.quorum.voters"]
    assert controller["cluster.id"] == broker["cluster.id"]
    assert len({node.address for node in nodes}) == 6
    assert broker["log.flush.interval.messages"] == "1"
    assert broker["min.insync.replicas"] == "1", "a setting given by the user wins"
    assert written["broker-2"].stat().st_mode & 0o004, "the node's user must be able to read it"


def test_node_reads_the_configuration_that_is_written(tmp_path: Path) -> None:
    from cluster_image import config

    plan = Plan(run="r")
    nodes = DockerCluster(None, plan, Kraft()).add_nodes(subnet.Subnet("10.200.7.0/24"))
    for path in write_configurations(Kraft(), plan, nodes, tmp_path).values():
        config.parse(path.read_text())


def test_subnet_is_free_of_this_machines_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = [subnet.Subnet("10.128.0.0/10")]
    monkeypatch.setattr(subnet, "_routes", lambda: taken)
    for _ in range(50):
        chosen = subnet._choose()
        assert chosen.subnet_of(subnet.Subnet("10.192.0.0/10"))
        assert chosen.prefixlen == 24


def test_another_subnet_is_tried_when_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from docker.errors import APIError

    class Engine:
        tried: list[str] = []  # noqa: RUF012

        def create_network(self, name: str, ipam: Any, **_: Any) -> None:
            self.tried.append(ipam["Config"][0]["Subnet"])
            if len(self.tried) < 3:
                raise APIError("conflict", explanation="Pool overlaps with other one on this address space")

    engine_ = Engine()
    chosen = subnet.create_network(engine_, "n", {})  # type: ignore[arg-type]
    assert str(chosen) == engine_.tried[-1]
    assert len(engine_.tried) == 3


class _Store:
    """An engine with one image of another's, which is built anew."""

    id = "sha256:1"

    def inspect_image(self, tag: str) -> dict[str, str]:
        return {"Id": self.id}


def test_image_tag_follows_the_sources_and_what_its_base_is(tmp_path: Path) -> None:
    store: Any = _Store()
    source = tmp_path / "source"
    shutil.copytree(FOLDER, source)
    package = Package(source / "Dockerfile", {"": source})
    tag = images._node(package).tag(store)
    (source / "__pycache__").mkdir(exist_ok=True)
    (source / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert images._node(package).tag(store) == tag
    (source / "__init__.py").write_text("'changed'")
    assert images._node(package).tag(store) != tag
    on_another = images._node(Package(source / "Dockerfile", {"": source}, base="our/kafka:1"))
    tag = on_another.tag(store)
    store.id = "sha256:2"
    assert on_another.tag(store) != tag


def test_lock_holds_every_dependency_and_no_address() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dev = project["optional-dependencies"]["dev"]
    of_use, of_dev = ({re.split(r"[<>=\[; ]", line)[0] for line in of} for of in (project["dependencies"], dev))
    for name, wanted, unwanted in (
        ("requirements.txt", of_use, of_dev), ("requirements-dev.txt", of_use | of_dev, set()),
        ("cluster_image/container/requirements.txt", set(), of_dev),
    ):  # fmt: skip
        text = (ROOT / name).read_text()
        hashes = r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+"
        locked = set(re.findall(rf"^([a-z0-9-]+)==[\w.]+(?: ; .+?)?{hashes}$", text, re.MULTILINE))
        assert locked == set(re.findall(r"^(\S+?)==", text, re.MULTILINE)), f"{name}: each with its hashes"
        assert wanted <= locked and not unwanted & locked and "://" not in text, name


def test_node_image_has_the_versions_that_tests_ran_with() -> None:
    ours, nodes = (
        set(re.findall(r"^\S+==\S+", (ROOT / path).read_text(), re.MULTILINE))
        for path in ("requirements.txt", "cluster_image/container/requirements.txt")
    )
    assert nodes and nodes <= ours


def test_python_too_old_is_told_in_one_sentence(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\ncase "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac\n')
    old.chmod(0o755)
    reported = subprocess.run(
        ["bash", str(ROOT / "harness" / "runtimes" / "make_venv.sh"), str(old), str(tmp_path / "venv")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert reported.returncode == 1
    assert reported.stderr.count("\n") == 1
    assert "3.11 or newer" in reported.stderr
    assert "3.9.2" in reported.stderr


def test_more_nodes_than_there_is_memory_for_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runtimes.docker.runtime.memory_available", lambda: 2 << 30)
    _check_memory(2 << 30, 6)
    with pytest.raises(RuntimeUnavailable, match=r"6 nodes take about 2\.1 GiB .* this machine has 2\.0 GiB left"):
        _check_memory(int(2.1 * 2**30), 6)
    assert memory_available() > 0
