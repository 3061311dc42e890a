"""Distributed prefix scans: what stands before, or after, each segment of a log.

A running maximum over a log that is too long for one task takes three steps: each segment is summed up by itself (a
task each), the summaries are scanned (one small value a segment, here), and each segment is then judged with what
the scan says it starts from (a task each). Any associative `combine` will do. Logs of one segment skip the first two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def scan_before(summaries: Sequence[T], combine: Callable[[T, T], T], identity: T) -> list[T]:
    """For each segment, the combination of all before it: an exclusive prefix scan."""
    carried = []
    total = identity
    for summary in summaries:
        carried.append(total)
        total = combine(total, summary)
    return carried


def scan_after(summaries: Sequence[T], combine: Callable[[T, T], T], identity: T) -> list[T]:
    """For each segment, the combination of all after it: an exclusive suffix scan."""
    return scan_before(summaries[::-1], lambda later, earlier: combine(earlier, later), identity)[::-1]
