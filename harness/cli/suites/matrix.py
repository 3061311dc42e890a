"""`chaos matrix`: its arguments, and the table it ends with."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from harness.cli.options import ResultsOption
from harness.cli.spark import LOCAL, SparkOption, check_reachable
from harness.cli.suites.many import JobsOption, Telling, check_jobs
from harness.errors import BadArguments, ExitCode
from harness.plan.seeds import parse_seeds
from harness.record import results
from harness.report.terminal import print_table, say, say_json

_MOST_RUNS: Final = 1000


def matrix(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows and columns, such as docs/release-table.toml.")],
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="A run of each cell for each of these; by default the file's.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was carried out before.")] = False,
    jobs: JobsOption = 1,
    stories: Annotated[
        int,
        typer.Option(metavar="RUNS", help="Shrink what fails in simulation, by so many runs each, and tell its story."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Say what happens as JSON, a line each.")] = False,
    results_directory: ResultsOption = results.DEFAULT,
    spark: SparkOption = LOCAL,
) -> int:
    """Run every row of a file under each of its columns, and put the verdicts into one table. It goes on where it was
    interrupted."""
    from harness.suites.matrix import file as matrix_file

    check_jobs(jobs)
    if not 0 <= stories <= _MOST_RUNS:
        raise BadArguments(f"--stories is {stories}; valid is 0 to {_MOST_RUNS:,}")
    wanted = matrix_file.read(file, None if seeds is None else parse_seeds(seeds))

    from harness.suites import runner
    from harness.suites.matrix import tables
    from harness.suites.matrix.files import MatrixFiles
    from harness.suites.results import exit_code

    check_reachable()
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", file.stem)
    directory = results_directory / f"matrix-{name}"
    files = MatrixFiles(wanted, directory, f"chaos matrix {file}{f' --stories {stories}' * (stories > 0)}")
    if not again:
        files.load()
    left = files.left(with_stories=stories > 0)
    told = {planned: was for planned in left if not again and (was := files.judged(planned)) is not None}
    if (known := len(wanted.runs) - len(left) + len(told)) and not as_json:
        still = f", {len(told)} of them without their story" if told else ""
        say(f"{known} of {len(wanted.runs)} runs were carried out before{still}; --again repeats them")
    runner.check_plans(left, directory / "runs")
    files.write()  # where nothing can be written, nothing begins
    telling = say_json if as_json else Telling(len(left))
    carrying = runner.Runner(left, directory, runner.Wishes(jobs, stories=stories), telling, files.save, told)
    if left:
        asyncio.run(carrying.carry_out())
    ran = [files.results[planned.key] for planned in wanted.runs if planned.key in files.results]
    code = exit_code(ran)
    if carrying.over and code != ExitCode.FAIL:
        code = ExitCode.HARNESS_FAILURE
    if as_json:
        say_json({"event": "ended", "matrix": name, "directory": str(directory), "exit_code": int(code)})
        return code
    print_table(*tables.terminal(wanted, tables.squares(wanted, files.results)))
    say(f"{directory / 'matrix.html'}, {directory / 'matrix.md'}")
    if carrying.over:
        say(f"stopped; chaos matrix {file}{f' --stories {stories}' * (stories > 0)}, without --again, goes on")
    return code
