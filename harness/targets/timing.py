"""How long a cluster takes to notice and to mend what faults do to it: what nemeses and the pace of a run go by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """In seconds, as a target has it under a plan. The defaults are those of the target kraft.

    session: a silent broker keeps its leaderships so long (broker.session.timeout.ms). lag: a follower that does not
    keep up stays in the ISR so long, or up to half as much longer (replica.lag.time.max.ms). start: from a process
    started to its replicas in their ISRs again; 0: less than the calm that nemeses leave anyway, and no fault need
    wait for it."""

    session: float = 3.0
    lag: float = 4.0
    start: float = 0.0


#: Of the target kraft, by default.
QUICK = Timing()
