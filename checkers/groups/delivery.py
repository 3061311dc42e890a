"""Is every record processed at least once, by groups that commit after processing, and at most once, by those that
commit before? (Kafka's design, "Message Delivery Semantics".)

| anomaly | what it is |
| --- | --- |
| unprocessed record | acknowledged, and no member has processed it by the end, though one had the time |
| processed twice | a group that commits before processing has processed a record twice |
| processed again | weak: twice, as it is allowed: by a group that commits after, or beside a commit in flight |

Records that a stated reset leaps over are left out on purpose. Who had the time is in settling.py.

Twice is not wrong where the second member began before the first one's commit was answered (see committed.py: it may
have been told the offset before that), or where somebody went back on purpose in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from checkers.groups.events import COMMIT, OK, PROCESS, RESET, Share
from checkers.groups.positions import expected
from checkers.groups.records import Acknowledged, Ranges, union
from checkers.groups.report import Report
from checkers.properties import AT_MOST_ONCE, GROUPS_ALLOWED
from spark_history.files import Ints
from spark_history.log import NEVER, NOWHERE

UNPROCESSED: Final = "unprocessed record"
TWICE: Final = "processed twice"
AGAIN: Final = "processed again"


def unprocessed(share: Share | None, written: Acknowledged) -> Ints:
    """Offsets of acknowledged records that no member has processed, as far as none was leapt over on purpose. share:
    None: the group has seen nothing of the partition."""
    if share is None:
        return written.offset
    rows = share.rows
    done = share.of_kind(PROCESS)
    held = union(rows.start[done], rows.end[done]).hold(written.offset)
    held |= _leapt_over(share).hold(written.offset)
    return np.unique(written.offset[~held])


def _leapt_over(share: Share) -> Ranges:
    rows = share.rows
    chosen, _, due = expected(share)
    resets = rows.kind[chosen] == RESET
    chosen, due = chosen[resets], due[resets]
    end = np.where(rows.end[chosen] == NOWHERE, NEVER, rows.end[chosen])
    return union(np.where(due == NOWHERE, 0, due), end)


class Pair(NamedTuple):
    """Two rows that have processed the record at `offset`, and `records` in all; first: the one that began first."""

    first: int
    second: int
    offset: int
    records: int


def check_twice(share: Share, report: Report) -> None:
    """Of a group that commits before processing."""
    owners = dict(zip(share.order.tolist(), share.owner.tolist(), strict=True)) if _repeated(share) else {}
    for pair in _pairs(share):
        wrong = _is_wrong(share, owners, pair)
        one, other = report.name(share, pair.first), report.name(share, pair.second)
        report.add(
            share, AT_MOST_ONCE if wrong else GROUPS_ALLOWED, TWICE if wrong else AGAIN,
            f"{pair.records:,} records from {pair.offset} on were processed by {one}, and again by {other}",
            [pair.first, pair.second], offset=pair.offset, count=pair.records,
        )  # fmt: skip


def count_again(share: Share, report: Report) -> None:
    """Of a group that commits after processing."""
    if again := _repeated(share):
        report.add_missing(
            share.topic, share.partition, GROUPS_ALLOWED, AGAIN,
            f"group {share.group}, {share.log}: {again:,} records were processed again, as it happens where offsets "
            "are committed after processing", count=again,
        )  # fmt: skip


def _done(share: Share) -> Ints:
    return np.flatnonzero((share.rows.kind == PROCESS) & (share.rows.outcome == OK))


def _repeated(share: Share) -> int:
    done = _done(share)
    start, end = share.rows.start[done], share.rows.end[done]
    return int((end - start).sum()) - union(start, end).length


def _pairs(share: Share) -> Iterator[Pair]:
    rows, done = share.rows, _done(share)
    done = done[np.lexsort((done, rows.start[done]))]
    start, end = rows.start[done], rows.end[done]
    reach = np.maximum.accumulate(end) if len(end) else end
    overlaps = np.append(False, start[1:] < reach[:-1])[: len(done)]
    active: list[int] = []
    last = NOWHERE
    for at in np.flatnonzero(overlaps).tolist():
        active += range(max(last + 1, int(np.searchsorted(reach, start[at], "right"))), at)
        active = [each for each in active if end[each] > start[at]]
        for each in active:
            one, other = sorted((int(done[each]), int(done[at])), key=lambda row: (int(rows.invoke[row]), row))
            yield Pair(one, other, int(start[at]), int(min(end[each], end[at]) - start[at]))
        active.append(at)
        last = at


def _is_wrong(share: Share, owners: dict[int, int], pair: Pair) -> bool:
    rows = share.rows
    resets = share.of_kind(RESET)
    back = (rows.end[resets] == NOWHERE) | (rows.end[resets] <= pair.offset)
    back &= (rows.complete[resets] >= rows.invoke[pair.first]) & (rows.invoke[resets] <= rows.complete[pair.second])
    if np.any(back):
        return False
    one, other = owners[pair.first], owners[pair.second]
    if one == other != NOWHERE:
        return True
    return any(
        owner != NOWHERE and _committed(share, row, pair.offset) < share.ownerships[owner].begun
        for row, owner in ((pair.first, other), (pair.second, one))
    )


def _committed(share: Share, row: int, offset: int) -> int:
    """When a commit of the member that processed `row` was answered first that is beyond `offset`; NEVER: none was."""
    rows = share.rows
    commits = share.of_kind(COMMIT)
    mine = commits[(rows.process[commits] == rows.process[row]) & (rows.outcome[commits] == OK)]
    return int(rows.complete[mine[rows.end[mine] > offset]].min(initial=NEVER))
