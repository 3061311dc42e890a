"""`chaos prove`: how soon explorations find the bugs that there are, and mutants of the code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from harness.cli.options import WorkersOption, check_workers, parse_time_limit
from harness.cli.simulated.explore import guide_of, of_corpus, planned, read_options
from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.report.terminal import say, say_json

if TYPE_CHECKING:
    from harness.explore.proofs.mutation import Chosen, Measured, ReachedByRun
    from harness.explore.proofs.proving import Proven
    from harness.explore.proofs.subjects import Subject
    from harness.explore.proofs.table import Row
    from harness.plan.plan import Plan
    from harness.runtimes.simulation.mutants.places import Mutant

#: What is kept in the directory of results.
PROOFS_FILE: Final = "proofs.json"
MUTANTS_FILE: Final = "mutants.json"
#: Of no more it is not asked first which runs come to them.
FEW_MUTANTS: Final = 10
#: Seconds that a run of theirs may take, of which some never end; others of this kind take a few.
MUTANT_LIMIT_S: Final = 100.0
MOST_SEARCHES: Final = 100
MOST_RUNS: Final = 1000  # of a search: the next one's seeds begin there


def prove(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Of bugs; by default all of them.")] = None,
    budget: Annotated[
        float,
        typer.Option(metavar="TIME", parser=parse_time_limit, help="Of simulating, for each search for a bug."),
    ] = 300.0,
    searches: Annotated[int, typer.Option(metavar="N", help="For each bug, in seeds of its own each time.")] = 5,
    most_runs: Annotated[int, typer.Option(metavar="N", help="Of a search; it then has not found the bug.")] = 100,
    shrinking: Annotated[int, typer.Option(metavar="RUNS", help="That making a found run small may take.")] = 300,
    guided: Annotated[
        bool, typer.Option("--guided/--random", help="How each search explores: see chaos explore.")
    ] = False,
    corpus: Annotated[
        Path | None,
        typer.Option("--corpus", metavar="DIR", help="With --guided or --compare: runs that each search begins with."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Search for each bug both ways, and tell how many runs each takes.")
    ] = False,
    states: Annotated[
        int, typer.Option("--states", metavar="RUNS", help="With --compare: count states after so many; 0: do not.")
    ] = 500,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Mutants of the code, not bugs: those drawn, or whose ids begin as given.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="DIR", help="Go on where one ended that was stopped."),
    ] = None,
    pinned: Annotated[
        bool, typer.Option("--pinned", help="Only repeat the smallest runs that are kept, with the bug and without.")
    ] = False,
    pin: Annotated[
        Path | None, typer.Option("--pin", metavar="FILE", help="Keep the smallest runs there, beside what it holds.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write a page of documentation, in Markdown.")
    ] = None,
    workers: WorkersOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
    results_directory: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Where what was found is kept.")
    ] = Path("results"),
) -> int:
    """Search for each bug of record by exploring, shrink what is found, and repeat it with the bug and without: 0 if
    all is as it should be, 1 if a run without its bug fails, 2 if a bug was not found."""
    check_workers(workers)
    for name, value, most in (("--searches", searches, MOST_SEARCHES), ("--most-runs", most_runs, MOST_RUNS)):
        if not 1 <= value <= most:
            raise BadArguments(f"{name} is {value}; valid is 1 to {most:,}")
    workers = workers or os.cpu_count() or 1
    if mutants:
        return _measure_mutants(ids or (), budget, workers, resume, results_directory, page, as_json)
    if corpus is not None and not (guided or compare):
        raise BadArguments("--corpus is of runs that others are made of, and needs --guided or --compare")
    subjects = _subjects(ids or (), guided, corpus)
    if compare:
        from harness.cli.simulated import comparing

        return comparing.compare(
            *(_subjects(ids or (), each, corpus) for each in (False, True)), searches=searches, most_runs=most_runs,
            budget=budget, states=states, workers=workers, results_directory=results_directory, as_json=as_json,
        )  # fmt: skip
    if pinned:
        return _repeat_pinned([each.id for each in subjects], workers, as_json)

    from harness.explore.proofs import table
    from harness.explore.proofs.pinned import save
    from harness.record import results

    done = {} if resume is None else _proven_before(resume, subjects)
    directory = results.create(results_directory, ("prove",), 0)
    command = _command(ids, budget, searches, most_runs, guided, corpus)

    def keep(rows: Sequence[Row]) -> dict[str, Any]:
        """Whatever is known so far: this may be stopped, or take a night."""
        known = done | {row.subject.id: row.as_dict() for row in rows}
        bugs = [known[each.id] for each in subjects if each.id in known]
        told = {"directory": str(directory), "when": _when(), "bugs": bugs}
        try:
            (directory / PROOFS_FILE).write_text(json.dumps(told, indent=2) + "\n")
            if pin is not None:
                save({row.subject.id: row.proven.smallest for row in rows if row.holds and row.proven is not None
                      and row.proven.smallest is not None}, pin)  # fmt: skip
            if page is not None:
                page.write_text(table.page(bugs, _when(), command))
        except OSError as error:
            raise HarnessFailure(f"{error.filename} cannot be written: {error.strerror}") from error
        return told

    left = [each for each in subjects if each.id not in done]
    rows = _rows(left, searches, most_runs, budget, shrinking, workers, directory, keep, quiet=as_json)
    told = keep(rows)
    if as_json:
        say_json(told, indent=2)
    else:
        for line in table.markdown(told["bugs"]):
            say(line)
        found, holds = (sum(each[name] for each in told["bugs"]) for name in ("found", "holds"))
        say(f"\n{found} of {len(subjects)} found, {holds} proven; {directory / PROOFS_FILE}")
    if any(each["smallest"] and each["smallest"]["without"] == "fail" for each in told["bugs"]):
        return ExitCode.FAIL
    return ExitCode.PASS if all(each["holds"] for each in told["bugs"]) else ExitCode.UNKNOWN


def _proven_before(directory: Path, subjects: Sequence[Subject]) -> dict[str, dict[str, Any]]:
    """Of these, those that were found there already by the exploration that finds them now, with their smallest runs.
    Raises BadArguments."""
    file = directory / PROOFS_FILE
    options = {each.id: each.options for each in subjects}
    try:
        return {
            told["id"]: {"unwatched": sum(bool(each["found"]) for each in told["searches"]), **told}
            for told in json.loads(file.read_text())["bugs"]
            if told["holds"] and options.get(told["id"]) == told["options"]
        }
    except OSError as error:
        raise BadArguments(f"--resume: {file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadArguments(f"--resume: {file} is not what chaos prove writes") from error


def _subjects(ids: Sequence[str], guided: bool, corpus: Path | None) -> Sequence[Subject]:
    """Raises BadArguments."""
    from harness.explore.proofs.subjects import Subject
    from harness.plan import registry

    there = {
        id_: (target.name, options, title) for target in registry.targets() for id_, options, title in target.bugs()
    }
    if unknown := [id_ for id_ in ids if id_ not in there]:
        raise BadArguments(f"there is no bug {unknown[0]}; there are {', '.join(there)}")
    begin = of_corpus(corpus)
    found = []
    for id_ in ids or there:
        target, options, title = there[id_]
        plan, plan_of = planned({**read_options(options), "bug": id_, "target": target}, 0)
        guide = partial(guide_of, plan, plan_of, begin=begin) if guided else None
        found.append(Subject(id_, title, target, options, partial(plan_of, plan), guide))
    return found


def _rows(
    subjects: Sequence[Subject], searches: int, most_runs: int, budget: float, shrinking: int, workers: int,
    directory: Path, keep: Callable[[Sequence[Row]], object], *, quiet: bool,
) -> Sequence[Row]:  # fmt: skip
    """keep: is given those that are complete, whenever one more is."""
    import multiprocessing

    from harness.explore.proofs.proving import prove
    from harness.explore.proofs.search import search_all
    from harness.explore.proofs.table import Row
    from harness.report.console import Progress

    wanted = {
        each.id: [each.search(number, most_runs, budget) for number in range(searches)]
        for each in subjects
    }
    every = [search for each in wanted.values() for search in each]
    proofs: dict[str, Future[Proven]] = {}
    proven: dict[str, Proven] = {}
    for_each = max(1, workers // max(1, len(subjects)))  # few bugs: shrinking one has processors to itself
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    with Progress() as progress, pool:
        tell: Callable[[str], object] = (lambda line: None) if quiet else progress.say

        def take(id_: str) -> None:
            proven[id_] = proofs.pop(id_).result()
            smallest = proven[id_].smallest
            tell(f"{id_}: {proven[id_].problem if smallest is None else smallest.broken}")
            keep([Row(each, wanted[each.id], proven[each.id]) for each in subjects if each.id in proven])

        for search in search_all(every, workers, directory / "workers"):
            of_one = wanted[search.subject]
            found = search.found
            tell(
                f"{search.subject}: {f'{found} in run {search.runs} (seed {found.seed})' if found else 'not found'}, "
                f"{search.simulated_s:,.0f} s simulated in {search.wall_s:.1f} s"
            )
            if all(each.ended for each in of_one) and (back := [each.found for each in of_one if each.found]):
                proofs[search.subject] = pool.submit(prove, back, shrinking, for_each)
            for id_ in [id_ for id_, future in proofs.items() if future.done()]:
                take(id_)
        for id_ in list(proofs):
            take(id_)
    return [Row(each, wanted[each.id], proven.get(each.id)) for each in subjects]


def _repeat_pinned(ids: Sequence[str], workers: int, as_json: bool) -> int:
    import multiprocessing

    from harness.explore.proofs.pinned import chosen, repeat

    kept = chosen(ids)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        repeated = list(pool.map(repeat, kept))
    if as_json:
        told = [
            {"id": each.pinned.id, "kept": each.pinned.broken, "broke": each.broke, "without": each.without,
             "reason": each.reason, "holds": each.holds}
            for each in repeated
        ]  # fmt: skip
        say_json({"pinned": told}, indent=2)
    else:
        for each in repeated:
            said = "" if each.holds else f"  NOT AS KEPT ({each.pinned.broken}): {each.reason}"
            say(f"{each.pinned.id}  with it: {each.broke or 'nothing broken'}; without: {each.without}{said}")
        say(f"{sum(each.holds for each in repeated)} of {len(repeated)} as kept")
    if any(each.without == "fail" for each in repeated):
        return ExitCode.FAIL
    return ExitCode.PASS if repeated and all(each.holds for each in repeated) else ExitCode.UNKNOWN


def _measure_mutants(
    ids: Sequence[str], budget: float, workers: int, resume: Path | None, results_directory: Path, page: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    from harness.explore.proofs import mutation
    from harness.explore.proofs.search import search_all
    from harness.record import results
    from harness.report.console import Progress

    chosen = mutation.sample(ids)
    if not chosen:
        raise BadArguments(f"no mutant's id begins with {ids[0]}")
    by_id = {each.mutant.id: each.mutant for each in chosen}
    done = {} if resume is None else _measured_before(resume, by_id)
    explorations: dict[str, Callable[[int], Plan]] = {}

    def plan_of(options: str, seed: int) -> Plan:
        if options not in explorations:
            plan, of_seed = planned(read_options(options), 0)
            explorations[options] = partial(of_seed, plan)
        return explorations[options](seed)

    directory = results.create(results_directory, ("mutants",), 0)
    runs = mutation.settings()["runs"]
    left = [each for each in chosen if each.mutant.id not in done]

    def keep() -> None:
        """Whatever is known so far, as this may be stopped."""
        known = [done[id_] for id_ in by_id if id_ in done]
        try:
            (directory / MUTANTS_FILE).write_text(json.dumps(_told_of(directory, known), indent=1) + "\n")
            if page is not None:
                page.write_text(mutation.page(known, _when(), len(by_id)))
        except OSError as error:
            raise HarnessFailure(f"{error.filename} cannot be written: {error.strerror}") from error

    with Progress() as progress:
        tell: Callable[[str], object] = (lambda line: None) if as_json else progress.say
        reached = _reached(left, plan_of, runs, workers) if len(left) > FEW_MUTANTS else None
        searches = [mutation.search_for(each, plan_of, runs, budget, reached) for each in left]
        nowhere = [search for search in searches if search.ended]
        somewhere = [search for search in searches if not search.ended]
        for search in chain(nowhere, search_all(somewhere, workers, directory / "workers", MUTANT_LIMIT_S)):
            mutant = by_id[search.subject]
            come = -1 if reached is None else len(search.seeds)
            done[mutant.id] = measured = mutation.Measured.by(search, mutant, runs, come)
            how = f"by {search.found} in run {measured.runs}" if search.found else f"{search.runs} runs"
            tell(f"{len(done)} of {len(chosen)}: {measured.outcome} {mutant.id}: {how}")
            keep()
    keep()
    every = [done[id_] for id_ in by_id]
    if as_json:
        say_json(_told_of(directory, every), indent=2)
    else:
        for line in mutation.summary(every):
            say(line)
        say(str(directory / MUTANTS_FILE))
    return ExitCode.PASS if all(each.outcome != "survived" for each in every) else ExitCode.UNKNOWN


def _reached(
    chosen: Sequence[Chosen], plan_of: Callable[[str, int], Plan], runs: int, workers: int
) -> ReachedByRun:
    """What the runs come to that these mutants are searched for in, by exploration and seed."""
    import multiprocessing

    from harness.explore.proofs.mutation import explored, reached_by

    mutants = [each.mutant for each in chosen]
    wanted = explored(chosen, runs)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        found = pool.map(partial(reached_by, mutants=mutants), [plan_of(*each) for each in wanted])
        return dict(zip(wanted, found, strict=True))


def _measured_before(directory: Path, mutants: Mapping[str, Mutant]) -> dict[str, Measured]:
    """Of these, those that were measured there already, and are what they were. Raises BadArguments."""
    from harness.explore.proofs.mutation import Measured

    file = directory / MUTANTS_FILE
    try:
        told = json.loads(file.read_text())["mutants"]
        known = {each["id"]: each for each in told}
        return {
            id_: Measured.read(known[id_], mutant)
            for id_, mutant in mutants.items()
            if id_ in known and (known[id_]["before"], known[id_]["after"]) == (mutant.before, mutant.after)
        }
    except OSError as error:
        raise BadArguments(f"--resume: {file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadArguments(f"--resume: {file} is not what chaos prove --mutants writes") from error


def _told_of(directory: Path, measured: Sequence[Measured]) -> dict[str, Any]:
    return {"directory": str(directory), "when": _when(), "mutants": [each.as_dict() for each in measured]}


def _command(
    ids: Sequence[str] | None, budget: float, searches: int, most_runs: int, guided: bool, corpus: Path | None
) -> str:
    words = ["chaos prove", *(ids or ()), *(["--guided"] if guided else [])]
    words += [] if corpus is None else ["--corpus", str(corpus)]
    return " ".join([*words, f"--budget {budget:g} --searches {searches} --most-runs {most_runs}"])


def _when() -> str:
    """The day, and the code by which this was measured."""
    from checkers.verdict.keeping import checkers_version
    from harness.record.results import utc_now

    return f"{str(utc_now())[:10]}, {checkers_version()['source']}"
