"""Which entries of an index are wanted: a search, and filters that must all hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

#: Longer than anything that somebody looks for.
_LONGEST: Final = 400
_MOST_WORDS: Final = 20
_SEEDS: Final = re.compile(r"\s*(\d{1,19})\s*(?:\.\.\s*(\d{1,19})\s*)?")


@dataclass(frozen=True)
class Filter:
    """Each as somebody typed it; "" does not filter.

    q: words, each of which must occur in what is known of an entry. setting: a name, or name=value. seed: one, or A..B.
    since, until: days of the calendar in UTC, both included. nemesis: one, or a family of them.
    """

    q: str = ""
    kind: str = ""
    verdict: str = ""
    nemesis: str = ""
    workload: str = ""
    target: str = ""
    setting: str = ""
    seed: str = ""
    since: str = ""
    until: str = ""
    suite: str = ""
    plan: str = ""
    parent: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Of a query; what else is in it is left alone."""
        return cls(**{each.name: given.get(each.name, "").strip()[:_LONGEST] for each in fields(cls)})

    def given(self) -> dict[str, str]:
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}

    def problems(self) -> list[str]:
        """What cannot be understood, and is not filtered by; a sentence each."""
        found = []
        if self.seed and _seeds(self.seed) is None:
            found.append(f"The seed {self.seed!r} is neither a number nor a range such as 1..20.")
        found += [
            f"The day {value!r} is none of the form 2026-01-31."
            for value in (self.since, self.until)
            if value and _day(value) is None
        ]
        return found

    def where(self) -> tuple[str, list[Any]]:
        """A condition of SQL on the table `entry`, and what its question marks stand for."""
        conditions, values = ["1"], list[Any]()

        def add(condition: str, *given: Any) -> None:
            conditions.append(condition)
            values.extend(given)

        for column in ("kind", "verdict", "workload", "target", "suite", "parent"):
            if value := getattr(self, column):
                add(f"{column} = ?", value)
        if self.plan:
            add("plan_name = ?", self.plan)
        for word in self.q.lower().split()[:_MOST_WORDS]:
            add("instr(words, ?)", word)
        if self.nemesis:
            add("path IN (SELECT path FROM nemesis WHERE name = ? OR substr(name, 1, length(?) + 1) = ? || ':')",
                *[self.nemesis] * 3)  # fmt: skip
        if self.setting:
            name, equals, value = (part.strip() for part in self.setting.partition("="))
            add("path IN (SELECT path FROM setting WHERE name = ? AND (? = '' OR value = ?))", name, equals, value)
        if seeds := _seeds(self.seed):
            add("seed BETWEEN ? AND ?", *seeds)
        if (day := _day(self.since)) is not None:
            add("started_at >= ?", day.timestamp())
        if (day := _day(self.until)) is not None:
            add("started_at < ?", (day + timedelta(days=1)).timestamp())
        return " AND ".join(conditions), values


def _seeds(given: str) -> tuple[int, int] | None:
    if not (found := _SEEDS.fullmatch(given)):
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    return (first, last) if last < 2**63 and first < 2**63 else None


def _day(given: str) -> datetime | None:
    try:
        day = datetime.strptime(given, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day if 1970 <= day.year < 9999 else None
