"""What every target must do, on each runtime that it has: one suite, for `kraft` in containers and in simulation, and
for a register behind a port, which is no Kafka at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from harness.errors import BadArguments
from harness.plan import registry, schedule_file
from harness.plan.feasible import check_targets
from harness.plan.plan import Plan
from harness.record.history import load_journal
from harness.report.console import Progress
from harness.run.components import Components
from harness.run.run import components_of, run
from harness.runtimes import choose_runtime
from harness.targets.jars.kafka import cached
from harness.targets.kafka.target import Kafka
from harness.targets.target import Target
from tests.clusters.machine_state import differences, machine_state
from tests.clusters.register.target import RegisterComponents

ONE = {"brokers": 1, "replication_factor": 1, "min_insync_replicas": 1, "controllers": 1}
#: Each strikes once; the record says what it did.
FAULTS = """
[[fault]]
nemesis = "pause"
at = "1s"
duration = 1
targets = ["NODE"]

[[fault]]
nemesis = "kill"
at = "3s"
duration = 1
targets = ["NODE"]

[[fault]]
nemesis = "power"
at = "9s"
duration = 1
targets = ["NODE"]
"""
TIME_LIMIT_S = 14.0


class Place(NamedTuple):
    """A target in a place. fields: of its plan. struck: the node that the faults are of."""

    target: str
    on: str
    fields: Mapping[str, Any]
    components: Callable[[Plan], Components]
    struck: str = "broker-1"

    def plan(self, **changes: Any) -> Plan:
        name = f"contract-{self.target.replace(':', '-')}"
        fields = {"run": name, "target": self.target, "on": self.on, "time_limit": TIME_LIMIT_S}
        return Plan(**{**fields, "nemesis": ("pause", "kill", "power"), "rate": 100.0, **self.fields, **changes})


def of_register(plan: Plan) -> Components:
    return RegisterComponents(registry.make_target(plan.target))


class NoImages:
    """An engine that has no image, and no registry."""

    def has(self, tag: str) -> bool:
        return False

    def pull(self, repository: str, version: str) -> bool:
        return False


def kafka_to_run() -> bool:
    """Is there one in the cache, or a Maven client that may fetch it?"""
    return shutil.which("mvn") is not None or cached(Kafka.example) is not None


V2 = {"partitions": 2, "time_limit": 24.0}
REGISTER = Place("register", "docker", ONE, of_register)
#: By the name of the test.
EVERYWHERE = [
    pytest.param(Place("kraft", "simulation", {"partitions": 2}, components_of), id="kraft in simulation"),
    pytest.param(
        Place("kraft", "docker", {"partitions": 2}, components_of), id="kraft in containers", marks=pytest.mark.docker
    ),
    # It promises nothing for a leader that loses its power: broker 3 leads neither partition.
    pytest.param(Place("v2", "simulation", V2, components_of, "broker-3"), id="v2 in simulation"),
    pytest.param(
        Place("v2", "docker", V2, components_of, "broker-3"), id="v2 in containers", marks=pytest.mark.docker
    ),
    pytest.param(REGISTER, id="register in containers", marks=pytest.mark.docker),
    pytest.param(
        Place(f"kafka:{Kafka.example}", "docker", {"partitions": 2, "time_limit": 35.0}, components_of),
        id="kafka in containers",
        marks=[pytest.mark.docker, pytest.mark.skipif(not kafka_to_run(), reason="no Kafka, and no Maven client")],
    ),
]


@pytest.fixture(autouse=True)
def registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a package of the user's own would bring it."""
    ours = registry.entry_points(group=registry.TARGETS)
    there = [*ours, EntryPoint("register", "tests.clusters.register.target:RegisterTarget", registry.TARGETS)]
    installed = registry.entry_points
    monkeypatch.setattr(
        registry, "entry_points", lambda group: there if group == registry.TARGETS else installed(group=group)
    )


@pytest.mark.parametrize("tested", EVERYWHERE)
def test_what_a_target_says_of_itself(tested: Place) -> None:
    plan = tested.plan()
    target = registry.make_target(tested.target)
    assert isinstance(target.name, str) and target.name == tested.target and target.summary
    assert tested.on in target.runtimes
    assert list(target.problems(plan)) == []
    promise = target.promise(plan)
    assert promise.sentence and promise.source and promise.lossy_shutdowns >= 0
    assert json.loads(plan.model_dump_json())["promise"]["sentence"] == promise.sentence
    with pytest.raises(BadArguments):
        target.check_setting("node.id", "1")  # which is the harness' to give, or no setting at all
    for name, default, valid, help_ in target.settings():
        assert name and isinstance(default, str) and valid and help_
    package = target.package(plan, NoImages())
    assert "ARG BASE" in package.dockerfile.read_text() and all(part.exists() for part in package.parts.values())
    assert package.parts in [each.parts for each in target.packages()]
    assert target.timing(plan).session > 0 and target.timing(plan).lag > 0
    assert target.why_ended("one\ntwo\n")


