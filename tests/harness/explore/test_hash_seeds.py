"""Is a simulated run with each kind of fault the same, whatever the order in which sets of strings iterate?"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from harness.explore.simulate import simulate
from harness.plan import registry
from harness.plan.plan import Plan
from harness.plan.schedule import Fault
from tests import ROOT

FAMILIES = ("membership", "network", "clock", "disk")
#: Whatever moves one partition moves several, in some order.
PARTITIONS = 6
#: Seconds: there is something on the disks by then, checkpoints too.
FAULT_AT, TIME_LIMIT = 6.0, 14.0
#: For each to take effect on so little work: what is drawn is this instead, where it is drawn.
STRIKES: Mapping[str, Any] = {"role": "broker", "node": 0.5, "links": "leader", "rate_kbit": 4.0}


def variants() -> Mapping[str, Fault]:
    """By nemesis, a fault of each variant that simulation has."""
    families = registry.make_nemeses(FAMILIES)
    names = [f"{name}:{variant}" for name, family in families.items() for variant in family.variants]
    nemeses = {name: each for name, each in registry.make_nemeses(names).items() if "simulation" in each.runtimes}
    faults = {}
    for name, nemesis in nemeses.items():
        drawn = nemesis.draw(Random(f"7/{name}"))
        choice = {key: STRIKES.get(key, value) for key, value in drawn.choice.items()}
        if "shape" in choice:
            choice["shape"] = {key: STRIKES.get(key, value) for key, value in choice["shape"].items()}
        faults[name] = Fault(fault=0, nemesis=name, at=FAULT_AT, duration=min(drawn.duration, 5.5), choice=choice)
    return faults


def _size_of(name: str) -> dict[str, int]:
    """Clusters that grow and shrink need more brokers than replicas."""
    resized = name.rpartition(":")[2] in ("add", "remove", "rebalance")
    return {"brokers": 4, "spare_brokers": 1} if resized else {"brokers": 3}


def print_hashes() -> None:
    """A line each: the nemesis, whether its fault took effect, the trace hash."""
    gc.disable()  # as in the workers of an exploration
    for name, fault in variants().items():
        plan = Plan(
            run=name, on="simulation", nemesis=(name,), seed=1, time_limit=TIME_LIMIT, rate=20.0, concurrency=1,
            partitions=PARTITIONS, **_size_of(name),
        )  # fmt: skip
        done = simulate(plan, (fault,))
        assert not done.crash and done.violation is None, (name, done.crash, done.violation)
        (row,) = done.tables["faults"].to_pylist()
        print(name, row["effective"], done.trace_hash, flush=True)


@pytest.mark.nightly
def test_no_nemesis_depends_on_the_hash_seed() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import print_hashes; print_hashes()"],
            cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": hash_seed}, stdout=subprocess.PIPE, text=True,
        )
        for hash_seed in ("1", "2")
    ]  # fmt: skip
    first, second = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert first == second
    assert {line.split()[0] for line in first} == set(variants())
    assert [line for line in first if line.split()[1] != "True"] == [], "none of these did anything"
