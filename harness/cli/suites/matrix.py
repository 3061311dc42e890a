"""`chaos matrix`: its arguments, and the table it ends with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import ResultsOption
from harness.cli.run import worst
from harness.cli.spark import LOCAL, SparkOption, check_reachable
from harness.errors import ExitCode, Stopped
from harness.plan.seeds import parse_seeds
from harness.record import results
from harness.report.terminal import print_table, say

_CODES = {"pass": ExitCode.PASS, "fail": ExitCode.FAIL, "unknown": ExitCode.UNKNOWN}


def matrix(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows and columns, such as docs/release-table.toml.")],
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="A run of each cell for each of these; by default the file's.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was carried out before.")] = False,
    results_directory: ResultsOption = results.DEFAULT,
    spark: SparkOption = LOCAL,
) -> int:
    """Run every row of a file under each of its columns, and put the verdicts into one table. It goes on where it was
    interrupted."""
    from harness.suites import matrix_file as cells
    from harness.suites import matrix_tables as tables
    from harness.suites.matrix import Carried

    wanted = cells.read(file, None if seeds is None else parse_seeds(seeds))
    check_reachable()
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", file.stem)
    directory = results_directory / f"matrix-{name}"
    carried = Carried(wanted, directory, f"chaos matrix {file}")
    if not again:
        carried.load()
    if known := len(wanted.cells) - len(carried.left()):
        say(f"{known} of {len(wanted.cells)} runs were carried out before; --again repeats them")
    try:
        went_through = carried.carry_out(say)
    except Stopped:
        went_through = False
    carried.save()
    print_table(*tables.terminal(wanted, tables.squares(wanted, carried.results)))
    say(f"{directory / 'matrix.html'}, {directory / 'matrix.md'}")
    if not went_through:
        say(f"stopped; chaos matrix {file}, without --again, goes on")
        return ExitCode.HARNESS_FAILURE
    verdicts = [carried.results[cell.key].verdict for cell in wanted.cells]
    return worst([_CODES.get(verdict, ExitCode.HARNESS_FAILURE) for verdict in verdicts])
