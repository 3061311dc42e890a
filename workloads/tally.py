"""Counts of what a workload has done, for live progress."""

from __future__ import annotations

from collections import Counter

from harness.report.console import Counts
from workloads.client.outcomes import Outcome


class Tally:
    def __init__(self) -> None:
        self._appends: Counter[Outcome] = Counter()
        self._reads = 0
        self._errors: Counter[str] = Counter()

    def appended(self, outcome: Outcome, count: int, error: str | None) -> None:
        """`count` records of one batch came to this."""
        self._appends[outcome] += count
        if error is not None:
            self._errors[error] += 1

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
