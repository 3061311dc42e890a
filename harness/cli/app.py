"""The command line. Every command returns an exit code of errors.ExitCode; every error is one sentence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from harness.cli.commands import Commands
from harness.cli.guarded import guarded

app = typer.Typer(name="chaos", cls=Commands, add_completion=False, rich_markup_mode=None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `chaos`. Raises SystemExit always."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    sys.exit(guarded(lambda: typer.main.get_command(app).main(words, prog_name="chaos", standalone_mode=False)))


def _tell_version(asked: bool) -> None:
    if asked:
        from checkers.verdict.keeping import checkers_version
        from cluster_image.telemetry.printable import say

        of = checkers_version()
        say(f"chaos {of['version']}, checkers {of['source']}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which this is, and end.")
    ] = False,
) -> None:
    """Breaks a replicated log on purpose, and proves from the record whether it kept its promises."""
