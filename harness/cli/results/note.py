"""`chaos note`: a few words about a run, kept in its directory and shown wherever the run is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import ResultsOption
from harness.errors import ExitCode, HarnessFailure
from harness.record import results
from harness.record.catalog.groups import FILES
from harness.record.catalog.notes import read_note, write_note
from harness.report.terminal import say, say_json


def note(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run, an exploration, a suite or a matrix, by name or directory; or latest."
        ),
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What to say of it; http and https links can be followed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run and its note as JSON.")] = False,
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Keep a note with a run, such as a link to its issue; without TEXT show it, with an empty TEXT remove it."""
    directory = _find(name, results_directory)
    if text is not None:
        try:
            write_note(directory, text)
        except OSError as error:
            raise HarnessFailure(f"the note cannot be written to {directory}: {error.strerror or error}") from error
    if as_json:
        say_json({"run": str(directory), "note": read_note(directory)})
    elif text is None:
        say(read_note(directory) or f"{directory} has no note")
    else:
        say(f"{directory}: {'the note is kept' if text.strip() else 'it has no note now'}")
    return ExitCode.PASS


def _find(name: str, results_directory: Path) -> Path:
    """Raises BadArguments."""
    for directory in (results_directory / name, Path(name)):
        if name and any((directory / file).is_file() for file in FILES.values()):
            return directory
    return results.find(name, results_directory)
