"""Nobody owns a partition beside another, as far as the protocol keeps it.

A member owns it from when its callback of the assignment has run until it begins to revoke it, or it is lost, or it
leaves or is killed. Who was replaced may not know it yet, while it is paused or cut off; then its commits are refused
(ILLEGAL_GENERATION, FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH; KIP-345, KIP-848). So what is wrong is told by generations,
of KIP-848's groups by members' epochs, and by commits:

| anomaly | what it is |
| --- | --- |
| two owners | two members own it at a time in one generation; or, where a generation is not known, both commit |
| | meanwhile, and both are acknowledged |
| zombie commit | an acknowledged commit of a generation, begun after a later one had assigned the partition |
| overlapping ownership | weak: two members own it at a time, but not both can commit |
| assigned before revoked | weak: the same, where the older one gave it up in order, of a group that revokes a |
| | partition before it assigns it again (KIP-429, KIP-848): it may have been replaced and not known it |

A static member that comes back is given what it had, in the same generation, and the one before it is fenced
(KIP-345): there one generation is like none that is known. A commit tells its generation; where it does not, that of
its ownership counts, but only if the later owner commits after it: it may have been replaced itself, and a group
without members takes commits of no generation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from checkers.groups.events import COMMIT, NONE, OK, REVOKE, UNKNOWN, Ownership, Share
from checkers.groups.report import Report
from checkers.properties import GROUPS_ALLOWED, PARTITION_OWNERSHIP
from spark_history.files import Ints
from spark_history.log import NOWHERE

TWO_OWNERS: Final = "two owners"
ZOMBIE_COMMIT: Final = "zombie commit"
OVERLAPPING: Final = "overlapping ownership"
BEFORE_REVOKED: Final = "assigned before revoked"


def revokes_first(settings: Mapping[str, Any]) -> bool:
    """settings: of the group, from the plan."""
    return settings.get("protocol") == "consumer" or "cooperative" in str(settings.get("assignor", "")).lower()


def check(share: Share, settings: Mapping[str, Any], report: Report) -> None:
    """settings: see revokes_first()."""
    static, cooperative = bool(settings.get("static")), revokes_first(settings)
    zombies = dict(_of_older_generations(share))
    for older, newer in _overlaps(share):
        low, high = max(older.since, newer.since), min(older.until, newer.until)
        known = older.generation > UNKNOWN and newer.generation > UNKNOWN
        rows = [older.row, newer.row]
        if known and older.generation == newer.generation and not static:
            _report_two_owners(share, older, newer, rows, report)
            continue
        if known and older.generation != newer.generation:
            if older.generation > newer.generation:
                older, newer = newer, older
            for row in _unfenced(share, older, newer):
                zombies.setdefault(row, newer.row)
        else:
            commits = [_commits(share, of.process, low, high)[:1] for of in (older, newer)]
            if all(map(len, commits)):
                rows += [int(of[0]) for of in commits]
                _report_two_owners(share, older, newer, rows, report)
                continue
        weak = BEFORE_REVOKED if cooperative and older.how == REVOKE else OVERLAPPING
        message = f"members {older.process} and {newer.process} both own it at {report.at(low)}"
        report.add(share, GROUPS_ALLOWED, weak, message, rows)
    for row, assign in sorted(zombies.items()):
        message = (
            f"{report.name(share, row)} was acknowledged, and was begun after {report.name(share, assign)} of a "
            f"later generation ({share.rows.generation[assign]})"
        )
        report.add(share, PARTITION_OWNERSHIP, ZOMBIE_COMMIT, message, [assign, row], offset=int(share.rows.end[row]))


def _report_two_owners(share: Share, older: Ownership, newer: Ownership, rows: list[int], report: Report) -> None:
    in_ = f" in generation {older.generation}" if older.generation == newer.generation > UNKNOWN else ""
    both = ", and both have committed" if len(rows) > 2 else ""
    low = max(older.since, newer.since)
    report.add(
        share, PARTITION_OWNERSHIP, TWO_OWNERS,
        f"members {older.process} and {newer.process} both own it at {report.at(low)}{in_}{both}", rows,
    )  # fmt: skip


def _overlaps(share: Share) -> Iterator[tuple[Ownership, Ownership]]:
    """Two at a time of different members, the one that surely began first first."""
    active: list[Ownership] = []
    for of in sorted(share.ownerships, key=lambda each: (each.since, each.row)):
        if of.since >= of.until:
            continue
        active = [each for each in active if each.until > of.since]
        yield from ((each, of) for each in active if each.process != of.process)
        active.append(of)


def _commits(share: Share, process: int, low: int, high: int) -> Ints:
    """Acknowledged ones that were begun in between, but for those that say that they are of no generation."""
    rows = share.rows
    own = share.of_kind(COMMIT)
    own = own[(rows.process[own] == process) & (rows.outcome[own] == OK) & (rows.generation[own] != NONE)]
    between: Ints = own[(rows.invoke[own] > low) & (rows.invoke[own] < high)]
    return between


def _unfenced(share: Share, older: Ownership, newer: Ownership) -> list[int]:
    """Commits in the older ownership that do not tell their generation, and that the newer owner's last one follows."""
    rows = share.rows
    proofs = _commits(share, newer.process, newer.since, newer.until)
    last = int(rows.invoke[proofs].max(initial=NOWHERE))
    own = _commits(share, older.process, max(older.since, newer.since), min(older.until, newer.until))
    own = own[(rows.generation[own] == UNKNOWN) & (rows.complete[own] < last)]
    return [int(row) for row in own]


def _of_older_generations(share: Share) -> Iterator[tuple[int, int]]:
    """Acknowledged commits that tell their generation, and an assignment of a later one that was over before they were
    begun."""
    rows = share.rows
    assigns = np.array([of.row for of in share.ownerships if of.generation > UNKNOWN], np.int64)
    if not len(assigns):
        return
    assigns = assigns[np.argsort(rows.complete[assigns], kind="stable")]
    best: list[int] = []
    for row in assigns.tolist():
        best.append(row if not best or rows.generation[row] > rows.generation[best[-1]] else best[-1])
    latest = np.array(best, np.int64)
    commits = share.of_kind(COMMIT)
    commits = commits[(rows.outcome[commits] == OK) & (rows.generation[commits] > UNKNOWN)]
    before = np.searchsorted(rows.complete[assigns], rows.invoke[commits], "left")
    some = before > 0
    commits, latest = commits[some], latest[before[some] - 1]
    late = rows.generation[latest] > rows.generation[commits]
    yield from zip(commits[late].tolist(), latest[late].tolist(), strict=True)
