"""What each nemesis draws, whom it strikes, what it does to them and what it takes as proof."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.cluster import CLIENTS
from harness.errors import BadArguments
from harness.explore.simulate import simulate
from harness.plan import registry, schedule
from harness.plan.plan import Plan
from harness.runtimes.docker.node import DockerNode
from nemesis import MACHINES, SIMULATION, Nemesis, Situation, merge
from nemesis.clock import ClockJump
from nemesis.disk import DiskError, DiskFull
from nemesis.kill import Kill
from nemesis.page_cache import PageCache
from nemesis.partition import Partition
from nemesis.pause import Pause
from nemesis.power import Power, PowerOutage, PowerOutageCluster
from tests import ROOT
from tests.harness.run.fakes import FakeCluster, FakeNode
from tests.harness.run.test_injector import ALL, Bench

SINGLE = (Kill, Pause, ClockJump, DiskFull, DiskError)  # strike one node
#: What a node is while the fault is in force, and what proves it once it is healed.
STRUCK = {
    PowerOutage: ("dark", {"unsynced_bytes": 200}),
    PowerOutageCluster: ("dark", {"unsynced_bytes": 300}),
    Kill: ("killed", {}),
    PageCache: ("killed", {"unsynced_bytes": 100}),
    Pause: ("paused", {"frozen_ns": 5}),
    ClockJump: ("at another time", {}),
    DiskFull: ("full", {"refused_writes": 1}),
    DiskError: ("failing", {"failed_operations": 1}),
}


def done(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def situation(cluster: FakeCluster, *busy: str, **changes: Any) -> Situation:
    free = frozenset(node.name for node in cluster.nodes if node.name not in busy)
    known: dict[str, Any] = {"leaders": {1: 2, 2: 3, 3: 3}, "active_controller": 102}
    return Situation(cluster, free=free, **known | changes)  # type: ignore[arg-type]


def choices(nemesis: Nemesis, number: int = 200) -> list[dict[str, Any]]:
    return [dict(nemesis.draw(Random(f"7/{nemesis.name}/{n}")).choice) for n in range(number)]


def names(nodes: Any) -> list[str]:
    return [node.name for node in nodes]


# -- draw ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ALL)
def test_a_draw_follows_from_its_stream_and_is_json(make: type[Any]) -> None:
    draws = [make().draw(Random(f"7/{number}")) for number in range(100)]
    assert draws == [make().draw(Random(f"7/{number}")) for number in range(100)]
    assert len({draw.duration for draw in draws}) == 100
    for draw in draws:
        assert json.loads(json.dumps(draw.choice)) == draw.choice
        assert draw.gap > 0 and draw.duration >= 1.0


def test_half_of_the_partitions_are_one_way_in_either_direction() -> None:
    drawn = [(choice["variant"], choice["direction"]) for choice in choices(Partition(), 400)]
    assert set(drawn) == {
        (variant, direction)
        for variant in ("one", "halves", "leader", "active-controller")
        for direction in ("both", "outgoing", "incoming")
    }
    assert 150 < sum(direction == "both" for _, direction in drawn) < 250


def test_clocks_jump_both_ways_at_every_scale() -> None:
    offsets = [choice["offset_s"] for choice in choices(ClockJump())]
    assert min(offsets) < -3600 and max(offsets) > 3600
    assert min(map(abs, offsets)) >= 0.1 and max(map(abs, offsets)) <= 24 * 3600
    assert 20 < sum(abs(offset) < 1 for offset in offsets) < 60


@pytest.mark.parametrize("make", [PowerOutage, PowerOutageCluster])
def test_half_of_the_power_cuts_come_in_a_write(make: type[Any]) -> None:
    operations = [choice["in_write"] for choice in choices(make())]
    assert set(operations) == set(range(9))
    assert 70 < operations.count(0) < 130


# -- choose -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ALL)
def test_only_free_nodes_are_struck(make: type[Any]) -> None:
    nemesis, cluster = make(), FakeCluster()
    busy = ("broker-2", "controller-2")
    struck = [name for choice in choices(nemesis) for name in names(nemesis.choose(choice, situation(cluster, *busy)))]
    assert not set(struck) & set(busy)
    assert bool(struck) == (make is not PowerOutageCluster), "all brokers or none"
    everybody = situation(cluster, *names(cluster.nodes))
    assert not any(nemesis.choose(choice, everybody) for choice in choices(nemesis))


@pytest.mark.parametrize("make", SINGLE)
def test_faults_of_one_node_strike_every_node_in_time_and_leaders_on_demand(make: type[Any]) -> None:
    nemesis, cluster = make(), FakeCluster()
    struck = [names(nemesis.choose(choice, situation(cluster))) for choice in choices(nemesis)]
    assert sorted({name for (name,) in struck}) == sorted(names(cluster.nodes))
    assert 110 < sum(name.startswith("broker") for (name,) in struck) < 160
    leaders = [names(nemesis.choose(choice, situation(cluster, targets="leaders"))) for choice in choices(nemesis)]
    assert leaders == [["broker-2"]] * 200, "the first of those that lead most"


@pytest.mark.parametrize(
    ("variant", "busy", "struck"),
    [
        ("leader", (), ["broker-2"]),
        ("leader", ("broker-2",), ["broker-3"]),
        ("active-controller", (), ["controller-2"]),
        ("active-controller", ("controller-2",), []),
        ("one", (), ["controller-1"]),
        ("one", ("broker-1", "broker-2"), ["controller-2"]),
        ("halves", ("broker-1", "broker-2", "broker-3", "controller-1"), []),
    ],
)
def test_whom_a_partition_cuts_off(variant: str, busy: tuple[str, ...], struck: list[str]) -> None:
    choice = {"variant": variant, "node": 0.5, "direction": "both"}
    assert names(Partition().choose(choice, situation(FakeCluster(), *busy))) == struck


# -- inject, heal, evidence ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", STRUCK)
def test_struck_nodes_are_broken_and_healed_and_prove_it(make: type[Any]) -> None:
    nemesis, cluster = make(), FakeCluster()
    choice = choices(nemesis, 1)[0]
    state, proof = STRUCK[make]

    async def scenario() -> None:
        nodes = nemesis.choose(choice, situation(cluster))
        evidence = await nemesis.inject(cluster, nodes, choice)
        assert {node.name for node in cluster.nodes if node.state == state} == set(names(nodes)) != set()
        assert {node.state for node in cluster.nodes if node not in nodes} <= {"running"}
        evidence = merge(evidence, await nemesis.heal(cluster, nodes))
        assert {node.state for node in cluster.nodes} == {"running"}
        assert nemesis.effective(evidence)
        assert {key: evidence.get(key) for key in proof} == proof
        assert set(evidence["nodes"]) == set(names(nodes))
        await nemesis.heal(cluster, nodes)  # safe to repeat
        assert {node.state for node in cluster.nodes} == {"running"}

    done(scenario())


@pytest.mark.parametrize("make", STRUCK)
def test_what_was_never_broken_can_be_healed(make: type[Any]) -> None:
    """inject() may have failed before it came to anything."""
    nemesis, cluster = make(), FakeCluster()
    done(nemesis.heal(cluster, cluster.brokers))
    assert {node.state for node in cluster.nodes} == {"running"}


@pytest.mark.parametrize("make", [DiskFull, DiskError])
def test_a_broken_disk_that_nobody_used_had_no_effect_and_ended_nothing(make: type[Any]) -> None:
    nemesis, cluster = make(), FakeCluster()
    cluster.operations = 0
    node = cluster.brokers[0]
    evidence = merge(done(nemesis.inject(cluster, [node], {})), done(nemesis.heal(cluster, [node])))
    assert not nemesis.effective(evidence)
    assert [state for _, state in cluster.log if state == "running"] == ["running"], "mended, and not started again"


def test_a_clock_that_did_not_jump_had_no_effect() -> None:
    asked = {"clock": {"offset_s": -0.1, "drift": 0.0}}
    assert not ClockJump().effective({**asked, "nodes": {"broker-1": {"clock_offset_ms": 0}}})
    assert not ClockJump().effective({"inject_failed": "OSError"})
    assert ClockJump().effective({**asked, "nodes": {"broker-1": {"clock_offset_ms": -100}}})


@pytest.mark.parametrize("make", [PowerOutage, PowerOutageCluster])
def test_a_cut_in_a_write_is_passed_on_to_every_node(make: type[Any]) -> None:
    cluster = FakeCluster()
    done(make().inject(cluster, cluster.brokers, {"rack": 0.0, "in_write": 5, "late_s": 0.0}))
    assert cluster.torn == [5, 5, 5]


@pytest.mark.parametrize("direction", ["both", "outgoing", "incoming"])
def test_a_partition_silences_the_group_that_its_direction_says(direction: str) -> None:
    cluster = FakeCluster()
    choice = {"variant": "one", "node": 0.0, "direction": direction}
    evidence = done(Partition().inject(cluster, cluster.brokers[:1], choice))
    (links,) = cluster.blocked.values()
    sent = [target for source, target in links if source == "broker-1"]
    heard = [source for source, target in links if target == "broker-1"]
    others = names(cluster.nodes[1:])
    assert (sent, heard) == ([] if direction == "incoming" else others, [] if direction == "outgoing" else others)
    assert evidence["direction"] == direction and evidence["groups"][0] == ["broker-1"]
    healed = done(Partition().heal(cluster, cluster.brokers[:1]))
    assert not cluster.blocked and Partition().effective(merge(evidence, healed))


def links_of(nemesis: Any, choice: dict[str, Any]) -> tuple[list[str], set[tuple[str, str]]]:
    """Who is struck, and what is cut then."""
    cluster = FakeCluster()
    nodes = nemesis.choose(choice, situation(cluster))
    done(nemesis.inject(cluster, nodes, choice))
    (links,) = cluster.blocked.values()
    assert len(links) == len(set(links)) and all(a != b for a, b in links)
    return names(nodes), set(links)


@pytest.mark.parametrize("name", Partition.variants)
def test_a_variant_of_partitions_strikes_nobody_twice_and_is_what_its_seed_says(name: str) -> None:
    nemesis = Partition.variants[name]()
    assert nemesis.name == f"partition:{name}"
    for choice in choices(nemesis, 20):
        struck, links = links_of(nemesis, choice)
        assert struck and links and links_of(nemesis, choice) == (struck, links)


def test_two_groups_neither_of_which_hears_the_other() -> None:
    for name in ("one", "halves", "random-halves", "minority", "leader", "controller"):
        for choice in choices(Partition.variants[name](), 10):
            struck, links = links_of(Partition.variants[name](), choice)
            rest = [node for node in names(FakeCluster().nodes) if node not in struck]
            assert len(struck) <= len(rest)
            assert links == {link for a in struck for b in rest for link in ((a, b), (b, a))}
    assert links_of(Partition.variants["leader"](), {"node": 0.0})[0] == ["broker-2"]
    assert links_of(Partition.variants["controller"](), {"node": 0.0})[0] == ["controller-2"]


def test_in_a_ring_each_node_hears_a_majority_and_no_two_the_same() -> None:
    for choice in choices(Partition.variants["majorities-ring"](), 10):
        struck, links = links_of(Partition.variants["majorities-ring"](), choice)
        heard = [frozenset(other for other in struck if (other, node) not in links) for node in struck]
        assert all(len(each) == 4 for each in heard) and len(set(heard)) == 6
        assert all(node in each for node, each in zip(struck, heard, strict=True))


def test_a_bridge_sees_both_halves_and_they_not_each_other() -> None:
    (bridge,), links = links_of(Partition.variants["bridge"](), {"node": 0.3})
    assert not any(bridge in link for link in links) and len(links) == 2 * (2 * 3)
    assert {(b, a) for a, b in links} == links


def test_clients_are_kept_from_a_broker_that_all_nodes_reach() -> None:
    (broker,), links = links_of(Partition.variants["clients"](), {"node": 0.9})
    assert broker == "broker-3" and links == {(CLIENTS, broker), (broker, CLIENTS)}


def test_between_a_leader_and_another_broker() -> None:
    cluster = FakeCluster()
    between = Partition.variants["between"]()
    struck = names(between.choose({"node": 0.9}, situation(cluster, targets="leaders")))
    assert struck == ["broker-2", "broker-3"]
    assert links_of(between, {"node": 0.9})[1] <= {(a, b) for a in names(cluster.nodes) for b in names(cluster.nodes)}


@pytest.mark.parametrize("make", [Kill, Pause])
def test_groups_are_struck_whole_or_not_at_all(make: type[Any]) -> None:
    cluster = FakeCluster()
    sizes = {"one": 1, "leader": 1, "follower": 1, "controller": 1, "minority": 2, "majority": 4, "all": 6}
    for group, size in sizes.items():
        nemesis = make.variants[group]()
        for choice in choices(nemesis, 10):
            struck = nemesis.choose(choice, situation(cluster))
            assert len(struck) == size and {node.rack for node in struck} <= {f"rack-{n}" for n in (1, 2, 3)}
        if size > 1:
            busy = names(struck)[:1]
            assert not nemesis.choose(choice, situation(cluster, *busy))
    assert names(make.variants["leader"]().choose(choice, situation(cluster))) == ["broker-2"]
    assert names(make.variants["follower"]().choose(choice, situation(cluster))) == ["broker-1"]
    assert names(make.variants["controller"]().choose(choice, situation(cluster))) == ["controller-2"]


def test_a_storm_kills_as_often_as_its_knob_says() -> None:
    cluster = FakeCluster()
    storm = registry.make_nemeses(["kill:storm:times=4:up_s=0"])["kill:storm:times=4:up_s=0"]
    evidence = done(storm.inject(cluster, cluster.brokers[:1], choices(storm, 1)[0]))
    assert [state for _, state in cluster.log] == ["killed", "running"] * 3 + ["killed"]
    assert evidence["kills"] == 4 and storm.effective(evidence)


@pytest.mark.parametrize(
    ("variant", "known", "struck"),
    [
        ("rack", {}, ["broker-2", "controller-2"]),
        ("leader", {}, ["broker-2"]),
        ("last-in-isr", {"isrs": {0: frozenset({1, 2}), 1: frozenset({3})}}, ["broker-3"]),
        ("last-in-isr", {"isrs": {0: frozenset({1, 2}), 1: frozenset({1, 3})}}, []),
        ("cluster", {}, ["broker-1", "broker-2", "broker-3"]),
        ("rolling", {"struck": {"broker-1": 2, "broker-2": 1, "broker-3": 2}}, ["broker-2"]),
        ("during-recovery", {}, ["broker-2"]),
    ],
)
def test_whose_power_is_cut(variant: str, known: dict[str, Any], struck: list[str]) -> None:
    nemesis = Power.variants[variant]()
    choice = {"rack": 0.5, "in_write": 0, "late_s": 0.0}
    assert names(nemesis.choose(choice, situation(FakeCluster(), **known))) == struck
    assert nemesis.waits_for_isr


def test_power_in_turn_strikes_every_broker_once_before_any_again() -> None:
    rolling, cluster, struck = Power.variants["rolling"](), FakeCluster(), Counter[str]()
    for turn in range(1, 7):
        choice = {"rack": 0.9, "in_write": 0, "late_s": 0.0}
        struck.update(names(rolling.choose(choice, situation(cluster, struck=struck))))
        assert set(struck.values()) <= {turn // 3, -(-turn // 3)} and sum(struck.values()) == turn


def test_a_second_cut_during_recovery_adds_to_the_evidence_of_the_first() -> None:
    (nemesis,) = registry.make_nemeses(["power:during-recovery:up_s=0"]).values()
    cluster = FakeCluster()
    evidence = done(nemesis.inject(cluster, cluster.brokers[:1], {"in_write": 0, "late_s": 3.0}))
    assert evidence["cuts"] == 2 and evidence["unsynced_bytes"] == 200 and nemesis.effective(evidence)
    assert [state for _, state in cluster.log] == ["dark", "running", "dark"]


def test_what_only_the_first_cut_lost_is_not_forgotten() -> None:
    """As the node tells it: the contract counts a broker as lossy by its own evidence."""
    (nemesis,) = registry.make_nemeses(["power:during-recovery:up_s=0"]).values()
    cluster = FakeCluster()
    first = {"unsynced_bytes": 70, "unsynced_records": 7, "lost_by_partition": {"chaos-0": 4, "chaos-1": 3}}
    second = {"unsynced_bytes": 0, "unsynced_records": 0, "lost_by_partition": {"chaos-1": 1}}
    reported = iter([{**first, "cut_ns": 5}, {**second, "cut_ns": 6}])

    async def cut_power(**_: Any) -> Any:
        return next(reported)

    cluster.brokers[0].cut_power = cut_power  # type: ignore[method-assign]
    evidence = done(nemesis.inject(cluster, cluster.brokers[:1], {"in_write": 0, "late_s": 0.0}))
    assert (evidence["unsynced_bytes"], evidence["unsynced_records"]) == (70, 7)
    of_node = evidence["nodes"]["broker-1"]
    assert of_node["lost_by_partition"] == {"chaos-0": 4, "chaos-1": 4} and of_node["unsynced_records"] == 7
    assert of_node["first_cut"]["cut_ns"] == 5 and of_node["cut_ns"] == 6


def test_with_acks_1_kill_also_strikes_a_leader_that_is_ahead() -> None:
    for acks, of_kill in (("all", {False}), ("1", {True, False}), ("0", {True, False})):
        for name, expected in (("kill", of_kill), ("kill:leader", {False}), ("kill:ahead", {True})):
            (nemesis,) = registry.make_nemeses([name], acks).values()
            drawn = {"ahead_s" in nemesis.draw(Random(f"{n}")).choice for n in range(50)}
            assert drawn == expected, (acks, name)


def test_a_leader_is_cut_off_from_its_followers_until_it_is_killed() -> None:
    cluster = FakeCluster()
    nemesis = Kill.variants["ahead"]()
    evidence = done(nemesis.inject(cluster, cluster.brokers[:1], {"role": "broker", "node": 0.0, "ahead_s": 0.01}))
    assert evidence["ahead"]["seconds"] == 0.01 and evidence["ahead"]["from"] == ["broker-2", "broker-3"]
    assert not cluster.blocked, "the cut ends with the kill"
    assert nemesis.effective({**evidence, "ahead": {**evidence["ahead"], "packets_dropped": 3}})
    assert not nemesis.effective({**evidence, "ahead": {**evidence["ahead"], "packets_dropped": 0}})


def test_a_paused_process_that_went_on_is_no_evidence() -> None:
    assert Pause().effective({"frozen_ns": 5, "cpu_ns_while_frozen": 0})
    assert not Pause().effective({"frozen_ns": 5, "cpu_ns_while_frozen": 900_000_000})


COMPOSITES = ("last-replica-standing", "rolling-restart", "flapping-leader", "majority-down", "all")


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_is_planned_as_its_parts(name: str) -> None:
    nemeses = registry.make_nemeses([name])
    faults = schedule.build(nemeses, 3, 120.0)
    assert faults == schedule.build(nemeses, 3, 120.0) and name not in {fault.nemesis for fault in faults}
    registry.make_nemeses(fault.nemesis for fault in faults)  # each is one that can be asked for by itself
    assert all(fault.at + fault.duration <= 120.0 - schedule.CALM_AT_END_S for fault in faults)
    shorter = schedule.build(nemeses, 3, 60.0)
    assert faults[: len(shorter)] == shorter, "a longer run begins as a shorter one"


def test_the_mix_has_every_family() -> None:
    faults = schedule.build(registry.make_nemeses(["all"]), 1, 3600.0)
    assert {fault.nemesis.partition(":")[0] for fault in faults} == {
        "partition", "pause", "kill", "power", "page-cache", "disk", "network", "clock", "membership",
    }  # fmt: skip
    assert len({fault.nemesis for fault in faults}) >= 20


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_strikes_through_its_parts(name: str) -> None:
    plan = Plan(run="r", on="simulation", nemesis=(name,), seed=2, time_limit=30.0, rate=40.0, partitions=2)
    simulated = simulate(plan)
    assert not simulated.crash and simulated.violation is None
    rows = simulated.tables["faults"].to_pylist()
    assert {row["nemesis"] for row in rows if row["effective"]} and not any(
        "failed" in key for row in rows for key in json.loads(row["evidence"])
        if key in ("inject_failed", "heal_failed")
    )  # fmt: skip


def test_who_may_lose_data_waits_for_the_isr() -> None:
    assert {make for make in ALL if make.waits_for_isr} == {PowerOutage, PowerOutageCluster, DiskError}


def test_two_nemeses_that_lose_data_never_do_so_at_once() -> None:
    """Neither while a replica of the other's victim is out of its ISR."""
    for seed in range(5):
        bench = Bench(PowerOutage(), DiskError(), seed=seed)
        bench.run()
        rows = sorted((row for row in bench.rows if row["effective"]), key=lambda row: row["start"])
        assert {row["nemesis"] for row in rows} == {"power-outage", "disk-error"}
        for earlier, later in pairwise(rows):
            assert earlier["evidence"]["in_sync_at"] <= later["start"]


