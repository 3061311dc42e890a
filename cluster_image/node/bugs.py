"""Bugs to be switched on one at a time, which the checkers and explorations are tested with: each generation of the
protocol has a package of them, one a file (kraft/bugs, v2/bugs).

A bug replaces one safety rule, a module function that the cluster's code calls through its module. Where a rule of a
historical implementation had a companion here that would hide the bug, the bug's file says how it is dealt with.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Bug:
    id: str  # M and a number: of the catalogue of bugs; P, R, L, V: of placement, reassignments, log starts, v2
    title: str  # what the implementation does wrong
    source: str  # where it was, and what mended it; or that it is no historical one, and where the rule is from
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


class UnknownBug(ValueError):
    """The message names the bug and those there are."""


class Bugs:
    """Those of a package. A bug's module imports nothing of the cluster, which takes time, so that bugs are listed at
    once."""

    def __init__(self, package: str, path: Iterable[str]) -> None:
        self._package, self._path = package, path
        self._all: tuple[Bug, ...] | None = None
        self._replaced: dict[str, Callable[..., Any]] = {}  # rules, by the id of the bug

    def all(self) -> tuple[Bug, ...]:
        """By id."""
        if self._all is None:
            files = sorted(module.name for module in pkgutil.iter_modules(self._path))
            self._all = tuple(importlib.import_module(f"{self._package}.{name}").BUG for name in files)
        return self._all

    def find(self, id: str) -> Bug:
        """Raises UnknownBug."""
        known = {bug.id: bug for bug in self.all()}
        if id not in known:
            raise UnknownBug(f"unknown bug {id!r}; valid are {', '.join(known)}")
        return known[id]

    def original(self, bug: Bug) -> Callable[..., Any]:
        """The rule that `bug`, which is or was switched on, stands in for."""
        return self._replaced[bug.id]

    def listed(self, more: Callable[[Bug], str] = lambda _: "") -> list[tuple[str, str, str]]:
        """Of each its id, the options of `chaos explore` that reveal it, with these more, and what it is."""
        return [(bug.id, f"{bug.revealed_by} {more(bug)}".rstrip(), bug.title) for bug in self.all()]

    @contextmanager
    def switched_on(self, id: str | None) -> Iterator[None]:
        """Every node of this process has the bug meanwhile; None: nothing is changed. Raises UnknownBug."""
        if id is None:
            yield
            return
        bug = self.find(id)
        module = importlib.import_module(f"{_CLUSTER}.{bug.module}")
        self._replaced[id] = rule = getattr(module, bug.rule)
        setattr(module, bug.rule, bug.replacement)
        try:
            yield
        finally:
            setattr(module, bug.rule, rule)
