"""Which pieces each host needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.targets.target import Package

from . import pieces
from .install import Found
from .pieces import Piece


class Wanted:
    """Pieces that hosts need: python, by the version of a host's Python and its machine, where nodes need any."""

    def __init__(self, agent: Piece, package: Piece | None, python: Mapping[tuple[str, str], Piece]) -> None:
        self.agent = agent
        self.package = package
        self._python = python

    def python_of(self, found: Found) -> Piece | None:
        return self._python.get((found.python, found.machine))

    def of(self, found: Found) -> list[Piece]:
        python = self.python_of(found)
        return [self.agent, *([self.package] if self.package else []), *([python] if python else [])]


def wanted_pieces(package: Package | None, found: Sequence[Found]) -> Wanted:
    """package: None: the agent alone. Blocks. Raises RuntimeUnavailable."""
    if package is None:
        return Wanted(pieces.agent(), None, {})
    kinds = {(each.python, each.machine) for each in found} if package.needs_python else set()
    python = {kind: pieces.python_packages(*kind) for kind in sorted(kinds)}
    return Wanted(pieces.agent(), pieces.package(package), python)
