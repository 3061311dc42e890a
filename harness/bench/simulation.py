"""How fast simulated runs are."""

from __future__ import annotations

import cProfile
import pstats
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.bench import Figure
from harness.explore.exploration import explore
from harness.explore.simulate import simulate
from harness.explore.source import Seeds
from harness.explore.workers import collected_between_runs
from harness.plan.plan import Plan

EXPLORED_SEEDS: Final = 20
EXPLORED: Final = ("power-outage", "kill", "pause", "partition")
#: Where simulation spends its time: what a file's path begins with, the first that fits.
PARTS: Final = {
    "cluster": ("cluster_image/",),
    "clients and history": ("workloads/", "harness/record/history.py", "harness/targets/kafka_api/observer.py"),
    "invariants": ("checkers/inside/kraft/simulated/",),
    "loop, network and disk": ("harness/runtimes/simulation/",),
    "asyncio": ("asyncio/",),
    "kio": ("kio/",),
}


def measure(results: Path) -> Iterator[Figure]:
    default = Plan(run="bench", on="simulation")
    yield _speed("simulated seconds a second, default cluster and workload", 30, default)
    small = default.model_copy(update={"nemesis": EXPLORED, "rate": 40.0, "partitions": 4, "concurrency": 2})
    yield _speed("the same, workload of chaos explore and its faults", 60, small)
    yield Figure("where that time goes", "", _where_time_goes(small))
    explored = explore(small, Seeds.of(small, range(EXPLORED_SEEDS)), results).as_dict()["totals"]
    yield Figure("seeds of 60 s an hour, all cores", "", f"{explored['seeds_an_hour']:,.0f}")


def _speed(name: str, aim: int, plan: Plan) -> Figure:
    with collected_between_runs():  # as the workers of an exploration simulate
        done = simulate(plan)
    speed = done.virtual_s / done.wall_s
    return Figure(name, f"{aim}", f"{speed:.0f}", speed >= aim)


def _where_time_goes(plan: Plan) -> str:
    """Shares of the time in functions of each part, built-in ones apart."""
    profile = cProfile.Profile()
    profile.runcall(simulate, plan)
    spent: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        found = (part for part, starts in PARTS.items() if any(start in file for start in starts))
        spent["built-in functions" if file == "~" else next(found, "other")] += own
    return ", ".join(f"{part} {share / spent.total():.0%}" for part, share in spent.most_common())
