"""Historical replication bugs, one a file, to be switched on one at a time: what the checkers are tested with.

A bug replaces one safety rule, a module function that the cluster's code calls through its module. Where a rule of a
historical implementation had a companion here that would hide the bug, the bug's file says how it is dealt with.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final


@dataclass(frozen=True)
class Bug:
    id: str  # of the catalogue of bugs, e.g. M01
    title: str  # what the implementation does wrong
    source: str  # where it was, and what mended it
    nemesis: str  # what is expected to reveal it, as `chaos run --nemesis` takes it
    properties: tuple[str, ...]  # that it is expected to break, the likeliest first
    module: str  # of the rule, relative to cluster_image
    rule: str  # name of the function
    replacement: Callable[..., Any]  # with the rule's signature
    options: str = ""  # of `chaos explore`, besides: what makes the moment last in which it matters

    @property
    def revealed_by(self) -> str:
        """Options of `chaos explore`."""
        return f"--nemesis {self.nemesis} {self.options}".rstrip()


#: The package that rules' modules are told relative to.
_CLUSTER: Final = __name__.partition(".")[0]
#: Rules that were replaced, by the id of the bug.
_REPLACED: Final[dict[str, Callable[..., Any]]] = {}


def original(bug: Bug) -> Callable[..., Any]:
    """The rule that `bug`, which is or was switched on, stands in for. (A bug's module imports nothing of the cluster,
    which takes time, so that bugs are listed at once.)"""
    return _REPLACED[bug.id]


class UnknownBug(ValueError):
    """The message names the bug and those there are."""


@cache
def all_bugs() -> tuple[Bug, ...]:
    """By id."""
    files = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").BUG for name in files)


def find(id: str) -> Bug:
    """Raises UnknownBug."""
    known = {bug.id: bug for bug in all_bugs()}
    if id not in known:
        raise UnknownBug(f"unknown bug {id!r}; valid are {', '.join(known)}")
    return known[id]


@contextmanager
def switched_on(id: str | None) -> Iterator[None]:
    """Every node of this process has the bug meanwhile; None: nothing is changed. Raises UnknownBug."""
    if id is None:
        yield
        return
    bug = find(id)
    module = importlib.import_module(f"{_CLUSTER}.{bug.module}")
    _REPLACED[id] = rule = getattr(module, bug.rule)
    setattr(module, bug.rule, bug.replacement)
    try:
        yield
    finally:
        setattr(module, bug.rule, rule)
