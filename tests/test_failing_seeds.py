"""Seeds of `chaos explore` that once failed, each with what was wrong. They are kept for good.

A seed means the run that the settings of its plan and the code of today make of it; what was wrong has a test of its
own beside the code, which does not depend on that.
"""

from __future__ import annotations

import pytest

from harness import swarm
from harness.plan import Plan
from harness.simulate import simulate

FOUR = ("power-outage", "kill", "pause", "partition")
EXPLORED = Plan(run="explore", on="simulation", nemesis=FOUR, targets="leaders", rate=40.0, partitions=4, concurrency=2)


@pytest.mark.parametrize(
    "seed",
    [
        # A leader of an empty epoch that followed again forgot where the epoch before it began (LogMatching).
        33,
    ],
)
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    done = simulate(swarm.plan_of(EXPLORED, seed, draw_settings=True, draw_latency=True))
    assert done.halt is None and not done.crash and not done.problems, done.halt or done.crash or done.problems
    assert done.judge()["verdict"] == "pass"
