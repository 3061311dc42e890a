"""The model and Apache ZooKeeper, asked the same: what they answer and what their watches tell is the same.

CHAOS_SEQUENCES: of how many operation sequences (hypothesis' examples) that is tried.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from cluster_image.v2.zookeeper import (
    Check,
    Create,
    Delete,
    Event,
    Operation,
    SetData,
    Stat,
    ZooKeeper,
    ZooKeeperError,
)
from tests.clusters.real_zookeeper import RealZooKeeper

from .worlds import Model, Real, World

SEQUENCES = int(os.environ.get("CHAOS_SEQUENCES", "40"))
CLIENTS = 2
#: Under the sequence's own node.
PATHS = ("/a", "/b", "/a/c", "/a/c/d")

paths = st.sampled_from(PATHS)
data = st.sampled_from((b"", b"x", b"\x00\xff"))
versions = st.sampled_from((-1, -1, -1, 0, 1))
clients = st.integers(0, CLIENTS - 1)
operations = st.one_of(
    st.builds(Create, paths, data, st.booleans(), st.booleans()),
    st.builds(SetData, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)


class Side:
    """One world, with clients that go on from sequence to sequence."""

    def __init__(self, world: World, loop: asyncio.AbstractEventLoop) -> None:
        self.world = world
        self.loop = loop
        self.clients: list[ZooKeeper] = []
        self.events: list[list[tuple[str, str]]] = [[] for _ in range(CLIENTS)]
        self.base = ""
        self._sequences = 0
        self._names: dict[int, str] = {0: "0"}  # of zxids and sessions, as they are seen for the first time

    def start(self) -> None:
        self.do(self.world.start_all())
        first = self.world.client()
        self.do(first.start())
        self.do(first.create(self.world.base))
        self.do(first.create(f"{self.world.base}/sync"))
        self.clients = [first]
        while len(self.clients) < CLIENTS:
            self.clients.append(self.world.client())
            self.do(self.clients[-1].start())

    def do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(what, 60))

    def begin(self) -> None:
        self._sequences += 1
        self._names = {0: "0"}
        self.base = f"{self.world.base}/{self._sequences}"
        self.do(self.clients[0].create(self.base))
        self.sync()
        for events in self.events:
            events.clear()

    def sync(self) -> None:
        """All clients have seen all that was written, and the events of it."""
        for client in self.clients:
            self.do(client.set(f"{self.world.base}/sync", b""))
        self.do(asyncio.sleep(0))

    def ask(self, number: int, call: Callable[[ZooKeeper, Callable[[str], str]], Coroutine[Any, Any, Any]]) -> Any:
        try:
            result = self.do(call(self.clients[number], lambda path: self.base + path))
        except ZooKeeperError as error:
            return type(error).__name__
        finally:
            self.sync()
        return self.plain(result)

    def plain(self, value: Any) -> Any:
        """Without what differs from world to world."""
        match value:
            case Stat():
                names = [self._name(each) for each in (value.czxid, value.mzxid, value.pzxid)]
                owner = next((n for n, each in enumerate(self.clients) if each.session == value.owner), -1)
                return (*names, value.version, value.cversion, owner, value.children)
            case str():
                return value.removeprefix(self.base)
            case list() | tuple():
                return [self.plain(each) for each in value]
            case _:
                return value

    def _name(self, zxid: int) -> str:
        return self._names.setdefault(zxid, str(len(self._names)))

    def watcher(self, number: int) -> Callable[[Event], None]:
        """What it hears in a later sequence is no business of that."""
        base = self.base

        def hear(event: Event) -> None:
            if self.base == base:
                self.events[number].append((event.type.name, event.path.removeprefix(base)))

        return hear

    def heard(self) -> Sequence[Sequence[tuple[str, str]]]:
        """By client, since this was asked last; those of one step in no order."""
        found = [sorted(events) for events in self.events]
        for events in self.events:
            events.clear()
        return found

    def replace(self, number: int) -> None:
        """Close a client's session, and begin another."""
        self.do(self.clients[number].close())
        self.do(self.world.forget(self.clients[number]))
        self.clients[number] = self.world.client()
        self.do(self.clients[number].start())
        self.sync()


class Machine(RuleBasedStateMachine):
    sides: ClassVar[Sequence[Side]] = ()

    @initialize()
    def begin(self) -> None:
        for side in self.sides:
            side.begin()

    def _both(self, number: int, call: Callable[..., Coroutine[Any, Any, Any]], watched: bool = False) -> None:
        """call: of a client, a path's maker and a watcher."""
        answers = []
        for side in self.sides:
            watch = side.watcher(number) if watched else None
            answers.append(side.ask(number, lambda client, path, watch=watch: call(client, path, watch)))
        assert answers[0] == answers[1]
        assert self.sides[0].heard() == self.sides[1].heard()

    @rule(number=clients, several=st.lists(operations, min_size=2, max_size=4))
    def multi(self, number: int, several: list[Operation]) -> None:
        self._both(
            number, lambda client, path, _: client.multi([each._replace(path=path(each.path)) for each in several])
        )

    @rule(number=clients, of=paths, content=data, ephemeral=st.booleans(), sequence=st.booleans())
    def create(self, number: int, of: str, content: bytes, ephemeral: bool, sequence: bool) -> None:
        self._both(
            number,
            lambda client, path, _: client.create(path(of), content, ephemeral=ephemeral, sequence=sequence),
        )

    @rule(number=clients, of=paths, content=data, version=versions)
    def set(self, number: int, of: str, content: bytes, version: int) -> None:
        self._both(number, lambda client, path, _: client.set(path(of), content, version))

    @rule(number=clients, of=paths, version=versions)
    def delete(self, number: int, of: str, version: int) -> None:
        self._both(number, lambda client, path, _: client.delete(path(of), version))

    @rule(number=clients, of=st.sampled_from(("", *PATHS)), watched=st.booleans())
    def get(self, number: int, of: str, watched: bool) -> None:
        self._both(number, lambda client, path, watch: client.get(path(of), watch), watched)

    @rule(number=clients, of=paths, watched=st.booleans())
    def exists(self, number: int, of: str, watched: bool) -> None:
        self._both(number, lambda client, path, watch: client.exists(path(of), watch), watched)

    @rule(number=clients, of=st.sampled_from(("", *PATHS)), watched=st.booleans())
    def children(self, number: int, of: str, watched: bool) -> None:
        self._both(number, lambda client, path, watch: client.children(path(of), watch), watched)

    @rule(number=clients)
    def another_session(self, number: int) -> None:
        for side in self.sides:
            side.replace(number)
        assert self.sides[0].heard() == self.sides[1].heard()


def test_the_model_answers_as_apache_zookeeper_does(zookeeper: RealZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    model, real = Model(), Real(zookeeper, session=10.0)  # long: while the model is at work, nobody else is
    real_loop = asyncio.new_event_loop()
    sides = (Side(model, model.loop), Side(real, real_loop))
    try:
        for side in sides:
            side.start()
        monkeypatch.setattr(Machine, "sides", sides)
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            Machine,
            settings=settings(
                max_examples=SEQUENCES,
                stateful_step_count=12,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        real_loop.run_until_complete(real.close())
        real_loop.close()
        model.loop.bury()
