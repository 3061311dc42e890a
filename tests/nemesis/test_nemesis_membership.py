"""What each fault of the membership does, as metadata tells a client of a simulated cluster, and that it is undone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.cli.simulated.explore import read_options
from harness.cli.simulated.planning import planned
from harness.cluster import NotAvailable
from harness.explore.simulate import simulate
from harness.plan import registry, schedule
from harness.plan.plan import Plan
from harness.plan.schedule import Fault
from harness.report import words
from harness.run.components import Workload
from harness.run.simulated import SimulationComponents
from harness.runtimes.docker.node import DockerNode
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.nodes.calls import Calls
from harness.runtimes.simulation.cluster import SimulatedCluster
from harness.runtimes.simulation.node import SimulatedNode
from harness.targets.admin import Admin, Ids, Metadata, Partition, Place, Refusal, Unanswered
from harness.targets.kafka_api.observer import KafkaObserver
from harness.targets.kraft.target import Kraft
from nemesis import Nemesis, Situation, merge
from nemesis.membership import ControlledShutdown, Membership, NewId, PreferredElection, Reassign, restoration
from nemesis.membership.restoration import NotRestored
from tests.harness.run.fakes import FakeRecorder

#: They take two releases, and a dynamic quorum.
OTHERS = {"upgrade", "controller"}
#: They take more brokers than a cluster has by default.
RESIZING = {"add", "remove", "rebalance"}
VARIANTS = tuple(f"membership:{name}" for name in Membership.variants if name not in OTHERS)
ONE_OF = {"node": 0.99, "share": 1.0, "stop": "kill"}  # a choice: broker 3, and all that it holds


def plan(seed: int = 1, **fields: Any) -> Plan:
    some: dict[str, Any] = {"rate": 40.0, "partitions": 3, "concurrency": 2, "time_limit": 30.0}
    return Plan(run=f"s{seed}", on="simulation", seed=seed, **some | fields)


class Bench:
    """A simulated cluster with its topic, which nobody writes to."""

    def __init__(self, **fields: Any) -> None:
        self.plan = plan(**fields)
        self.components = SimulationComponents(Kraft())

    def run(self, scenario: Callable[[Bench], Awaitable[None]]) -> None:
        async def main() -> None:
            started = await self.components.runtime.start(self.plan, Path(), lambda line: None)
            assert isinstance(started, SimulatedCluster)
            self.cluster = started
            self.admin: Admin = started.admin
            self.observer = self.components.make_observer(started, self.plan)
            assert isinstance(self.observer, KafkaObserver)
            workload: Workload = self.components.make_workload(self.plan, started, FakeRecorder())
            async with asyncio.timeout(60):
                await workload.set_up()
                await self.in_sync()
            await scenario(self)
            assert not started.violated.done(), started.violated.result()
            await started.stop()

        self.components.runtime.run(main())

    async def in_sync(self) -> None:
        while (await self.observer.view()).out_of_sync is not None:
            await asyncio.sleep(0.1)

    async def replicas(self) -> dict[Place, Ids]:
        return {place: state.replicas for place, state in (await self.admin.metadata()).partitions.items()}

    async def leaders(self) -> dict[Place, int]:
        return {place: state.leader for place, state in (await self.admin.metadata()).partitions.items()}

    async def choose(self, nemesis: Nemesis, choice: dict[str, Any] = ONE_OF, free: Any = None) -> Any:
        view = await self.observer.view()
        names = frozenset(node.name for node in self.cluster.nodes) if free is None else free
        return nemesis.choose(choice, Situation(self.cluster, names, leaders=view.leaders))

    async def until(self, condition: Callable[[Metadata], bool]) -> Metadata:
        async with asyncio.timeout(20):
            while not condition(seen := await self.admin.metadata()):
                await asyncio.sleep(0.1)
        return seen


def test_a_controlled_shutdown_hands_leaderships_over_before_it_ends() -> None:
    async def scenario(bench: Bench) -> None:
        nemesis = ControlledShutdown()
        before = await bench.leaders()
        (node,) = await bench.choose(nemesis)
        evidence = await nemesis.inject(bench.cluster, [node], ONE_OF)
        assert nemesis.effective(evidence)
        assert evidence["leaders_moved"] == list(before.values()).count(node.id) > 0
        reported = evidence["nodes"][node.name]
        assert reported["exit_status"] == 0 and 0 < reported["moved_ns"] < reported["stopping_ns"]
        assert node.id not in evidence["metadata"]["after"]["brokers"]
        assert not await node.is_running() and node.id not in (await bench.leaders()).values()
        await nemesis.heal(bench.cluster, [node])
        await nemesis.heal(bench.cluster, [node])
        await bench.in_sync()

    Bench().run(scenario)


def test_who_leads_nothing_is_not_shut_down() -> None:
    async def scenario(bench: Bench) -> None:
        (node,) = await bench.choose(ControlledShutdown())
        only = next(each for each in bench.cluster.brokers if each is not node)
        await only.kill()
        await bench.until(lambda seen: all(state.leader != only.id for state in seen.partitions.values()))
        assert not await bench.choose(ControlledShutdown(), free=frozenset([only.name]))
        await only.start()

    Bench().run(scenario)


def test_an_election_makes_the_new_preferred_replicas_lead_and_healing_the_old_ones() -> None:
    async def scenario(bench: Bench) -> None:
        nemesis = PreferredElection()
        replicas, leaders = await bench.replicas(), await bench.leaders()
        (node,) = await bench.choose(nemesis)
        evidence = await nemesis.inject(bench.cluster, [node], ONE_OF)
        assert nemesis.effective(evidence) and evidence["leaders_moved"] == len(leaders)
        assert all(leader != leaders[place] for place, leader in (await bench.leaders()).items())
        assert {place: set(ids) for place, ids in (await bench.replicas()).items()} == {
            place: set(ids) for place, ids in replicas.items()
        }
        await nemesis.heal(bench.cluster, [node])
        assert await bench.replicas() == replicas
        await bench.until(lambda seen: {place: s.leader for place, s in seen.partitions.items()} == leaders)

    Bench().run(scenario)


@pytest.mark.parametrize(
    ("how", "fields", "expected"),
    [
        ("order", {}, lambda ids, broker: sorted(ids) == [1, 2, 3]),
        ("shrink", {}, lambda ids, broker: len(ids) == 2 and broker not in ids),
        ("move", {}, lambda ids, broker: len(ids) == 2 and broker not in ids),
        ("move", {"brokers": 5}, lambda ids, broker: len(ids) == 3 and broker not in ids),
        ("order", {"replication_factor": 1, "min_insync_replicas": 1}, lambda ids, broker: len(ids) == 1),
        ("shrink", {"min_insync_replicas": 3}, lambda ids, broker: sorted(ids) == [1, 2, 3]),
    ],
)
def test_replicas_are_moved_as_far_as_min_isr_lets_them(how: str, fields: dict[str, Any], expected: Any) -> None:
    async def scenario(bench: Bench) -> None:
        nemesis = Reassign()
        before = await bench.replicas()
        (node,) = await bench.choose(nemesis)
        held = [place for place, ids in before.items() if node.id in ids]
        evidence = await nemesis.inject(bench.cluster, [node], {**ONE_OF, "how": how})
        assert nemesis.effective(evidence) and evidence["replicas_moved"] == len(held) > 0
        while await bench.admin.moves():
            await asyncio.sleep(0.1)
        after = await bench.replicas()
        assert all(after[place] != before[place] and expected(after[place], node.id) for place in held)
        healed = await nemesis.heal(bench.cluster, [node])
        assert await bench.replicas() == before and not await bench.admin.moves()
        assert set(healed["metadata"]) == {"while", "healed"} and not bench.admin.movers
        await bench.in_sync()

    Bench(**fields).run(scenario)


def test_a_reassignment_that_cannot_complete_is_cancelled() -> None:
    async def scenario(bench: Bench) -> None:
        nemesis = Reassign()
        before = await bench.replicas()
        held = [place for place, ids in before.items() if 5 in ids]
        spare = next(id for id in (4, 3, 2, 1) if id not in before[held[0]])
        dead = bench.cluster.node(f"broker-{spare}")
        await dead.kill()
        bench.admin.movers[nemesis.name] = held
        await bench.admin.reassign({held[0]: (*(r for r in before[held[0]] if r != 5), spare)})
        assert spare in (await bench.admin.moves())[held[0]].adding
        await nemesis.heal(bench.cluster, [bench.cluster.node("broker-5")])
        assert await bench.replicas() == before and not await bench.admin.moves()
        await dead.start()
        await bench.in_sync()

    Bench(brokers=5, partitions=5).run(scenario)


@pytest.mark.parametrize("stop", ["kill", "terminate"])
def test_another_broker_takes_the_place_of_one_and_gives_it_back(stop: str) -> None:
    async def scenario(bench: Bench) -> None:
        nemesis, cluster = NewId(), bench.cluster
        before = await bench.replicas()
        (node,) = await bench.choose(nemesis)
        old, own_disk = node.id, node.disk
        evidence = await nemesis.inject(cluster, [node], {**ONE_OF, "stop": stop})
        assert nemesis.effective(evidence) and evidence["new_id"] == node.id == 1000 + old
        assert evidence["nodes"][node.name]["exit_status"] == (137 if stop == "kill" else 0)
        expected = {place: tuple(node.id if id == old else id for id in ids) for place, ids in before.items()}
        seen = await bench.until(lambda seen: {p: s.replicas for p, s in seen.partitions.items()} == expected)
        assert node.id in seen.brokers
        assert own_disk.exists("chaos-0") and node.disk is not own_disk, "its own logs are kept"
        assert await cluster.leftovers() == [f"{node.name} is replaced by another broker"]
        assert not await bench.choose(nemesis, free=frozenset([node.name])), "it is another already"

        await nemesis.heal(cluster, [node])
        assert node.id == old and node.disk is own_disk and not await cluster.leftovers()
        assert await bench.replicas() == before
        await bench.in_sync()
        seen = await bench.until(lambda seen: old in seen.brokers and 1000 + old not in seen.brokers)
        assert await nemesis.heal(cluster, [node]) == {}

        evidence = await nemesis.inject(cluster, [node], ONE_OF)
        assert evidence["new_id"] == 2000 + old, "an id is used once"
        await nemesis.heal(cluster, [node])
        await bench.in_sync()

    Bench().run(scenario)


def test_a_broker_whose_replacement_never_came_up_is_put_back() -> None:
    async def scenario(bench: Bench) -> None:
        nemesis, node = NewId(), bench.cluster.brokers[0]
        before = await bench.replicas()
        bench.admin.movers[nemesis.name] = ()
        await node.kill()
        await node.replace(1001)
        await nemesis.heal(bench.cluster, [node])
        assert node.id == 1 and await node.is_running() and await bench.replicas() == before
        await bench.in_sync()

    Bench().run(scenario)


def test_no_broker_is_emptied_that_others_count_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the other two nobody can take over what the new one has: it keeps its disk, and healing fails."""

    async def scenario(bench: Bench) -> None:
        nemesis, cluster = NewId(), bench.cluster
        (node,) = await bench.choose(nemesis)
        await nemesis.inject(cluster, [node], ONE_OF)
        new = node.id
        while await bench.admin.moves():
            await asyncio.sleep(0.1)
        others = [each for each in cluster.brokers if each is not node]
        await others[0].kill()
        await bench.until(lambda seen: all(others[0].id not in state.isr for state in seen.partitions.values()))
        with monkeypatch.context() as patch:
            patch.setattr(restoration, "PATIENCE_S", 5.0)
            with pytest.raises(NotRestored, match=f"broker {new} still has chaos-0"):
                await nemesis.heal(cluster, [node])
        assert node.id == new and await node.is_running() and bench.admin.movers
        await others[0].start()
        await nemesis.heal(cluster, [node])
        assert node.id == node.own_id and not bench.admin.movers
        await bench.in_sync()

    Bench().run(scenario)


