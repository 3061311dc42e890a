"""The mutants of a module: each place of its functions that an operator changes."""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from harness.errors import BadArguments
from harness.runtimes.simulation.mutants.operators import OPERATORS

#: Modules are told relative to it.
CLUSTER: Final = "cluster_image"
#: Calls that change nothing: what a node tells of itself. Nothing within them is mutated.
_TELLING: Final = frozenset({"log", "_log", "logging", "logger", "trace", "_trace", "describe", "complain"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """module: relative to cluster_image. function: `name`, or `Class.name`. number: of the operator's changes of this
    function, from 0. line: of the module's file. before, after: source text of what changes; after is empty where a
    call is dropped."""

    module: str
    function: str
    operator: str
    number: int
    line: int
    before: str
    after: str

    @property
    def id(self) -> str:
        return f"{self.module}:{self.function}:{self.operator}:{self.number}"


def source_of(module: str) -> Path:
    """The file of a module of cluster_image. Raises BadArguments: there is none."""
    name = f"{CLUSTER}.{module}"
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise BadArguments(f"there is no module {name}; a mutant is module:function:operator:number, of {CLUSTER}")
    return Path(spec.origin)


@cache
def mutants_of(module: str) -> Sequence[Mutant]:
    """In the order of the file. Raises BadArguments."""
    return [mutant for mutant, _ in places(module, ast.parse(source_of(module).read_text()))]


def find(id_: str) -> Mutant:
    """Raises BadArguments: there is none of this id, in the code as it is now."""
    module = id_.partition(":")[0]
    found = next((each for each in mutants_of(module) if each.id == id_), None)
    if found is None:
        raise BadArguments(f"there is no mutant {id_}: the code of {CLUSTER}.{module} has no such place (any more)")
    return found


def mutated(mutant: Mutant) -> ast.Module:
    """The module's tree with the change."""
    tree = ast.parse(source_of(mutant.module).read_text())
    for each, (target, replacement) in places(mutant.module, tree):
        if each == mutant:
            ast.copy_location(replacement, target)
            _Replace(target, replacement).visit(tree)
            return ast.fix_missing_locations(tree)
    raise BadArguments(f"there is no mutant {mutant.id} any more")


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self._target, self._replacement = target, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._target:
            return self._replacement
        self.generic_visit(node)
        return node


def places(module: str, tree: ast.Module) -> Iterator[tuple[Mutant, tuple[ast.AST, ast.AST]]]:
    """Each with its node of the tree, and what that becomes."""
    for name, function in functions_of(tree):
        numbers: Counter[str] = Counter()
        for node in _nodes(function):
            for operator, changes in OPERATORS.items():
                for replacement in changes(node):
                    before, after = _text(node), _text(replacement)
                    mutant = Mutant(module, name, operator, numbers[operator], node.lineno, before, after)  # type: ignore[attr-defined]
                    numbers[operator] += 1
                    yield mutant, (node, replacement)


def functions_of(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """With their qualified names, those of a module and of its classes; what is nested in a function is part of it.
    What only describes is none: no run depends on it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from functions_of(child, f"{prefix}{child.name}.")
        elif isinstance(child, _Function) and child.name not in ("__repr__", "__str__", "describe"):
            yield f"{prefix}{child.name}", child


def _nodes(function: _Function) -> Iterator[ast.AST]:
    """What is executed: no annotations, defaults or decorators, nothing for people."""
    for statement in function.body:
        yield from _within(statement)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr | ast.Assert | ast.Raise) or _tells(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and isinstance(value, ast.expr | ast.arguments):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _within(child)


def _tells(node: ast.AST) -> bool:
    """`log.info(…)`, `self._trace(…)`."""
    if isinstance(node, ast.Expr):
        return _tells(node.value)
    if not isinstance(node, ast.Call):
        return False
    names = {each.attr if isinstance(each, ast.Attribute) else each.id for each in ast.walk(node.func)
             if isinstance(each, ast.Attribute | ast.Name)}  # fmt: skip
    return bool(names & _TELLING)


def _text(node: ast.AST) -> str:
    """A statement's own line: of an `if` its condition alone."""
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    return "" if isinstance(node, ast.Pass) else ast.unparse(node)
