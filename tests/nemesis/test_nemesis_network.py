"""Slow and lossy links: what the nemeses draw and strike, what the simulation makes of it, and what clients record."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from harness.cluster import CLIENTS, Shape
from harness.explore.simulate import simulate
from harness.plan import registry
from harness.plan.plan import Plan
from harness.runtimes.agent import lacks, probe, tools
from harness.runtimes.agent.machine import Machine
from harness.runtimes.agent.network import queues
from harness.runtimes.agent.network.card import Ends
from harness.runtimes.agent.network.card import Network as NetworkCard
from harness.runtimes.agent.network.shaping import Shaping, Wanted
from harness.runtimes.docker.agent_client import AgentClient, AgentGone
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.nodes.links import Links
from harness.runtimes.simulation.network import shaping
from nemesis import merge
from nemesis.at_operation import AtMessage
from nemesis.network import LINKS, Network
from tests.harness.run.fakes import FakeCluster
from tests.harness.runtimes.simulation.test_simulated_network import BACK, THERE, Echo, World, simulated
from tests.nemesis.test_nemeses import choices, done, names, situation

SHAPES = [make for make in Network.variants.values() if make is not AtMessage]
KINDS = [Network, *SHAPES]


def shaped(nemesis: Any, choice: dict[str, Any], **changes: Any) -> tuple[list[str], list[tuple[str, str]], Shape]:
    """Who is struck, and what then becomes of which links."""
    cluster = FakeCluster()
    nodes = nemesis.choose(choice, situation(cluster, **changes))
    done(nemesis.inject(cluster, nodes, choice))
    ((key, (links, shape)),) = cluster.shaped.items()
    assert key == nemesis.name and links and len(links) == len(set(links)) and all(a != b for a, b in links)
    done(nemesis.heal(cluster, nodes))
    assert not cluster.shaped
    return names(nodes), links, shape


# -- what is drawn, and who is struck -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", KINDS)
def test_what_is_drawn_follows_from_its_stream_and_strikes_somebody(make: type[Any]) -> None:
    drawn = [make().draw(Random(f"7/{number}")) for number in range(60)]
    assert drawn == [make().draw(Random(f"7/{number}")) for number in range(60)]
    assert {draw.choice["links"] for draw in drawn} == {"node", "leader", "between", "all"}
    assert {draw.choice["direction"] for draw in drawn} == {"both", "outgoing", "incoming"}
    for draw in drawn:
        assert json.loads(json.dumps(draw.choice)) == draw.choice
        shaped(make(), dict(draw.choice))


def test_the_family_draws_only_what_every_machine_has() -> None:
    shapes = [Shape(**choice["shape"]) for choice in choices(Network())]
    assert not Network.needs and not any(shape.needs_netem for shape in shapes)
    assert sum(shape.loss > 0 for shape in shapes) > 50 < sum(shape.rate_kbit > 0 for shape in shapes)
    for make in SHAPES:
        needs_netem = {Shape(**choice["shape"]).needs_netem for choice in choices(make(), 20)}
        assert needs_netem == {make().needs == {"netem"}}


def test_a_knob_changes_what_it_says_and_nothing_else() -> None:
    plain, *others = registry.make_nemeses(
        ["network:rate", *(f"network:rate:links={links}" for links in LINKS), "network:rate:direction=incoming",
         "network:rate:clients=only", "network:rate:rate_kbit=7"]
    ).values()  # fmt: skip
    changed = []
    for other in others:
        before, after = plain.draw(Random(2)), other.draw(Random(2))
        assert (before.gap, before.duration) == (after.gap, after.duration)
        changed.append({knob for knob in after.choice if after.choice[knob] != before.choice[knob]})
    assert [knobs for knobs in changed if len(knobs) > 1] == []
    assert {"links", "direction", "clients", "shape"} == set().union(*changed)


@pytest.mark.parametrize(
    ("links", "targets", "struck", "count"),
    [
        ("node", "random", ["broker-1"], 5), ("node", "leaders", ["broker-2"], 5),
        ("leader", "random", ["broker-2"], 5), ("controller", "random", ["controller-2"], 5),
        ("between", "leaders", ["broker-2", "broker-1"], 1),
        ("all", "random", names(FakeCluster().nodes), 30),
    ],
)  # fmt: skip
@pytest.mark.parametrize("direction", ["both", "outgoing", "incoming"])
@pytest.mark.parametrize("clients", ["without", "with", "only"])
def test_which_links_are_struck(
    links: str, targets: Any, struck: list[str], count: int, direction: str, clients: str
) -> None:
    choice = {"node": 0.0, "links": links, "direction": direction, "clients": clients, "shape": {"loss": 0.5}}
    nodes, found, shape = shaped(Network.variants["loss"](), choice, targets=targets)
    assert nodes == struck and shape == Shape(loss=0.5)
    to_nodes = [link for link in found if CLIENTS not in link]
    first = struck[:1] if links == "between" else struck
    both_ways = 1 if direction != "both" or links == "all" else 2
    assert len(to_nodes) == (0 if clients == "only" else count * both_ways)
    outside = len(struck) * (2 if direction == "both" else 1)
    assert len(found) - len(to_nodes) == (0 if clients == "without" else outside)
    if direction == "outgoing":
        assert all(source in struck for source, _ in found) and all(source in first for source, _ in to_nodes)
    if direction == "incoming":
        assert all(target in struck for _, target in found) and all(target in first for _, target in to_nodes)


def test_a_pinned_fault_strikes_the_same_links_again() -> None:
    for choice in choices(Network(), 20):
        struck, links, _ = shaped(Network(), choice)
        assert shaped(Network(), {**choice, "targets": struck})[:2] == (struck, links)


@pytest.mark.parametrize(
    ("shape", "seen", "effective"),
    [
        ({"loss": 0.1}, {"packets_dropped": 1}, True), ({"loss": 0.1}, {"packets_dropped": 0}, False),
        ({"rate_kbit": 9}, {"throttled": 1}, True), ({"rate_kbit": 9}, {"shaped_bytes": 9, "throttled": 0}, False),
        ({"duplicate": 0.1}, {"packets_duplicated": 2}, True), ({"duplicate": 0.1}, {}, False),
        ({"delay_ms": 50}, {"packets_delayed": 9, "round_trip_ms": {"before": 1, "while": 52}}, True),
        ({"delay_ms": 50}, {"packets_delayed": 9, "round_trip_ms": {"before": 1, "while": 2}}, False),
        ({"delay_ms": 50}, {"packets_delayed": 9}, False),
        ({"delay_ms": 50}, {"round_trip_ms": {"before": 1, "while": 52}}, False),
        ({"delay_ms": 50}, {"packets_delayed": 9, "round_trip_ms": {"while": 52}}, False),
        ({"delay_ms": 50, "jitter_ms": 50}, {"packets_delayed": 9, "round_trip_ms": {"before": 1, "while": 1}}, False),
        ({"delay_ms": 50, "jitter_ms": 50}, {"packets_delayed": 9, "round_trip_ms": {"before": 1, "while": 30}}, True),
        ({"delay_ms": 9000}, {"packets_delayed": 9, "unanswered_ms": 3000}, True),
        ({"delay_ms": 20, "reorder": 0.2}, {"packets_delayed": 9, "round_trip_ms": {"before": 1, "while": 22}}, False),
        ({"delay_ms": 20, "reorder": 0.2}, {"packets_delayed": 0, "packets_reordered": 3}, False),
        ({"delay_ms": 20, "reorder": 0.9}, {"packets_delayed": 1, "packets_reordered": 9}, True),
        ({}, {"inject_failed": "NotAvailable: not available here: this kernel has no netem"}, False),
    ],
)  # fmt: skip
def test_what_is_taken_as_proof(shape: dict[str, float], seen: dict[str, Any], effective: bool) -> None:
    evidence = merge({"shape": shape} if shape else {}, seen)
    assert all(make().effective(evidence) is effective for make in KINDS)


# -- what containers make of it, as far as none is needed --------------------------------------------------------


class Measured:
    """A node whose echoes take so many ms the first time, the second and so on. None: none; an error: of its agent."""

    def __init__(self, number: int, *trips: float | Exception | None) -> None:
        self.name, self.address = f"broker-{number}", (f"10.0.0.{number}", 9092)
        self.shaped: set[str] = set()
        self.patience: list[float] = []
        self._trips = iter(trips)

    async def lacks(self, need: str) -> None:
        return None

    async def shape(self, key: str, wanted: Any) -> None:
        self.shaped.add(key)

    async def unshape(self, key: str) -> dict[str, dict[str, int]]:
        self.shaped.discard(key)
        return {}

    async def round_trips(self, addresses: list[str], patience: float) -> dict[str, Any]:
        self.patience.append(patience)
        trip = next(self._trips)
        if isinstance(trip, Exception):
            raise trip
        return {address: {"ms": trip, "answered": 10, "overtaken": 0} for address in addresses}


def measured(nodes: list[Measured], shape: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
    """Evidence of shaping and of undoing it, of links between each node and the last."""
    links = Links(cast(Any, nodes), "10.0.0.99")

    async def scenario() -> tuple[dict[str, Any], dict[str, Any]]:
        struck = [(node.name, nodes[-1].name) for node in nodes[:-1]]
        shaped = await links.shape("a", struck, shape)
        assert all(node.shaped for node in nodes)
        return shaped, await links.unshape("a")

    found = asyncio.run(scenario())
    assert not any(node.shaped for node in nodes)
    return found


def test_round_trips_are_compared_over_those_who_answered_before_and_while() -> None:
    nodes = [Measured(1, 1.0, 51.0, 52.0), Measured(2, 30.0, 80.0, None), Measured(3, None, 50.0, 50.0), Measured(4)]
    shaped, unshaped = measured(nodes, Shape(delay_ms=50))
    assert shaped["round_trip_ms"] == {"before": 15.5, "while": 65.5}
    assert unshaped["round_trip_ms"] == {"before": 1.0, "while": 52.0}


def test_a_fault_that_cannot_be_measured_is_one_all_the_same() -> None:
    """A node was off, or went off meanwhile."""
    off = AgentError("round_trips on broker-1: OSError: no such network")
    assert "round_trip_ms" not in measured([Measured(1, off, 51.0, off), Measured(2)], Shape(delay_ms=50))[0]
    assert "round_trip_ms" not in measured([Measured(1, 1.0, off, off), Measured(2)], Shape(loss=0.5))[1]


def test_nobody_waits_for_answers_that_take_longer_than_the_fault() -> None:
    node = Measured(1, 1.0, None, None)
    shaped, unshaped = measured([node, Measured(2)], Shape(delay_ms=10_000, jitter_ms=10_000))
    assert max(node.patience) == 3.0
    assert shaped["unanswered_ms"] == unshaped["unanswered_ms"] == 3000
    assert "unanswered_ms" not in measured([Measured(1, 1.0, None, None), Measured(2)], Shape(delay_ms=50))[0]
    assert "unanswered_ms" not in measured([Measured(1, None, None, None), Measured(2)], Shape(delay_ms=10_000))[0]


def test_the_agent_is_asked_for_something_else_while_it_measures(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            while line := await reader.readline():
                request = json.loads(line)
                if request["do"] == "round_trips":
                    await killed.wait()
                writer.write(json.dumps({"result": request["do"]}).encode() + b"\n")

    async def scenario() -> None:
        async with await asyncio.start_unix_server(answer, tmp_path / "socket"):
            agent = AgentClient(tmp_path / "socket")
            measuring = asyncio.create_task(agent.measure("broker-1", "round_trips"))
            await asyncio.sleep(0.01)
            async with asyncio.timeout(5):
                assert await agent.ask("broker-1", "kill") == "kill"
                killed.set()
                assert await measuring == "round_trips"
            agent.close()

    killed = asyncio.Event()
    asyncio.run(scenario())


def test_an_agent_that_is_frozen_is_told_of_and_then_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runtimes.docker.agent_client.TELL_AFTER_S", 0.05)
    monkeypatch.setattr("harness.runtimes.docker.agent_client.PATIENCE_S", 0.2)
    reported: list[str] = []

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await reader.read()

    async def scenario() -> None:
        async with await asyncio.start_unix_server(never, tmp_path / "socket"):
            agent = AgentClient(tmp_path / "socket", reported.append)
            with pytest.raises(AgentGone, match=r"cut_power on broker-1: the agent has not answered for 0.2 s"):
                await agent.ask("broker-1", "cut_power")
            async with asyncio.timeout(0.1):  # nobody waits for it again
                with pytest.raises(AgentGone):
                    await agent.ask("broker-2", "kill")
            agent.close()

    asyncio.run(scenario())
    assert reported == ["waiting for the agent: cut_power on broker-1"]


class Kernel:
    """What it has in one network namespace, as tc, ip and nftables change it."""

    namespace = 0
    ends = Ends()
    chains = NetworkCard.chains

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.roots: dict[tuple[str, str], str] = {("eth0", "root"): "noqueue"}
        self.incoming = False
        self.tables: set[str] = set()
        self.broken = False
        monkeypatch.setattr(tools, "run", self._tool)
        monkeypatch.setattr(queues.Queues, "_interfaces", lambda _: ["lo", "eth0", *["chaos-in"] * self.incoming])

    def _tool(self, command: list[str], *, network: int, lines: list[str] = []) -> str:  # noqa: B006
        if "show" in command:
            shown = [
                {"kind": kind, "dev": device, "handle": "1:", **({"root": True} if place == "root" else {})}
                for (device, place), kind in self.roots.items()
            ]
            return json.dumps(shown)
        if self.broken:
            raise OSError("tc: no memory")
        for what, do, *words in map(str.split, lines):
            if what == "link" and do == "del":
                self.incoming = False
                self.roots.pop(("chaos-in", "root"), None)
            elif what == "link" and do == "add":
                assert not self.incoming
                self.incoming = True
            elif what == "qdisc" and not {"root", "ingress"}.isdisjoint(words):
                place = words[1], "ingress" if "ingress" in words else "root"
                there = self.roots.pop(place, "noqueue")
                if (there == "noqueue") == (do == "del"):
                    raise OSError("tc: RTNETLINK answers: File exists")
                if do == "add":
                    self.roots[place] = "ingress" if place[1] == "ingress" else words[5]
                elif place[1] == "root":
                    self.roots[place] = "noqueue"
        return ""

    def run(self, commands: str) -> str:
        self.tables |= set(re.findall(r"^table (\w+ \w+)", commands, re.M))
        self.tables -= set(re.findall(r"^delete table (\w+ \w+)", commands, re.M))
        return ""

    def packets(self, *_: object) -> dict[str, int]:
        return {}


SLOW = Wanted(["10.0.0.2"], ["10.0.0.1"], "10.0.0.1", asdict(Shape(rate_kbit=32.0)))


def test_a_machine_that_is_plugged_in_once_more_is_shaped_as_it_was_and_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, links = Kernel(monkeypatch), Shaping()
    untouched = dict(kernel.roots)
    links.plug_in(cast(Any, kernel))
    links.shape("a", SLOW)
    shaped = dict(kernel.roots)
    assert shaped == {("eth0", "root"): "htb", ("eth0", "ingress"): "ingress", ("chaos-in", "root"): "htb"}
    links.plug_in(cast(Any, kernel))
    assert kernel.roots == shaped and kernel.incoming
    kernel.broken = True
    with pytest.raises(OSError, match="no memory"):
        links.unshape("a")
    kernel.broken = False
    links.unshape("a")
    assert kernel.roots == untouched and not kernel.incoming, "it was tried again"


def test_what_nobody_noted_is_mended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, machine = Kernel(monkeypatch), Machine("broker-1", cast(Any, None))
    kernel.roots |= {("lo", "root"): "tbf", ("eth0", "root"): "fq"}
    kernel.incoming, kernel.tables = True, {"inet chaos", "ip chaos", "ip nat"}
    network = object.__new__(NetworkCard)
    network.run = kernel.run  # type: ignore[method-assign]
    network.namespace = 0
    machine._network = network
    machine._shaping.plug_in(network)
    assert queues.Queues(0).there_are()
    machine.mend_network()
    assert not queues.Queues(0).there_are()
    assert kernel.roots == {("lo", "root"): "noqueue", ("eth0", "root"): "fq"} and not kernel.incoming
    assert kernel.tables == {"ip nat"}


def test_what_netem_puts_at_the_head_of_its_queue_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, links = Kernel(monkeypatch), Shaping()
    links.plug_in(cast(Any, kernel))
    links.shape("a", replace(SLOW, incoming=[], shape=asdict(Shape(delay_ms=20.0, reorder=0.25))))
    counted = {"packets": 12, "bytes": 900, "drops": 1, "overlimits": 0, "requeues": 3}
    netem = {"kind": "netem", "dev": "eth0", "handle": "20:", **counted}
    monkeypatch.setattr(queues.Queues, "_qdiscs", lambda _: [netem])
    assert links.unshape("a") == {
        "daddr 10.0.0.2": {"packets_delayed": 9, "packets_reordered": 3, "packets_dropped": 1}
    }


def test_a_network_that_is_closed_meanwhile_is_not_mistaken_for_another_file() -> None:
    network = NetworkCard(os.getpid())
    network.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        network.enter()


def test_needs_are_tried_once_and_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def trial(name: str) -> str | None:
        steps.append(f"try {name}")
        time.sleep(0.02)
        steps.append(f"tried {name}")
        return f"no {name}" if name == "netem" else None

    monkeypatch.setattr(lacks, "_TRIALS", {name: partial(trial, name) for name in ("netem", "io-limit")})
    lacks._lacking.cache_clear()
    try:
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lacks.lacks, [["netem", "io-limit"], ["io-limit"]] * 2))
        assert answers == [{"netem": "no netem"}, {}] * 2
        tries = [["try netem", "tried netem"], ["try io-limit", "tried io-limit"]]
        assert steps in ([*tries[0], *tries[1]], [*tries[1], *tries[0]])
    finally:
        lacks._lacking.cache_clear()


def test_the_doctor_tries_to_limit_a_loop_device_once_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(tools, "keep_own_namespaces", lambda: None)
    monkeypatch.setattr(probe, "lacks", lambda needs: {need: done.append(need) for need in needs})
    monkeypatch.setattr(probe, "_outcome", lambda action, *_: done.append(action.__name__))
    probe.probe(tmp_path, lambda: None)
    assert done.index("_attach_and_detach") < done.index("io-limit")


# -- what the simulation makes of it ------------------------------------------------------------------------------


async def took(world: World, connection: Any, name: str = "a") -> float:
    began = world.loop.time()
    await world.ask(connection, name)
    return world.loop.time() - began


@simulated()
async def test_a_delayed_link_takes_longer_one_way_until_it_is_as_it_was(world: World) -> None:
    await world.serve(Echo())
    connection = await world.connect()
    world.network.shape("a", [THERE], Shape(delay_ms=300, jitter_ms=100))
    world.network.shape("b", [THERE, ("x", "y")], Shape(delay_ms=1000))
    times = [await took(world, connection) for _ in range(20)]
    assert all(1.2 < time < 1.41 for time in times) and max(times) - min(times) > 0.1
    counted = world.network.unshape("a")
    assert list(counted) == [THERE] and counted[THERE]["packets_delayed"] >= 20
    assert 1.0 < await took(world, connection) < 1.01, "what the other key does is still in force"
    world.network.mend_all()
    assert await took(world, connection) < 0.01
    assert world.network.unshape("a") == {} == world.network.unshape("b")


@simulated()
async def test_opening_a_connection_takes_longer_too_and_lost_attempts_are_made_again(world: World) -> None:
    await world.serve(Echo())
    world.network.shape("a", [BACK], Shape(delay_ms=500))
    await world.connect()
    assert 0.5 < world.loop.time() < 0.51
    world.network.unshape("a")
    world.network.shape("a", [THERE], Shape(loss=0.9))
    with pytest.raises(TimeoutError):
        for _ in range(20):
            await world.connect(timeout=0.9)
    assert world.network.unshape("a")[THERE]["packets_dropped"] > 0


@simulated()
async def test_a_lost_packet_is_late_by_timeouts_that_double(world: World) -> None:
    await world.serve(Echo())
    connection = await world.connect()
    world.network.shape("a", [THERE], Shape(loss=0.5))
    late = [round(await took(world, connection), 1) for _ in range(60)]
    lost = world.network.unshape("a")[THERE]["packets_dropped"]
    steps = {round(shaping.RETRANSMISSION_S * (2**times - 1), 1): times for times in range(12)}
    assert set(late) <= set(steps) and {0.0, 0.2, 0.6} <= set(late)
    assert sum(steps[seconds] for seconds in late) == lost
    assert await took(world, connection) < 0.01


@simulated()
async def test_what_follows_a_lost_packet_waits_for_it(world: World) -> None:
    echo = Echo()
    await world.serve(echo)
    connection = await world.connect()
    world.network.shape("a", [THERE], Shape(loss=0.5))
    sent = [f"{number}" for number in range(30)]
    assert await asyncio.gather(*world.asking(connection, *sent)) == sent
    assert [name for name in echo.handled if name in sent] == sent


@simulated()
async def test_a_rate_limits_what_passes_in_a_second_each_link_for_itself(world: World) -> None:
    await world.serve(Echo())
    connection = await world.connect()
    world.network.shape("a", [THERE], Shape(rate_kbit=80))  # 10 kB/s
    name = "x" * 900
    began = world.loop.time()
    await asyncio.gather(*world.asking(connection, *[name] * 40))
    counted = world.network.unshape("a")[THERE]
    assert 36_000 < counted["shaped_bytes"] < 42_000
    assert 3.4 < world.loop.time() - began < 4.3 and counted["throttled"] >= 35
    assert await took(world, connection, name) < 0.01


@simulated()
async def test_what_waits_for_its_turn_waits_no_longer_than_the_rate_lasts(world: World) -> None:
    echo = Echo()
    await world.serve(echo)
    connection = await world.connect()
    world.network.shape("a", [THERE], Shape(rate_kbit=8))
    sent = [f"{number}" + "x" * 1000 for number in range(30)]
    answers = world.asking(connection, *sent)
    await asyncio.sleep(2.0)
    assert 1 <= len(echo.handled) // 2 <= 6
    world.network.unshape("a")
    assert await asyncio.gather(*answers) == sent, "and in order"
    assert world.loop.time() < 2.5 and not world.network.waiting


@simulated()
async def test_last_words_are_as_late_as_ever_beside_a_rate_that_ends(world: World) -> None:
    await world.serve(Echo())
    connection = await world.connect()
    world.network.slow([THERE], 2.0)
    world.network.shape("a", [BACK], Shape(rate_kbit=8))
    answers = world.asking(connection, "a")
    await asyncio.sleep(0.1)
    world.network.unshape("a")
    world.network.slow([THERE], 0.0)
    assert await answers[0] == "a" and world.loop.time() > 2.0


# -- runs ---------------------------------------------------------------------------------------------------------


def run(nemesis: str, seed: int = 1) -> Any:
    plan = Plan(run="r", on="simulation", nemesis=(nemesis,), seed=seed, time_limit=25.0, rate=40.0, partitions=2)
    return simulate(plan)


@pytest.mark.parametrize(
    "nemesis",
    [
        "network:delay:delay_ms=4000:jitter_ms=3000:clients=with:links=all",
        "network:loss:loss=0.7:clients=with:links=all",
        "network:loss:loss=0.8:clients=only:links=leader:direction=incoming",
        "network:rate:rate_kbit=2:clients=with:links=all",
    ],
)
def test_what_may_have_happened_is_never_taken_for_what_did_not(nemesis: str) -> None:
    """Answers come later than their clients wait."""
    found = run(nemesis)
    assert not found.crash and found.violation is None
    verdict = found.judge()
    assert verdict["verdict"] == "pass", verdict["reason"]
    appends = [row for row in found.tables["operations"].to_pylist() if row["kind"] == "append"]
    assert {"ok", "info"} <= {row["outcome"] for row in appends}, "some were not answered in time"
    assert all(row["effective"] for row in found.tables["faults"].to_pylist())


def test_a_run_under_slow_links_is_the_same_each_time() -> None:
    first, second = run("network"), run("network")
    assert first.trace_hash == second.trace_hash != run("network", seed=2).trace_hash
    faults = first.tables["faults"].to_pylist()
    assert any(row["effective"] for row in faults)
