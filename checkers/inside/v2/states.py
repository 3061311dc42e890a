"""The abstract states that a simulated run of this generation has been in (see checkers/inside/kraft/simulated).

Of a partition: what each replica takes itself for, its epoch relative to the newest, whether the newest leader has it
in the ISR or waits for it, ends of logs and high watermarks relative to the furthest. A replica whose broker does not
run is known to be there, and no more. The coarser view leaves the ends out, and has the faults in force instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from cluster_image.v2.partition.replica import Partition

#: Of what _replica() tells, what does not depend on the ends of logs: role, sets, relative epoch.
_ROLES_AND_SETS: Final = 3
_GONE: Final = (-1,)


class States:
    """faults: those in force now, as numbers. seen, under_faults: see Invariants.count_states."""

    def __init__(self, faults: Callable[[], tuple[int, ...]]) -> None:
        self.seen: set[int] = set()
        self.under_faults: set[int] = set()
        self._faults = faults

    def look(self, replicas: Mapping[int, Partition | None]) -> None:
        """Of one partition that has changed. replicas: by broker; None: it does not run, or has it no longer."""
        running = [each for each in replicas.values() if each is not None]
        newest = max((each.leader_epoch for each in running), default=-1)
        end = max((each.log.end_offset for each in running), default=0)
        watermark = max((each.high_watermark for each in running), default=0)
        leader = next((each for each in running if each.is_leader and each.leader_epoch == newest), None)
        told = sorted(
            _GONE if each is None else _replica(broker, each, leader, newest, end, watermark)
            for broker, each in replicas.items()
        )
        size = -1 if leader is None else len(leader.isr)
        self.seen.add(hash((size, *told)))
        self.under_faults.add(hash((size, tuple(each[:_ROLES_AND_SETS] for each in told), self._faults())))


def _replica(
    broker: int, replica: Partition, leader: Partition | None, newest: int, end: int, watermark: int
) -> tuple[int, ...]:
    term = None if leader is None else leader.leadership
    in_sets = 0 if leader is None or term is None else (broker in leader.isr) + 2 * (broker in term.catching_up)
    role = 2 + replica.serves_clients if replica.is_leader else int(replica.leader >= 0)
    return (
        role, in_sets, max(replica.leader_epoch - newest, -2), _sign(replica.log.end_offset - end),
        _sign(replica.high_watermark - watermark), _sign(replica.log.end_offset - replica.high_watermark),
        max(replica.log.last_epoch - newest, -3),
    )  # fmt: skip


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
