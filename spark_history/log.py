"""What a history is of: logs, ranges of their offsets, and what their final reads covered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from spark_history.files import Bools, Ints

NOWHERE: Final = -1  # a position, offset or value that is null
NEVER: Final = int(np.iinfo(np.int64).max)  # a completion that is null


@dataclass(frozen=True)
class Log:
    topic: str
    partition: int

    @property
    def folder(self) -> str:
        return f"topic={self.topic}/partition={self.partition}"


@dataclass(frozen=True)
class Range:
    """A segment of a log: offsets from low to below high; high None: to the end."""

    low: int = 0
    high: int | None = None

    def holds(self, positions: Ints) -> Bools:
        """Positions in this range; the first segment of a log also takes what has no position."""
        inside: Bools = positions < (NEVER if self.high is None else self.high)
        if self.low > 0:
            inside &= positions >= self.low
        return inside


WHOLE: Final = Range()


@dataclass(frozen=True)
class FinalReads:
    """What the final reads of a log, or of a segment of it, covered."""

    covered: tuple[tuple[int, int], ...] = ()  # disjoint ranges of offsets read, in order
    start: int = NEVER  # the lowest fetch offset
    end: int = NOWHERE  # the highest bound of a final read; NOWHERE: there was none
    time: int = NOWHERE  # the latest invocation of a final read that reported `end`, ns
    op: int = NOWHERE  # that read
    first: int = NEVER  # the lowest offset at which one returned a record
    last_start: int = NOWHERE  # the highest fetch offset

    @property
    def complete(self) -> bool:
        """Was every record from `start` to `end` within the range of a fetch?"""
        return self.end != NOWHERE and (self.end <= self.start or (self.start, self.end) in self.covered)

    @property
    def last(self) -> int:
        """The last offset at which a final read returned a record."""
        return self.covered[-1][1] - 1 if self.covered else NOWHERE

    def known(self, sparse: bool) -> bool:
        """As `complete`; of a log with gaps (compacted, or with markers of transactions) records may be missing
        between, but never the last one."""
        return self.complete or (sparse and self.end != NOWHERE and self.last == self.end - 1)

    def after_last_gap(self) -> FinalReads:
        """Of a log whose begin was deleted while it was read, so that reading went on further up: what was read from
        the last such place to the end."""
        if self.covered and self.covered[-1][1] == self.end:
            low = self.covered[-1][0]
            return replace(self, covered=self.covered[-1:], start=low, first=low)
        if self.last_start >= self.end:  # and there is nothing
            return replace(self, covered=(), start=self.last_start, first=NEVER)
        return self

    @staticmethod
    def of(fields: Mapping[str, Any]) -> FinalReads:
        """The inverse of dataclasses.asdict(), also after a journey as JSON."""
        return FinalReads(**{**fields, "covered": tuple((low, high) for low, high in fields["covered"])})

    @staticmethod
    def merge(parts: Sequence[FinalReads]) -> FinalReads:
        end = max((part.end for part in parts), default=NOWHERE)
        time, op = max(((part.time, part.op) for part in parts if part.end == end), default=(NOWHERE, NOWHERE))
        return FinalReads(
            covered=union([span for part in parts for span in part.covered], end),
            start=min((part.start for part in parts), default=NEVER),
            end=end,
            time=time,
            op=op,
            first=min((part.first for part in parts), default=NEVER),
            last_start=max((part.last_start for part in parts), default=NOWHERE),
        )


def union(spans: Sequence[tuple[int, int]], end: int) -> tuple[tuple[int, int], ...]:
    """Overlapping and adjacent ranges joined, cut off at `end`."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted((low, min(high, end)) for low, high in spans if low < end):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)
