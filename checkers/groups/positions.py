"""No record is skipped within one ownership, and none is handed out again: each poll begins where the one before it
ended, the first where the ownership began, or where a stated reset went (KafkaConsumer, "Offsets and Consumer
Position").

| anomaly | what it is |
| --- | --- |
| skipped records | a poll begins further on, and a record is known to stand in between |
| position went back | a poll begins further back |
| handed without ownership | weak: a poll by a member that owns the partition no longer, or did not yet |

After a poll or a reset that may or may not have happened, or where the ownership's begin is not known, nothing is
expected. A member that was told that nothing is committed says so (a reset), and then its client asks for itself: where
a commit of the owner before it came in between, it rightly begins there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.groups.events import ASSIGN, COMMIT, LOSE, OK, POLL, RESET, REVOKE, Share
from checkers.groups.records import Known
from checkers.groups.report import Report
from checkers.properties import CONSUMER_POSITIONS, GROUPS_ALLOWED
from spark_history.files import Ints
from spark_history.log import NEVER, NOWHERE

SKIPPED: Final = "skipped records"
WENT_BACK: Final = "position went back"
WITHOUT_OWNERSHIP: Final = "handed without ownership"


def expected(share: Share) -> tuple[Ints, Ints, Ints]:
    """Of the polls and resets of `share`, in the order of its members: their rows, the row before that says where they
    are to begin (NOWHERE: none of the same ownership), and where that is (NOWHERE: not known)."""
    rows = share.rows
    of = np.flatnonzero(np.isin(rows.kind[share.order], (ASSIGN, REVOKE, LOSE, POLL, RESET)))
    chosen, owner = share.order[of], share.owner[of]
    kind = rows.kind[chosen]
    after = np.where(kind == ASSIGN, rows.start[chosen], rows.end[chosen])
    after[np.isin(kind, (REVOKE, LOSE)) | (np.isin(kind, (POLL, RESET)) & (rows.outcome[chosen] != OK))] = NOWHERE
    same = np.append(False, (owner[1:] == owner[:-1]) & (owner[1:] != NOWHERE))[: len(of)]
    before = np.where(same, np.append(NOWHERE, chosen[:-1])[: len(of)], NOWHERE)
    due = np.where(same, np.append(NOWHERE, after[:-1])[: len(of)], NOWHERE)
    wanted = np.isin(kind, (POLL, RESET))
    return chosen[wanted], before[wanted], due[wanted]


def _committed_meanwhile(share: Share, reset: int, poll: int, auto: bool) -> bool:
    """Was nothing committed at the (row) `reset`, but perhaps by the time of the `poll` up to where that begins? auto:
    commits are not on record; what another poll has handed over may have been committed."""
    rows = share.rows
    if rows.kind[reset] != RESET or not rows.empty[reset]:
        return False
    start, complete = rows.start[poll], rows.complete[poll]
    commits = share.of_kind(COMMIT)
    if np.any(np.isin(rows.end[commits], (start, NOWHERE)) & (rows.invoke[commits] <= complete)):
        return True
    polls = share.of_kind(POLL)
    return auto and bool(np.any((polls != poll) & (rows.end[polls] >= start) & (rows.invoke[polls] <= complete)))


def check(share: Share, known: Known, auto: bool, report: Report) -> None:
    """auto: of a group that commits by itself."""
    rows = share.rows
    chosen, before, due = expected(share)
    polls = (rows.kind[chosen] == POLL) & (rows.outcome[chosen] == OK)
    chosen, before, due = chosen[polls], before[polls], due[polls]
    start = rows.start[chosen]
    for each in np.flatnonzero(before == NOWHERE).tolist():
        row = int(chosen[each])
        report.add(share, GROUPS_ALLOWED, WITHOUT_OWNERSHIP,
                   f"{report.name(share, row)} was handed what the member did not own", [row],
                   offset=int(rows.start[row]), count=int(rows.end[row] - rows.start[row]))  # fmt: skip
    ahead = np.flatnonzero((due != NOWHERE) & (start > due))
    first = known.first(due[ahead], start[ahead])
    for each, offset in zip(ahead[first != NEVER].tolist(), first[first != NEVER].tolist(), strict=True):
        row, of, at = int(chosen[each]), int(before[each]), int(due[each])
        if _committed_meanwhile(share, of, row, auto):
            continue
        missed = known.count(at, int(start[each]))
        message = (
            f"{report.name(share, row)} begins beyond {at}, where {report.name(share, of)} had left it: {missed:,} "
            f"records from {offset} on were skipped, and nothing says on purpose"
        )
        report.add(share, CONSUMER_POSITIONS, SKIPPED, message, [of, row], offset=offset, count=missed)
    for each in np.flatnonzero((due != NOWHERE) & (start < due)).tolist():
        row, of, at = int(chosen[each]), int(before[each]), int(due[each])
        again = int(min(rows.end[row], at) - start[each])
        message = (
            f"{report.name(share, row)} begins before {at}, where {report.name(share, of)} had left it, and "
            "nothing says on purpose"
        )
        report.add(share, CONSUMER_POSITIONS, WENT_BACK, message, [of, row], offset=int(start[each]), count=again)
