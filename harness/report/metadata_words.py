"""Describes in words how a fault changed the cluster's metadata (nemesis.membership.restoration.reported): before,
during and after the fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: When it was looked at, in order.
_STAGES: Final = ("before", "after", "while", "healed")
_MOST_PARTITIONS: Final = 2  # in a sentence; the evidence has more


def metadata(reported: Mapping[str, Any]) -> str:
    stages = [reported[stage] for stage in _STAGES if stage in reported]
    brokers = _steps([_listed(stage["brokers"]) for stage in stages])
    names = list(stages[0]["partitions"]) if stages else []
    shown = [
        f"{name} {_steps([_partition(stage['partitions'][name]) for stage in stages if name in stage['partitions']])}"
        for name in names[:_MOST_PARTITIONS]
    ]
    more = stages[0]["partitions_in_all"] - len(shown) if stages else 0
    others = [f"{more:,} more partition{'s' if more > 1 else ''}"] if more > 0 else []
    return f"brokers {brokers}" + "".join(f"; {each}" for each in [*shown, *others])


def _steps(states: Sequence[str]) -> str:
    """One after the other, each that is not as the one before."""
    changes = [state for at, state in enumerate(states) if not at or state != states[at - 1]]
    return " → ".join(changes)


def _partition(state: Mapping[str, Any]) -> str:
    """on 3, 1, 2 led by 3 [ISR 1, 3]; without the ISR if all replicas are in it."""
    leader = f"led by {state['leader']}" if state["leader"] >= 0 else "without a leader"
    all_in_sync = set(state["isr"]) == set(state["replicas"])
    return f"on {_listed(state['replicas'])} {leader}" + ("" if all_in_sync else f" [ISR {_listed(state['isr'])}]")


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
