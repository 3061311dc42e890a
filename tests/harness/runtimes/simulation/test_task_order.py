"""Orders of tasks that are ready at once: others than asyncio's, each the same whenever its seed is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, get_args

import pytest

from harness.explore.simulate import simulate
from harness.plan.plan import Plan, TaskOrder
from harness.runtimes.simulation.loop import VirtualLoop
from harness.runtimes.simulation.task_order import awaits_may_yield, make_order

PERTURBED = ("random", "pct")
SEEDS = range(40)


def outcome(order: TaskOrder, seed: int, main: Callable[[VirtualLoop, list[Any]], Coroutine[Any, Any, None]]) -> str:
    """What `main`, in a process, has said in a run."""
    loop, said = VirtualLoop(), list[Any]()
    loop.order = make_order(order, seed)
    with awaits_may_yield(loop.order):
        loop.run_until_complete(loop.spawn(loop.new_process("a"), main(loop, said)))
    loop.bury()
    return " ".join(map(str, said))


async def three_at_once(loop: VirtualLoop, said: list[Any]) -> None:
    async def says(name: str) -> None:
        await asyncio.sleep(1.0)
        said.append(name)

    await asyncio.gather(*(says(name) for name in "abc"))


@pytest.mark.parametrize("order", PERTURBED)
def test_tasks_that_are_ready_at_once_run_in_every_order(order: TaskOrder) -> None:
    assert {outcome("fifo", seed, three_at_once) for seed in SEEDS} == {"a b c"}
    assert len({outcome(order, seed, three_at_once) for seed in SEEDS}) == 6
    assert [outcome(order, seed, three_at_once) for seed in SEEDS] == [
        outcome(order, seed, three_at_once) for seed in SEEDS
    ]


@pytest.mark.parametrize("order", PERTURBED)
def test_callbacks_keep_the_order_in_which_they_were_asked_for(order: TaskOrder) -> None:
    async def main(loop: VirtualLoop, said: list[Any]) -> None:
        others = [asyncio.create_task(asyncio.sleep(0)) for _ in range(5)]
        for number in range(5):
            loop.call_soon(said.append, number)
            loop.call_later(1.0, said.append, 10 + number)
        await asyncio.gather(*others)
        await asyncio.sleep(2.0)

    assert {outcome(order, seed, main) for seed in SEEDS} == {"0 1 2 3 4 10 11 12 13 14"}


async def lost_update(loop: VirtualLoop, said: list[Any]) -> None:
    """Right only as long as to wait for what has happened already lets nobody go before."""
    count, may = [0], asyncio.Event()
    may.set()

    async def adds() -> None:
        before = count[0]
        await may.wait()
        count[0] = before + 1

    await asyncio.gather(adds(), adds())
    said.append(count[0])


@pytest.mark.parametrize("order", PERTURBED)
def test_awaits_that_need_not_wait_yield_at_times(order: TaskOrder) -> None:
    assert {outcome("fifo", seed, lost_update) for seed in SEEDS} == {"2"}
    assert {outcome(order, seed, lost_update) for seed in range(300)} == {"1", "2"}


@pytest.mark.parametrize("order", PERTURBED)
def test_who_yields_until_another_is_done_does_not_wait_for_ever(order: TaskOrder) -> None:
    async def main(loop: VirtualLoop, said: list[Any]) -> None:
        async def sets() -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            said.append("set")

        other = asyncio.create_task(sets())
        while not other.done():
            await asyncio.sleep(0)
        said.append(loop.time())

    assert {outcome(order, seed, main) for seed in SEEDS} == {"set 0.0"}


@pytest.mark.parametrize("order", PERTURBED)
def test_regression_who_is_passed_over_by_a_process_that_waits_for_its_disk_comes_first_then(order: TaskOrder) -> None:
    """A guided run, 9846: fetches of a broker with a slow disk were not answered for seconds, and others were."""

    async def main(loop: VirtualLoop, said: list[Any]) -> None:
        process, others = loop.current, [asyncio.create_task(asyncio.sleep(0)) for _ in range(5)]
        assert process is not None
        while not all(other.done() for other in others):
            loop.stall(process, 1.0)
            await asyncio.sleep(0)
        said.append(round(loop.time()))

    assert max(int(outcome(order, seed, main)) for seed in SEEDS) <= 12


def test_asyncio_is_as_it_was_afterwards() -> None:
    before = asyncio.Event.wait, asyncio.Lock.acquire
    with pytest.raises(ZeroDivisionError), awaits_may_yield(make_order("random", 1)):
        assert asyncio.Event.wait is not before[0]
        raise ZeroDivisionError
    assert (asyncio.Event.wait, asyncio.Lock.acquire) == before


def test_a_run_has_another_trace_with_each_order_and_the_same_whenever_repeated() -> None:
    def trace_hash(order: TaskOrder) -> str:
        plan = Plan(
            run="order", on="simulation", nemesis=("kill",), seed=3, time_limit=12.0, rate=40.0, task_order=order
        )
        done = simulate(plan)
        assert not done.crash and done.violation is None, (done.crash, done.violation)
        return done.trace_hash

    hashes = {order: trace_hash(order) for order in get_args(TaskOrder)}
    assert len(set(hashes.values())) == 3
    assert all(trace_hash(order) == found for order, found in hashes.items())
