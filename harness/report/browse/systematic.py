"""The page of a systematic exploration (`chaos explore --every`): what there was to strike, what became of the runs.

`index.html` in its directory is one file that needs nothing else. What it shows is in systematic.json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

from harness.record.catalog.facts import mapping, text, whole
from harness.record.catalog.groups import SYSTEMATIC
from harness.report.browse.exploration import Group, groups_of, listed, write_page_of

#: Kinds of operations of which the table has a row; the others are one together.
MOST_ROWS: Final = 60
_RESULTS: Final = {"pass": "passed", "fail": "failed", "unknown": "unknown", "crashed": "the harness failed",
                   "hang": "did not end"}  # fmt: skip


@dataclass(frozen=True)
class Struck:
    """Operations of one kind: what they do ("write"), to which files (of any node). results: runs, by how they
    ended."""

    operation: str
    file: str
    runs: int
    results: Mapping[str, int]


@dataclass(frozen=True)
class Shown:
    """What the page says. totals: (what, how many). struck: of most runs first. columns: results that occur, each with
    its name. unknown: (why, how many runs). missed: runs that did not come to their operation. left: runs that were not
    made yet."""

    judged: bool
    totals: Sequence[tuple[str, str]]
    groups: Sequence[Group]
    struck: Sequence[Struck]
    columns: Sequence[tuple[str, str]]
    unknown: Sequence[tuple[str, int]]
    missed: int
    left: int


def shown(found: Mapping[str, Any]) -> Shown:
    """found: systematic.json; {}: nothing has been run yet, or the file is damaged."""
    ran = listed(found.get("ran"))
    counted = {text(node): whole(count) or 0 for node, count in mapping(found.get("counted")).items()}
    while_ = {"load": "while a node loads its logs"}.get(text(found.get("of")), "while clients append")
    planned, runs = (whole(found.get(name)) or 0 for name in ("planned", "runs"))
    results = {name: whole(count) or 0 for name, count in mapping(found.get("results")).items()}
    totals = [(f"operations counted {while_}", sum(counted.values()))]
    totals += [(f"of {node}", number) for node, number in counted.items()]
    if again := whole(found.get("counted_again")):
        totals.append(("operations counted of the starts after first strikes", again))
    totals += [("runs planned", planned), ("runs made", runs), ("struck", whole(found.get("struck")) or 0)]
    totals += [(_RESULTS.get(name, name), count) for name, count in results.items()]
    reasons = Counter(text(each.get("reason")) for each in ran if each.get("result") == "unknown")
    return Shown(
        judged=bool(found),
        totals=[(name, f"{count:,}") for name, count in totals] if found else [],
        groups=groups_of(_failing(ran)),
        struck=_struck(ran),
        columns=[(name, said) for name, said in _RESULTS.items() if results.get(name)],
        unknown=reasons.most_common(),
        missed=sum(not each.get("struck") for each in ran),
        left=max(planned - runs, 0),
    )


def write_page(directory: Path) -> Path:
    """`directory`/index.html. Raises OSError."""
    return write_page_of(directory, SYSTEMATIC, "systematic.html.j2", shown)


def _failing(ran: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for each in ran:
        if failure := mapping(each.get("failure")):
            again = f" and {each['again']}" if each.get("again") else ""
            yield {**failure, "name": f"{text(each.get('operation'))} of {text(each.get('node'))}{again}"}


def _struck(ran: Sequence[Mapping[str, Any]]) -> list[Struck]:
    by: dict[tuple[str, str], Counter[str]] = {}
    for each in ran:
        if struck := mapping(each.get("struck")):
            kind = text(struck.get("operation")), _file(text(struck.get("path")))
            by.setdefault(kind, Counter())[text(each.get("result"))] += 1
    rows = sorted(
        (Struck(*kind, results.total(), results) for kind, results in by.items()),
        key=lambda row: (-row.runs, row.operation, row.file),
    )
    if len(rows) > MOST_ROWS:
        others = sum((Counter(row.results) for row in rows[MOST_ROWS:]), Counter())
        rows[MOST_ROWS:] = [Struck(f"{len(rows) - MOST_ROWS:,} more", "", others.total(), others)]
    return rows


def _file(path: str) -> str:
    """Of whichever segment: `chaos-0/*.log`."""
    name = PurePath(path).name
    stem, dot, ending = name.partition(".")
    return str(PurePath(path).with_name(f"*.{ending}")) if dot and stem.isdigit() else path
