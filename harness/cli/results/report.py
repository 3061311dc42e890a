"""`chaos report`: the pages of chaos serve as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.results.alive import still_running
from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.record import results
from harness.record.catalog.groups import FILES
from harness.report.terminal import say
from harness.report.words import plural


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A results directory; or one run, exploration, suite or matrix.")
    ] = results.DEFAULT,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where to; a former site there is replaced.")
    ] = Path("site"),
) -> int:
    """Write what chaos serve shows as files, which any web server or store of artifacts can hold."""
    if not directory.is_dir():
        raise BadArguments(f"{directory} is no directory; `chaos run` makes one")
    from harness.record.catalog.index import Index
    from harness.report.browse.site import write_site

    alone = results.is_run(directory) or any((directory / file).is_file() for file in FILES.values())
    where, only = (directory.resolve().parent, directory.resolve().name) if alone else (directory, "")
    index = Index(where, still_running, only)
    try:
        index.refresh()
        count = write_site(index, out, "chaos report")
    except OSError as error:
        raise HarnessFailure(f"the pages cannot be written to {out}: {error.strerror or error}") from error
    finally:
        index.close()
    say(f"{out / 'index.html'}: {plural(count, 'entry', 'entries')}")
    return ExitCode.PASS
