"""Does the group settle once all faults are healed? Within `settle_s` of it, and of the last change of its members,
each partition is owned by exactly one live member, and that one has been handed all that was acknowledged before.

Anomaly: group not settled. From what KIP-429, KIP-345 and KIP-848 say of rebalances: each comes to its end.

The group has its time from when all faults were healed, or from the last join, resumption, leave, crash or pause after
that, until the next leave, crash or pause. Where none such is as long as `settle_s`, a group that has settled by the
end of one is right, and of any other nothing is known. A group that was still handed records in the last quarter of
its time is at work: it is not known when it would have been done.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from checkers.groups.events import ASSIGN, OK, POLL, PROCESS, RESET, Group, Life, Ownership, Share
from checkers.groups.records import Acknowledged
from checkers.groups.report import Report
from checkers.properties import GROUP_SETTLES
from spark_history.log import NEVER, NOWHERE

NOT_SETTLED: Final = "group not settled"

#: Of its time, how much before the end a group counts as being at work.
_AT_WORK: Final = 4


class Calm(NamedTuple):
    """When nothing changed any more but by the group itself: since, until, and the members that were there."""

    since: int
    until: int
    members: frozenset[int]

    def lasts(self, for_ns: int) -> bool:
        return self.until - self.since >= for_ns


def calm(group: Group, healed: int, until: int) -> Calm:
    """The longest of the stretches. until: the last thing on record of the run."""
    best = Calm(healed, healed, frozenset())
    for each in stretches(group, healed, until):
        if each.until - each.since > best.until - best.since:
            best = each
    return best


def stretches(group: Group, healed: int, until: int) -> list[Calm]:
    """After `healed`, those in which no member joined, left, crashed, paused or resumed while somebody was there who
    polls, in order. A group that has settled by the end of any of them is right, however short it was."""
    changes = {healed, max(until, healed)}
    for life in group.lives.values():
        ended = [life.ended, life.dead if life.dead < NEVER else life.ended]
        for time in (life.joined, *ended, *(each for pause in life.pauses for each in pause)):
            if healed < time < until:
                changes.add(time)
    times = sorted(changes)
    found = []
    for since, end in pairwise(times):
        members = frozenset(process for process, life in group.lives.items() if _polls(life, since, end))
        if members:
            found.append(Calm(since, end, members))
    return found


def _polls(life: Life, since: int, until: int) -> bool:
    paused = any(start < until and over > since for start, over in life.pauses)
    return life.joined <= since and life.ended >= until and not paused


def at_work(share: Share, by: int, for_ns: int) -> bool:
    """Was the group handed, or did it process, records of the partition shortly before `by`?"""
    rows = share.rows
    late = share.of_kind(POLL, PROCESS)
    return bool(np.any((rows.complete[late] > by - for_ns // _AT_WORK) & (rows.invoke[late] <= by)))


def why_not(
    share: Share | None, written: Acknowledged, healed: int, by: int, members: frozenset[int]
) -> tuple[str, bool]:  # fmt: skip
    """Why the group is not settled at `by`, the rest of a sentence ("": it is), and whether it may only be slow."""
    owners = [] if share is None else _owners(share, by, members)
    if len(owners) != 1:
        named = ", ".join(str(process) for process in owners)
        return f"is owned by {len(owners)} live members ({named})" if owners else "is owned by no live member", False
    assert share is not None
    end, reached = written.end_at(healed), _reached(share, by)
    if reached < end:
        why = f"was handed out up to {max(reached, 0)}, where {end - 1} had been acknowledged when all was healed"
        return why, True
    return "", False


def _owners(share: Share, by: int, members: frozenset[int]) -> list[int]:
    def holds(of: Ownership) -> bool:
        return of.process in members and of.begun <= by <= of.until

    return sorted({of.process for of in share.ownerships if holds(of)})


def _reached(share: Share, by: int) -> int:
    rows = share.rows
    told = np.where(rows.kind == ASSIGN, rows.start, rows.end)
    told = told[np.isin(rows.kind, (ASSIGN, POLL, RESET)) & (rows.outcome == OK) & (rows.invoke <= by)]
    return int(told.max(initial=NOWHERE))


def report_not_settled(group: str, topic: str, partition: int, why: str, by: int, report: Report) -> None:
    report.add_missing(
        topic, partition, GROUP_SETTLES, NOT_SETTLED,
        f"group {group}: {topic}-{partition} {why}, at {report.at(by)}, when the group was to have settled",
    )  # fmt: skip
