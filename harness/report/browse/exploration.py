"""The page of an exploration: its seeds and verdicts, what failed by what broke first, and which faults took effect.

`index.html` in the exploration's directory is one file that needs nothing else. What it shows is in explore.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import quote

from harness.record.catalog.facts import REPORT, mapping, number, text, whole
from harness.record.catalog.groups import PAGES, of_group, read_group
from harness.report import words
from harness.report.browse.rendering import TEMPLATES, digest, environment, glance
from spark_history.regular import replacing

#: Seeds of a group that are listed beside the smallest.
MOST_SEEDS: Final = 60
#: Of a history that breaks in several ways: the first of these is what it is grouped by, the others mostly follow.
_WORST_FIRST: Final = (
    "lost append", "phantom", "failed but visible", "duplicate", "inconsistent offset", "torn prefix", "skipped offset",
    "real-time inversion", "stale end of log", "non-monotonic read",
)  # fmt: skip
_CRASHES: Final = {"crashed": "the harness failed", "hang": "the run did not end"}


@dataclass(frozen=True)
class Failing:
    """A seed, or an operation of it that was struck. name: what tells it from the others. directory: of its run, below
    the exploration's; "": it has none. faults: that were injected; operations: until it ended. None: not known."""

    seed: int
    name: str
    message: str
    where: str
    time_s: float | None
    faults: int | None
    operations: int | None
    directory: str
    replay: str

    @property
    def size(self) -> tuple[float, float, int]:
        known = (float("inf") if each is None else float(each) for each in (self.faults, self.operations))
        return (*known, self.seed)  # type: ignore[return-value]


@dataclass(frozen=True)
class Group:
    """Seeds that broke the same first. seeds: the smallest first. meaning: what the property says, if it is one of the
    inside of the cluster."""

    property: str
    anomaly: str
    meaning: str
    seeds: Sequence[Failing]


@dataclass(frozen=True)
class Coverage:
    """Of one fault over all seeds: in how many it was injected and took effect, and how often."""

    fault: str
    seeds: int
    seeds_effective: int
    injected: int
    effective: int
    skipped: int


@dataclass(frozen=True)
class Shown:
    """What the page says. totals: (what, how many). passed: seeds, as ranges. unknown: (reason, seeds as ranges, how
    many). checked: (property, meaning)."""

    judged: bool
    totals: Sequence[tuple[str, str]]
    passed: str
    groups: Sequence[Group]
    unknown: Sequence[tuple[str, str, int]]
    coverage: Sequence[Coverage]
    without_effect: Sequence[tuple[str, str]]
    checked: Sequence[tuple[str, str]]
    problems: Sequence[str]


def shown(found: Mapping[str, Any]) -> Shown:
    """found: explore.json; {}: the exploration has not come to its end, or the file is damaged."""
    totals, meanings = mapping(found.get("totals")), words.meanings()
    names = {"asked": "asked for", "runs": "simulated", "passed": "passed", "failed": "failed", "unknown": "unknown",
             "crashed": "the harness failed", "hang": "did not end"}  # fmt: skip
    return Shown(
        judged=bool(found),
        totals=[(said, f"{count:,}") for name, said in names.items() if (count := whole(totals.get(name))) is not None],
        passed=text(found.get("passed_seeds")),
        groups=groups_of(listed(found.get("failing"))),
        unknown=[(text(each.get("reason")), ranges(seeds), len(seeds)) for each in listed(found.get("unknown"))
                 if (seeds := _integers(each.get("seeds"))) or each.get("reason")],
        coverage=[_coverage(text(fault), mapping(counts)) for fault, counts in mapping(found.get("coverage")).items()],
        without_effect=[(text(name), text(why)) for name, why in mapping(found.get("without_effect")).items()],
        checked=[(name, meanings.get(name, "")) for name in map(text, _values(found.get("checked")))],
        problems=[text(each) for each in _values(found.get("problems"))],
    )  # fmt: skip


def smallest_seeds(found: Mapping[str, Any]) -> set[int]:
    """One of each group of failing seeds."""
    return {group.seeds[0].seed for group in groups_of(listed(found.get("failing")))}


def ranges(seeds: Sequence[int]) -> str:
    """`0..5, 7, 9..12`."""
    parts: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if parts and seed == parts[-1][1] + 1:
            parts[-1][1] = seed
        else:
            parts.append([seed, seed])
    return ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in parts)


def write_page(directory: Path) -> Path:
    """`directory`/index.html. Raises OSError."""
    return write_page_of(directory, "exploration", "exploration.html.j2", shown)


def write_page_of(directory: Path, kind: str, template: str, show: Callable[[Mapping[str, Any]], object]) -> Path:
    """The page of a group of this kind, whose part `template` shows what `show` makes of its file. Raises OSError."""
    style = (TEMPLATES / "browse.css").read_text(encoding="utf-8")
    entry = of_group(directory, directory.name, kind)
    html = environment().get_template("group_page.html.j2").render(
        entry=entry, x=show(read_group(directory, kind)), part=template, style=style, style_hash=digest(style),
        run_link=lambda path: quote(f"{path}/{REPORT}") if path and (directory / path / REPORT).is_file() else "",
        glance=glance(entry), most_seeds=MOST_SEEDS,
    )  # fmt: skip
    path = directory / PAGES[kind]
    with replacing(path) as unfinished:
        unfinished.write_text(html, encoding="utf-8")
    return path


def groups_of(failing: Iterable[Mapping[str, Any]]) -> list[Group]:
    """Those of most seeds first; what the harness could not do comes last. failing: as in explore.json; `name`: if it
    is not its seed that it is called by."""
    by: dict[tuple[bool, str, str], list[Failing]] = {}
    for each in failing:
        result = text(each.get("result"))
        property_ = text(each.get("property")) or _CRASHES.get(result, "what broke is not on record")
        seed = whole(each.get("seed"))
        directory = each.get("directory")
        by.setdefault((result in _CRASHES, property_, _worst(text(each.get("anomaly")))), []).append(
            Failing(
                seed=-1 if seed is None else seed,
                name=text(each.get("name")) or str(-1 if seed is None else seed),
                message=text(each.get("message")),
                where=text(each.get("where")),
                time_s=number(each.get("time_s")),
                faults=whole(each.get("faults")),
                operations=whole(each.get("operations")),
                # Where it was when the exploration was made is not where it is now.
                directory=f"runs/{name}" if isinstance(directory, str) and (name := PurePath(directory).name) else "",
                replay=text(each.get("replay")),
            )
        )
    ordered, meanings = sorted(by.items(), key=lambda item: (item[0][0], -len(item[1]))), words.meanings()
    return [
        Group(property_, anomaly, meanings.get(property_, ""), sorted(seeds, key=lambda each: each.size))
        for (_, property_, anomaly), seeds in ordered
    ]


def _worst(anomalies: str) -> str:
    """Of names with commas between them."""
    names = anomalies.split(", ")
    return next((name for name in _WORST_FIRST if name in names), anomalies)


def _coverage(fault: str, counts: Mapping[str, Any]) -> Coverage:
    names = ("seeds", "seeds_effective", "injected", "effective", "skipped")
    return Coverage(fault, *(whole(counts.get(name)) or 0 for name in names))


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def listed(value: Any) -> list[Mapping[str, Any]]:
    """What of a list, if it is one, are objects."""
    return [each for each in _values(value) if isinstance(each, Mapping)]


def _integers(value: Any) -> list[int]:
    return [each for each in map(whole, _values(value)) if each is not None]
