"""comments (of Jepsen's tests of CockroachDB): blind writes of distinct values, and reads of all that there is.

Where a write had completed when another began, who sees the second must see the first too: else the first took effect
after it, and the history is not strictly serializable, though it may be serializable.

    missing  a read returned a write, and not one that had completed when that was invoked

All that must be there was complete before the latest invocation among the writes that a read returned. A value that was
written twice leaves the history undecided. What nobody wrote is no concern of this check.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from checkers.models.invariants.history import Found, History, Row, Told, few, shown


def judge(history: History) -> Found:
    history.only("read", "write")
    writes: dict[Any, Row] = {}
    found = Found()
    for row in history.of("write"):
        value = history.frozen(row, "argument")
        if value in writes:
            found.doubt = f"value {shown(value)} was written twice: only unique values make it decidable"
            return found
        writes[value] = row
    done = sorted(
        ((row["complete"], value) for value, row in writes.items() if row["outcome"] == "ok"), key=lambda each: each[0]
    )
    ends = [end for end, _ in done]
    place = {value: number for number, (_, value) in enumerate(done)}
    for row in history.ok("read"):
        seen = {value for value in history.listed(row) if value in writes}
        if not seen:
            continue
        last = max(seen, key=lambda value: writes[value]["invoke"])
        due = bisect_left(ends, writes[last]["invoke"])
        there = sum(place.get(value, due) < due for value in seen)
        if there == due:
            continue
        missing = [value for _, value in done[:due] if value not in seen]
        message = (
            f"a read returned {shown(last)}, and not {few(missing)}, which had completed before the write of "
            f"{shown(last)} began"
        )
        rows = [row, writes[last], *(writes[value] for value in missing[:_FEW])]
        found.told.append(Told("missing", message, rows, count=len(missing)))
    return found


_FEW = 3
