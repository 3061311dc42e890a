"""`chaos prove [IDS]`: how soon explorations find the bugs that there are, and what the smallest runs of them are."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.cli.simulated.proofs import (
    check_to_be_written,
    ended_by_signals,
    not_written,
    read_json,
    same_options,
    stopped,
    when,
    write,
)
from harness.errors import ExitCode
from harness.report.terminal import say, say_json

if TYPE_CHECKING:
    from harness.explore.proofs.proving import Proven
    from harness.explore.proofs.subjects import Subject
    from harness.explore.proofs.table import Row

#: What is kept in the directory of results.
FILE: Final = "proofs.json"
_WRITER: Final = "chaos prove"


@dataclass(frozen=True)
class Asked:
    """ids: as given. budget: seconds by the wall clock that simulating for one search may take. searches: for each bug.
    most_runs: of a search. shrinking: runs. corpus: where guided ones begin."""

    ids: Sequence[str]
    budget: float
    searches: int
    most_runs: int
    shrinking: int
    guided: bool
    corpus: Path | None
    workers: int

    def options(self) -> dict[str, Any]:
        """By the options' names, those that figures depend on."""
        return {
            "--budget": self.budget, "--searches": self.searches, "--most-runs": self.most_runs,
            "--shrinking": self.shrinking, "--guided": self.guided,
            "--corpus": None if self.corpus is None else str(self.corpus),
        }  # fmt: skip

    def command(self) -> str:
        words = ["chaos prove", *self.ids, *(["--guided"] if self.guided else [])]
        words += [] if self.corpus is None else ["--corpus", str(self.corpus)]
        words += [f"--budget {self.budget:g}", f"--searches {self.searches}", f"--most-runs {self.most_runs}"]
        return " ".join([*words, f"--shrinking {self.shrinking}"])


def search_for_bugs(
    subjects: Sequence[Subject], asked: Asked, *, resume: Path | None, pin: Path | None, page: Path | None,
    results_directory: Path, as_json: bool,
) -> int:  # fmt: skip
    """The exit code. Raises BadArguments, HarnessFailure."""
    from harness.explore.proofs import table
    from harness.explore.proofs.pinned import check, save
    from harness.record import results

    check_to_be_written("--page", page)
    check_to_be_written("--pin", pin)
    if pin is not None:
        check(pin)
    done = {} if resume is None else _proven_before(resume, subjects, asked)
    directory = results.create(results_directory, ("prove",), 0)
    now = when()

    def keep(rows: Sequence[Row]) -> dict[str, Any]:
        """Whatever is known so far: this may be stopped, or take a night."""
        known = done | {row.subject.id: {**row.as_dict(), "when": now} for row in rows}
        bugs = [known[each.id] for each in subjects if each.id in known]
        told = {"directory": str(directory), "when": now, "asked": asked.options(), "bugs": bugs}
        write(directory / FILE, json.dumps(told, indent=2) + "\n")
        if pin is not None:
            save({row.subject.id: row.proven.smallest for row in rows if row.holds and row.proven is not None
                  and row.proven.smallest is not None}, pin)  # fmt: skip
        if page is not None:
            write(page, table.page(bugs, now, asked.command()))
        return told

    keep(())
    left = [each for each in subjects if each.id not in done]
    try:
        with ended_by_signals():
            rows = _rows(left, asked, directory, keep, quiet=as_json)
    except KeyboardInterrupt:
        return stopped(directory)
    told = keep(rows)
    if as_json:
        say_json(told, indent=2)
    else:
        for line in table.markdown(told["bugs"]):
            say(line)
        found, holds = (sum(each[name] for each in told["bugs"]) for name in ("found", "holds"))
        say(f"\n{found} of {len(subjects)} found, {holds} proven; {directory / FILE}")
    if any(each["smallest"] and each["smallest"]["without"] == "fail" for each in told["bugs"]):
        return ExitCode.FAIL
    return ExitCode.PASS if all(each["holds"] for each in told["bugs"]) else ExitCode.UNKNOWN


def _proven_before(directory: Path, subjects: Sequence[Subject], asked: Asked) -> dict[str, dict[str, Any]]:
    """Of these, those that were found there already by the exploration that finds them now, with their smallest runs.
    Raises BadArguments."""
    from harness.explore.proofs import table

    options = {each.id: each.options for each in subjects}
    written = read_json(directory, FILE, _WRITER)
    try:
        same_options(directory, dict(written.get("asked", {})), asked.options())
        known = {
            told["id"]: {"unwatched": sum(bool(each["found"]) for each in told["searches"]), **told}
            for told in written["bugs"]
            if told["holds"] and options.get(told["id"]) == told["options"]
        }
        table.page(list(known.values()), "", "")  # all that is read of it later
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise not_written(directory, FILE, _WRITER) from error
    return known


def _rows(
    subjects: Sequence[Subject], asked: Asked, directory: Path, keep: Callable[[Sequence[Row]], object], *, quiet: bool
) -> Sequence[Row]:  # fmt: skip
    """keep: is given those that are complete, whenever one more is."""
    from harness.explore.proofs.pool import processes
    from harness.explore.proofs.proving import prove
    from harness.explore.proofs.search import search_all
    from harness.explore.proofs.table import Row
    from harness.report.console import Progress

    wanted = {
        each.id: [each.search(number, asked.most_runs, asked.budget) for number in range(asked.searches)]
        for each in subjects
    }
    every = [search for each in wanted.values() for search in each]
    proofs: dict[str, Future[Proven]] = {}
    proven: dict[str, Proven] = {}
    for_each = max(1, asked.workers // max(1, len(subjects)))  # few bugs: shrinking one has processors to itself
    with Progress() as progress, processes(asked.workers) as pool:
        tell: Callable[[str], object] = (lambda line: None) if quiet else progress.say

        def take(id_: str) -> None:
            proven[id_] = proofs.pop(id_).result()
            smallest = proven[id_].smallest
            tell(f"{id_}: {proven[id_].problem if smallest is None else smallest.broken}")
            keep([Row(each, wanted[each.id], proven[each.id]) for each in subjects if each.id in proven])

        for search in search_all(every, asked.workers, directory / "workers"):
            of_one = wanted[search.subject]
            found = search.found
            tell(
                f"{search.subject}: {f'{found} in run {search.runs} (seed {found.seed})' if found else 'not found'}, "
                f"{search.simulated_s:,.0f} s simulated in {search.wall_s:.1f} s"
            )
            if all(each.ended for each in of_one) and (back := [each.found for each in of_one if each.found]):
                proofs[search.subject] = pool.submit(prove, back, asked.shrinking, for_each)
            for id_ in [id_ for id_, future in proofs.items() if future.done()]:
                take(id_)
        for id_ in list(proofs):
            take(id_)
    return [Row(each, wanted[each.id], proven.get(each.id)) for each in subjects]
