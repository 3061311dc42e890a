"""Options of the commands that break a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.errors import BadArguments
from harness.plan.durations import seconds

NemesisOption = Annotated[
    str,
    typer.Option(metavar="NAME,…", help="What to break the cluster with, see chaos list nemeses; none: nothing."),
]
IntervalOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="From a fault to the next of its nemesis, e.g. 10s; by default as it draws."),
]
RecoveryOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Calm after a fault, at least, before the next of its nemesis, e.g. 5s."),
]


def pace(interval: str | None, recovery: str | None) -> dict[str, float | None]:
    """The fields of a plan. Raises BadArguments."""
    return {"interval": _seconds("--interval", interval), "recovery": _seconds("--recovery", recovery)}


def _seconds(flag: str, text: str | None) -> float | None:
    try:
        return None if text is None else seconds(text)
    except ValueError as error:
        raise BadArguments(f"{flag}: {error}") from None
