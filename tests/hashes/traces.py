"""The trace hash of every simulated step, by nemesis and seed: the same if nothing moved."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import get_context
from typing import Final

from harness.explore.simulate import simulate
from harness.plan.plan import Plan

NEMESES: Final = ("power-outage", "kill", "pause", "partition", "membership")
SEEDS: Final = 50
TIME_LIMIT_S: Final = 20.0


def lines() -> Iterator[str]:
    """`nemesis seed hash`, in this order."""
    with get_context("spawn").Pool(2) as pool:
        yield from pool.imap(_line, [(nemesis, seed) for nemesis in NEMESES for seed in range(SEEDS)])


def _line(which: tuple[str, int]) -> str:
    nemesis, seed = which
    plan = Plan(
        run=f"{nemesis}-{seed}", on="simulation", nemesis=(nemesis,), seed=seed, time_limit=TIME_LIMIT_S, rate=40,
        partitions=4, concurrency=2,
    )  # fmt: skip
    done = simulate(plan)
    return f"{nemesis} {seed} {done.crash or done.trace_hash}"
