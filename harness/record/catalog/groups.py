"""Explorations, suites and matrices: directories that hold runs, and say in one file what became of them.

| what | its file | its runs |
| --- | --- | --- |
| an exploration | explore.json, and dataset/ | runs/s<seed>, of the seeds that failed |
| a systematic exploration (`chaos explore --every`) | systematic.json | runs/<run>, of those that failed |
| a suite | suite.json | runs/<run>, of each plan that was begun |
| a matrix | matrix.json | runs/<run> |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from harness.errors import ExitCode
from harness.record.catalog.facts import (
    NOT_JUDGED,
    Facts,
    instant,
    mapping,
    number,
    read,
    started_at,
    text,
    whole,
)  # fmt: skip
from harness.record.catalog.notes import read_note
from harness.record.results import EXPLORATION_FILE, SWEEP_FILE

SUITE_FILE: Final = "suite.json"
MATRIX_FILE: Final = "matrix.json"
RUNS: Final = "runs"
SYSTEMATIC: Final = "systematic exploration"
FILES: Final[Mapping[str, str]] = {
    "exploration": EXPLORATION_FILE, SYSTEMATIC: SWEEP_FILE, "suite": SUITE_FILE, "matrix": MATRIX_FILE,
}  # fmt: skip
#: The page of its own that a group has, if it has been written.
PAGES: Final[Mapping[str, str]] = {
    "exploration": "index.html", SYSTEMATIC: "index.html", "suite": "", "matrix": "matrix.html",
}  # fmt: skip
_WORDS: Final[Mapping[Any, str]] = {ExitCode.PASS: "pass", ExitCode.FAIL: "fail", ExitCode.UNKNOWN: "unknown"}


@dataclass(frozen=True)
class Member:
    """A plan of a suite, and what became of it. path: of its run, below the results directory; "": there is none.
    outcome: "passed", "failed", "error", "not run"."""

    name: str
    seed: int | None
    expect: str
    outcome: str
    verdict: str
    reason: str
    path: str
    took_s: float | None


def of_group(directory: Path, path: str, kind: str) -> Facts:
    """kind: a key of FILES. What its runs are doing is not looked at."""
    found, why = read(directory / FILES[kind])
    verdict, reason = _READ[kind](found)
    if why:
        verdict, reason = NOT_JUDGED, f"{FILES[kind]} is damaged: {why}"
    begun, ended = instant(found.get("started_at")), instant(found.get("finished_at"))
    plan, totals = mapping(found.get("plan")), mapping(found.get("totals"))
    wall_s = (found if kind == SYSTEMATIC else totals).get("wall_s")
    nemeses = None if kind == SYSTEMATIC else plan.get("nemesis")  # it strikes by itself
    page = PAGES[kind]
    return Facts(
        path=path,
        kind=kind,  # type: ignore[arg-type]
        verdict=verdict,
        reason=reason,
        nemeses=tuple(map(text, nemeses)) if isinstance(nemeses, list) else (),
        workload=text(plan.get("workload")),
        target=text(plan.get("target")),
        runs_on=text(plan.get("on")),
        settings={str(name): text(value) for name, value in mapping(plan.get("settings")).items()},
        started_at=started_at(found, directory),
        duration_s=ended - begun if begun is not None and ended is not None else number(wall_s),
        suite=suite_name(found) if kind == "suite" else "",
        note=read_note(directory),
        command=text(found.get("command")),
        report=page if page and (directory / page).is_file() else "",
    )


def read_group(directory: Path, kind: str) -> Mapping[str, Any]:
    """What its file says; {} if it is missing or damaged."""
    return read(directory / FILES[kind])[0]


def suite_name(suite: Mapping[str, Any]) -> str:
    return text(suite.get("suite"))


def members(suite: Mapping[str, Any], path: str) -> list[Member]:
    """Of suite.json, in its order. path: of the suite, below the results directory."""
    return [
        Member(
            name=text(each.get("name")),
            seed=whole(each.get("seed")),
            expect=text(each.get("expect")) or "pass",
            outcome=text(each.get("outcome")) or "not run",
            verdict=text(each.get("verdict")),
            reason=text(each.get("reason")),
            path=_below(path, each.get("directory")),
            took_s=number(each.get("took_s")),
        )
        for each in _listed(suite.get("runs"))
    ]


def _below(path: str, directory: Any) -> str:
    """ "" where it would lead out of the suite."""
    if not isinstance(directory, str) or not directory:
        return ""
    parts = PurePosixPath(directory).parts
    return "" if ".." in parts or directory.startswith("/") else "/".join((path, *parts))


def _listed(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else ()


def _exploration(found: Mapping[str, Any]) -> tuple[str, str]:
    if not found:
        return NOT_JUDGED, "an exploration that did not come to its end"
    totals = mapping(found.get("totals"))
    if whole(totals.get("runs")) is None:
        return NOT_JUDGED, f"an exploration whose {EXPLORATION_FILE} is damaged"
    counts = [f"{whole(totals.get(name)) or 0:,} {name}" for name in ("passed", "failed", "unknown")]
    counts += [f"{count:,} {name}" for name in ("crashed", "hang") if (count := whole(totals.get(name)))]
    return _word(found), f"{whole(totals.get('runs')) or 0:,} seeds: {', '.join(counts)}"


def _systematic(found: Mapping[str, Any]) -> tuple[str, str]:
    if not found:
        return NOT_JUDGED, "a systematic exploration that did not come to its end"
    if not found.get("every"):
        return NOT_JUDGED, f"a systematic exploration whose {SWEEP_FILE} is damaged"
    counts = ", ".join(f"{whole(count) or 0:,} {text(name)}" for name, count in mapping(found.get("results")).items())
    runs, planned = (whole(found.get(name)) or 0 for name in ("runs", "planned"))
    struck = f"--every {text(found.get('every'))} --of {text(found.get('of'))}"
    return _word(found), f"{struck}, {runs:,} of {planned:,} runs: {counts or 'none was run'}"


def _suite(found: Mapping[str, Any]) -> tuple[str, str]:
    outcomes = [each.outcome for each in members(found, "")]
    counts = ", ".join(
        f"{outcomes.count(word):,} {word}" for word in ("passed", "failed", "error", "not run") if word in outcomes
    )
    if not found.get("finished_at"):
        return NOT_JUDGED, f"a suite that has not come to its end: {counts or 'nothing was run'}"
    return _word(found), f"{len(outcomes):,} runs: {counts or 'none was run'}"


def _matrix(found: Mapping[str, Any]) -> tuple[str, str]:
    words = [
        {"passed": "pass", "failed": "fail"}.get(text(each.get("outcome")), text(each.get("verdict")))
        for each in mapping(found.get("cells")).values()
        if isinstance(each, Mapping)
    ]
    worst = next((word for word in ("fail", NOT_JUDGED, "unknown", "pass") if word in words), NOT_JUDGED)
    counts = ", ".join(
        f"{words.count(word):,} {word}" for word in ("pass", "fail", "unknown", NOT_JUDGED) if word in words
    )
    return worst, f"{len(words):,} runs: {counts or 'none yet'}"


_READ: Final[Mapping[str, Callable[[Mapping[str, Any]], tuple[str, str]]]] = {
    "exploration": _exploration, SYSTEMATIC: _systematic, "suite": _suite, "matrix": _matrix,
}  # fmt: skip


def _word(found: Mapping[str, Any]) -> str:
    code = found.get("exit_code")
    return _WORDS.get(code, NOT_JUDGED) if isinstance(code, int) else NOT_JUDGED
