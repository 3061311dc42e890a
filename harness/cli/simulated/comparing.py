"""`chaos prove --compare`: guided exploring against random, as one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.cli.simulated.explore import read_options
from harness.cli.simulated.guiding import guide_of
from harness.cli.simulated.planning import planned, seeds_of
from harness.errors import ExitCode
from harness.report.terminal import say, say_json

if TYPE_CHECKING:
    from harness.explore.proofs.comparing import Compared
    from harness.explore.proofs.search import Search
    from harness.explore.proofs.subjects import Subject

FILE: Final = "comparison.json"
#: What states are counted in: many kinds of faults, and runs so small that five hundred take some minutes.
EXPLORED: Final = "--nemesis power-outage,kill,pause,partition --time-limit 20 --rate 10 --partitions 2"


def compare(
    random: Sequence[Subject], guided: Sequence[Subject], *, searches: int, most_runs: int, budget: float, states: int,
    workers: int, results_directory: Path, as_json: bool,
) -> int:  # fmt: skip
    """random, guided: the same bugs. states: after so many runs; 0: they are not counted."""
    from harness.explore.proofs import comparing
    from harness.explore.proofs.search import search_all
    from harness.record import results
    from harness.report.console import Progress

    directory = results.create(results_directory, ("compare",), 0)
    wanted = [
        {each.id: [each.search(number, most_runs, budget) for number in range(searches)] for each in of}
        for of in (random, guided)
    ]
    compared: list[Compared] = []
    every: list[Search] = [search for of in wanted for each in of.values() for search in each]
    with Progress() as progress:
        tell: Callable[[str], object] = (lambda line: None) if as_json else progress.say
        for search in search_all(every, workers, directory / "workers") if every else ():
            how = "guided" if search.source.guided else "random"
            found = f"{search.found} in run {search.runs}" if search.found else f"not found in {search.runs} runs"
            tell(f"{search.subject}, {how}, seeds from {search.source.seeds[0]}: {found}")
            _keep(directory, compared := _of_bugs(*wanted))
        if states:
            plan, plan_of = planned(read_options(EXPLORED))
            without, with_guide = (
                comparing.states_of(of(plan, plan_of, range(states)), workers, directory / name)
                for name, of in (("random", seeds_of), ("guided", guide_of))
            )
            compared += comparing.of_states(without, with_guide, states)
    told = _keep(directory, compared)
    if as_json:
        say_json(told, indent=2)
    else:
        for line in comparing.markdown(compared):
            say(line)
        say(str(directory / FILE))
    return ExitCode.PASS if all(each.holds for each in compared) else ExitCode.UNKNOWN


def _of_bugs(random: Mapping[str, Sequence[Search]], guided: Mapping[str, Sequence[Search]]) -> list[Compared]:
    """Of those whose searches have all ended."""
    from harness.explore.proofs import comparing

    pairs = [(id_, random[id_], guided[id_]) for id_ in random]
    return [comparing.of_bug(*pair) for pair in pairs if all(search.ended for of in pair[1:] for search in of)]


def _keep(directory: Path, compared: Sequence[Compared]) -> Mapping[str, Any]:
    """What is compared so far: hours of searches should not end in nothing."""
    told = {"directory": str(directory), "compared": [each.as_dict() for each in compared]}
    (directory / FILE).write_text(json.dumps(told, indent=2) + "\n")
    return told
