"""Faults of a node's wall clock: it jumps, or runs fast or slow. Monotonic time goes on as if nothing were.

Replication may not depend on what time it is: leases, sessions and timeouts count monotonic time. What a wall clock may
reach is only what it stamps on records, and what is told from those stamps.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Final

from harness.cluster import Cluster, Evidence, Node
from nemesis import Common, Draw, Nemesis, Situation, by_node, choose_node, draw_node, each, knob

#: A clock is wrong for certain by this share of what was asked of it. Measuring it errs by a millisecond or so.
_CLEARLY: Final = 0.5
_MOST_OFFSET_S: Final = 1e9
_MOST_DRIFT: Final = 0.9  # seconds a second


class _OneClock(Common):
    needs = frozenset({"faketime"})

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        offset_s, drift = choice.get("offset_s", 0.0), choice.get("drift", 0.0)
        seen = by_node(nodes, await asyncio.gather(*(node.set_clock(offset_s, drift) for node in nodes)))
        return {"clock": {"offset_s": offset_s, "drift": drift}, **seen}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        evidence = await asyncio.gather(*(node.set_clock(0.0) for node in nodes))
        for seen in evidence:
            seen.pop("clock_offset_ms", None)  # it would stand in the place of the one that was in force
        return by_node(nodes, evidence)

    def effective(self, evidence: Evidence) -> bool:
        """On some node all that was asked for has been seen."""
        asked = evidence.get("clock", {})
        offset_s, drift = asked.get("offset_s", 0.0), asked.get("drift", 0.0)
        return bool(offset_s or drift) and any(
            _is_clear(offset_s, seen.get("clock_offset_ms", 0) / 1000)
            and _is_clear(drift, seen.get("clock_drifted_ms", 0) / max(seen.get("clock_drifting_ms", 0), 1))
            for seen in each(evidence)
        )

    def check(self, choice: Mapping[str, Any], targets: Sequence[str]) -> None:
        for name, most in (("offset_s", _MOST_OFFSET_S), ("drift", _MOST_DRIFT)):
            if not -most <= choice.get(name, 0.0) <= most:
                raise ValueError(f"its {name} is {choice[name]!r}; valid: a number from {-most:g} to {most:g}")


@dataclass
class Jump(_OneClock):
    """The clock of one node jumps, and later back."""

    name = "clock:jump"
    summary = "makes one node's wall clock jump ahead or back, and later back to the true time"
    min_offset_s: float = knob(0.1, 0.001, _MOST_OFFSET_S, help="seconds that it jumps at least")
    max_offset_s: float = knob(86_400.0, 0.001, _MOST_OFFSET_S, help="seconds that it jumps at most")

    def __post_init__(self) -> None:
        if self.min_offset_s > self.max_offset_s:
            raise ValueError("min_offset_s is above max_offset_s; set both")

    def draw(self, random: Random) -> Draw:
        # As many jumps between 0.1 s and 1 s as between an hour and ten: what they break lies at any scale.
        offset_s = _either_way(random, self.min_offset_s, self.max_offset_s)
        return Draw(
            gap=random.uniform(2.0, 5.0),
            duration=random.uniform(2.0, 8.0),
            choice={**draw_node(random), "offset_s": round(offset_s, 3)},
        )


@dataclass
class Drift(_OneClock):
    """The clock of one node runs fast or slow, and is set right later."""

    name = "clock:drift"
    summary = "makes one node's wall clock run fast or slow, and later sets it right"
    min_rate: float = knob(0.001, 0.0001, _MOST_DRIFT, help="seconds that it gains or loses a second at least")
    max_rate: float = knob(0.2, 0.0001, _MOST_DRIFT, help="seconds that it gains or loses a second at most")

    def __post_init__(self) -> None:
        if self.min_rate > self.max_rate:
            raise ValueError("min_rate is above max_rate; set both")

    def draw(self, random: Random) -> Draw:
        drift = _either_way(random, self.min_rate, self.max_rate)
        # Never so short that the slowest drift shows no millisecond.
        return Draw(
            gap=random.uniform(2.0, 5.0),
            duration=random.uniform(4.0, 12.0),
            choice={**draw_node(random), "drift": round(drift, 6)},
        )


class ClockJump(Jump):
    """Of older versions, by its old name."""

    name = "clock-jump"


class Clock(_OneClock):
    """Either."""

    name = "clock"
    summary = "makes one node's wall clock jump, or run fast or slow, and later sets it right"
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {"jump": Jump, "drift": Drift}

    def draw(self, random: Random) -> Draw:
        drawn = random.choice((Jump(), Drift())).draw(random)
        # All of it, whichever it is: a schedule may set what a choice has.
        return replace(drawn, choice={"offset_s": 0.0, "drift": 0.0, **drawn.choice})


def _is_clear(asked: float, seen: float) -> bool:
    """Has so much of it been seen that it is no error of the measuring? Nothing asked is always seen."""
    return not asked or seen / asked >= _CLEARLY


def _either_way(random: Random, least: float, most: float) -> float:
    """Between these, on a logarithmic scale; negative as often as not."""
    return random.choice([-1, 1]) * math.exp(random.uniform(math.log(least), math.log(most)))
