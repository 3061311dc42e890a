"""`chaos diff`: two runs side by side, and what of them differs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from harness.cli.options import ResultsOption
from harness.cli.results.alive import still_running
from harness.errors import ExitCode
from harness.record import results
from harness.record.catalog.facts import Facts, of_run
from harness.report.browse import comparison
from harness.report.terminal import Terminal, printable, say, say_json

_RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's name or directory, or latest.")]
#: Of a value, on a terminal.
_LONGEST = 300


def diff(
    a: _RunArgument,
    b: _RunArgument,
    everything: Annotated[bool, typer.Option("--all", help="Also what is the same of both.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Compare two runs: verdict, plan, settings, counts, availability, faults; only what differs is shown.

    The exit code is 0 whatever differs.
    """
    directories = (results.find(a, results_directory), results.find(b, results_directory))
    facts = (_facts(directories[0]), _facts(directories[1]))
    found = comparison.compare(directories, facts)
    if as_json:
        say_json(found.as_dict(), indent=2)
        return ExitCode.PASS
    say(f"A  {directories[0]}")
    say(f"B  {directories[1]}")
    if not found.differing and not everything:
        say("nothing that is on record of them differs")
        return ExitCode.PASS
    _print(list(comparison.lines(found, everything=everything)))
    return ExitCode.PASS


def _facts(directory: Path) -> Facts:
    return of_run(directory, directory.name, still_running)


def _print(lines: list[tuple[str, str, str, str]]) -> None:
    """For other programs a line each, fields set apart by tabs; the name of a section stands before each."""
    console = Terminal(soft_wrap=False)
    if not console.is_terminal:
        section = ""
        for name, first, second, change in lines:
            if not name.startswith(" "):
                section = name
            else:
                say("\t".join((section, name.strip(), _cut(first), _cut(second), change)))
        return
    table = Table("", "A", "B", "", box=None, pad_edge=False)
    for line in lines:
        table.add_row(*(printable(_cut(each)) for each in line), style="" if line[0].startswith(" ") else "bold")
    console.print(table)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
