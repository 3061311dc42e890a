"""`chaos target`: what targets need from elsewhere, beforehand."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from harness.errors import ExitCode
from harness.report.terminal import say

target = typer.Typer(add_completion=False, rich_markup_mode=None, help="Get what a target needs, beforehand.")


@target.callback()
def about() -> None:
    """Get what a target needs, beforehand."""


@target.command()
def fetch(
    name: Annotated[str, typer.Argument(metavar="TARGET", help="e.g. kafka:4.2.0; see chaos list targets.")],
) -> int:
    """Fetch what a run of this target would fetch, so that none needs a network."""
    from harness.plan import registry
    from harness.report.console import Progress

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was fetched in part is removed
    tested = registry.make_target(name)
    with Progress() as progress:
        said = tested.fetch(progress.update)
    say(said)
    return ExitCode.PASS
