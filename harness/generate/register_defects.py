"""What is wrong with generated registers, on purpose: each defect is a short script of operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

#: An operation: process, kind, which value, which is expected, start, end (in units of time), outcome.
Line = tuple[int, str, int, int | None, int, int, str]


class Defect(NamedTuple):
    """anomalies: what must be found, where all writes are distinct, and with cas or repeated values. after: which value
    of the script the register holds after it; None: what it held before."""

    what: str
    anomalies: tuple[str, str]
    after: int | None
    script: tuple[Line, ...]


DEFECTS: Final[Mapping[str, Defect]] = {
    "stale-read": Defect(
        "a read returns a value that was overwritten, and seen so, before it began",
        ("stale read", "stale read"),
        1,
        (
            (0, "write", 0, None, 0, 1, "ok"),
            (1, "write", 1, None, 2, 3, "ok"),
            (0, "read", 1, None, 4, 5, "ok"),
            (1, "read", 0, None, 6, 7, "ok"),
        ),
    ),
    "lost-write": Defect(
        "an acknowledged write is never seen, and reads go on returning the value before",
        ("lost write", "stale read"),
        0,
        (
            (0, "write", 0, None, 0, 1, "ok"),
            (1, "read", 0, None, 2, 3, "ok"),
            (0, "write", 1, None, 4, 5, "ok"),
            (0, "read", 0, None, 6, 7, "ok"),
            (1, "read", 0, None, 8, 9, "ok"),
        ),
    ),
    "split-brain": Defect(
        "two pairs of reads see two writes in opposite orders",
        ("split brain", "stale read"),
        2,
        (
            (0, "write", 0, None, 0, 9, "ok"),
            (1, "write", 1, None, 1, 10, "ok"),
            (2, "read", 0, None, 2, 4, "ok"),
            (3, "read", 1, None, 3, 5, "ok"),
            (2, "read", 1, None, 6, 8, "ok"),
            (3, "read", 0, None, 6, 8, "ok"),
            (0, "write", 2, None, 11, 12, "ok"),
        ),
    ),
    "future-read": Defect(
        "a read returns a value before the write of it begins",
        ("future read", "future read"),
        0,
        ((0, "read", 0, None, 0, 1, "ok"), (1, "write", 0, None, 2, 3, "ok")),
    ),
    "phantom": Defect(
        "a read returns a value that nobody wrote",
        ("phantom", "phantom"),
        None,
        ((0, "read", 0, None, 0, 1, "ok"),),
    ),
    "failed-write-visible": Defect(
        "a read returns what only a failed write would have written",
        ("failed but visible", "failed but visible"),
        None,
        ((0, "write", 0, None, 0, 1, "fail"), (1, "read", 0, None, 2, 3, "ok")),
    ),
    "lost-update": Defect(
        "two compare-and-set from the same value succeed",
        ("lost update", "lost update"),
        2,
        (
            (0, "write", 0, None, 0, 1, "ok"),
            (1, "cas", 1, 0, 2, 3, "ok"),
            (0, "cas", 2, 0, 4, 5, "ok"),
        ),
    ),
}
#: By workload and name, what it is and the anomaly that must be found.
DEFECTS_OF: Final[Mapping[str, Mapping[str, str]]] = {
    workload: {
        name: f"{defect.what}: {defect.anomalies[workload == 'cas-register']}"
        for name, defect in DEFECTS.items()
        if workload == "cas-register" or name != "lost-update"
    }
    for workload in ("register", "cas-register")
}
