"""`chaos prove`: its arguments, and which of its parts they mean."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from harness.cli.options import WorkersOption, check_workers
from harness.cli.simulated.explore import named_by_user, read_options
from harness.cli.simulated.guiding import guide_of, of_corpus
from harness.cli.simulated.planning import planned, seeds_of
from harness.errors import BadArguments, ExitCode
from harness.plan.durations import seconds
from harness.report.terminal import say, say_json

if TYPE_CHECKING:
    from harness.explore.proofs.subjects import Subject

MOST_SEARCHES: Final = 100
MOST_RUNS: Final = 1000  # of a search: the next one's seeds begin there
MOST_SHRINKING: Final = 100_000
#: By the option that says what else is to be done than to search for bugs: the options that it goes by.
_GO_BY: Final[Mapping[str, Collection[str]]] = {
    "mutants": ("ids", "budget", "resume", "page", "workers", "as_json", "results_directory"),
    "compare": (
        "ids", "budget", "searches", "most_runs", "corpus", "states", "workers", "as_json", "results_directory"
    ),
    "pinned": ("ids", "workers", "as_json", "results_directory"),
}  # fmt: skip
_NAMES: Final[Mapping[str, str]] = {"as_json": "--json", "results_directory": "--results", "ids": "an ID"}


def parse_budget(text: str | float) -> float:
    """Seconds. Raises BadArguments."""
    try:
        budget = seconds(text)
    except ValueError as error:
        raise BadArguments(f"--budget: {error}") from None
    if budget <= 0:
        raise BadArguments(f"--budget is {text}; it must be above 0")
    return budget


def prove(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Of bugs; by default all of them.")] = None,
    budget: Annotated[
        float,
        typer.Option(metavar="TIME", parser=parse_budget, help="Of a search, by the wall clock; then it gives up."),
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
        bool, typer.Option("--compare", help="Alone: search for each bug both ways, and tell how many runs each takes.")
    ] = False,
    states: Annotated[
        int, typer.Option("--states", metavar="RUNS", help="With --compare: count states after so many; 0: do not.")
    ] = 500,
    mutants: Annotated[
        bool,
        typer.Option("--mutants", help="Alone: mutants of the code, not bugs: those drawn, or whose ids begin so."),
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="DIR", help="An earlier one: what is complete there is not done again."),
    ] = None,
    pinned: Annotated[
        bool, typer.Option("--pinned", help="Alone: repeat the smallest runs that are kept, with the bug and without.")
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
    _check_together(named_by_user(context))
    for name, value, least, most in (
        ("--searches", searches, 1, MOST_SEARCHES), ("--most-runs", most_runs, 1, MOST_RUNS),
        ("--shrinking", shrinking, 1, MOST_SHRINKING), ("--states", states, 0, MOST_SHRINKING),
    ):  # fmt: skip
        if not least <= value <= most:
            raise BadArguments(f"{name} is {value}; valid is {least} to {most:,}")
    workers = workers or os.cpu_count() or 1
    ids = list(ids or ())
    if not all(ids):
        raise BadArguments("an ID is empty; leave it out for all of them")
    if mutants:
        from harness.cli.simulated.mutants import measure

        return measure(
            ids, budget, workers, resume=resume, results_directory=results_directory, page=page, as_json=as_json
        )
    if corpus is not None and not (guided or compare):
        raise BadArguments("--corpus is of runs that others are made of, and needs --guided or --compare")
    if compare:
        from harness.cli.simulated import comparing

        return comparing.compare(
            *(_subjects(ids, each, corpus) for each in (False, True)), searches=searches, most_runs=most_runs,
            budget=budget, states=states, workers=workers, results_directory=results_directory, as_json=as_json,
        )  # fmt: skip
    subjects = _subjects(ids, guided, corpus)
    if pinned:
        return _repeat_pinned(ids, workers, as_json)

    from harness.cli.simulated.proving import Asked, search_for_bugs

    asked = Asked(ids, budget, searches, most_runs, shrinking, guided, corpus, workers)
    return search_for_bugs(
        subjects, asked, resume=resume, pin=pin, page=page, results_directory=results_directory, as_json=as_json
    )


def _check_together(given: Collection[str]) -> None:
    """given: names of options that the user has named. Raises BadArguments."""
    modes = [mode for mode in _GO_BY if mode in given]
    if len(modes) > 1:
        raise BadArguments(f"--{modes[0]} and --{modes[1]} do not go together: each is all that is done")
    for mode in modes:
        if others := [name for name in given if name != mode and name not in _GO_BY[mode]]:
            raise BadArguments(f"--{mode} does not go by {_named(others[0])}; leave that out")
    if not modes and "states" in given:
        raise BadArguments("--states is of --compare")


def _named(parameter: str) -> str:
    return _NAMES.get(parameter, f"--{parameter.replace('_', '-')}")


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
    if corpus is not None and not begin:
        raise BadArguments(f"--corpus {corpus} has no runs to begin with")
    found = []
    for id_ in ids or there:
        target, options, title = there[id_]
        plan, plan_of = planned({**read_options(options), "bug": id_, "target": target})
        source = partial(guide_of, begin=begin) if guided else seeds_of
        found.append(Subject(id_, title, target, options, partial(source, plan, plan_of)))
    return found


def _repeat_pinned(ids: Sequence[str], workers: int, as_json: bool) -> int:
    from harness.explore.proofs.pinned import chosen, repeat
    from harness.explore.proofs.pool import in_order, processes

    kept = chosen(ids)
    if lacking := [id_ for id_ in ids if id_ not in {each.id for each in kept}]:
        raise BadArguments(f"no smallest run of {lacking[0]} is kept")
    repeated = []
    with processes(workers) as pool:
        for each in in_order(pool, repeat, kept):
            repeated.append(each)
            if not as_json:
                said = "" if each.holds else f"  NOT AS KEPT ({each.pinned.broken}): {each.reason}"
                say(f"{each.pinned.id}  with it: {each.broke or 'nothing broken'}; without: {each.without}{said}")
    if as_json:
        told = [
            {"id": each.pinned.id, "kept": each.pinned.broken, "broke": each.broke, "without": each.without,
             "reason": each.reason, "holds": each.holds}
            for each in repeated
        ]  # fmt: skip
        say_json({"pinned": told}, indent=2)
    else:
        say(f"{sum(each.holds for each in repeated)} of {len(repeated)} as kept")
    if any(each.without == "fail" for each in repeated):
        return ExitCode.FAIL
    return ExitCode.PASS if repeated and all(each.holds for each in repeated) else ExitCode.UNKNOWN
