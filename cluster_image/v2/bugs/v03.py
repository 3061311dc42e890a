"""V03: whoever fetches joins the ISR, however far behind it is.

If it is elected before it has caught up, what it lacks is lost.
"""

from __future__ import annotations

from . import Bug


def once_it_fetches(follower_end: int, offset: int) -> bool:
    return follower_end >= 0


BUG = Bug(
    id="V03",
    title="a replica joins the ISR before it has caught up",
    source="no historical bug: 001, Commit thread on the leader",
    nemesis="kill",
    properties=("log linearizability",),
    module="v2.rules",
    rule="may_join_isr",
    replacement=once_it_fetches,
    # So that whoever has restarted takes a while to catch up. A leader that looks at idle partitions, too, lets nobody
    # in who has not had everything lately (commit.py), which would hide most of it.
    options="--rate 100 --partitions 2 --set replica.fetch.max.bytes=200 --set v2.idle.checks=false",
)
