"""What a fuzz target is, and how it says that something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple


class Finding(AssertionError):
    """What must not be is. The message is one sentence."""


class Target(NamedTuple):
    """run: tries one input; whatever it raises is a finding. seeds: valid inputs to start from."""

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[Random], Iterable[bytes]]


def caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    """Is any of the errors that led to `error` of this kind?"""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, kind):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def only(error: BaseException) -> None:
    """An error that may be raised must not hide that memory or stack ran out."""
    for kind in (MemoryError, RecursionError):
        if caused_by(error, kind):
            raise Finding(f"{type(error).__name__} hides a {kind.__name__}") from error
