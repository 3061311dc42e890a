"""Plans that balance a cluster: nothing can do it with less data."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cluster_image.placement import rebalance
from cluster_image.placement.initial import place
from cluster_image.placement.rebalance import Plan, plan
from cluster_image.placement.spread import Spread, apart

from .drawn import Case, drawn_case, optimum, squares_of_racks


def carried_out(case: Case, made: Plan[Any]) -> dict[int, tuple[int, ...]]:
    result = dict(case.assignment)
    for move in made.moves:
        assert result[move.partition] == move.before != move.after
        result[move.partition] = move.after
    return result


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_no_plan_moves_more_than_the_optimum(first: int) -> None:
    """1,000 clusters, half of them with unequal bytes, racks and a removed broker."""
    for seed in range(first, first + 100):
        case = drawn_case(seed)
        made = plan(case.assignment, case.brokers, case.weights)
        result = carried_out(case, made)
        spread = Spread(result.values())
        squares = sum(load**2 for load in spread.replicas.values())
        of_racks = squares_of_racks(result, case.brokers)
        assert (of_racks, squares, made.bytes_moved) == optimum(case), f"seed {seed}"
        assert made.is_least, f"seed {seed}"
        assert all(len(set(r)) == len(r) == len(case.assignment[p]) for p, r in result.items()), f"seed {seed}"
        assert {b for replicas in result.values() for b in replicas} <= case.brokers.keys(), f"seed {seed}"
        assert apart(spread.leaders, case.brokers) <= 1, f"seed {seed}"


def test_a_plan_that_is_carried_out_needs_no_other() -> None:
    for seed in range(300):
        case = drawn_case(seed)
        result = carried_out(case, plan(case.assignment, case.brokers, case.weights))
        assert not plan(result, case.brokers, case.weights).moves, f"seed {seed}"


def test_leaders_are_balanced_where_replication_factors_differ() -> None:
    """Order alone cannot do it where a broker holds what it alone can lead: some replicas change places."""
    some = 0
    for seed in range(300):
        random = Random(seed)
        ids = list(range(1, random.randint(3, 6)))
        assignment = {p: tuple(random.sample(ids, random.choice((1, 2)))) for p in range(random.randint(6, 40))}
        assignment |= {("alone", p): (1,) for p in range(10)}
        assignment |= {("with others", p): tuple(ids[1:]) for p in range(10)}
        case = Case(assignment, dict.fromkeys(ids), {})
        made = plan(case.assignment, case.brokers)
        spread = Spread(carried_out(case, made).values())
        assert apart(spread.replicas, ids) <= 1 and apart(spread.leaders, ids) <= 1, f"seed {seed}"
        assert all(len(set(move.after)) == len(move.before) for move in made.moves)
        some += made.is_least is None
    assert some > 30


@pytest.mark.parametrize(("before", "after", "partitions", "most"), [
    (3, 4, 40, 30), (5, 6, 100, 50), (5, 4, 100, 60), (10, 11, 300, 81),
])  # fmt: skip
def test_growing_and_shrinking_by_one(before: int, after: int, partitions: int, most: int) -> None:
    """Of 3 * partitions replicas so many move."""
    assignment = dict(enumerate(place(dict.fromkeys(range(before)), partitions, 3)))
    made = plan(assignment, dict.fromkeys(range(after)))
    assert made.replicas_moved <= most
    assert made.is_least
    assert apart(made.after.replicas, range(after)) <= 1
    assert apart(made.after.leaders, range(after)) <= 1


def test_after_growing_all_others_take_over_from_a_broker_that_dies() -> None:
    """003 again: by the order of followers, which moves nothing."""
    assignment = dict(enumerate(place(dict.fromkeys(range(4)), 60, 3)))
    made = plan(assignment, dict.fromkeys(range(5)))
    assert made.replicas_moved == 36
    for broker, others in made.after.takeovers.items():
        assert apart(others, set(range(5)) - {broker}) <= 2


def test_what_is_balanced_stays_as_it_is() -> None:
    assignment = dict(enumerate(place(dict.fromkeys(range(5)), 40, 3)))
    assert not plan(assignment, dict.fromkeys(range(5))).moves


def test_leaders_are_balanced_by_the_order_of_replicas_alone() -> None:
    made = plan(dict.fromkeys(range(9), (1, 2, 3)), dict.fromkeys((1, 2, 3)))
    assert made.replicas_moved == made.bytes_moved == 0
    assert made.after.leaders == {1: 3, 2: 3, 3: 3}


def test_the_smallest_partitions_move() -> None:
    made = plan(dict.fromkeys(range(4), (1,)), {1: None, 2: None}, {0: 7, 1: 1, 2: 9, 3: 3})
    assert {move.partition for move in made.moves} == {1, 3}
    assert made.bytes_moved == 4


def test_too_few_brokers_for_the_replicas() -> None:
    with pytest.raises(ValueError, match="3 replicas need as many brokers, and 2 would be left"):
        plan({0: (1, 2, 3)}, {1: None, 2: None})


def test_a_cluster_without_partitions_needs_no_plan() -> None:
    assert plan({}, {1: None}).is_least


def test_where_direct_moves_do_not_do_it_they_are_not_taken_for_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the exchange some of the plans are worse than the optimum, and say that it is not certain."""
    monkeypatch.setattr(rebalance, "_MOST_EDGES", -1)
    uncertain = 0
    for seed in range(200):
        case = drawn_case(seed)
        made = plan(case.assignment, case.brokers, case.weights)
        squares = sum(load**2 for load in made.after.replicas.values())
        assert made.is_least is None or (squares, made.bytes_moved) == optimum(case)[1:], f"seed {seed}"
        uncertain += made.is_least is None
    assert uncertain


def test_exchanges_alone_find_the_optimum_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they begin with: here without any direct moves before."""
    monkeypatch.setattr(rebalance, "shed", lambda layout: None)
    monkeypatch.setattr(rebalance, "least_bytes", lambda layout: -1)
    for seed in range(300):
        case = drawn_case(seed)
        made = plan(case.assignment, case.brokers, case.weights)
        squares = sum(load**2 for load in made.after.replicas.values())
        assert (squares, made.bytes_moved) == optimum(case)[1:], f"seed {seed}"
