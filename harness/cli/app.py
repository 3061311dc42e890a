"""The command line. Every command returns an exit code of errors.ExitCode; every error is one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated

import typer

from harness.cli.commands import Commands
from harness.cli.guarded import guarded
from harness.errors import BadArguments

app = typer.Typer(name="chaos", cls=Commands, add_completion=False, rich_markup_mode=None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `chaos`. Raises SystemExit always."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    sys.exit(guarded(lambda: _carry_out(words)))


def _carry_out(words: Sequence[str]) -> int | None:
    for option in _empty(words):
        raise BadArguments(f"what follows {option} is empty; give a value, or leave it out")
    done: int | None = typer.main.get_command(app).main(list(words), prog_name="chaos", standalone_mode=False)
    return done


def _empty(words: Sequence[str]) -> Iterator[str]:
    """Options whose value is empty, as one from a variable is that nobody has set: a path would be the directory where
    chaos is called."""
    for before, word in pairwise(("", *words)):
        name, equals, value = word.partition("=")
        if not word and before.startswith("--"):
            yield before
        elif word.startswith("--") and equals and not value:
            yield name


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