def test_a_new_id_strikes_only_where_it_can_be_taken_back() -> None:
    async def too_few(bench: Bench) -> None:
        nemesis = NewId()
        (node,) = await bench.choose(nemesis)
        with pytest.raises(NotAvailable, match="no 3 other brokers can take over chaos-0"):
            await nemesis.inject(bench.cluster, [node], ONE_OF)
        assert await node.is_running() and node.id == node.own_id

    async def voters(bench: Bench) -> None:
        assert not await bench.choose(NewId())

    Bench(min_insync_replicas=3).run(too_few)
    Bench(combined=True).run(voters)


def test_one_at_a_time_moves_replicas() -> None:
    async def scenario(bench: Bench) -> None:
        one, other = Reassign(), NewId()
        (node,) = await bench.choose(one)
        await one.inject(bench.cluster, [node], {**ONE_OF, "how": "shrink"})
        moved = await bench.replicas()
        assert not await bench.choose(other) and not await bench.choose(one)
        assert await bench.choose(ControlledShutdown())
        assert await other.heal(bench.cluster, [node]) == {} and await bench.replicas() == moved
        await one.heal(bench.cluster, [node])
        assert await bench.choose(other)

    Bench().run(scenario)


def test_a_drawn_shutdown_is_one_of_them_for_its_healing_moves_replicas_back() -> None:
    async def scenario(bench: Bench) -> None:
        family, other = Membership(), Reassign()
        choice = {**ONE_OF, "variant": "controlled-shutdown"}
        (node,) = await bench.choose(family, choice)
        await family.inject(bench.cluster, [node], choice)
        assert not await bench.choose(other)
        await family.heal(bench.cluster, [node])
        assert await node.is_running() and await bench.choose(other)

    Bench().run(scenario)


