"""membership:upgrade: in which order nodes get the other release, and what is raised once all have it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cluster import Cluster, Evidence, Node
from harness.errors import BadArguments
from harness.plan import schedule as schedules
from harness.plan.plan import Plan, make_plan
from harness.targets.admin import Unanswered
from harness.targets.kafka_api.admin import KafkaAdmin
from nemesis import Situation
from nemesis.membership.upgrade import FEATURES, Upgrade, _raise_the_next

OLD, NEW = {"metadata.version": 21}, {"metadata.version": 29, "eligible.leader.replicas.version": 1}


class FakeNode:
    """As harness.cluster.Node, as far as an upgrade asks."""

    def __init__(self, name: str, id: int, role: str) -> None:
        self.name, self.id, self.role = name, id, role
        self.address = (name, 9092)
        self.switches = 0
        self.running = True
        self.levels: Mapping[str, int] = OLD

    async def terminate(self) -> Evidence:
        was, self.running = self.running, False
        return {"exit_status": 143 if was else None}

    async def switch_release(self) -> Evidence:
        assert not self.running, "its files are exchanged under a live process"
        self.switches += 1
        self.levels = NEW if self.switches % 2 else OLD
        return {"software": "next" if self.switches % 2 else "first"}

    async def start(self) -> None:
        self.running = True

    async def is_running(self) -> bool:
        return self.running


class FakeAdmin:
    """As harness.targets.admin.Admin, as far as an upgrade asks."""

    def __init__(self, nodes: Sequence[FakeNode]) -> None:
        self.nodes = nodes
        self.raised: dict[str, int] = {}
        self.in_force = {"metadata.version": 21}
        self.refusal = ""

    async def supported(self, address: tuple[str, int]) -> Mapping[str, int]:
        node = next(node for node in self.nodes if node.address == address)
        return node.levels if node.running else {}

    async def features(self) -> Mapping[str, tuple[int, int]]:
        names = set.intersection(*({*node.levels} for node in self.nodes))
        return {n: (min(node.levels[n] for node in self.nodes), self.in_force.get(n, 0)) for n in names}

    async def raise_feature(self, name: str, level: int) -> str:
        if not self.refusal:
            self.in_force[name] = level
        return self.refusal


class Bench:
    def __init__(self) -> None:
        self.brokers = [FakeNode(f"broker-{n}", n, "broker") for n in (1, 2, 3)]
        self.controllers = [FakeNode(f"controller-{n}", 100 + n, "controller") for n in (1, 2, 3)]
        self.nodes = [*self.brokers, *self.controllers]
        self.admin = FakeAdmin(self.nodes)
        self.cluster = cast(Cluster, SimpleNamespace(
            brokers=self.brokers, controllers=self.controllers, nodes=self.nodes, admin=self.admin
        ))  # fmt: skip

    def situation(self, *held: str) -> Situation:
        free = frozenset(node.name for node in self.nodes) - {*held}
        return Situation(self.cluster, free=free, active_controller=101)

    def step(self, nemesis: Upgrade, *held: str) -> tuple[Sequence[Node], Evidence]:
        nodes = nemesis.choose({}, self.situation(*held))

        async def both() -> Evidence:
            injected = await nemesis.inject(self.cluster, nodes, {})
            healed = await nemesis.heal(self.cluster, nodes)
            named = {name: {**injected.get("nodes", {}).get(name, {}), **seen}
                     for name, seen in healed["nodes"].items()}  # fmt: skip
            return {**injected, "nodes": named}

        return nodes, asyncio.run(both())

    def all_steps(self, nemesis: Upgrade) -> list[str]:
        told = []
        while not nemesis.finished(self.situation()):
            nodes, seen = self.step(nemesis)
            assert nemesis.effective(seen), seen
            told.append(f"{seen['feature']} {seen['raised']}" if "feature" in seen else nodes[0].name)
            assert len(told) + seen["steps_left"] == nemesis.steps(Plan(run="r"))
        return told


def test_controllers_come_first_the_active_one_last_and_then_brokers_and_then_features() -> None:
    bench = Bench()
    assert bench.all_steps(Upgrade()) == [
        "controller-2", "controller-3", "controller-1", "broker-1", "broker-2", "broker-3",
        "metadata.version [21, 29]", "eligible.leader.replicas.version [0, 1]",
    ]  # fmt: skip
    assert all(node.switches == 1 and node.running for node in bench.nodes)
    assert bench.admin.in_force == NEW
    assert bench.situation() and Upgrade().choose({}, bench.situation()) == []


def test_on_the_way_back_brokers_come_first_and_nothing_is_raised() -> None:
    bench = Bench()
    names = bench.all_steps(Upgrade(back="yes"))
    assert names[6:] == ["broker-1", "broker-2", "broker-3", "controller-2", "controller-3", "controller-1"]
    assert all(node.switches == 2 for node in bench.nodes) and bench.admin.in_force == {"metadata.version": 21}


def test_one_that_another_fault_holds_is_left_for_later_and_no_broker_goes_before_a_controller() -> None:
    bench = Bench()
    nodes, _ = bench.step(Upgrade(), "controller-2")
    assert [node.name for node in nodes] == ["controller-3"]
    assert Upgrade().choose({}, bench.situation("controller-2")) == []  # nor the active one before another


def test_of_combined_nodes_the_controllers_come_first_too() -> None:
    bench = Bench()
    bench.cluster.controllers = bench.brokers[:2]  # type: ignore[misc, assignment]
    bench.cluster.nodes = bench.brokers  # type: ignore[misc, assignment]
    situation = Situation(bench.cluster, free=frozenset({"broker-2", "broker-3"}), active_controller=2)
    assert Upgrade().choose({}, situation) == []  # broker-1 is held
    bench.brokers[0].switches = 1
    assert [node.name for node in Upgrade().choose({}, situation)] == ["broker-2"]


def test_what_is_refused_is_asked_again() -> None:
    bench = Bench()
    for _ in bench.nodes:
        bench.step(Upgrade())
    bench.admin.refusal = "broker 2 does not support it"
    _, seen = bench.step(Upgrade())
    assert seen["refused"] == [bench.admin.refusal] and not Upgrade().effective(seen) and seen["steps_left"] == 2
    bench.admin.refusal = ""
    _, seen = bench.step(Upgrade())
    assert seen["raised"] == [21, 29] and not Upgrade().finished(bench.situation())


def test_while_no_broker_tells_its_features_none_counts_as_raised() -> None:
    async def refused(*_: Any, **__: Any) -> Any:
        raise ConnectionError

    admin = KafkaAdmin(lambda: cast(Any, Bench().brokers), cast(Any, SimpleNamespace(connect=refused)))
    with pytest.raises(Unanswered):
        asyncio.run(_raise_the_next(admin))
    assert not admin.raised


def test_what_is_as_high_already_is_no_step() -> None:
    bench = Bench()
    for _ in bench.nodes:
        bench.step(Upgrade())
    bench.admin.in_force = {"metadata.version": 29}
    _, seen = bench.step(Upgrade())
    assert seen["feature"] == FEATURES[1] and Upgrade().finished(bench.situation())


def test_one_that_does_not_serve_again_is_no_step_that_took_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr("nemesis.membership.upgrade.SERVES_PATIENCE_S", 0.3)

    async def does_not_start(self: FakeNode) -> None:
        return

    monkeypatch.setattr(FakeNode, "start", does_not_start)
    _, seen = bench.step(Upgrade())
    assert not Upgrade().effective(seen)


def test_a_time_limit_that_is_too_short_for_all_steps_is_refused() -> None:
    plan = make_plan(
        run="r", target="kafka:3.9.1", upgrade_to="4.2.0", nemesis=("membership:upgrade",), time_limit=40.0
    )
    nemeses: Any = {"membership:upgrade": Upgrade()}
    with pytest.raises(BadArguments, match=r"of the 8 steps of membership:upgrade fit into .* give a longer one"):
        schedules.check_room(nemeses, [schedules.build(nemeses, 1, 40, plan.pace)], 40, plan, plan.pace)
    schedules.check_room(nemeses, [schedules.build(nemeses, 1, 120, plan.pace)], 120, plan, plan.pace)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"target": "kraft", "nemesis": ("membership:upgrade",), "upgrade_to": "4.2.0"}, "has no use for it"),
        ({"target": "kafka:3.9.1", "nemesis": ("kill",), "upgrade_to": "4.2.0"}, "name that too"),
        ({"target": "kafka:3.9.1", "nemesis": ("membership:upgrade",), "upgrade_to": "9"}, "no version of Kafka"),
    ],
)
def test_where_it_leads_must_make_sense(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(BadArguments, match=why):
        make_plan(run="r", **fields)
