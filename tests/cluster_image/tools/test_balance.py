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
from cluster_image.tools.cluster import Broker, Cluster, ConfigChange, Moving, Place, State
from cluster_image.tools.moves import Moves
from cluster_image.tools.output import ToolError


class FakeCluster:
    """Brokers 1, 2, 3 with a topic of twelve partitions; `alive` are the brokers that there are."""

    patience = 0.1

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
        self.settings: dict[tuple[str, str], str] = {}  # by topic or broker, and name
        self.silent: set[int] = set()  # about sizes

    async def state(self) -> State:
        self.alive -= {b for b in self.stops if not any(b in replicas for replicas in self.replicas.values())}
        for each in list(self.moving) if self.looks > 1 else ():  # done by then
            removing = self.moving.pop(each).removing
            self.replicas[each] = tuple(r for r in self.replicas[each] if r not in removing)
        self.looks += bool(self.moving)
        brokers = {id_: Broker(Address("h", id_), None) for id_ in sorted(self.alive)}
        return State(brokers, dict(self.replicas), dict(self.leaders), dict(self.moving))

    async def sizes(self, brokers: Mapping[int, Broker]) -> dict[int, dict[Place, int] | None]:
        return {
            b: None if b in self.silent else {each: 100 for each, replicas in self.replicas.items() if b in replicas}
            for b in brokers
        }

    async def reassign(self, targets: Mapping[Place, Replicas | None]) -> dict[Place, str]:
        for each, replicas in targets.items():
            assert replicas is not None
            self.replicas[each] = replicas
            self.moving.pop(each, None)
        return {}

    async def elect_preferred(self, places: Iterable[Place]) -> None:
        self.leaders |= {each: self.replicas[each][0] for each in places}

    async def configure(self, changes: Iterable[ConfigChange], alive: Any) -> list[int]:
        for change in changes:
            key = (change.resource_name, change.name)
            if change.value is None:
                self.settings.pop(key, None)
            else:
                self.settings[key] = change.value
        return []

    async def throttled(self, topics: Iterable[str]) -> list[str]:
        return [topic for topic in topics if any(name == topic for name, _ in self.settings)]

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


def test_removing_a_broker_moves_nothing_of_another_that_is_down() -> None:
    fake = FakeCluster()
    fake.alive |= {4, 5}
    fake.alive.remove(2)
    before = dict(fake.replicas)
    with pytest.raises(
        ToolError, match=r"broker 2 is not alive and holds t-[0-9]+ among others: wait for it, or remove"
    ):
        asyncio.run(balance.remove_broker(cast(Cluster, fake), 3, 1.0, None))
    assert fake.replicas == before
    assert asyncio.run(balance.remove_broker(cast(Cluster, fake), 2, 1.0, None)) == 0, "that one may go"
    fake.assert_balanced(1, 3, 4, 5)


class Cancelled(FakeCluster):
    """Somebody cancels whatever is begun."""

    async def reassign(self, targets: Mapping[Place, Replicas | None]) -> dict[Place, str]:
        return {}


def test_a_move_that_somebody_has_cancelled_is_not_told_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    fake = Cancelled()
    fake.alive.add(4)
    with pytest.raises(ToolError, match=r"are not on the brokers of the plan: somebody has cancelled or changed it$"):
        asyncio.run(balance.rebalance(cast(Cluster, fake), None, None))
    with pytest.raises(ToolError, match="changed it; the throttle is still set: to remove it, run the same again, or"):
        asyncio.run(balance.rebalance(cast(Cluster, fake), None, 1000))
    assert "balanced:" not in capsys.readouterr().out


class Lost(FakeCluster):
    """Nobody answers once data moves."""

    lost = False

    async def reassign(self, targets: Mapping[Place, Replicas | None]) -> dict[Place, str]:
        self.lost = bool(targets)
        return await super().reassign(targets)

    async def state(self) -> State:
        if self.lost:
            raise ToolError("h:1 does not answer")
        return await super().state()


def test_a_throttle_that_stays_is_told_and_goes_with_the_next_run() -> None:
    fake = Lost()
    fake.alive.add(4)
    with pytest.raises(
        ToolError, match=r"does not answer; up to 6 reassignments may be under way, .* under the throttle"
    ):
        asyncio.run(balance.rebalance(cast(Cluster, fake), None, 1000))
    assert fake.settings
    fake.lost = False  # and all has moved meanwhile
    asyncio.run(balance.rebalance(cast(Cluster, fake), None, 1000))
    assert not fake.settings, "also the lists of a topic that moves no more"


def test_before_anything_was_begun_an_error_says_no_more() -> None:
    fake = Lost()
    fake.lost = True
    with pytest.raises(ToolError, match=r"^h:1 does not answer$"):
        asyncio.run(balance.rebalance(cast(Cluster, fake), None, None))


class Refusing(FakeCluster):
    async def reassign(self, targets: Mapping[Place, Replicas | None]) -> dict[Place, str]:
        first, *others = targets
        await super().reassign({place: targets[place] for place in others})
        return {first: "why"}