# -- where they work ----------------------------------------------------------------------------------------------


def test_every_nemesis_is_installed_and_says_where_it_works() -> None:
    installed = registry.make_nemeses(registry.names(registry.NEMESES))
    assert {type(nemesis) for nemesis in installed.values()} >= set(ALL)
    assert all(name == nemesis.name for name, nemesis in installed.items())
    registry.check_runtime(installed, "docker")
    registry.check_runtime(installed, "simulation")
    only_machines: Any = type("OnlyMachines", (Kill,), {"name": "kernel", "runtimes": MACHINES})
    with pytest.raises(BadArguments, match=r"^nemesis kernel works only in docker and ssh; add --on docker$"):
        registry.check_runtime({"kernel": only_machines()}, "simulation")
    only_simulated: Any = type("OnlySimulated", (Kill,), {"name": "torn", "runtimes": SIMULATION})
    with pytest.raises(BadArguments, match=r"^nemesis torn works only in simulation; add --on simulation$"):
        registry.check_runtime({"kill": Kill(), "torn": only_simulated()}, "docker")


def test_one_nemesis_that_prefers_leaders_decides_for_all() -> None:
    assert registry.preferred_targets({"pause": Pause(), "kill": Kill()}) == "leaders"
    assert registry.preferred_targets({"pause": Pause(), "disk-full": DiskFull()}) == "random"
    assert registry.preferred_targets({}) == "random"


