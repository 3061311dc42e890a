"""Seeds of `chaos explore` that once failed, each with what was wrong. They are kept for good.

A seed means the run that the settings of its plan and the code of today make of it; what was wrong has a test of its
own beside the code, which does not depend on that.
"""

from __future__ import annotations

import pytest

from harness.explore.simulate import simulate
from harness.explore.swarm import Swarm
from harness.plan.plan import Plan

SIX = ("power-outage", "kill", "pause", "partition", "network", "membership")
FOUR = ("power-outage", "kill", "pause", "partition")
EXPLORED = Plan(run="explore", on="simulation", nemesis=FOUR, strike="leaders", rate=40.0, partitions=4, concurrency=2)


@pytest.mark.parametrize(
    ("nemeses", "seed"),
    [
        # A leader of an empty epoch that followed again forgot where the epoch before it began (LogMatching).
        (FOUR, 33),
        # Over a slow link a follower lags by replica.lag.time.max.ms between two fetches: it does not keep up (Liveness
        # was what was wrong).
        (SIX, 53),
        # A follower whose connection had begun while its leader was cut off did not fetch for 12 s, and nobody waited
        # for that before the replicas' logs were collected.
        (SIX, 412),
        (SIX, 854),
        # A follower's time outside the ISR was counted from before it had restarted (Liveness was what was wrong).
        (SIX, 1238),
    ],
)
def test_a_seed_that_once_failed_holds(nemeses: tuple[str, ...], seed: int) -> None:
    plan = EXPLORED.model_copy(update={"nemesis": nemeses})
    done = simulate(Swarm(("settings", "latency_ms"))(plan, seed))
    assert done.violation is None and not done.crash and not done.problems, (
        done.violation or done.crash or done.problems
    )
    assert done.judge()["verdict"] != "fail"


def test_a_broker_that_was_taken_out_with_logs_is_in_no_isr() -> None:
    """It had stopped before it had heard that its replicas were elsewhere (log matching was what was wrong)."""
    nemeses = ("membership:add", "power-outage", "kill")
    changes = {"nemesis": nemeses, "partitions": 40, "spare_brokers": 2, "time_limit": 30.0}
    plan = EXPLORED.model_copy(update=changes)
    done = simulate(Swarm(("settings", "latency_ms"))(plan, 57))
    assert done.judge()["verdict"] == "pass"


def test_a_leader_deletes_what_an_idle_follower_has_deleted_once_that_is_committed() -> None:
    """The follower's only fetch had come before (Liveness was what was wrong). Records are lost, by too many losses."""
    nemeses = ("power-outage-cluster", "kill", "partition")
    changes = {"nemesis": nemeses, "delete_records": 3.0, "time_limit": 30.0}
    plan = EXPLORED.model_copy(update=changes)
    done = simulate(Swarm()(plan, 106))
    assert done.violation is None


@pytest.mark.parametrize(
    ("disk", "seed"),
    [
        # A replica had answered a duplicate in the step before it was deleted, and was looked at when it was there
        # again, empty (NoFalseDuplicate was what was wrong, falsely).
        (("disk:replaced", "disk:corrupt-stopped"), 10),
        # A follower that had begun anew was killed before it had noted where: as its log seemed to lack files, it threw
        # away what its leader counted on it for (NoCommittedRecordLostGlobally was what was wrong).
        (("disk:replaced", "disk:corrupt-stopped", "disk:restored"), 5),
    ],
)  # fmt: skip
def test_disks_that_fail_while_nobody_looks(disk: tuple[str, ...], seed: int) -> None:
    others = ("membership:new-id", "membership:reassign", "kill")
    changes = {"nemesis": (*disk, *others), "delete_records": 1.0, "must_take_effect": "any"}
    done = simulate(Swarm()(EXPLORED.model_copy(update=changes), seed))
    assert (done.violation, done.crash) == (None, "")
    assert done.judge()["verdict"] == "pass"


def test_a_follower_that_loses_its_power_as_it_begins_anew_is_counted_on_by_nobody() -> None:
    """It had fallen behind its leader's log start while it was frozen: its log had been cut, and was not yet begun
    elsewhere (StrongIsr was what was wrong, falsely)."""
    plan = Plan(
        run="explore", on="simulation", nemesis=("all",), seed=5719, rate=40.0, partitions=4, concurrency=2, brokers=4,
        time_limit=20.0, delete_records=5.0, short_lived_topics=2.0, must_take_effect="any",
    )  # fmt: skip
    done = simulate(Swarm()(plan, 5719))
    assert (done.violation, done.crash) == (None, "")
    assert done.judge()["verdict"] == "pass"


def test_a_rebalancing_is_planned_from_what_is_so() -> None:
    """It was planned from a view in which the pile that it had made was not there yet, and then left as it was (balance
    was what was wrong, falsely)."""
    plan = Plan(
        run="explore", on="simulation", nemesis=("all",), rate=12.0, partitions=2, concurrency=2, brokers=4,
        time_limit=16.0, delete_records=5.0, short_lived_topics=4.0, must_take_effect="any",
    )  # fmt: skip
    done = simulate(Swarm()(plan, 673))
    assert any(fault.nemesis == "membership:rebalance" for fault in done.schedule)
    assert (done.violation, done.crash) == (None, "")
    assert done.judge()["verdict"] == "pass"
