"""What dropping each row's rule is, by the row's id; a module for each document.

Returns: the function does nothing but return this expression. Text: this text of the file, which must be there once, is
replaced. Paths are below cluster_image/.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib import import_module
from typing import Final, NamedTuple, Protocol

#: Modules here.
DOCUMENTS: Final = ("d000", "d001", "d002", "d003", "d004", "description", "raft", "retention", "throttle")


class Drop(Protocol):
    @property
    def path(self) -> str: ...

    def apply(self, source: str) -> str:
        """The file's text without the rule. Raises ValueError: the file is not what the drop expects."""


class Text(NamedTuple):
    path: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.path} has this text {count} times: {self.old!r}")
        return source.replace(self.old, self.new)


class Returns(NamedTuple):
    """name: `function`, or `Class.function`. expression: may use the function's parameters."""

    path: str
    name: str
    expression: str

    def apply(self, source: str) -> str:
        function = find(ast.parse(source), self.name)
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            raise ValueError(f"{self.path} has no function {self.name}")
        lines = source.splitlines(keepends=True)
        first, last = function.body[0], function.body[-1]
        assert last.end_lineno is not None
        body = f"{' ' * first.col_offset}return {self.expression}\n"
        return "".join([*lines[: first.lineno - 1], body, *lines[last.end_lineno :]])


def find(tree: ast.Module, qualified: str) -> ast.AST | None:
    """The function, class or constant of this name: `name`, or `Class.name`."""
    found: ast.AST | None = tree
    for part in qualified.split("."):
        found = next((n for n in getattr(found, "body", ()) if part in _names_of(n)), None)
    return found


def _names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def drops() -> Mapping[str, Drop]:
    found: dict[str, Drop] = {}
    for document in DOCUMENTS:
        of_document: Mapping[str, Drop] = import_module(f"{__name__}.{document}").DROPS
        assert not found.keys() & of_document.keys()
        found |= of_document
    return found
