"""TCP's promise on simulated links, whatever is done to them: what is sent arrives in order and without gaps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_image.network import Connection
from harness.cluster import Shape
from harness.runtimes.simulation.network import network
from tests.harness.runtimes.simulation.test_simulated_network import BACK, THERE, Echo, World, outcome, simulated
from workloads.clients.kio.requests import metadata_request


async def answers(tasks: Sequence[asyncio.Task[str]]) -> list[str]:
    return [await task for task in tasks]


@simulated()
async def test_what_is_sent_after_a_cut_is_held_behind_what_was_still_on_its_way(world: World) -> None:
    await world.serve(Echo())
    connection = await world.connect()
    world.network.slow([THERE], 1.0)
    asked = world.asking(connection, "a")
    await asyncio.sleep(0.5)
    asked += world.asking(connection, "b")
    await asyncio.sleep(0.4)
    world.network.cut("p", [THERE])  # which "a" meets, and "b" later
    await asyncio.sleep(0.3)
    asked += world.asking(connection, "c")
    await asyncio.sleep(0.8)
    world.network.mend("p")
    assert await answers(asked) == ["a", "b", "c"]


@simulated()
async def test_what_waited_at_a_rate_does_not_overtake_what_was_delayed_before_it(world: World) -> None:
    await world.serve(Echo())
    connection = await world.connect()
    world.network.shape("delay", [THERE], Shape(delay_ms=1000.0))
    world.network.shape("rate", [THERE], Shape(rate_kbit=8.0))
    names = [f"m{number}" for number in range(40)]
    asked = world.asking(connection, *names)
    await asyncio.sleep(0.05)
    world.network.unshape("rate")
    assert await answers(asked) == names
    assert 1.0 < world.loop.time() < 1.1, "the other key's delay is in force, and all that is"


@simulated()
async def test_one_message_sent_twice_waits_at_a_rate_as_two(world: World) -> None:
    """Equal messages may be one object: which of them arrives must not be told by that."""
    await world.serve(echo := Echo())
    connection = await world.connect()
    request = metadata_request("same")
    first = asyncio.create_task(connection.request(request, timeout=60))
    await asyncio.sleep(0)
    world.network.shape("rate", [THERE], Shape(rate_kbit=0.1))
    burst = world.asking(connection, "x" * 1900)
    again = asyncio.create_task(connection.request(request, timeout=600))
    await asyncio.sleep(0.1)
    assert first.done() and not again.done()
    world.network.unshape("rate")
    after = world.asking(connection, "after")
    assert (await again).cluster_id == "same" and await answers(after) == ["after"] and await answers(burst)
    assert [name for name in echo.handled if "begins" not in name][-2:] == ["same", "after"]
    assert world.loop.time() < 1.0


# -- any sequence ---------------------------------------------------------------------------------------------------

LINKS = st.sampled_from([[THERE], [BACK], [THERE, BACK]])
SHAPES = st.builds(
    Shape,
    delay_ms=st.sampled_from([0.0, 30.0, 1000.0]),
    jitter_ms=st.sampled_from([0.0, 500.0]),
    loss=st.sampled_from([0.0, 0.3]),
    reorder=st.sampled_from([0.0, 0.5]),
    rate_kbit=st.sampled_from([0.0, 0.0, 2.0, 64.0]),
)
KEYS = st.sampled_from(["a", "b"])
WAITS = st.tuples(st.just("wait"), st.sampled_from([0.001, 0.05, 0.3, 0.7, 3.0]))
ASKS = st.tuples(st.just("ask"), st.integers(1, 5))
LINK_DEEDS = st.one_of(
    st.tuples(st.just("cut"), KEYS, LINKS),
    st.tuples(st.just("mend"), KEYS),
    st.tuples(st.just("shape"), KEYS, LINKS, SHAPES),
    st.tuples(st.just("unshape"), KEYS),
    st.tuples(st.just("slow"), LINKS, st.sampled_from([0.0, 1.0])),
)
HOST_DEEDS = st.sampled_from([("power off",), ("power on",), ("kill",)])
#: Mostly of links: a connection that has ended shows nothing any more.
DEEDS = st.integers(0, 19).flatmap(lambda number: HOST_DEEDS if number == 0 else st.one_of(ASKS, WAITS, LINK_DEEDS))


class Story:
    """Requests on one connection after the other, each numbered, and whatever becomes of the links and the server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.echoes: list[Echo] = []
        self.asked: list[tuple[str, asyncio.Task[str]]] = []
        self.connection: Connection | None = None
        self.connections = 0
        self.server: Any = None

    async def serve(self) -> None:
        self.echoes.append(Echo())
        self.server = await self.world.serve(self.echoes[-1])

    async def ask(self, number: int) -> None:
        if self.connection is None or self.connection.closed:
            try:
                self.connection = await self.world.connect(timeout=0.5)
            except (ConnectionError, TimeoutError):
                return
            self.connections += 1
        for _ in range(number):
            name = f"{self.connections}/{len(self.asked)}"
            (task,) = self.world.asking(self.connection, name, timeout=600.0)
            self.asked.append((name, task))
        await asyncio.sleep(0)

    async def do(self, deed: str, *how: Any) -> None:
        world, links = self.world, self.world.network
        if deed == "ask":
            await self.ask(*how)
        elif deed == "wait":
            await asyncio.sleep(*how)
        elif deed == "power off" and self.server.alive:
            world.cut_power(self.server)
        elif deed == "kill" and self.server.alive:
            world.kill(self.server)
        elif deed == "power on" and not self.server.alive:
            links.power_on("server")
            await self.serve()
        elif deed in ("cut", "mend", "shape", "unshape", "slow"):
            getattr(links, deed)(*how)

    async def heal(self) -> None:
        self.world.network.mend_all()
        self.world.network.slow([THERE, BACK], 0.0)
        await self.do("power on")
        await asyncio.sleep(30.0)

    async def judge(self) -> None:
        handled = [name for echo in self.echoes for name in echo.handled if "begins" not in name]
        seen = [await outcome(task) if task.done() else "nothing" for _, task in self.asked]
        reported = [(name, answer) for (name, _), answer in zip(self.asked, seen, strict=True)]
        assert [(name, answer) for name, answer in reported if "/" in answer and answer != name] == []
        for connection in range(1, self.connections + 1):
            own = [(name, answer) for name, answer in reported if name.startswith(f"{connection}/")]
            on_it = [name for name in handled if name.startswith(f"{connection}/")]
            assert on_it == [name for name, _ in own][: len(on_it)], "in order, without gaps"
            answered = [name for name, answer in own if answer == name]
            assert answered == [name for name, _ in own][: len(answered)] and len(answered) <= len(on_it)
        if len(self.echoes) == 1:
            assert [name for name, _ in self.asked] == seen, "nobody was killed: everything is answered"
            assert not self.world.network.waiting


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1000), st.lists(DEEDS, min_size=10, max_size=60))
def test_requests_get_their_own_answers_in_order(seed: int, deeds: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "LATE", 0.05)
        world = World(seed=seed)
        story = Story(world)

        async def scenario() -> None:
            await story.serve()
            for deed in deeds:
                await story.do(*deed)
            await story.heal()
            await story.judge()

        try:
            world.loop.run_until_complete(world.loop.spawn(world.clients.process, scenario()))
        finally:
            world.loop.bury()
        assert world.loop.errors == []
