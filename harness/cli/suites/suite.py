"""`chaos suite`: its arguments, and what it says while it runs and in the end."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harness.cli.options import ResultsOption, parse_time_limit
from harness.cli.spark import LOCAL, SparkOption, check_reachable
from harness.cli.suites.many import JobsOption, Telling, check_jobs
from harness.errors import BadArguments, ExitCode
from harness.record import results
from harness.report.terminal import print_table, say, say_json

if TYPE_CHECKING:
    from harness.suites.parts import Planned
    from harness.suites.results import Ran
    from harness.suites.suite_file import Suite


def suite(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Plans, such as suites/short.toml.")],
    jobs: JobsOption = 1,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Begin no more once one has not passed.")] = False,
    only_failed: Annotated[
        str | None,
        typer.Option(metavar="LAST", help="Only what did not pass there: a suite's directory or name, or latest."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="TIME", parser=parse_time_limit, help="Of the whole suite, e.g. 10m."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Where JUnit's XML goes; by default the suite's directory.")
    ] = None,
    artifacts: Annotated[
        Literal["all", "failed", "none"], typer.Option(help="Of which runs histories, disks and logs are kept.")
    ] = "all",
    artifacts_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of all runs together, e.g. 2GB; reports are always kept.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say what happens as JSON, a line each.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the plans and list them; run nothing.")] = False,
    results_directory: ResultsOption = results.DEFAULT,
    spark: SparkOption = LOCAL,
) -> int:
    """Run the plans of a file, and say for CI and for people which went as expected."""
    from harness.suites import suite_file
    from harness.suites.artifacts import Keep

    check_jobs(jobs)
    if time_limit is not None and not 0 < time_limit < float("inf"):
        raise BadArguments(f"--time-limit is {time_limit:g}; it must be a number of seconds above 0")
    keep = Keep(artifacts, None if artifacts_limit is None else _size(artifacts_limit))
    wanted = suite_file.read(file)

    from harness.suites import runner
    from harness.suites.suite import SuiteFiles

    runs = wanted.runs if only_failed is None else _failed(wanted, only_failed, results_directory)
    runner.check_plans(runs, results_directory)
    if dry_run:
        _list(wanted, runs, as_json)
        return ExitCode.PASS
    if not runs:
        if as_json:
            say_json({"event": "ended", "suite": wanted.name, "directory": "", "exit_code": int(ExitCode.PASS)})
        else:
            say(f"nothing of {only_failed} is left to run: all of it passed")
        return ExitCode.PASS
    check_reachable()
    directory = _create(results_directory, wanted.name)
    command = shlex.join(["chaos", *sys.argv[1:]]) if sys.argv[1:2] == ["suite"] else f"chaos suite {file}"
    files = SuiteFiles(wanted, directory, command, junit)
    wishes = runner.Wishes(jobs, fail_fast, time_limit, keep)
    ran = asyncio.run(
        runner.Runner(runs, directory, wishes, say_json if as_json else Telling(len(runs)), files.save).carry_out()
    )
    files.finish(ran)
    return _conclude(wanted, ran, directory, as_json)


def _conclude(wanted: Suite, ran: Sequence[Ran], directory: Path, as_json: bool) -> int:
    from harness.suites import summary
    from harness.suites.results import exit_code

    code = exit_code(ran)
    if step := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(step, "a") as file:
                file.write(summary.markdown(wanted.name, ran))
        except OSError as error:
            say(f"the summary cannot be written to {step}: {error.strerror}", file=sys.stderr)
    if as_json:
        say_json({"event": "ended", "suite": wanted.name, "directory": str(directory), "exit_code": int(code)})
        return code
    say("")
    print_table(summary.COLUMNS, summary.rows(ran))
    say(f"{summary.counted(ran)}; {directory / 'summary.md'}, {directory / 'junit.xml'}")
    return code


def _failed(wanted: Suite, last: str, directory: Path) -> list[Planned]:
    """Raises BadArguments."""
    from harness.suites.results import find, load

    name, ran = load(find(last, directory, wanted.name))
    if name != wanted.name:
        raise BadArguments(f"--only-failed {last} is of the suite {name!r}, and this is {wanted.name!r}")
    did_not_pass = {(each.name, each.seed) for each in ran if each.outcome != "passed"}
    return [planned for planned in wanted.runs if (planned.name, planned.seed) in did_not_pass]


def _list(wanted: Suite, runs: Sequence[Planned], as_json: bool) -> None:
    for planned in runs if as_json else ():
        say_json({"name": planned.name, "seed": planned.seed, "expect": planned.expect, "plan": dict(planned.fields)})
    if not as_json:
        rows = [(planned.name, str(planned.seed), planned.expect) for planned in runs]
        print_table(("plan", "seed", "expected"), rows)
        say(f"{len(runs)} runs of the suite {wanted.name}; none was started")


def _create(parent: Path, name: str) -> Path:
    """Raises BadArguments."""
    stem = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-suite-{re.sub(r'[^a-z0-9._-]+', '-', name.lower())}"
    for attempt in range(1, 1000):
        directory = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            directory.mkdir(parents=True)
            return directory
        except FileExistsError:
            if directory.is_dir():
                continue
            raise BadArguments(f"no suite can be saved under {parent}: it is no directory") from None
        except OSError as error:
            raise BadArguments(f"no suite can be saved under {parent}: {error.strerror or error}") from None
    raise BadArguments(f"{parent} holds a thousand suites named {stem}; give another --results")


def _size(text: str) -> int:
    from harness.suites.artifacts import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise BadArguments(f"--artifacts-limit {error}") from None
