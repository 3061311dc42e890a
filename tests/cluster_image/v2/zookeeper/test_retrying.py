"""What is made again when nobody has heard what became of it, and what a refusal means then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster_image.v2.zookeeper import (
    BadVersion,
    ConnectionLoss,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    Stat,
    ZooKeeperError,
)
from cluster_image.v2.zookeeper.retrying import RetryingZooKeeper

MINE, ANOTHERS = 7, 8
Call = Callable[[RetryingZooKeeper], Awaitable[Any]]


class Client:
    """Answers with what it was given, one after the other. owner: of the node that exists."""

    state = SessionState.CONNECTED
    session = MINE

    def __init__(self, *outcomes: object, owner: int = MINE) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0
        self.owner = owner

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        listener(SessionState.CONNECTED)

    async def exists(self, path: str, watch: object = None) -> Stat:
        return Stat(1, 1, 1, 0, 0, self.owner, 0)

    async def call(self, *_: object, **__: object) -> object:
        self.calls += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    create = get = set = delete = multi = children = call


def made(client: Client, call: Call) -> Any:
    async def main() -> Any:
        return await call(RetryingZooKeeper(client))  # type: ignore[arg-type]

    return asyncio.run(main())


EPHEMERAL: Call = lambda z: z.create("/a", ephemeral=True)  # noqa: E731
PLAIN: Call = lambda z: z.create("/a")  # noqa: E731
DELETE: Call = lambda z: z.delete("/a")  # noqa: E731
SET: Call = lambda z: z.set("/a", b"", 3)  # noqa: E731


@pytest.mark.parametrize("lost", [ConnectionLoss("x"), SessionExpired("x")])
@pytest.mark.parametrize("call", [EPHEMERAL, PLAIN, DELETE, SET])
def test_a_call_is_made_again_until_it_is_answered(call: Call, lost: ZooKeeperError) -> None:
    client = Client(lost, lost, "/a")
    made(client, call)
    assert client.calls == 3


@pytest.mark.parametrize(
    ("call", "refusal"),
    [(EPHEMERAL, NodeExists("/a")), (PLAIN, NodeExists("/a")), (DELETE, NoNode("/a")), (SET, BadVersion("/a"))],
)
def test_a_refusal_at_once_is_one(call: Call, refusal: ZooKeeperError) -> None:
    with pytest.raises(type(refusal)):
        made(Client(refusal), call)
    with pytest.raises(type(refusal)):  # and so it is after what was certainly not carried out
        made(Client(SessionExpired("x"), refusal), call)


def test_what_was_carried_out_unheard_of_is_done() -> None:
    assert made(Client(ConnectionLoss("x"), NodeExists("/a")), EPHEMERAL) == "/a"
    made(Client(ConnectionLoss("x"), NoNode("/a")), DELETE)


def test_what_another_has_made_is_its_own() -> None:
    with pytest.raises(NodeExists):
        made(Client(ConnectionLoss("x"), NodeExists("/a"), owner=ANOTHERS), EPHEMERAL)
    with pytest.raises(NodeExists):
        made(Client(ConnectionLoss("x"), NodeExists("/a")), PLAIN)
