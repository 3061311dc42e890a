"""What the runs of an exploration differ by is chosen by what it has gained."""

from __future__ import annotations

from collections import Counter
from random import Random

from harness.explore.guided.traits import Traits, of_plan, with_values
from harness.plan.plan import Plan

FAST = {"broker.session.timeout.ms": "1200", "broker.heartbeat.interval.ms": "200"}
PLAN = Plan(run="traits", on="simulation", latency_ms=5.0, settings={**FAST, "min.insync.replicas": "1"})


def met(*values: str) -> Traits:
    traits = Traits()
    for value in values:
        traits.meet({"latency": value})
    return traits


def drawn(traits: Traits, times: int = 10_000) -> Counter[str]:
    random = Random(1)
    return Counter(traits.choose("latency", random) for _ in range(times))


def test_what_gains_more_is_chosen_more_often_and_nothing_never() -> None:
    traits = met("unknown", "good", "poor")
    for _ in range(20):
        traits.learn({"latency": "good"}, 1.6)
        traits.learn({"latency": "poor"}, 0.4)
    often = drawn(traits)
    assert often["good"] > 1.5 * often["unknown"] > 3 * often["poor"] > 0


def test_what_gains_nothing_at_all_is_tried_now_and_then() -> None:
    traits = met("unknown", "nothing")
    for _ in range(60):
        traits.learn({"latency": "nothing"}, 0.0)
    assert 100 < drawn(traits)["nothing"] < 300, "of 10,000"


def test_what_gained_much_long_ago_is_forgotten() -> None:
    traits = met("spent", "other")
    for _ in range(20):
        traits.learn({"latency": "spent"}, 2.0)
        traits.learn({"latency": "other"}, 1.0)
    before = drawn(traits)
    for _ in range(40):
        traits.learn({"latency": "spent"}, 0.5)
        traits.learn({"latency": "other"}, 1.0)
    after = drawn(traits)
    assert before["spent"] > before["other"] and after["spent"] < after["other"]


def test_only_what_was_met_is_chosen() -> None:
    traits = met("only")
    traits.learn({"latency": "of an earlier exploration"}, 9.0)
    assert set(drawn(traits)) == {"only"}


def test_a_plan_gets_traits_of_another_and_keeps_what_is_none() -> None:
    other = Plan(run="other", on="simulation", latency_ms=25.0, settings={"replica.lag.time.max.ms": "500"})
    made = with_values(PLAN, of_plan(other))
    assert made.latency_ms == 25.0
    assert made.settings == {"min.insync.replicas": "1", "replica.lag.time.max.ms": "500"}, "the session's two are gone"
    assert with_values(PLAN, of_plan(PLAN)) == PLAN
