"""The committed offset of one partition in one group as a register that every commit writes, the last one in force: a
commit takes effect at a moment between its invocation and its answer, one without an answer at any later time, or
never. Before the first there is nothing.

What an answer, or a member that begins, must have found is decided by itself from all commits: a value that an
acknowledged commit wrote is gone for certain once another was begun after its answer, and answered before the question.

| anomaly | what it is |
| --- | --- |
| committed offset went back | an acknowledged commit of a lower offset, begun after one of a higher was answered |
| lost commit | an answer that had been replaced for certain; or a member that begins is told that nothing is |
| | committed, and something was |
| phantom commit | an answer that nobody asked to be committed |
| skipped after rebalance | a member begins beyond all offsets that may have been in force, and records lie between |
| began below the committed offset | a member begins below all of these |
| stale committed offset | weak: an answer as of a lost commit, while a coordinator may be one that was deposed |
| began at no committed offset | weak: a member begins at another offset than all of these, between them; or below |
| | them, but nothing proves that it was still a member then |

An older commit does not count against a member that began before it was answered: the group's coordinator accepts a
commit, and answers once it is replicated; a member of the next generation may ask in between, and be told the one
before it (KIP-447 has consumers of read_committed wait for it, and only these). Nor do others' commits from before it
began count against a member that began lower, as it may have: what it begins at is looked at by itself.

A coordinator that was deposed and does not know it answers from its cache (group membership keeps it from taking
commits, for these it cannot replicate). So an answer is held against commits only if it was asked by an observer after
the end (process -1), before the first fault struck, or once the group was to have settled. And who begins below an
offset may itself be a member that was replaced, unless it has committed something afterwards.

Groups that commit by themselves (`mode` "auto") have no commits on record: anything up to where a member has been may
be in force. What is beyond that nobody can have committed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.groups.events import COMMIT, COMMITTED, NONE, OK, POLL, RESET, Ownership, Share
from checkers.groups.records import Known
from checkers.groups.report import Report
from checkers.properties import COMMITTED_OFFSETS, CONSUMER_POSITIONS, GROUPS_ALLOWED
from spark_history.files import Bools, Ints
from spark_history.log import NEVER, NOWHERE

OFFSET_WENT_BACK: Final = "committed offset went back"
LOST_COMMIT: Final = "lost commit"
PHANTOM_COMMIT: Final = "phantom commit"
SKIPPED_AFTER_REBALANCE: Final = "skipped after rebalance"
BEGAN_BELOW: Final = "began below the committed offset"
STALE_ANSWER: Final = "stale committed offset"
BEGAN_ELSEWHERE: Final = "began at no committed offset"

OBSERVER: Final = -1


class Trust(NamedTuple):
    """When an answer cannot be that of a deposed coordinator: before the first fault, and from `settled` on."""

    first_fault: int
    settled: int

    def holds(self, process: int, invoke: int, complete: int) -> bool:
        return process == OBSERVER or complete < self.first_fault or invoke > self.settled


class Possible(NamedTuple):
    """What may be in force. rows: the commits that may be (row numbers); nothing: may nothing have been committed?
    newest: of the commits that were answered before, the one that was begun last; NOWHERE: there is none."""

    rows: Ints
    nothing: bool
    newest: int


class Register:
    """Of the commits of `share` that may have happened."""

    def __init__(self, share: Share) -> None:
        rows = share.rows
        commits = share.of_kind(COMMIT)
        self._share = share
        ok = commits[rows.outcome[commits] == OK]
        self.ok = ok[np.argsort(rows.complete[ok], kind="stable")]  # in the order of answers
        self._complete, self._invoke = rows.complete[self.ok], rows.invoke[self.ok]
        self._longest = int((self._complete - self._invoke).max(initial=0))
        self._newest = _running_argmax(self._invoke)
        self._highest = _running_argmax(rows.end[self.ok])
        self._unsure = commits[rows.outcome[commits] != OK]
        self.commits = commits

    def possible(self, low: int, high: int) -> Possible:
        """What somebody may be told who asks after `low` and is answered before `high`."""
        rows = self._share.rows
        answered = int(np.searchsorted(self._complete, low, "left"))
        newest = int(self._newest[answered - 1]) if answered else NOWHERE
        replaced = int(self._invoke[newest]) if answered else NOWHERE
        first = int(np.searchsorted(self._complete, replaced, "left"))
        last = int(np.searchsorted(self._complete, min(high, NEVER - self._longest) + self._longest, "right"))
        sure = self.ok[first:last]
        sure = sure[rows.invoke[sure] <= high]
        unsure = self._unsure[rows.invoke[self._unsure] <= high]
        return Possible(np.append(sure, unsure), not answered, NOWHERE if not answered else int(self.ok[newest]))

    def highest_answered(self, time: int) -> int:
        """The row of the highest that was answered before; NOWHERE: there is none."""
        answered = int(np.searchsorted(self._complete, time, "left"))
        return int(self.ok[self._highest[answered - 1]]) if answered else NOWHERE


def _running_argmax(values: Ints) -> Ints:
    if not len(values):
        return np.empty(0, np.int64)
    highest = np.maximum.accumulate(values)
    new = np.append(True, values[1:] > highest[:-1])
    return np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))


def check(share: Share, known: Known, trust: Trust, report: Report) -> None:
    """Of a group whose commits are on record."""
    register = Register(share)
    _answers(share, register, trust, report)
    for ownership in share.ownerships:
        if ownership.position != NOWHERE:
            _begin(share, register, ownership, known, report)
        _found_nothing(share, register, ownership, report)
        _went_back(share, register, ownership, report)


def _found_nothing(share: Share, register: Register, of: Ownership, report: Report) -> None:
    """Resets of a member that was told, when it began, that nothing is committed."""
    within = share.order[of.low : of.high]
    for row in within[share.rows.empty[within] & (share.rows.kind[within] == RESET)].tolist():
        possible = register.possible(of.begun, int(share.rows.complete[row]))
        if possible.nothing:
            continue
        sure = _proves_membership(share, of)
        message = (
            f"{report.name(share, row)}, since nothing was committed, though {report.name(share, possible.newest)} had "
            "been acknowledged before"
        )
        report.add(
            share,
            COMMITTED_OFFSETS if sure else GROUPS_ALLOWED,
            LOST_COMMIT if sure else STALE_ANSWER,
            message,
            [possible.newest, of.row, row],
        )


def _answers(share: Share, register: Register, trust: Trust, report: Report) -> None:
    rows = share.rows
    for row in share.of_kind(COMMITTED).tolist():
        if rows.outcome[row] != OK:
            continue
        invoke, complete, answer = int(rows.invoke[row]), int(rows.complete[row]), int(rows.end[row])
        possible = register.possible(invoke, complete)
        if (possible.nothing and answer == NOWHERE) or np.any(rows.end[possible.rows] == answer):
            continue
        asked = register.commits[rows.invoke[register.commits] <= complete]
        if answer != NOWHERE and not np.any(rows.end[asked] == answer):
            report.add(share, COMMITTED_OFFSETS, PHANTOM_COMMIT,
                       f"{report.name(share, row)}, which nobody had asked to be committed",
                       [possible.newest, row], offset=answer)  # fmt: skip
            continue
        sure = trust.holds(int(rows.process[row]), invoke, complete)
        message = (
            f"{report.name(share, row)}, though {report.name(share, possible.newest)} had been acknowledged "
            "before, and no later commit explains it"
        )
        report.add(
            share,
            COMMITTED_OFFSETS if sure else GROUPS_ALLOWED,
            LOST_COMMIT if sure else STALE_ANSWER,
            message,
            [possible.newest, row],
            offset=None if answer == NOWHERE else answer,
        )


def _begin(share: Share, register: Register, of: Ownership, known: Known, report: Report) -> None:
    rows = share.rows
    possible = register.possible(of.begun, of.known)
    offsets = rows.end[possible.rows]
    if possible.nothing or np.any(offsets == of.position):
        return  # where nothing is committed, settings say where it begins
    lowest, highest = int(offsets.min()), int(offsets.max())
    if of.position > highest:
        (first,) = known.first(np.array([highest]), np.array([of.position])).tolist()
        if first == NEVER:
            return
        missed = known.count(highest, of.position)
        best = int(possible.rows[int(np.argmax(offsets))])
        message = (
            f"member {of.process} began at {of.position} by {report.name(share, of.known_by)}, and the highest "
            f"offset that may have been committed then is {highest}, by {report.name(share, best)}: {missed:,} "
            f"records from {first} on were skipped"
        )
        report.add(
            share,
            CONSUMER_POSITIONS,
            SKIPPED_AFTER_REBALANCE,
            message,
            [best, of.row, of.known_by],
            offset=first,
            count=missed,
        )
    elif of.position < lowest and _proves_membership(share, of):
        message = (
            f"member {of.process} began at {of.position} by {report.name(share, of.known_by)}, though "
            f"{report.name(share, possible.newest)} had been acknowledged before, and no commit that may have been "
            f"in force is below {lowest}"
        )
        report.add(
            share,
            CONSUMER_POSITIONS,
            BEGAN_BELOW,
            message,
            [possible.newest, of.row, of.known_by],
            offset=of.position,
            count=lowest - of.position,
        )
    else:
        message = (
            f"member {of.process} began at {of.position} by {report.name(share, of.known_by)}, and what may have "
            f"been committed then is from {lowest} to {highest}"
        )
        report.add(
            share, GROUPS_ALLOWED, BEGAN_ELSEWHERE, message, [possible.newest, of.row, of.known_by], offset=of.position
        )


def _proves_membership(share: Share, of: Ownership) -> bool:
    """Has it committed anything in this ownership? Of a group without members some take commits of no generation."""
    own = _own_commits(share, of)
    return bool(np.any((share.rows.invoke[own] > of.begun) & (share.rows.generation[own] != NONE)))


def _own_commits(share: Share, of: Ownership) -> Ints:
    """Rows of the acknowledged commits in an ownership, in the order of their invocations."""
    rows = share.order[of.low : of.high]
    kept: Bools = (share.rows.kind[rows] == COMMIT) & (share.rows.outcome[rows] == OK)
    return rows[kept]


def _went_back(share: Share, register: Register, of: Ownership, report: Report) -> None:
    """Segment by segment: from the assignment, or a stated reset, to the next reset. In each a commit counts against
    those of whoever it was that were begun in it, and answered; in the first also the offset at which the member began,
    or, where that is not known, the lowest that may have been in force."""
    rows = share.rows
    own = _own_commits(share, of)
    if not len(own):
        return
    within = share.order[of.low : of.high]
    resets = within[rows.kind[within] == RESET]
    base = of.position
    if base == NOWHERE:
        possible = register.possible(of.begun, of.known)
        base = NOWHERE if possible.nothing else int(rows.end[possible.rows].min())
    invoke = rows.invoke[own]
    begins = [of.begun, *(np.minimum(np.maximum.accumulate(rows.complete[resets]), NEVER - 1) + 1).tolist()]
    ends = [NOWHERE, *rows.invoke[resets].tolist(), NEVER]
    for number, (begin, first, end) in enumerate(zip(begins, ends[:-1], ends[1:], strict=True)):
        mine = own[(invoke >= first) & (invoke < end)]
        if not len(mine):
            continue
        _in_segment(share, register, mine, begin, report)
        if number == 0:
            for row in mine[rows.end[mine] < base].tolist():
                higher = register.highest_answered(int(rows.invoke[row]))
                if higher != NOWHERE and rows.end[higher] > rows.end[row] and rows.invoke[higher] < of.begun:
                    _report_went_back(share, higher, row, report)


def _in_segment(share: Share, register: Register, mine: Ints, begin: int, report: Report) -> None:
    rows = share.rows
    ok, complete = register.ok, rows.complete[register.ok]
    last = int(rows.invoke[mine].max())
    slice_ = ok[np.searchsorted(complete, begin, "left") : np.searchsorted(complete, last, "left")]
    slice_ = slice_[rows.invoke[slice_] >= begin]
    if not len(slice_):
        return
    highest = _running_argmax(rows.end[slice_])
    answered = np.searchsorted(rows.complete[slice_], rows.invoke[mine], "left")
    mine, answered = mine[answered > 0], answered[answered > 0]
    higher = slice_[highest[answered - 1]]
    for at in np.flatnonzero(rows.end[higher] > rows.end[mine]).tolist():
        _report_went_back(share, int(higher[at]), int(mine[at]), report)


def _report_went_back(share: Share, higher: int, row: int, report: Report) -> None:
    message = (
        f"{report.name(share, row)} was acknowledged, and was begun after {report.name(share, higher)} had been: "
        "nothing says that it went back on purpose"
    )
    report.add(share, COMMITTED_OFFSETS, OFFSET_WENT_BACK, message, [higher, row], offset=int(share.rows.end[row]))


def check_auto(share: Share, known: Known, report: Report) -> None:
    """Of a group that commits by itself."""
    rows = share.rows
    reached = share.of_kind(POLL, RESET, COMMIT)
    reached = reached[np.argsort(rows.invoke[reached], kind="stable")]
    invoke, highest = rows.invoke[reached], np.maximum.accumulate(rows.end[reached])
    unknown = int(invoke[rows.end[reached] == NOWHERE].min(initial=NEVER))

    def bound(time: int, without: int = NOWHERE) -> int:
        """The furthest that a member may have been by then. without: a row that does not count."""
        before = int(np.searchsorted(invoke, time, "right"))
        if unknown != NEVER and time >= unknown:
            return NEVER
        at = before if without == NOWHERE else int(np.searchsorted(invoke, rows.invoke[without], "left"))
        others = reached[at:before][reached[at:before] != without]
        return max(int(highest[at - 1]) if at else NOWHERE, int(rows.end[others].max(initial=NOWHERE)))

    for row in share.of_kind(COMMITTED).tolist():
        limit = bound(int(rows.complete[row]))
        if rows.outcome[row] == OK and rows.end[row] > max(limit, 0):
            message = f"{report.name(share, row)}, and no member had been beyond {max(limit, 0)}"
            report.add(share, COMMITTED_OFFSETS, PHANTOM_COMMIT, message, [row], offset=int(rows.end[row]))
    for of in share.ownerships:
        limit = bound(of.known, of.known_by)
        if of.position == NOWHERE or limit in (NOWHERE, NEVER) or of.position <= limit:
            continue
        (first,) = known.first(np.array([limit]), np.array([of.position])).tolist()
        if first != NEVER:
            missed = known.count(limit, of.position)
            message = (
                f"member {of.process} began at {of.position} by {report.name(share, of.known_by)}, and no member "
                f"had been beyond {limit}: {missed:,} records from {first} on were skipped"
            )
            report.add(
                share,
                CONSUMER_POSITIONS,
                SKIPPED_AFTER_REBALANCE,
                message,
                [of.row, of.known_by],
                offset=first,
                count=missed,
            )
