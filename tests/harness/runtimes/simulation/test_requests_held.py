"""Requests of clients that are held back or repeated: as by a proxy that stands between them and the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from harness.explore.simulate import simulate
from harness.plan.plan import Plan
from harness.runtimes.proxy.rules import Rule
from harness.runtimes.simulation.network import network
from tests.harness.runtimes.simulation.test_simulated_network import Echo, World, outcome


def scenario(run: Callable[[World], object], rule: Rule) -> list[str]:
    """What the server had handled."""
    world, echo = World(), Echo()
    world.clients = world.network.endpoint(world.clients.process, "clients")
    world.network.rules["x"] = rule

    async def test() -> None:
        await world.serve(echo)
        await run(world)  # type: ignore[misc]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "LATE", 0.0)
        try:
            world.loop.run_until_complete(world.loop.spawn(world.clients.process, test()))
        finally:
            world.loop.bury()
    assert world.loop.errors == []
    return [each for each in echo.handled if not each.endswith("begins")]


def rule(action: str, seconds: float, api: str = "Metadata") -> Rule:
    return Rule(api, action, (seconds, seconds), 1.0, Random(1))  # type: ignore[arg-type]


def test_what_is_held_back_arrives_when_its_client_has_hung_up_and_sent_it_again() -> None:
    held = rule("delay", 2.0)

    async def run(world: World) -> None:
        first = await world.connect()
        (asked,) = world.asking(first, "old", timeout=1.0)
        assert (await outcome(asked)).startswith("TimeoutError")
        world.network.rules.clear()
        assert await world.ask(await world.connect(), "new") == "new"
        await asyncio.sleep(2.0)

    assert scenario(run, held) == ["new", "old"]
    assert held.evidence() == {
        "api": "Metadata", "requests": 1, "delayed_requests": 1, "held_ms": 2000, "delivered_after_hang_up": 1,
    }  # fmt: skip


def test_what_is_repeated_is_answered_once() -> None:
    repeated = rule("repeat", 0.5)

    async def run(world: World) -> None:
        connection = await world.connect()
        assert await world.ask(connection, "a") == "a"
        world.network.rules.clear()
        await asyncio.sleep(1.0)
        assert await world.ask(connection, "b") == "b"

    assert scenario(run, repeated) == ["a", "a", "b"]
    assert repeated.evidence()["repeated_requests"] == 1


def test_what_is_to_be_repeated_comes_after_its_client_has_hung_up() -> None:
    async def run(world: World) -> None:
        connection = await world.connect()
        assert await world.ask(connection, "a") == "a"
        connection.close()
        await asyncio.sleep(1.0)

    assert scenario(run, rule("repeat", 0.5)) == ["a", "a"]


def test_other_requests_pass() -> None:
    async def run(world: World) -> None:
        assert await world.ask(await world.connect(), "a", timeout=1.0) == "a"

    assert scenario(run, rule("delay", 5.0, api="Produce")) == ["a"]


@pytest.mark.parametrize("nemesis", ["requests:delay:api=Produce", "requests:repeat:api=Produce"])
def test_a_run_is_judged_as_ever(nemesis: str) -> None:
    plan = Plan(run="r", on="simulation", nemesis=(nemesis,), time_limit=15.0, rate=60, producers="fenced", seed=2)
    done = simulate(plan)
    assert done.judge()["verdict"] == "pass", done.judge()["reason"]
    assert simulate(plan).trace_hash == done.trace_hash
