"""Counts of what a workload has done, for live progress."""

from __future__ import annotations

from collections import Counter
from typing import Final

from harness.report.console import Counts
from workloads.clients.kio.outcomes import Outcome

#: A longer time without an acknowledgement counts as an outage, and so many of those between two batches.
_OUTAGE_NS: Final = 1_000_000_000
_OUTAGE_TURNS: Final = 10


class Tally:
    def __init__(self) -> None:
        self._began = 0
        self._outage_from_ns = _OUTAGE_NS
        self._last: dict[int, int] = {}  # ns, by partition: its last acknowledgement, or the begin
        self._outage_ns: Counter[int] = Counter()  # by partition, until then
        self._appends: Counter[Outcome] = Counter()
        self._reads = 0
        self._errors: Counter[str] = Counter()

    def appended(self, outcome: Outcome, count: int, error: str | None) -> None:
        """`count` records of one batch came to this."""
        self._appends[outcome] += count
        if error is not None:
            self._errors[error] += 1

    def begin(self, partitions: int, now: int, turn_s: float = 0.0) -> None:
        """The first is about to be appended. now: as of every time here, monotonic ns. turn_s: seconds between two
        batches for a partition."""
        self._began = now
        self._outage_from_ns = max(_OUTAGE_NS, round(_OUTAGE_TURNS * turn_s * 1e9))
        self._last = dict.fromkeys(range(partitions), now)

    def acknowledged(self, partition: int, now: int) -> None:
        if (silent := now - self._last[partition]) > self._outage_from_ns:
            self._outage_ns[partition] += silent
        self._last[partition] = now

    def served(self, partition: int, now: int) -> tuple[float, float]:
        """(seconds since the last acknowledgement, the share of the time so far without outages)."""
        silent = now - self._last.get(partition, now)  # asked before the begin
        outage = self._outage_ns[partition] + (silent if silent > self._outage_from_ns else 0)
        return silent / 1e9, 1 - outage / max(now - self._began, 1)

    def read(self, error: str | None) -> None:
        """One read of a partition, or of where it ends."""
        self._reads += 1
        if error is not None:
            self._errors[error] += 1

    def counts(self) -> Counts:
        """`errors` are those since the last call."""
        errors, self._errors = self._errors, Counter()
        return Counts(
            operations=self._appends.total() + self._reads,
            acknowledged=self._appends["ok"],
            failed=self._appends["fail"],
            indeterminate=self._appends["info"],
            errors=dict(errors),
        )
