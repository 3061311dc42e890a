"""V01: whoever is assigned may lead, in the ISR or not.

The first to create the leader's node leads. It may lack what was acknowledged while it was not in the ISR, and has its
followers cut that.
"""

from __future__ import annotations

from collections.abc import Collection

from . import Bug


def any_replica(broker: int, isr: Collection[int], replicas: Collection[int], is_deleted: bool) -> bool:
    return not is_deleted and broker in replicas


BUG = Bug(
    id="V01",
    title="a replica that is not in the ISR stands for election",
    source="no historical bug: 001, Leader election",
    nemesis="kill",
    properties=("ElectedIsr", "log linearizability"),
    module="v2.rules",
    rule="may_lead",
    replacement=any_replica,
    # So that whoever has restarted takes a while to catch up, and is there when others fail.
    options="--rate 100 --partitions 2 --interval 3s --set replica.fetch.max.bytes=200",
)
