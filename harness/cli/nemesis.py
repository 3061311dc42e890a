"""Options of the commands that break a cluster, and `chaos list nemeses`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from harness.errors import BadArguments
from harness.plan import registry
from harness.plan.durations import seconds
from nemesis import Nemesis, knobs

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


def rows() -> Iterator[tuple[str, str, str, str]]:
    """(name, knobs, works in, what it does) of every nemesis and variant there is."""
    for family in registry.names(registry.NEMESES):
        kind = registry.load(registry.NEMESES, family)
        yield _row(family, kind)
        for variant, special in getattr(kind, "variants", {}).items():
            yield _row(f"{family}:{variant}", special)


def _row(name: str, kind: type[Nemesis]) -> tuple[str, str, str, str]:
    reported = "; ".join(
        f"{knob.name}={knob.default if isinstance(knob.default, str) else format(knob.default, 'g')} ({_valid(knob)})"
        for knob in knobs(kind).values()
    )
    return name, reported, ", ".join(sorted(kind.runtimes)), kind.summary


def _valid(knob: Any) -> str:
    if not knob.is_number:
        return f"{', '.join(knob.valid)}: {knob.help}"
    low, high = knob.valid
    return f"{low:g} to {high:g}: {knob.help}"
