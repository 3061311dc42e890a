"""Who is expected to leave the ISR, by what leaders can know: cases that seeds have shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from checkers.inside.kraft.simulated.liveness.shrinking import LATE_S, LOOK_EVERY_S, LOOKS_IN_LAG, Shrinking
from checkers.inside.violation import Violated
from checkers.properties import ISR_SHRINKS

LAG_S: Final = 0.5
WHERE: Final = "t-0"


class Led:
    """A leader, broker 1, whose log ends at `end`, and a follower, broker 2, of which it has told nothing yet."""

    def __init__(self) -> None:
        self.end, self.follower, self.now = 4, 4, 0.0
        self.shrinking = Shrinking()

    def pass_(self, seconds: float) -> None:
        for _ in range(round(seconds / LOOK_EVERY_S)):
            self.now += LOOK_EVERY_S
            self.shrinking.answered("broker-1")
            self.shrinking.look({"broker-1": self._node()}, lambda where, broker: self.follower, self.now)

    def _node(self) -> Any:
        partition = _Partition(
            leadership=SimpleNamespace(proposal=None, followers={2: None}), leader_epoch=0, isr=frozenset({1, 2}),
            config=SimpleNamespace(seconds=lambda name: LAG_S), log=SimpleNamespace(end_offset=self.end),
        )  # fmt: skip
        return SimpleNamespace(broker=SimpleNamespace(partitions={WHERE: partition}))


class _Partition(SimpleNamespace):
    def __str__(self) -> str:
        return WHERE


LONG_S: Final = LAG_S + LOOKS_IN_LAG * LAG_S + LATE_S + 1


def test_who_does_not_keep_up_is_to_leave() -> None:
    led = Led()
    led.pass_(LONG_S)
    led.end = 5
    with pytest.raises(Violated, match=r"keeps broker 2 in the ISR \[1, 2\]") as violated:
        led.pass_(LONG_S)
    assert violated.value.property == ISR_SHRINKS


def test_regression_what_a_follower_has_lost_its_leader_does_not_know() -> None:
    """A guided run, 8519: the leader was out of the controllers' reach, its follower lost its power and its log, and
    nothing was appended."""
    led = Led()
    led.pass_(1)
    led.shrinking.loses(WHERE, 2, led.follower)
    led.follower = 0
    led.pass_(LONG_S)
    led.end = 5  # by this it does lag
    with pytest.raises(Violated):
        led.pass_(LONG_S)
