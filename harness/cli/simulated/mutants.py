"""`chaos prove --mutants`: how many mutants of the code explorations find."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.cli.simulated.explore import read_options
from harness.cli.simulated.planning import planned
from harness.cli.simulated.proofs import (
    check_to_be_written,
    ended_by_signals,
    not_written,
    read_json,
    stopped,
    when,
    write,
)
from harness.errors import BadArguments, ExitCode
from harness.report.terminal import say, say_json

if TYPE_CHECKING:
    from harness.explore.proofs.mutation import Chosen, Measured, ReachedByRun
    from harness.plan.plan import Plan
    from harness.runtimes.simulation.mutants.places import Mutant

#: What is kept in the directory of results.
FILE: Final = "mutants.json"
_WRITER: Final = "chaos prove --mutants"
#: Of no more it is not asked first which runs come to them.
FEW: Final = 10
#: Such runs.
_TOLD_EVERY: Final = 20
#: Seconds that a run of theirs may take, of which some never end; others of this kind take a few.
LIMIT_S: Final = 100.0


def measure(
    ids: Sequence[str], budget: float, workers: int, *, resume: Path | None, results_directory: Path,
    page: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """ids: how those that are measured begin; none: those drawn. budget: as of proving.Asked. The exit code. Raises
    BadArguments, HarnessFailure."""
    from harness.explore.proofs import mutation
    from harness.record import results

    check_to_be_written("--page", page)
    chosen = _chosen(ids)
    by_id = {each.mutant.id: each.mutant for each in chosen}
    done = {} if resume is None else _measured_before(resume, by_id)
    directory = results.create(results_directory, ("mutants",), 0)

    def keep() -> None:
        """Whatever is known so far, as this may be stopped."""
        known = [done[id_] for id_ in by_id if id_ in done]
        write(directory / FILE, json.dumps(_told_of(directory, known), indent=1) + "\n")
        if page is not None:
            write(page, mutation.page(known, when(), len(by_id)))

    keep()
    try:
        with ended_by_signals():
            for measured in _measured(chosen, done, budget, workers, directory, quiet=as_json):
                done[measured.mutant.id] = measured
                keep()
    except KeyboardInterrupt:
        return stopped(directory)
    every = [done[id_] for id_ in by_id]
    if as_json:
        say_json(_told_of(directory, every), indent=2)
    else:
        for line in mutation.summary(every):
            say(line)
        say(str(directory / FILE))
    return ExitCode.PASS if all(each.outcome in ("killed", "equivalent") for each in every) else ExitCode.UNKNOWN


def _chosen(ids: Sequence[str]) -> Sequence[Chosen]:
    """Raises BadArguments."""
    from harness.explore.proofs import mutation

    chosen = mutation.sample(ids)
    for id_ in ids:
        if not any(each.mutant.id.startswith(id_) for each in chosen):
            raise BadArguments(f"no mutant's id begins with {id_}; one is {mutation.sample()[0].mutant.id}")
    return chosen


def _measured(
    chosen: Sequence[Chosen], done: Mapping[str, Measured], budget: float, workers: int, directory: Path, *,
    quiet: bool,
) -> Iterator[Measured]:  # fmt: skip
    """Each of those that are not done, as it is known."""
    from harness.explore.proofs import mutation
    from harness.explore.proofs.search import search_all
    from harness.report.console import Progress

    explorations: dict[str, Callable[[int], Plan]] = {}

    def plan_of(options: str, seed: int) -> Plan:
        if options not in explorations:
            plan, of_seed = planned(read_options(options))
            explorations[options] = partial(of_seed, plan)
        return explorations[options](seed)

    runs = mutation.settings()["runs"]
    by_id = {each.mutant.id: each.mutant for each in chosen}
    left = [each for each in chosen if each.mutant.id not in done]
    with Progress() as progress:
        tell: Callable[[str], object] = (lambda line: None) if quiet else progress.say
        reached = _reached(left, plan_of, runs, workers, tell) if len(left) > FEW else None
        searches = [mutation.search_for(each, plan_of, runs, budget, reached) for each in left]
        nowhere = [search for search in searches if search.ended]
        somewhere = [search for search in searches if not search.ended]
        number = len(chosen) - len(left)
        for search in chain(nowhere, search_all(somewhere, workers, directory / "workers", LIMIT_S)):
            number += 1
            come = -1 if reached is None else len(search.source.seeds)
            measured = mutation.Measured.by(search, by_id[search.subject], runs, come)
            how = f"by {search.found} in run {measured.runs}" if search.found else f"{search.runs} runs"
            tell(f"{number} of {len(chosen)}: {measured.outcome} {search.subject}: {how}")
            yield measured


def _reached(
    chosen: Sequence[Chosen], plan_of: Callable[[str, int], Plan], runs: int, workers: int,
    tell: Callable[[str], object],
) -> ReachedByRun:  # fmt: skip
    """What the runs come to that these mutants are searched for in, by exploration and seed."""
    from harness.explore.proofs.mutation import explored, reached_by
    from harness.explore.proofs.pool import in_order, processes

    mutants = [each.mutant for each in chosen]
    wanted = explored(chosen, runs)
    tell(f"first, to which of {len(mutants)} mutants {len(wanted)} runs of the code as it is come")
    reached = {}
    with processes(workers) as pool:
        found = in_order(pool, partial(reached_by, mutants=mutants), [plan_of(*each) for each in wanted])
        for each, of_run in zip(wanted, found, strict=True):
            reached[each] = of_run
            if len(reached) % _TOLD_EVERY == 0:
                tell(f"{len(reached)} of {len(wanted)} of these runs")
    return reached


def _measured_before(directory: Path, mutants: Mapping[str, Mutant]) -> dict[str, Measured]:
    """Of these, those that were measured there already, and are what they were; not those whose search was given up, or
    made in fewer runs. Raises BadArguments."""
    from harness.explore.proofs.mutation import Measured, settings

    runs = settings()["runs"]
    written = read_json(directory, FILE, _WRITER)
    try:
        known = {each["id"]: each for each in written["mutants"]}
        done = {
            id_: Measured.read(known[id_], mutant)
            for id_, mutant in mutants.items()
            if id_ in known and (known[id_]["before"], known[id_]["after"]) == (mutant.before, mutant.after)
        }
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise not_written(directory, FILE, _WRITER) from error
    return {
        id_: each for id_, each in done.items() if each.broke is not None or (each.runs >= runs and not each.given_up)
    }


def _told_of(directory: Path, measured: Sequence[Measured]) -> dict[str, Any]:
    return {"directory": str(directory), "when": when(), "mutants": [each.as_dict() for each in measured]}
