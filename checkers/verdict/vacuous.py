"""A verdict is `unknown` as nothing happened that could prove anything: of a run with faults, or without one operation
that was ok. Its reason begins so, which is how one knows it, also of a run judged long ago."""

from __future__ import annotations

from typing import Final

_BEGINS: Final = "vacuous: "


def vacuous(why: str) -> str:
    """The reason of such a verdict. why: a clause."""
    return f"{_BEGINS}{why}"


def is_vacuous(reason: str) -> bool:
    """reason: of a verdict that is `unknown`."""
    return reason.startswith(_BEGINS)
