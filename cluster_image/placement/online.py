"""A plan for a cluster as it is seen while it runs: for operators' commands and for the harness alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Generic

from .layout import P
from .rebalance import Plan, plan
from .spread import Replicas, Spread


@dataclass(frozen=True)
class OnlinePlan(Generic[P]):
    """assignment: from which `plan` starts, as it is going to be once what is under way is done. weights: bytes of each
    partition. untold: partitions of which no broker has told how large they are: they count as nothing, and the plan is
    not certain to be the least."""

    plan: Plan[P]
    assignment: Mapping[P, Replicas]
    weights: Mapping[P, int]
    untold: Collection[P]

    def loads(self, spread: Spread, brokers: Collection[int]) -> dict[int, tuple[int, int]]:
        """(replicas, preferred leaderships) of these brokers and of all that hold something."""
        ids = sorted({*brokers, *(broker for broker, count in spread.replicas.items() if count)})
        return {broker: (spread.replicas[broker], spread.leaders[broker]) for broker in ids}


def plan_online(
    replicas: Mapping[P, Replicas],
    removing: Mapping[P, Collection[int]],
    racks: Mapping[int, str | None],
    sizes: Mapping[int, Mapping[P, int] | None],
) -> OnlinePlan[P]:
    """replicas: of each partition, with those that are being added and removed; removing: these, of reassignments under
    way. racks: by broker, of all that are to hold partitions. sizes: by broker, bytes of each partition; None: it has
    not told. Raises ValueError: there are too few brokers."""
    assignment = {
        partition: tuple(broker for broker in has if broker not in removing.get(partition, ()))
        for partition, has in replicas.items()
    }
    told = {broker: of for broker, of in sizes.items() if of is not None}
    weights = {p: max((told[b].get(p, 0) for b in has if b in told), default=0) for p, has in replicas.items()}
    untold = [p for p, has in replicas.items() if not any(broker in told for broker in has)]
    made = plan(assignment, racks, weights)
    return OnlinePlan(replace(made, is_least=None) if untold else made, assignment, weights, untold)