@pytest.mark.parametrize("moves", ["membership:reassign", "membership:preferred-election"])
def test_who_only_moves_replicas_starts_no_node_that_another_fault_holds_down(
    monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    dark: set[str] = set()
    lose, restore, boot = SimulatedNode.lose_power, SimulatedNode.restore_power, SimulatedNode.boot
    ends: list[str] = []
    booted_in_the_dark: list[str] = []

    def lose_power(node: SimulatedNode) -> Any:
        dark.add(node.name)
        return lose(node)

    async def restore_power(node: SimulatedNode) -> None:
        dark.remove(node.name)
        ends.append(node.name)
        await restore(node)

    def boots(node: SimulatedNode) -> None:
        booted_in_the_dark.extend(dark & {node.name})
        boot(node)

    for name, patch in (("lose_power", lose_power), ("restore_power", restore_power), ("boot", boots)):
        monkeypatch.setattr(SimulatedNode, name, patch)
    struck = {"targets": ["broker-1"]}
    faults = [
        Fault(fault=0, nemesis=moves, at=2.0, duration=2.5, choice={**struck, "node": 0.0, "how": "order", "share": 1}),
        Fault(fault=1, nemesis="power:node", at=3.0, duration=6.0, choice={**struck, "in_write": 0, "late_s": 0.0}),
    ]
    done = simulate(plan(1, nemesis=(moves, "power:node")), faults)
    assert not done.crash and not done.problems and done.judge()["verdict"] == "pass"
    assert not booted_in_the_dark and ends == ["broker-1"]
    rows = done.tables["faults"].to_pylist()
    assert all(row["end"] for row in rows) and "_failed" not in str(rows), rows


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_no_shutdown_goes_on_behind_the_back_of_one_that_failed(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    async def scenario(bench: Bench) -> None:
        nemesis = ControlledShutdown()
        (node,) = await bench.choose(nemesis)
        before, views, asked = await bench.admin.metadata(), bench.admin.views, 0

        async def fails() -> Any:
            nonlocal asked
            asked += 1
            if asked > 1:
                raise RuntimeError("nobody knows")
            return [before]

        if how == "fails":
            monkeypatch.setattr(bench.admin, "views", fails)
        injecting = asyncio.create_task(nemesis.inject(bench.cluster, [node], ONE_OF))
        if how == "is cancelled":
            await asyncio.sleep(0.05)
            injecting.cancel()
        with pytest.raises((RuntimeError, asyncio.CancelledError)):
            await injecting
        assert not await node.is_running(), "it would end once it was healed"
        monkeypatch.setattr(bench.admin, "views", views)
        await nemesis.heal(bench.cluster, [node])
        await bench.in_sync()

    Bench().run(scenario)


def test_a_broker_put_back_halfway_in_a_container_is_put_back_again(tmp_path: Path) -> None:
    class Agent:
        broken = True

        async def ask(self, node: str, do: str) -> str | None:
            if do == "take_disk_back" and self.broken:
                raise AgentError("the disk is busy")
            return "other" if do == "put_disk_aside" else None

    agent: Any = Agent()
    node = DockerNode(
        None,
        Calls(),
        agent,
        Kraft(),
        name="broker-3",
        node_id=3,
        role="broker",
        rack="rack-3",
        address=("h", 9092),
    )
    node.configuration = tmp_path / "node.properties"
    node.configuration.write_text("node.id=3\nlog.dirs=/data\n")

    async def scenario() -> None:
        await node.replace(1003)
        assert node.id == 1003 and node.configuration.read_text() == "node.id=1003\nlog.dirs=/data/other\n"
        with pytest.raises(AgentError):
            await node.put_back()
        assert node.id == 1003, "or nobody would see that there is something to put back"
        agent.broken = False
        await node.put_back()
        assert node.id == 3 and node.configuration.read_text() == "node.id=3\nlog.dirs=/data\n"

    asyncio.run(scenario())


def test_a_replacement_that_came_halfway_is_cleared_away() -> None:
    """The disk was put aside, and then the configuration could not be written: the broker is still itself."""

    class Halfway:
        id = own_id = 3
        calls: list[str] = []  # noqa: RUF012

        async def is_running(self) -> bool:
            return "start" in self.calls

        async def put_back(self) -> None:
            self.calls.append("put_back")

        async def start(self) -> None:
            self.calls.append("start")

    node: Any = Halfway()
    work = restoration._Restoration(None)  # type: ignore[arg-type]
    asyncio.run(work.put_back(node))
    assert node.calls == ["put_back", "start"]
    asyncio.run(work.put_back(node))
    assert node.calls == ["put_back", "start"], "not under a live process"


def test_without_a_quorum_nothing_is_healed_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        nemesis = Reassign()
        before = await bench.replicas()
        (node,) = await bench.choose(nemesis)
        await nemesis.inject(bench.cluster, [node], {**ONE_OF, "how": "shrink"})
        for controller in bench.cluster.controllers[:2]:
            await controller.kill()
        with pytest.raises((Unanswered, NotRestored), match=r"in 15 s|after 40 s"):
            await nemesis.heal(bench.cluster, [node])
        for controller in bench.cluster.controllers[:2]:
            await controller.start()
        await nemesis.heal(bench.cluster, [node])
        assert await bench.replicas() == before

    Bench().run(scenario)


def test_the_family_draws_every_variant_and_heals_under_its_own_name() -> None:
    nemesis = Membership()
    choices = [dict(nemesis.draw(Random(f"7/{number}")).choice) for number in range(60)]
    assert {choice["variant"] for choice in choices} == set(Membership.variants) - OTHERS - RESIZING
    assert json.loads(json.dumps(choices)) == choices

    async def scenario(bench: Bench) -> None:
        (node,) = await bench.choose(nemesis, {**ONE_OF, "variant": "new-id"})
        evidence = await nemesis.inject(bench.cluster, [node], {**ONE_OF, "variant": "new-id"})
        assert nemesis.effective(evidence) and list(bench.admin.movers) == ["membership"]
        evidence = merge(evidence, await nemesis.heal(bench.cluster, [node]))
        assert set(evidence["metadata"]) == {"before", "after", "while", "healed"} and node.id == node.own_id
        reported = words.evidence(evidence)
        assert f"came back as broker {1000 + node.id}, with an empty disk" in reported
        assert "brokers 1, 2, 3 → " in reported and "{" not in reported

    Bench().run(scenario)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_with_each_passes(name: str) -> None:
    larger = {"brokers": 4, "spare_brokers": 1} if name.rpartition(":")[2] in RESIZING else {}
    done = simulate(plan(3, nemesis=(name,), **larger), traced=True)
    assert done.violation is None and not done.crash and not done.problems and not done.doubts, done
    faults = done.tables["faults"].to_pylist()
    assert faults and all(fault["effective"] and fault["end"] for fault in faults)
    assert "heal_failed" not in str(faults)
    assert done.judge()["verdict"] == "pass"


@pytest.mark.nightly
def test_runs_repeat_themselves_and_pass_among_other_faults() -> None:
    wanted = plan(8, nemesis=("membership", "power-outage", "kill", "partition"))
    nemeses = registry.make_nemeses(wanted.nemesis)
    faults = schedule.build(nemeses, wanted.seed, wanted.time_limit, wanted.pace)
    one, other = simulate(wanted, faults, traced=True), simulate(wanted, faults)
    assert one.trace_hash == other.trace_hash
    assert one.judge()["verdict"] == "pass" and not one.doubts


def test_a_topic_that_is_made_while_a_replacement_ends_is_moved_off_it() -> None:
    """Its replica there was nobody's any more, and its ISR never whole again: an exploration of `--nemesis all`."""
    options = "--nemesis all --brokers 4 --time-limit 30 --short-lived-topics 2 --delete-records 5"
    plan, plan_of = planned(read_options(options))
    done = simulate(plan_of(plan, 165))
    assert (done.violation, done.crash) == (None, "")
    assert any(fault.nemesis == "membership:new-id" for fault in done.schedule)


class _Deleting:
    """An operator's word to a cluster of two partitions with other replicas than they had. What is being deleted
    cannot be moved any more, and brokers tell of it until their deletion is over."""

    def __init__(self) -> None:
        self.original: dict[Place, Ids] = {("chaos", 0): (1, 2), ("old", 0): (1, 2)}
        self._replicas = dict.fromkeys(self.original, (3, 1))

    async def moves(self) -> dict[Place, Any]:
        return {}

    async def metadata(self) -> Metadata:
        states = {place: Partition(ids[0], 1, ids, ids, ()) for place, ids in self._replicas.items()}
        return Metadata((1, 2, 3), frozenset((1, 2, 3)), states)

    async def reassign(self, targets: dict[Place, Ids | None]) -> dict[Place, Refusal]:
        self._replicas.update({place: ids for place, ids in targets.items() if ids and place[0] == "chaos"})
        return {place: Refusal("it is being deleted", is_gone=True) for place in targets if place[0] == "old"}

    async def elect_preferred(self) -> None: ...


def test_what_is_being_deleted_is_not_waited_for() -> None:
    admin: Any = _Deleting()
    asyncio.run(asyncio.wait_for(restoration.restore(admin, [], []), 5))
    seen = asyncio.run(admin.metadata())
    assert seen.partitions["chaos", 0].replicas == (1, 2)
