"""Placement of new partitions: what 003 asks of it, for any cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_image.placement.initial import place
from cluster_image.placement.racks import Racks, natural_order
from cluster_image.placement.spread import Spread, apart, warnings

from .drawn import clusters_with_racks


@pytest.mark.parametrize(("brokers", "partitions", "led", "taken_over"), [
    (5, 15, [3] * 5, [0, 1, 1, 1]),
    (5, 40, [8] * 5, [2, 2, 2, 2]),
    (3, 8, [2, 3, 3], [1, 1]),
])  # fmt: skip
def test_the_load_of_a_dead_broker_goes_to_all_others(
    brokers: int, partitions: int, led: list[int], taken_over: list[int]
) -> None:
    """003's own example is the first: brokers 0 to 4, partitions p0 to p14. Print it with `pytest -s`."""
    spread = Spread(place(dict.fromkeys(range(brokers)), partitions, 3))
    print(f"\n{brokers} brokers, {partitions} partitions, RF 3: leads; who takes over how many of it")
    for broker in range(brokers):
        print(f"  broker {broker}: {spread.leaders[broker]}; {dict(sorted(spread.takeovers[broker].items()))}")
    assert sorted(spread.leaders.values()) == led
    assert apart(spread.replicas, range(brokers)) <= 1
    for broker, others in spread.takeovers.items():
        counts = sorted(others[other] for other in range(brokers) if other != broker)
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == spread.leaders[broker]
    fewest_led = min(spread.takeovers, key=lambda b: spread.leaders[b])
    assert sorted(spread.takeovers[fewest_led][b] for b in range(brokers) if b != fewest_led) == taken_over


