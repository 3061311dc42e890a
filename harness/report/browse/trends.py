"""What became of a suite from one time to the next: how many of its plans passed, and how each of them did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.record.catalog.facts import Facts
from harness.record.catalog.groups import Member
from harness.record.catalog.index import Index


@dataclass(frozen=True)
class Result:
    """Of one plan, one of the times that its suite was run. run: None: there is none, or it is no longer there."""

    member: Member
    run: Facts | None


@dataclass(frozen=True)
class Time:
    """One of the times that a suite was run."""

    suite: Facts
    results: Sequence[Result]

    @property
    def passed(self) -> int:
        return sum(each.member.outcome == "passed" for each in self.results)

    @property
    def rate(self) -> float | None:
        """Of those that were begun, 0 to 1."""
        begun = sum(each.member.outcome != "not run" for each in self.results)
        return self.passed / begun if begun else None


@dataclass(frozen=True)
class PlanTrend:
    """One of a suite's plans over time, the oldest first."""

    name: str
    results: Sequence[tuple[Facts, Result]]  # (of the suite, of the plan)

    @property
    def passed(self) -> int:
        return sum(result.member.outcome == "passed" for _, result in self.results)

    @property
    def begun(self) -> int:
        return sum(result.member.outcome != "not run" for _, result in self.results)


def times(index: Index, suite: str) -> list[Time]:
    """The oldest first."""
    return [
        Time(
            each,
            [Result(member, index.get(member.path) if member.path else None) for member in index.members(each.path)],
        )
        for each in index.suite_runs(suite)
    ]


def plans(of: Sequence[Time]) -> list[PlanTrend]:
    """In the order of the newest suite; then those that it no longer has. A plan with several seeds has several results
    a time."""
    names = dict.fromkeys(result.member.name for time in reversed(of) for result in time.results)
    by_name: dict[str, list[tuple[Facts, Result]]] = {name: [] for name in names}
    for time in of:
        for result in time.results:
            by_name[result.member.name].append((time.suite, result))
    return [PlanTrend(name, results) for name, results in by_name.items()]
