"""`chaos results prune`: removes old runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import ResultsOption
from harness.cli.results.alive import still_running
from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.record import results
from harness.report.terminal import say, say_json
from harness.report.words import plural, size

if TYPE_CHECKING:
    from harness.record.catalog.retention import Outlook

results_command = typer.Typer(help="Look after a results directory.", no_args_is_help=True, rich_markup_mode=None)


@results_command.callback()
def _about() -> None:
    """Look after a results directory."""


@results_command.command()
def prune(
    keep: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the newest stay.")],
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="Those that failed stay, too, however old.")
    ] = False,
    with_notes: Annotated[bool, typer.Option("--with-notes", help="Also those that have a note.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what goes as JSON; with --yes or --dry-run.")] = False,
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Remove old runs, explorations, suites, matrices; never one that is running or has a note, nor anything else."""
    from harness.record.catalog.index import Index
    from harness.record.catalog.retention import Wish, consider, remove

    if yes and dry_run:
        raise BadArguments("--yes removes, and --dry-run does not; give one of them")
    if as_json and not (yes or dry_run):
        raise BadArguments("--json asks nothing; give --yes to remove what is old, or --dry-run to only look")
    index = Index(results_directory, still_running)
    try:
        index.refresh()
        outlook = consider(index, Wish(keep, keep_failed, with_notes))
        if as_json:
            say_json(_as_dict(outlook, removing=yes), indent=2)
        else:
            _print(outlook, dry_run)
        if dry_run or not outlook.going:
            return ExitCode.PASS
        if not yes:
            if not sys.stdin.isatty():
                raise BadArguments("nothing was removed: give --yes to remove them, or --dry-run to only look")
            typer.confirm("Remove them?", abort=True)
        problems = list(remove(index, outlook))
        index.refresh()
    finally:
        index.close()
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise HarnessFailure(f"{problems[0]}{more}")
    return ExitCode.PASS


def _as_dict(outlook: Outlook, *, removing: bool) -> dict[str, Any]:
    going = [
        {"directory": str(each.directory), "kind": each.entry.kind, "verdict": each.entry.verdict, "bytes": each.size}
        for each in outlook.going
    ]
    return {"removing": removing, "going": going, "bytes": outlook.size, "kept": outlook.kept}


def _print(outlook: Outlook, dry_run: bool) -> None:
    for each in outlook.going:
        verdict = f"{each.entry.kind}, {each.entry.verdict}"
        say(f"{'would go' if dry_run else 'goes'}  {each.directory}  ({verdict}, {size(each.size)})")
    say(_summary(outlook, dry_run))


def _summary(outlook: Outlook, dry_run: bool) -> str:
    kept = ", ".join(f"{count:,} {why}" for why, count in outlook.kept.items())
    going = f"{plural(len(outlook.going), 'entry', 'entries')} {'would go' if dry_run else 'to go'}"
    return f"{going}, {size(outlook.size)}; kept: {kept or 'none'}"
