"""Does each member commit and process in the order that its group says? (KafkaConsumer, "Manual Offset Control";
Kafka's design, "Message Delivery Semantics": who commits first processes at most once, who processes first at least
once.)

| anomaly | what it is |
| --- | --- |
| committed before processing | of a group that commits after processing: a member commits an offset, and had not |
| | processed a record below it that it was handed, or that is beyond all it had processed or begun at |
| processed before commit | of a group that commits before: a member processes beyond what it had committed |
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from checkers.groups.events import ASSIGN, COMMIT, OK, POLL, PROCESS, RESET, Share
from checkers.groups.records import Known
from checkers.groups.report import Report
from checkers.properties import COMMIT_ORDER
from spark_history.files import Bools, Ints
from spark_history.log import NEVER, NOWHERE

COMMITTED_FIRST: Final = "committed before processing"
PROCESSED_FIRST: Final = "processed before commit"


def check_after(share: Share, known: Known, report: Report) -> None:
    rows = share.rows
    for low, high in _members(share):
        order, owner = share.order[low:high], share.owner[low:high]
        kind = rows.kind[order]
        counts = np.isin(kind, (PROCESS, RESET))
        reached = np.where(counts, rows.end[order], NOWHERE)
        begins = np.flatnonzero(kind == ASSIGN)
        reached[begins] = [share.ownerships[number].position for number in owner[begins].tolist()]
        highest = np.maximum.accumulate(reached)
        judged = (kind == COMMIT) & ~_unknown(share, order, owner)
        commits = np.flatnonzero(judged & (rows.end[order] > highest))
        first = known.first(np.maximum(highest[commits], 0), rows.end[order[commits]])
        wrong = dict(zip(commits[first != NEVER].tolist(), first[first != NEVER].tolist(), strict=True))
        processes = np.flatnonzero(kind == PROCESS)
        before = np.maximum(np.append(NOWHERE, highest[:-1])[processes], 0)
        gaps = known.first(before, rows.start[order[processes]])
        polls = np.flatnonzero((kind == POLL) & (rows.outcome[order] == OK))
        again = rows.start[order[polls]] < np.append(NOWHERE, highest[:-1])[polls]
        if np.any(gaps != NEVER) or np.any(again):  # what lies below may have been left out
            for at, offset in _left_out(share, order).items():
                if judged[at]:
                    wrong[at] = min(offset, wrong.get(at, offset))
        for at, offset in sorted(wrong.items()):
            row = int(order[at])
            done = order[:at][kind[:at] == PROCESS][-1:].tolist()
            message = f"{report.name(share, row)} was begun before the member had processed the record at {offset}"
            report.add(share, COMMIT_ORDER, COMMITTED_FIRST, message, [*done, row], offset=offset)


def _members(share: Share) -> Iterator[tuple[int, int]]:
    """From where to where in `order` each member's events are."""
    process = share.rows.process[share.order]
    cuts = [0, *(np.flatnonzero(np.diff(process)) + 1).tolist(), len(process)]
    return pairwise(cuts) if len(process) else iter(())


def _unknown(share: Share, order: Ints, owner: Ints) -> Bools:
    """Where nobody knows what the member had inherited: no poll tells where it began, and no reset where it went; or it
    went nobody knows where. Also where it has not owned the partition yet."""
    kind, end = share.rows.kind[order], share.rows.end[order]
    unknown = np.zeros(len(order), bool)
    changes = np.flatnonzero(np.isin(kind, (ASSIGN, RESET)))
    for at, until in zip(changes.tolist(), [*changes.tolist()[1:], len(order)], strict=False):
        if kind[at] == ASSIGN:
            unknown[at:until] = share.ownerships[int(owner[at])].position == NOWHERE
        else:
            unknown[at:until] = end[at] == NOWHERE
    unknown[: int(changes[0]) if len(changes) else len(order)] = True
    return unknown


def _left_out(share: Share, order: Ints) -> dict[int, int]:
    """Of one member, the commits (places in `order`) beyond something that it was handed, since it was assigned the
    partition or went elsewhere, and has never processed, with the first such offset."""
    rows, found = share.rows, {}
    done: list[Span] = []
    left: list[Span] = []
    for at, row in enumerate(order.tolist()):
        kind, span = int(rows.kind[row]), (int(rows.start[row]), int(rows.end[row]))
        if kind in (ASSIGN, RESET):
            left = []
        elif kind == POLL and rows.outcome[row] == OK:
            left += _without([span], done)
        elif kind == PROCESS:
            left, done = _without(left, [span]), _with(done, span)
        elif kind == COMMIT and left and (offset := min(left)[0]) < span[1]:
            found[at] = offset
    return found


Span = tuple[int, int]


def _without(spans: list[Span], others: list[Span]) -> list[Span]:
    for start, end in others:
        if any(low < end and high > start for low, high in spans):
            cut = [part for low, high in spans for part in ((low, min(high, start)), (max(low, end), high))]
            spans = [part for part in cut if part[0] < part[1]]
    return spans


def _with(spans: list[Span], other: Span) -> list[Span]:
    """Disjoint ones, in order."""
    start, end = other
    apart = [each for each in spans if each[1] < start or each[0] > end]
    touched = [each for each in spans if not (each[1] < start or each[0] > end)]
    return sorted([*apart, (min([start, *(low for low, _ in touched)]), max([end, *(high for _, high in touched)]))])


def check_before(share: Share, report: Report) -> None:
    rows = share.rows
    for low, high in _members(share):
        order, owner = share.order[low:high], share.owner[low:high]
        kind, outcome = rows.kind[order], rows.outcome[order]
        commits = order[(kind == COMMIT) & (outcome == OK)]
        commits = commits[np.argsort(rows.complete[commits], kind="stable")]
        highest = np.append(NOWHERE, np.maximum.accumulate(rows.end[commits]))
        begins = np.full(len(order), NOWHERE)
        assigns = np.flatnonzero(kind == ASSIGN)
        begins[assigns] = [share.ownerships[number].position for number in owner[assigns].tolist()]
        begins = np.maximum.accumulate(begins)
        processes = np.flatnonzero((kind == PROCESS) & (outcome == OK))
        done = order[processes]
        before = np.searchsorted(rows.complete[commits], rows.invoke[done], "right")
        allowed = np.maximum(highest[before], begins[processes])
        for at in np.flatnonzero(rows.end[done] > allowed).tolist():
            row, limit, count = int(done[at]), int(allowed[at]), int(before[at])
            first = max(limit, int(rows.start[row]))
            message = f"{report.name(share, row)} was begun when the member had committed no more than {max(limit, 0)}"
            report.add(
                share,
                COMMIT_ORDER,
                PROCESSED_FIRST,
                message,
                [*commits[count - 1 : count].tolist(), row],
                offset=first,
                count=int(rows.end[row]) - first,
            )
