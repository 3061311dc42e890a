"""Lies that are planted in the code of nodes, and the runs of an exploration that are to find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pytest

from harness.explore.simulate import Simulated, simulate
from harness.explore.swarm import Swarm
from harness.plan.plan import Plan

Patch = Callable[[pytest.MonkeyPatch], None]
#: By name: the lie, the property that it breaks, the first seed that finds it.
Lies = Mapping[str, tuple[Patch, str, int]]
EXPLORED: Final = Plan(
    run="explore", on="simulation", nemesis=("power-outage", "kill", "pause", "partition"), rate=40.0, partitions=4,
    concurrency=2, time_limit=20.0,
)  # fmt: skip
#: Seeds.
WITHIN: Final = 40


def explored(seed: int, plan: Plan = EXPLORED) -> Simulated:
    return simulate(Swarm(("settings", "latency_ms", "producers"))(plan, seed))


def check_found(lies: Lies, lie: str, monkeypatch: pytest.MonkeyPatch, plan: Plan = EXPLORED) -> None:
    plant, property_, seed = lies[lie]
    assert seed < WITHIN
    plant(monkeypatch)
    done = explored(seed, plan)
    assert not done.crash and done.violation is not None, done.crash or done.problems
    assert done.violation.property == property_, done.violation
    assert done.violation.nodes


def check_not_blamed(seed: int) -> None:
    done = explored(seed)
    assert done.violation is None and not done.crash, done.violation or done.crash