def test_the_formula_of_003_taken_literally_puts_two_replicas_on_one_broker() -> None:
    """Why PROTOCOL.md has another one."""

    def literally(partitions: int, n: int) -> int:
        lists = [(p % n, *((p % n + j + p // n) % n for j in (1, 2))) for p in range(partitions)]
        return sum(len(set(replicas)) < 3 for replicas in lists)

    def without_collision(partitions: int, n: int) -> list[tuple[int, ...]]:
        return [(p % n, *((p % n + 1 + (p // n + j) % (n - 1)) % n for j in (0, 1))) for p in range(partitions)]

    assert literally(40, 5) > 0
    assert literally(8, 3) > 0
    lists = without_collision(40, 5)
    assert all(len(set(replicas)) == 3 for replicas in lists)
    assert sorted(Spread(lists).takeovers[0].values()) == [2, 2, 2, 2]


@given(clusters_with_racks(), st.integers(1, 40), st.data())
def test_no_broker_twice_and_racks_as_far_as_there_are(
    brokers: dict[int, str | None], partitions: int, data: st.DataObject
) -> None:
    replication = data.draw(st.integers(1, len(brokers)))
    racks = Racks(brokers)
    placed = place(brokers, partitions, replication)
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication
        assert len({racks.of[b] for b in replicas}) == min(replication, len(racks.names))
    spread = Spread(placed)
    assert apart(spread.leaders, brokers) <= 1
    for leader in brokers:
        elsewhere = [b for b in brokers if b != leader and (len(racks.names) == 1 or racks.of[b] != racks.of[leader])]
        assert apart(spread.takeovers[leader], elsewhere) <= 1


@given(st.integers(1, 9), st.integers(1, 60), st.data())
def test_without_racks_all_is_within_one(brokers: int, partitions: int, data: st.DataObject) -> None:
    replication = data.draw(st.integers(1, brokers))
    without_racks = dict.fromkeys(range(brokers))
    spread = Spread(place(without_racks, partitions, replication))
    assert apart(spread.replicas, without_racks) <= 1
    assert not warnings(spread, without_racks)


def _topics(brokers: int, sizes: Iterable[int], replication: int) -> Iterator[Spread]:
    """Of the cluster, after each topic of so many partitions. Leaders and takeovers stay within one."""
    cluster = Spread()
    for partitions in sizes:
        place(dict.fromkeys(range(brokers)), partitions, replication, (), cluster)
        assert apart(cluster.leaders, range(brokers)) <= 1
        for leader in range(brokers):
            assert apart(cluster.takeovers[leader], set(range(brokers)) - {leader}) <= 1
        yield cluster


@pytest.mark.parametrize("brokers", range(1, 10))
def test_a_hundred_small_topics_are_balanced_as_a_large_one(brokers: int) -> None:
    """They do not all begin at the same broker, and who takes over does not gather on one broker: six brokers and
    topics of two partitions, RF 3, once ended with brokers that held four replicas more than others."""
    for replication, partitions in product(range(1, min(brokers, 4) + 1), range(1, 5)):
        for cluster in _topics(brokers, [partitions] * 100, replication):
            assert apart(cluster.replicas, range(brokers)) <= 2, (replication, partitions)


def test_so_are_a_hundred_topics_of_mixed_sizes() -> None:
    random = Random(1)
    for _ in range(100):
        brokers = random.randint(4, 9)
        replication = random.randint(2, 4)
        *_, cluster = _topics(brokers, (random.randint(1, 3) for _ in range(100)), replication)
        assert apart(cluster.replicas, range(brokers)) <= 2


@settings(deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(1, 3), max_size=100), st.data())
def test_whatever_the_sizes_of_topics_they_are_nearly_so(brokers: int, sizes: list[int], data: st.DataObject) -> None:
    """Nobody knows how large the next topic is, and where a round ends within it, its last leader and who takes over
    from it are given. So for a while it may be three (11 of 1,500 mixes) or four (1 of 3,000)."""
    for cluster in _topics(brokers, sizes, data.draw(st.integers(1, min(brokers, 4)))):
        assert apart(cluster.replicas, range(brokers)) <= 4


def test_a_broker_that_holds_nothing_does_not_get_all_of_a_new_topic() -> None:
    """What all together need, rebalancing does; a topic is spread over all brokers from the start (003)."""
    brokers = dict.fromkeys(range(20))
    random = Random(1)
    cluster = Spread(random.sample(range(19), 3) for _ in range(2000))
    spread = Spread(place(brokers, 200, 3, (), cluster))
    assert apart(spread.replicas, brokers) <= 1
    assert apart(spread.leaders, brokers) <= 1
    assert all(apart(spread.takeovers[b], brokers.keys() - {b}) <= 1 for b in brokers)


def test_further_partitions_of_a_topic_go_on_where_the_first_have_ended() -> None:
    brokers = dict.fromkeys(range(5))
    cluster = Spread()
    first = place(brokers, 7, 3, (), cluster)
    further = place(brokers, 8, 3, first, cluster)
    assert apart(Spread([*first, *further]).leaders, brokers) == 0


def test_racks_are_in_natural_order() -> None:
    assert sorted(["rack-10", "rack-2", "b", "rack-2a", ""], key=natural_order) == [
        "", "b", "rack-2", "rack-2a", "rack-10",
    ]  # fmt: skip
    assert Racks({1: "r10", 2: "r9", 3: None}).names == ["", "r9", "r10"]


def test_what_racks_keep_from_being_balanced_is_said() -> None:
    lopsided: dict[int, str | None] = {0: "a", 1: "b", 2: "b", 3: "c", 4: "c"}
    found = warnings(Spread(place(lopsided, 20, 3)), lopsided)
    assert found[0] == "racks of unequal size: broker 0 (rack a) holds 20 replicas, broker 1 (rack b) 10"
    pairs: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b"}
    assert warnings(Spread(place(pairs, 16, 2)), pairs) == [
        "if broker 0 fails, its 4 leaderships go unevenly to the 3 others: to brokers 2 (2), 3 (2); so it is with 3 "
        "other brokers"
    ]
    assert warnings(Spread([(0,), (0,)]), {0: None, 1: None}) == [
        "broker 0 holds 2 replicas, broker 1 0",
        "broker 0 leads 2 partitions, broker 1 0",
    ], "racks are not the reason"
    each: dict[int, str | None] = {0: "a", 1: "b", 2: "c"}
    assert not warnings(Spread(place(each, 20, 3)), each)
