"""Swarm testing: each seed of an exploration runs with settings of its own.

What one configuration never reaches is common in another (Groce et al., "Swarm Testing", ISSTA 2012): an ISR shrinks by
lag only if faults outlast replica.lag.time.max.ms, a follower stays behind for a while only if it fetches little at a
time, recovery meets several segments only if they are small, and a batch comes twice only if its producer is one that
retries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from harness.plan import registry
from harness.plan.plan import Plan, Producers, TaskOrder
from harness.targets.target import Draws

#: Average latency of the network: of one room, of one region, and of a continent.
_LATENCIES_MS: Final = (0.5, 5.0, 25.0)
#: Half of the time the default, as for settings.
_PRODUCERS: Final[tuple[Producers, ...]] = ("plain", "plain", "idempotent", "fenced")
#: Logs begin, part and are read from within a batch only if there is more than one record in it.
_RECORDS_PER_BATCH: Final = (None, None, 2, 4)
_ORDERS: Final[tuple[TaskOrder, ...]] = ("fifo", "fifo", "random", "pct")


#: Fields of a plan that seeds may draw.
DRAWN: Final = ("settings", "latency_ms", "producers", "task_order", "records_per_batch")


@dataclass(frozen=True)
class Swarm:
    """Makes of the plan of an exploration that of a seed. drawn: of DRAWN, the fields that a seed draws: of `settings`
    those that the plan does not have, `producers` where workload, client and acks leave a choice, `records_per_batch`
    where the workload does."""

    drawn: Collection[str] = DRAWN

    def __call__(self, plan: Plan, seed: int) -> Plan:
        changes: dict[str, Any] = {"run": f"s{seed}", "seed": seed}
        if "settings" in self.drawn:
            changes["settings"] = _settings(seed, plan.settings, registry.make_target(plan.target).draws())
        if "latency_ms" in self.drawn:
            changes["latency_ms"] = Random(f"{seed}/latency").choice(_LATENCIES_MS)
        if "producers" in self.drawn and plan.has_choice_of_producers():
            changes["producers"] = Random(f"{seed}/producers").choice(_PRODUCERS)
        if "task_order" in self.drawn:
            changes["task_order"] = Random(f"{seed}/task order").choice(_ORDERS)
        if "records_per_batch" in self.drawn and plan.has_choice_of_batches():
            changes["records_per_batch"] = Random(f"{seed}/records per batch").choice(_RECORDS_PER_BATCH)
        return plan.model_copy(update=changes)


def _settings(seed: int, given: Mapping[str, str], draws: Draws) -> dict[str, str]:
    random = Random(f"{seed}/settings")
    drawn: dict[str, str] = {}
    for choices in draws.together:
        # Half of the time the default: what users have must be tested most.
        choice = random.choice(choices[1:])
        if random.random() < 0.5 and not given.keys() & choice.keys():
            drawn |= choice
    for choices in draws.apart:
        own = Random(f"{seed}/settings/{next(iter(choices[1]))}")
        if own.random() < 0.5 and not given.keys() & choices[1].keys():
            drawn |= own.choice(choices[1:])
    return drawn | dict(given)