def test_what_was_refused_is_not_counted_as_moved(capsys: pytest.CaptureFixture[str]) -> None:
    fake = Refusing()
    fake.alive.add(4)
    with pytest.raises(ToolError, match=r"^t-[0-9]+ is refused: why$"):
        asyncio.run(balance.rebalance(cast(Cluster, fake), None, None))
    assert "5 of 5 replicas moved" in capsys.readouterr().err


class Deleting(FakeCluster):
    """Some of it is deleted while a plan is made."""

    async def sizes(self, brokers: Mapping[int, Broker]) -> dict[int, dict[Place, int] | None]:
        found = await super().sizes(brokers)
        self.replicas = {place: replicas for place, replicas in self.replicas.items() if place[1] > 2}
        self.leaders = {place: leader for place, leader in self.leaders.items() if place[1] > 2}
        return found


def test_what_is_deleted_meanwhile_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    fake = Deleting()
    fake.alive.add(4)
    assert asyncio.run(balance.rebalance(cast(Cluster, fake), None, None)) == 0
    assert "deleted meanwhile" in capsys.readouterr().err


class Creating(FakeCluster):
    """A topic is created while a broker's partitions move away from it."""

    async def elect_preferred(self, places: Iterable[Place]) -> None:
        await super().elect_preferred(places)
        self.replicas.setdefault(("u", 0), (3, 1))
        self.leaders.setdefault(("u", 0), 3)


def test_what_a_broker_gets_while_it_is_removed_moves_too() -> None:
    fake = Creating()
    fake.alive.add(4)
    fake.stops.add(3)
    assert asyncio.run(balance.remove_broker(cast(Cluster, fake), 3, 1.0, None)) == 0
    assert 3 not in fake.replicas["u", 0] and fake.unregistered == [3]


def test_sizes_that_are_not_known_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCluster()
    fake.alive.add(4)
    fake.silent = {1, 2, 3}
    assert asyncio.run(balance.rebalance(cast(Cluster, fake), None, None, dry_run=True)) == 0
    told = capsys.readouterr().out
    assert "the sizes of 12 partitions are not known (brokers 1, 2, 3)" in told and "the least" not in told


class RefusingOne(FakeCluster):
    """The controller refuses t-0, and begins the others, which can be cancelled."""

    cancelled = 0

    async def reassign(self, targets: Mapping[Place, Replicas | None]) -> dict[Place, str]:
        self.cancelled += sum(replicas is None for replicas in targets.values())
        return {place: "why" for place, replicas in targets.items() if place == ("t", 0) and replicas is not None}


def test_of_a_plan_of_which_one_is_refused_nothing_is_moved() -> None:
    fake = RefusingOne()
    fake.alive.add(4)
    plan = {("t", 0): (4, 1), ("t", 1): (4, 2), ("t", 2): (4, 3)}
    with pytest.raises(ToolError, match=r"^t-0 is refused: why; nothing was moved$"):
        asyncio.run(Moves(cast(Cluster, fake), plan, throttle=1000, whole=True).carry_out())
    assert fake.cancelled == 2 and not fake.settings, "nor does its throttle stay"


def test_a_throttle_of_an_earlier_command_is_told_of_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCluster()
    fake.alive.add(4)
    fake.settings["t", "leader.replication.throttled.replicas"] = "0:1"
    fake.settings["1", "leader.replication.throttled.rate"] = "5"
    asyncio.run(balance.rebalance(cast(Cluster, fake), None, None))
    assert "a throttle of an earlier command is in force" in capsys.readouterr().err
    assert not fake.settings


class Dying(FakeCluster):
    """Broker 4 dies while it gets its share, and is back later."""

    async def reassign(self, targets: Mapping[Place, Replicas | None]) -> dict[Place, str]:
        await super().reassign(targets)
        self.moving = dict.fromkeys(targets, Moving((4,), ()))
        self.alive.remove(4)
        return {}


def test_who_is_waited_for_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    fake = Dying()
    fake.alive.add(4)
    asyncio.run(balance.rebalance(cast(Cluster, fake), None, None))
    told = capsys.readouterr()
    assert "waiting for broker 4, which is not alive" in told.err
    assert told.out.startswith("6 replicas to move, 600 B, the least possible")


def test_what_is_under_way_is_told_before_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCluster()
    fake.moving["t", 0] = Moving((), ())
    asyncio.run(balance.rebalance(cast(Cluster, fake), None, None, dry_run=True))
    assert capsys.readouterr().out == (
        "1 reassignment under way already, planned from where these lead:\nthe cluster is balanced\n"
    )


class Refilled(FakeCluster):
    """Somebody puts partitions on a broker that waits to be stopped."""

    async def unregister(self, broker: int) -> str:
        self.replicas["t", 0] = (broker, 1)
        return "it is a replica"


def test_a_broker_that_is_filled_again_is_not_told_to_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "_EVERY_S", 0.001)
    fake = Refilled()
    fake.alive.add(4)
    fake.stops.add(3)
    with pytest.raises(ToolError, match="somebody has put 1 partition on broker 3 meanwhile: run this again"):
        asyncio.run(balance.remove_broker(cast(Cluster, fake), 3, 1.0, None))
