"""add-brokers, remove-broker and rebalance, against a cluster that does at once what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from cluster_image.network import Address
from cluster_image.placement.initial import place
from cluster_image.placement.spread import Replicas, Spread, apart
from cluster_image.tools import balance
from cluster_image.tools.cluster import Broker, Cluster, Moving, Place, State
from cluster_image.tools.output import ToolError


class FakeCluster:
    """Brokers 1, 2, 3 with a topic of twelve partitions; `alive` are the brokers that there are."""

    def __init__(self) -> None:
        self.alive = {1, 2, 3}
        self.replicas: dict[Place, Replicas] = {
            ("t", index): replicas for index, replicas in enumerate(place(dict.fromkeys(self.alive), 12, 2))
        }
        self.leaders = {each: replicas[0] for each, replicas in self.replicas.items()}
        self.moving: dict[Place, Moving] = {}
        self.unregistered: list[int] = []
        self.looks = 0  # at what is under way
        self.stops: set[int] = set()  # once they hold nothing

    async def state(self) -> State:
        self.alive -= {b for b in self.stops if not any(b in replicas for replicas in self.replicas.values())}
        for each in list(self.moving) if self.looks > 1 else ():  # done by then
            removing = self.moving.pop(each).removing
            self.replicas[each] = tuple(r for r in self.replicas[each] if r not in removing)
        self.looks += bool(self.moving)
        brokers = {id_: Broker(Address("h", id_), None) for id_ in sorted(self.alive)}
        return State(brokers, dict(self.replicas), dict(self.leaders), dict(self.moving))

    async def sizes(self, brokers: Mapping[int, Broker]) -> dict[int, dict[Place, int]]:
        return {b: {each: 100 for each, replicas in self.replicas.items() if b in replicas} for b in brokers}

    async def reassign(self, targets: Mapping[Place, Replicas | None]) -> dict[Place, str]:
        for each, replicas in targets.items():
            assert replicas is not None
            self.replicas[each] = replicas
            self.moving.pop(each, None)
        return {}

    async def elect_preferred(self, places: Iterable[Place]) -> None:
        self.leaders |= {each: self.replicas[each][0] for each in places}

    async def configure(self, changes: Any) -> None: ...

    async def unregister(self, broker: int) -> str:
        self.unregistered.append(broker)
        return ""

    def assert_balanced(self, *brokers: int) -> None:
        spread = Spread(self.replicas.values())
        assert {b for b in spread.replicas if spread.replicas[b]} == set(brokers)
        assert apart(spread.replicas, brokers) <= 1 and apart(spread.leaders, brokers) <= 1
        assert all(self.leaders[each] == replicas[0] for each, replicas in self.replicas.items())


def test_a_broker_that_is_added_gets_its_share() -> None:
    fake = FakeCluster()
    fake.alive.add(4)
    assert asyncio.run(balance.add_brokers(cast(Cluster, fake), [4], 1.0, None, balance=True)) == 0
    fake.assert_balanced(1, 2, 3, 4)


def test_a_broker_that_is_removed_holds_nothing_and_is_unregistered() -> None:
    fake = FakeCluster()
    fake.alive.add(4)
    fake.stops.add(3)
    assert asyncio.run(balance.remove_broker(cast(Cluster, fake), 3, 1.0, None)) == 0
    fake.assert_balanced(1, 2, 4)
    assert fake.unregistered == [3]


def test_one_that_does_not_stop_stays_registered(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCluster()
    fake.alive.add(4)
    assert asyncio.run(balance.remove_broker(cast(Cluster, fake), 3, 0.1, None)) == 1
    fake.assert_balanced(1, 2, 4)
    assert not fake.unregistered
    assert "run this again once it has stopped" in capsys.readouterr().out


def test_what_another_plan_has_begun_goes_on() -> None:
    """It is planned from where replicas are going to be."""
    fake = FakeCluster()
    fake.alive.add(4)
    asyncio.run(balance.rebalance(cast(Cluster, fake), None, None))
    balanced = dict(fake.replicas)
    moved = next(each for each, replicas in balanced.items() if 4 in replicas)
    others = [b for b in balanced[moved] if b != 4]
    gone = next(b for b in (1, 2, 3) if b not in others)
    fake.replicas[moved] = (*balanced[moved], gone)
    fake.moving[moved] = Moving((4,), (gone,))
    asyncio.run(balance.rebalance(cast(Cluster, fake), None, None))
    assert fake.replicas == balanced and not fake.moving


def test_a_broker_that_is_down_is_no_reason_to_move_what_it_holds() -> None:
    fake = FakeCluster()
    fake.alive.remove(3)
    with pytest.raises(ToolError, match="broker 3 is not alive and holds t-"):
        asyncio.run(balance.rebalance(cast(Cluster, fake), None, None))
    asyncio.run(balance.rebalance(cast(Cluster, fake), [1, 2], None))
    fake.assert_balanced(1, 2)
