"""What `chaos prove` has found: as JSON, as Markdown, and as a page of the documentation."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.explore.proofs.proving import SOUND, Proven
from harness.explore.proofs.search import Search
from harness.explore.proofs.subjects import Subject

#: Lines of a smallest run's story in the page.
_MOST_LINES: Final = 25


@dataclass(frozen=True)
class Row:
    """Of one bug. proven: None if no search has found it, or none is there yet."""

    subject: Subject
    searches: Sequence[Search]
    proven: Proven | None

    @property
    def found(self) -> bool:
        return any(search.found for search in self.searches)

    @property
    def holds(self) -> bool:
        """It was found, its smallest run repeats, and passes without the bug."""
        smallest = None if self.proven is None else self.proven.smallest
        return smallest is not None and smallest.repeats and smallest.without in SOUND

    def as_dict(self) -> dict[str, Any]:
        proven = self.proven
        smallest = None if proven is None else proven.smallest
        return {
            "id": self.subject.id, "title": self.subject.title, "target": self.subject.target,
            "options": self.subject.options, "found": self.found, "holds": self.holds,
            "searches": [
                {
                    "runs": each.runs, "simulated_s": round(each.simulated_s, 1), "wall_s": round(each.wall_s, 1),
                    "found": None if each.found is None else {
                        "seed": each.found.seed, "property": each.found.property, "anomaly": each.found.anomaly,
                        "message": each.found.message,
                    },
                }
                for each in self.searches
            ],
            "clients_saw": {} if proven is None else dict(proven.clients_saw),
            "unwatched": 0 if proven is None else proven.unwatched,
            "problem": "" if proven is None else proven.problem,
            "smallest": None if smallest is None else {
                "broken": smallest.broken, "faults": len(smallest.schedule), "time_limit_s": smallest.plan.time_limit,
                "minimal": smallest.minimal, "shrinking_runs": smallest.runs, "trace_hash": smallest.trace_hash,
                "repeats": smallest.repeats, "without": smallest.without, "reason": smallest.reason,
                "story": list(smallest.story),
            },
        }  # fmt: skip


#: A row as as_dict() has it, which may have been read from a file.
Told = Mapping[str, Any]

COLUMNS: Final = (
    "bug", "what it does wrong", "property inside", "clients saw", "nemesis", "runs: median, worst",
    "simulated s", "wall s", "smallest", "without it",
)  # fmt: skip


def cells(row: Told) -> tuple[str, ...]:
    """In the order of COLUMNS."""
    properties = Counter(_broken(search["found"]) for search in row["searches"] if search["found"])
    inside = ", ".join(f"{name} ({n})" if len(properties) > 1 else name for name, n in properties.most_common())
    saw = ", ".join(f"{name} ({n} of {row['unwatched']})" for name, n in row["clients_saw"].items())
    return (
        row["id"], row["title"], inside or "not found", saw or ("nothing" if row["unwatched"] else ""),
        _nemesis(row["options"]), _of_runs(row["searches"]),
        f"{statistics.median(search['simulated_s'] for search in row['searches']):,.0f}",
        f"{statistics.median(search['wall_s'] for search in row['searches']):,.1f}",
        _of_smallest(row), row["smallest"]["without"] if row["smallest"] else "",
    )  # fmt: skip


def _broken(found: Mapping[str, Any]) -> str:
    return found["property"] if found["anomaly"] in ("", "violation") else f"{found['property']} ({found['anomaly']})"


def _of_runs(searches: Sequence[Mapping[str, Any]]) -> str:
    most = max(search["runs"] for search in searches)
    runs = [search["runs"] if search["found"] else float("inf") for search in searches]
    median, worst = statistics.median_low(runs), max(runs)
    return ", ".join(f"{runs:.0f}" if runs != float("inf") else f"> {most}" for runs in (median, worst))


def _of_smallest(row: Told) -> str:
    smallest = row["smallest"]
    if smallest is None:
        return str(row["problem"])
    faults = smallest["faults"]
    repeats = "" if smallest["repeats"] else ", DOES NOT REPEAT"
    return f"{faults} fault{'s' * (faults != 1)} in {smallest['time_limit_s']:g} s{repeats}"


def _nemesis(options: str) -> str:
    words = options.split()
    return words[words.index("--nemesis") + 1] if "--nemesis" in words else ""


def markdown(rows: Sequence[Told]) -> Iterator[str]:
    """Lines."""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "| " + " | ".join("---" for _ in COLUMNS) + " |"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |"


def page(rows: Sequence[Told], when: str, command: str) -> str:
    """Of the documentation. when: the day, and the commit."""
    others = sorted({row["when"] for row in rows if row.get("when", when) != when})
    when = "; ".join([when, *(f"some earlier: {each}" for each in others)])
    found, searches = sum(row["found"] for row in rows), max((len(row["searches"]) for row in rows), default=0)
    lines = [
        "# Bugs of record, and how soon exploring finds them", "",
        f"Made by `{command}` ({when}): {found} of {len(rows)} found. Each bug replaces one rule of the code "
        "([simulation](simulation.md)); each was searched for "
        f"{searches} times, in seeds of its own each time, by the explorations that `chaos list bugs` shows.",
        "",
        "*Property inside*: what stopped the run, at the step that broke it. *Clients saw*: what the history of the "
        "same run breaks if nothing stops it, or what then ends it by itself (Liveness, UnexpectedError). *Smallest*: "
        "the run that `chaos shrink` makes of it; it was repeated, and run again *without* the bug.", "",
        *markdown(rows), "", "## Their stories", "",
    ]  # fmt: skip
    for row in rows:
        smallest = row["smallest"]
        if smallest is not None:
            story = [*smallest["story"][:_MOST_LINES], *(["…"] if len(smallest["story"]) > _MOST_LINES else [])]
            lines += [f"**{row['id']}**, {row['title']}: {smallest['broken']}.", "", "```", *story, "```", ""]
    return "\n".join(lines).rstrip() + "\n"