# -- the same under any hash seed ---------------------------------------------------------------------------------


def fingerprint() -> str:
    """Of everything that every nemesis together did in three runs."""
    digest = hashlib.sha256()
    for seed in range(3):
        bench = Bench(*(make() for make in ALL), seed=seed)
        # Together, so that it matters who is asked first.
        together = [fault.model_copy(update={"at": fault.at // 5 * 5}) for fault in bench.schedule]
        bench.schedule = tuple(sorted(together, key=lambda fault: fault.duration))
        bench.run()
        digest.update(json.dumps([bench.rows, bench.cluster.log]).encode())
    return digest.hexdigest()


def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    program = "from tests.nemesis.test_nemeses import fingerprint; print(fingerprint())"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, text=True, check=True,
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert printed == {fingerprint()}


# -- one-way partitions in Docker ---------------------------------------------------------------------------------


@pytest.mark.docker
def test_one_way_partition_in_docker_drops_one_direction_only(tmp_path: Path) -> None:
    """Seen from outside by datagrams, which need no answer."""
    from harness.runtimes.docker import cleanup, engine
    from harness.runtimes.docker.runtime import DockerRuntime
    from tests.clusters.stand_in import STAND_IN
    from tests.harness.runtimes.docker.test_docker_runtime import plan, quiet

    api = engine.connect()
    receive = "import socket; s = socket.socket(type=2); s.bind(('', 5005)); s.settimeout(2); print(s.recv(9).decode())"
    send = "import socket, time; s = socket.socket(type=2)\nfor _ in range(15): {}; time.sleep(0.1)"

    async def hears(source: DockerNode, target: DockerNode) -> bool:
        def run(node: DockerNode, program: str) -> str:
            started = api.exec_create(node.process, ["python3", "-c", program])["Id"]
            return str(api.exec_start(started).decode())

        sending = send.format(f"s.sendto(b'heard', ({target.address[0]!r}, 5005))")
        heard, _ = await asyncio.gather(
            asyncio.to_thread(run, target, receive), asyncio.to_thread(run, source, sending)
        )
        return heard.strip() == "heard"

    async def scenario() -> None:
        cluster = await DockerRuntime(STAND_IN).start(wanted, tmp_path, quiet)
        try:
            (one, other), controller = cluster.brokers, cluster.controllers[0]
            await cluster.block("cut", [(one.name, other.name), (one.name, controller.name)])
            assert not await hears(one, other)
            assert await hears(other, one)
            assert await hears(controller, other), "the others are not parted from each other"
            await cluster.block("overlapping", [(other.name, controller.name)])
            assert not await hears(other, controller)
            evidence = await cluster.unblock("cut")
            assert evidence["packets_dropped_by_link"]["broker-1 > broker-2"] >= 15
            assert evidence["packets_dropped"] == sum(evidence["packets_dropped_by_link"].values())
            assert not await hears(other, controller), "the other key still blocks it"
            links = (await cluster.unblock("overlapping"))["packets_dropped_by_link"]
            assert list(links) == ["broker-2 > controller-1"]
            assert (await cluster.unblock("overlapping"))["packets_dropped"] == 0
            assert await hears(one, other)
        finally:
            await cluster.stop()

    wanted = plan("one-way")
    try:
        asyncio.run(scenario())
    finally:
        cleanup.remove_run(api, wanted.run)


def test_fake_nodes_object_to_a_second_fault() -> None:
    """What the tests above rest on."""
    node: FakeNode = FakeCluster().brokers[0]
    done(node.fill_disk())
    with pytest.raises(AssertionError, match="is full and would become killed"):
        done(node.kill())


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("kill:storm:times=5.5", "times cannot be '5.5'; valid: a whole number from 2 to 50"),
        ("clock:jump:min_offset_s=10:max_offset_s=1", "min_offset_s is above max_offset_s"),
        ("clock:drift:min_rate=0.5:max_rate=0.1", "min_rate is above max_rate"),
        ("network:delay:delay_ms=1:jitter_ms=1000", "jitter_ms is above delay_ms"),
    ],
)
def test_knobs_that_contradict_each_other_are_refused(wanted: str, said: str) -> None:
    with pytest.raises(BadArguments, match=said):
        registry.make_nemeses([wanted])


def test_nobody_is_parted_where_there_is_nobody_to_part_from() -> None:
    class OneBroker(FakeCluster):
        @property
        def brokers(self) -> Any:
            return self.nodes[:1]

    followers = Partition.variants["followers"]()
    choice = followers.draw(Random(1)).choice
    assert followers.choose(choice, situation(OneBroker(), leaders={1: 3})) == []
    assert names(followers.choose(choice, situation(FakeCluster(), leaders={1: 3}))) == ["broker-1"]
