"""total-queue (jepsen.checker/total-queue): what goes in must come out, however often and in whatever order.

Values are counted, of the whole history; a drain is as many dequeues as it lists, and a dequeue of nil is none:

    lost        an acknowledged enqueue that nothing dequeued
    unexpected  a dequeue of what nobody tried to enqueue
    duplicated  more dequeues of a value than enqueues were tried; reported, and never a reason to fail
    recovered   a dequeue of an enqueue that was not acknowledged; likewise

Whether a value came out before it went in is no concern of this check: that is `queue`'s (checkers.models). Where a
drain crashed, it may have taken what is lost: then that is not decided.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from checkers.models.invariants.history import Found, History, Row, Told, shown

NAME: Final = "total-queue"


def judge(history: History) -> Found:
    history.only("enqueue", "dequeue", "drain")
    tried, acknowledged, taken = Counter[Any](), Counter[Any](), Counter[Any]()
    enqueues: dict[Any, list[Row]] = {}
    dequeues: dict[Any, list[Row]] = {}
    crashed = False
    for row in history.rows:
        ok = row["outcome"] == "ok"
        if row["kind"] == "enqueue":
            value = history.frozen(row, "argument")
            tried[value] += 1
            acknowledged[value] += ok
            enqueues.setdefault(value, []).append(row)
            continue
        crashed |= row["kind"] == "drain" and row["outcome"] == "info"
        if ok:
            values = history.listed(row) if row["kind"] == "drain" else [history.frozen(row, "result")]
            for value in values:
                if value is not None:
                    taken[value] += 1
                    dequeues.setdefault(value, []).append(row)
    ok_ = tried & taken
    unexpected = Counter({value: count for value, count in taken.items() if value not in tried})
    duplicated, lost, recovered = taken - tried - unexpected, acknowledged - taken, ok_ - acknowledged
    found = Found(
        counts={
            name: counted.total()
            for name, counted in (
                ("attempted", tried), ("acknowledged", acknowledged), ("taken", ok_), ("lost", lost),
                ("unexpected", unexpected), ("duplicated", duplicated), ("recovered", recovered),
            )
        }
    )  # fmt: skip
    if crashed and lost:
        found.doubt = f"{lost.total():,} acknowledged values never came out, and a drain that crashed may have them"
        lost = Counter()
    for anomaly, counted, message in (
        ("lost", lost, "was enqueued, and never came out"),
        ("unexpected", unexpected, "came out, and nobody tried to enqueue it"),
        ("duplicated", duplicated, "came out more often than it went in"),
        ("recovered", recovered, "came out, though its enqueue was not acknowledged"),
    ):
        for value, count in counted.items():
            rows = [*enqueues.get(value, ())[:_FEW], *dequeues.get(value, ())[:_FEW]]
            allowed = anomaly in ("duplicated", "recovered")
            found.told.append(Told(anomaly, f"{shown(value)} {message}", rows, allowed, count))
    return found


_FEW: Final = 3
