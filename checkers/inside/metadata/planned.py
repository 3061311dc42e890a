"""Leaderships that moved on purpose while their leader lived: by a preferred election, a reassignment, or a controlled
shutdown.

What such a leader had acknowledged with acks=1, and nobody had fetched yet, is cut off. Kafka's maintainers confirm
that as what acks=1 is, and document it: KAFKA-20554, https://github.com/apache/kafka/pull/22233.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from checkers.inside.metadata.memberships import Step

#: Ends the cause of such a loss (checkers/inside/attribution.py).
DOCUMENTED: Final = "Kafka documents such a loss of acks=1 (KAFKA-20554)"
#: The committed metadata is known a little later than its leader knows it.
_LATE_NS: Final = 1_000_000_000


class CleanStop(NamedTuple):
    """A broker that was asked to stop, at `start`, and ended with exit status 0. Monotonic ns."""

    broker: int
    start: int
    end: int


class Planned(NamedTuple):
    """leader: before, and who leads from this step on."""

    leader: int
    step: Step
    how: str


def clean_stops(faults: Iterable[Mapping[str, Any]], ids: Mapping[str, int]) -> list[CleanStop]:
    """faults: FAULTS rows, evidence parsed. ids: of nodes by name."""
    return [
        CleanStop(ids[name], int(fault["start"]), int(fault["start"]) + int(seen["stopping_ns"]))
        for fault in faults
        for name, seen in (fault["evidence"].get("nodes") or {}).items()
        if name in ids and isinstance(seen, Mapping) and seen.get("exit_status") == 0 and seen.get("stopping_ns")
    ]


def planned(steps: Sequence[Step], after: int, until: int, stops: Iterable[CleanStop]) -> Planned | None:
    """The last move of a partition's leadership in leader epochs above `after`, up to `until`, if all of them were on
    purpose. None: there was none, or one of them was not."""
    found = None
    led = None  # the last step that had a leader
    for step in steps:
        if led is not None and after < step.leader_epoch <= until and step.leader != led.leader:
            how = _how(led, step, stops)
            if not how:
                return None
            found = Planned(led.leader, step, how)
        led = step
        if step.leader < 0 and after < step.leader_epoch <= until:
            return None
    return found


def _how(before: Step, step: Step, stops: Iterable[CleanStop]) -> str:
    """ "": nothing says that it was on purpose. Who leads was in the ISR: nothing that was committed is lost."""
    if before.leader < 0 or step.leader not in before.isr:
        return ""
    if before.leader not in step.replicas or (before.leader in step.isr and before.replicas != step.replicas):
        return "a reassignment"
    if before.leader in step.isr:  # whoever fails leaves it
        return "a preferred election" if step.leader == step.replicas[0] else "an election of another replica"
    at = step.time
    stopped = any(s.broker == before.leader and s.start <= at <= s.end + _LATE_NS for s in stops)
    return "a controlled shutdown" if stopped else ""


def weigh_planned(attribution: Iterable[Mapping[str, Any]]) -> str:
    """What Kafka documents of the records that were lost, as the end of a sentence; or nothing. attribution: of
    verdict.json."""
    lost = {True: 0, False: 0}
    for group in attribution:
        lost[str(group["cause"]).endswith(DOCUMENTED)] += group["records"]
    if not lost[True]:
        return ""
    which = f"{lost[True]:,} of them" if lost[False] else "they"
    return f"; {which} went when leadership moved on purpose: {DOCUMENTED}, and no promise of acks=all is broken by it"
