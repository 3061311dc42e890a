"""How long it takes to plan the moves that balance a large cluster: on paper, without one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

from cluster_image.placement.rebalance import Plan, plan
from harness.bench import Figure

BROKERS: Final = 1_000
PARTITIONS: Final = 200_000
RACKS: Final = 10
CHANGED: Final = 10  # brokers that come, or go
PLAN_AIM_S: Final = 30.0


def measure(_: Path) -> Iterator[Figure]:
    random = Random(1)
    racks = {broker: f"rack-{broker % RACKS}" for broker in range(BROKERS)}
    weights = {partition: random.randint(0, 10**9) for partition in range(PARTITIONS)}
    few = {broker: rack for broker, rack in racks.items() if broker < BROKERS - CHANGED}
    cases = (
        (f"{CHANGED} brokers more", few, racks),
        (f"{CHANGED} brokers fewer", racks, few),
    )
    for change, before, after in cases:
        assignment = assigned(before, PARTITIONS, random)
        began = time.perf_counter()
        made = plan(assignment, after, weights)
        took = time.perf_counter() - began
        yield Figure(
            f"plan for {len(after):,} brokers in {RACKS} racks, {PARTITIONS:,} partitions of three, {change}",
            f"{PLAN_AIM_S:g} s",
            f"{took:.1f} s; {_moved(made)}",
            took <= PLAN_AIM_S,
        )


def assigned(brokers: Mapping[int, str], partitions: int, random: Random) -> dict[int, tuple[int, ...]]:
    """Three replicas of each partition in three racks; replicas within one of each other, and nearly so leaders."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in brokers.items():
        by_rack.setdefault(rack, []).append(broker)
    dealt = dict.fromkeys(by_rack, 0)
    held: dict[int, tuple[int, ...]] = {}
    for partition in range(partitions):
        # Racks that are furthest behind, by their size, are dealt to next.
        chosen = sorted(by_rack, key=lambda rack: (dealt[rack] / len(by_rack[rack]), random.random()))[:3]
        random.shuffle(chosen)
        replicas = []
        for rack in chosen:
            replicas.append(by_rack[rack][dealt[rack] % len(by_rack[rack])])
            dealt[rack] += 1
        held[partition] = tuple(replicas)
    return held


def _moved(made: Plan[int]) -> str:
    least = {True: "the least possible", False: "not the least", None: "not known to be the least"}[made.is_least]
    return f"{made.replicas_moved:,} replicas, {made.bytes_moved / 1e12:.2f} TB, {least}"