@pytest.mark.parametrize("tested", EVERYWHERE)
def test_its_nodes_have_names_ids_and_configurations_of_their_own(tested: Place) -> None:
    target: Target = registry.make_target(tested.target)
    plan = tested.plan()
    specs = target.nodes(plan)
    assert len({spec.name for spec in specs}) == len({spec.id for spec in specs}) == len(specs) > 0
    assert [spec.role for spec in specs] == sorted(spec.role for spec in specs), "brokers first"
    assert plan.node_names == [spec.name for spec in specs]

    class Node:
        def __init__(self, spec: Any) -> None:
            self.name, self.id, self.own_id, self.role, self.rack = spec.name, spec.id, spec.id, spec.role, spec.rack
            self.address, self.controller_address = (spec.name, spec.port), None
            self.quorum_address = self.address if spec.role == "controller" else None

    nodes: Any = [Node(spec) for spec in specs]
    texts = target.configurations(plan, nodes, "a-cluster", trusted=True)
    assert texts.keys() == {spec.name for spec in specs}
    for spec in specs:
        assert target.renumbered(texts[spec.name], spec.id, "") == texts[spec.name], "its own"


#: Other tests and CI's suites run these two in containers as well.
_AT_NIGHT = ("kraft in containers", "kafka in containers")


@pytest.mark.parametrize("tested", [
    pytest.param(*each.values, id=each.id, marks=[*each.marks, *[pytest.mark.nightly] * (each.id in _AT_NIGHT)])
    for each in EVERYWHERE
])  # fmt: skip
def test_it_is_paused_killed_and_loses_its_power_and_its_history_is_judged(tested: Place, tmp_path: Path) -> None:
    before = machine_state() if tested.on == "docker" else None
    verdict, _ = carried_out(tested.plan(), tested, tmp_path)
    assert verdict["verdict"] == "pass", verdict
    faults = load_journal(tmp_path / "journal")["faults"].to_pylist()
    assert sorted(fault["nemesis"] for fault in faults) == ["kill", "pause", "power"]  # each by a clock of its own
    assert all(fault["effective"] for fault in faults), faults
    shown = {fault["nemesis"]: json.loads(fault["evidence"])["nodes"][tested.struck] for fault in faults}
    assert shown["pause"]["frozen_ns"] > 5e8
    assert shown["kill"]["exit_status"] == 137
    assert shown["power"]["unsynced_bytes"] > 0
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "done" and record["problems"] == [] and "doubts" not in record, record
    for name in tested.plan().node_names:
        assert list((tmp_path / "disks" / name).rglob("*")), f"the disk of {name}"
        assert (tmp_path / "logs" / f"{name}.log").exists() or tested.on == "simulation"
    if before is not None:
        assert not differences(before)


@pytest.mark.docker
@pytest.mark.nightly
def test_a_target_that_forgets_what_it_has_acknowledged_fails(tmp_path: Path) -> None:
    """Or nothing of the above would be believed: the register's writes are in the page cache, and its power is cut."""
    verdict, components = carried_out(REGISTER.plan(settings={"synced": "false"}), REGISTER, tmp_path)
    assert verdict["verdict"] == "fail" and components.judge()["reason"] == verdict["reason"]


def carried_out(plan: Plan, tested: Place, directory: Path) -> tuple[Mapping[str, Any], Any]:
    nemeses = registry.make_nemeses(plan.nemesis)
    (directory / "faults.toml").write_text(FAULTS.replace("NODE", tested.struck))
    schedule = schedule_file.read(
        directory / "faults.toml", registry.make_nemeses(plan.nemesis), plan.seed, plan.time_limit, plan.node_names
    )
    components = tested.components(plan)
    progress = Progress(Console(file=(directory / "progress.txt").open("w")))
    running = run(plan, nemeses, directory, components, progress, schedule=schedule)
    return components.runtime.run(running), components


def test_a_target_that_cannot_run_there_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="--target register works only in docker, and not in simulation"):
        REGISTER.plan(on="simulation")


def test_an_unknown_target_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="there is no target 'nonsense'; valid: kafka, kraft, register, v2"):
        REGISTER.plan(target="nonsense")


def test_what_a_target_does_not_have_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="--bug M01: target register has no bugs to switch on"):
        REGISTER.plan(bug="M01")
    with pytest.raises(BadArguments, match=r"nemesis membership cannot work in .*: it has one node"):
        check_targets(registry.make_nemeses(["membership"]), REGISTER.plan())


def test_a_target_of_one_runtime_runs_there_unless_told_otherwise() -> None:
    assert choose_runtime(target=registry.make_target("register")) == ("docker", "target register runs in docker only")
    kafka = registry.make_target(f"kafka:{Kafka.example}")
    why = f"target {kafka.name} runs in docker and ssh only"
    assert choose_runtime(target=kafka) == choose_runtime(["a bug"], kafka) == ("docker", why)
