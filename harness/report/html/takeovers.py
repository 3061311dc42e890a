"""Who led in a broker's place when a fault struck it (003: the load of a broker that dies goes to all others)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from harness.record.timeline.partitions import Inside, State
from harness.report import words
from harness.report.html.aggregate import Fault

#: A broker that is gone is noticed some seconds later, perhaps when it is back.
_LATE_S: Final = 10.0


def taken_over(fault: Fault, faults: Sequence[Fault], inside: Inside, origin: int) -> list[str]:
    """A sentence for each broker struck that led partitions and lost the leadership of some by leaving their ISRs.
    faults: all of the run: what comes once another has struck the same broker is that one's doing. origin: second 0 of
    the report, monotonic ns."""
    ids = {name: id_ for id_, name in inside.names.items()}
    start = origin + round(fault.start * 1e9)
    found = []
    for target in fault.targets:
        ends = [(fault.start if fault.end is None else fault.end) + _LATE_S]
        ends += [f.start for f in faults if target in f.targets and f.start > fault.start and not f.skipped]
        end = origin + round(min(ends) * 1e9)
        heirs: Counter[int] = Counter()
        for states in inside.states.values():
            heir = _heir(states, ids.get(target, -1), start, end)
            if heir is not None:
                heirs[heir] += 1
        if heirs:
            named = [f"{inside.names.get(heir, f'broker {heir}')} ({count:,})" for heir, count in sorted(heirs.items())]
            led, others = words.plural(heirs.total(), "leadership"), words.plural(len(named), "broker")
            found.append(f"{led} of {target} went to {others}: {', '.join(named)}")
    return found


def _heir(states: Sequence[State], broker: int, start: int, end: int) -> int | None:
    """Who led next, of a partition that this broker led when the fault began."""
    led = False
    for state in states:
        if state.time <= start:
            led = state.leader == broker >= 0
        elif not led or state.time > end:
            return None
        elif state.leader not in (broker, -1):
            return None if broker in state.isr else state.leader
    return None
