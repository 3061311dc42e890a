"""Of what there is little of, addresses have a turn each."""

from __future__ import annotations

import asyncio

from cluster_image.network.shares import Shares


class Asking:
    """Of shares, by names as "a1": the first of address a."""

    def __init__(self, shares: Shares) -> None:
        self.inside: list[str] = []
        self._shares = shares
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._may_leave: dict[str, asyncio.Event] = {}

    async def ask(self, names: str) -> None:
        for name in names.split():
            self._may_leave[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._be_inside(name))
            await asyncio.sleep(0)

    async def leave(self, name: str) -> None:
        self._may_leave[name].set()
        await self._tasks[name]
        await self.settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def _be_inside(self, name: str) -> None:
        async with self._shares.turn(name[0]):
            self.inside.append(name)
            try:
                await self._may_leave[name].wait()
            finally:
                self.inside.remove(name)


def test_addresses_that_wait_are_let_in_one_after_the_other() -> None:
    async def story() -> None:
        asking = Asking(Shares(2, 1))
        await asking.ask("a1 a2 a3 b1 b2 c1")
        assert asking.inside == ["a1", "b1"], "one of each"
        await asking.leave("a1")
        assert asking.inside == ["b1", "a2"], "a came before b and c"
        await asking.leave("a2")
        assert asking.inside == ["b1", "c1"], "a has just had its turn"
        await asking.leave("b1")
        assert asking.inside == ["c1", "b2"]
        await asking.leave("c1")
        assert asking.inside == ["b2", "a3"]
        await asking.leave("b2")
        await asking.leave("a3")
        await asking.ask("a4")
        assert asking.inside == ["a4"], "nothing stays counted"

    asyncio.run(story())


def test_who_does_not_wait_any_longer_takes_no_turn() -> None:
    async def story() -> None:
        asking = Asking(Shares(1, 1))
        await asking.ask("a1 b1 b2 c1")
        await asking.cancel("b1")
        await asking.leave("a1")
        assert asking.inside == ["b2"]
        await asking.cancel("b2")
        assert asking.inside == ["c1"]
        await asking.leave("c1")
        await asking.ask("d1")
        assert asking.inside == ["d1"]

    asyncio.run(story())


def test_a_turn_that_is_given_and_cancelled_at_once_is_passed_on() -> None:
    async def story() -> None:
        asking = Asking(Shares(1, 1))
        await asking.ask("a1 b1 c1")
        asking._may_leave["a1"].set()
        await asyncio.sleep(0)  # a1 has left, and b1 has not run yet
        asking._tasks["b1"].cancel()
        await asking.settle()
        assert asking.inside == ["c1"]

    asyncio.run(story())
