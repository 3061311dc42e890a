"""Settings drawn for an exploration: valid, the user's first, and none depends on another."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.explore.swarm import Swarm
from harness.plan import registry
from harness.plan.plan import Plan

EXPLORED = Plan(run="explore", on="simulation")


def drawn(seed: int, plan: Plan = EXPLORED) -> Plan:
    return Swarm(("settings", "latency_ms"))(plan, seed)


@pytest.mark.parametrize("target", ["kraft", "v2"])
def test_every_drawn_plan_is_valid(target: str) -> None:
    for seed in range(200):
        plan = drawn(seed, Plan(run="explore", on="simulation", target=target))
        assert Plan(**plan.model_dump()) == plan and plan.seed == seed


@pytest.mark.parametrize("target", ["kraft", "v2"])
def test_each_value_is_drawn_now_and_then_and_the_default_more_often(target: str) -> None:
    plan = Plan(run="explore", on="simulation", target=target)
    found = Counter(setting for seed in range(400) for setting in drawn(seed, plan).settings.items())
    draws = registry.make_target(target).draws()
    for choices in (*draws.together, *draws.apart):
        counts = [min(found[setting] for setting in choice.items()) for choice in choices[1:]]
        assert min(counts) > 40 and sum(counts) < 260, choices


def test_what_the_user_has_set_is_not_drawn_and_changes_no_other_draw() -> None:
    for name, value in {"num.replica.fetchers": "7", "log.segment.bytes": "4096"}.items():
        given = Plan(run="explore", on="simulation", settings={name: value})
        for seed in range(50):
            free, bound = drawn(seed).settings, drawn(seed, given).settings
            assert bound == free | {name: value}


def producers(seed: int, plan: Plan = EXPLORED) -> Plan:
    return Swarm(("settings", "latency_ms", "producers"))(plan, seed)


def test_producers_are_plain_half_of_the_time_and_change_no_other_draw() -> None:
    found = Counter(producers(seed).producers for seed in range(400))
    assert found["plain"] > 150 and min(found["idempotent"], found["fenced"]) > 60 and found.total() == 400
    for seed in range(50):
        assert producers(seed).model_copy(update={"producers": "plain"}) == drawn(seed)


@pytest.mark.parametrize("fields", [{"acks": "1"}, {"target": "v2"}, {"workload": "idempotent"}])
def test_producers_are_not_drawn_where_there_is_no_choice(fields: dict[str, str]) -> None:
    plan = Plan(run="explore", on="simulation", **fields)  # type: ignore[arg-type]
    assert {producers(seed, plan).producers for seed in range(20)} == {"plain"}


def test_tasks_run_in_turn_half_of_the_time_and_their_order_changes_no_other_draw() -> None:
    def ordered(seed: int) -> Plan:
        return Swarm(("settings", "latency_ms", "task_order"))(EXPLORED, seed)

    found = Counter(ordered(seed).task_order for seed in range(400))
    assert found["fifo"] > 150 and min(found["random"], found["pct"]) > 60 and found.total() == 400
    for seed in range(50):
        assert ordered(seed).model_copy(update={"task_order": "fifo"}) == drawn(seed)


def batched(seed: int, plan: Plan = EXPLORED) -> Plan:
    return Swarm(("settings", "latency_ms", "records_per_batch"))(plan, seed)


def test_batches_are_of_one_record_half_of_the_time_and_change_no_other_draw() -> None:
    found = Counter(batched(seed).records_per_batch for seed in range(400))
    assert found[None] > 150 and min(found[2], found[4]) > 60 and found.total() == 400
    for seed in range(50):
        assert batched(seed).model_copy(update={"records_per_batch": None}) == drawn(seed)
    transactions = EXPLORED.model_copy(update={"workload": "transactions"})
    assert {batched(seed, transactions).records_per_batch for seed in range(20)} == {None}
