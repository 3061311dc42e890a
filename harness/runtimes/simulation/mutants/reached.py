"""Which places a run comes to: a mutant of any other place changes nothing of it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import CodeType
from typing import Final

from harness.runtimes.simulation.mutants.places import CLUSTER, Mutant, functions_of, source_of
from harness.runtimes.simulation.mutants.switch import codes_of, function_named

#: A name in each module meanwhile: of the function that notes a line.
_NOTE: Final = "__reached__"


@contextmanager
def watched(modules: Iterable[str]) -> Iterator[Mapping[str, set[int]]]:
    """By module, the first lines of those statements within functions that have been carried out. modules: relative to
    cluster_image. Raises BadArguments."""
    seen: dict[str, set[int]] = {}
    before = []
    try:
        for module in modules:
            seen[module] = set()
            vars(importlib.import_module(f"{CLUSTER}.{module}"))[_NOTE] = seen[module].add
            tree = _noting(module)
            marked: dict[str, CodeType] = {}
            for code in codes_of(compile(tree, str(source_of(module)), "exec", dont_inherit=True)):
                marked.setdefault(code.co_qualname, code)  # of a property its getter, as function_named has it
            for name, _ in functions_of(tree):
                function = function_named(module, name)
                before.append((function, function.__code__))
                function.__code__ = marked[name]
        yield seen
    finally:
        for function, code in reversed(before):
            function.__code__ = code
        for module in seen:
            vars(importlib.import_module(f"{CLUSTER}.{module}")).pop(_NOTE, None)


def statement_of(mutant: Mutant) -> int:
    """The first line of the statement that has it."""
    around = [
        statement
        for name, function in functions_of(_parsed(mutant.module))
        if name == mutant.function
        for statement in ast.walk(function)
        if isinstance(statement, ast.stmt) and statement is not function
        and statement.lineno <= mutant.line <= (statement.end_lineno or statement.lineno)
    ]  # fmt: skip
    return min(around, key=lambda each: (each.end_lineno or each.lineno) - each.lineno).lineno


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(source_of(module).read_text())


def _noting(module: str) -> ast.Module:
    """The module, with a note before each statement of its functions."""
    tree = ast.parse(source_of(module).read_text())
    for _, function in functions_of(tree):
        for node in list(ast.walk(function)):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    setattr(node, field, [each for statement in block for each in (_note(statement), statement)])
    return ast.fix_missing_locations(tree)


def _note(statement: ast.stmt) -> ast.stmt:
    called = ast.Call(ast.Name(_NOTE, ast.Load()), [ast.Constant(statement.lineno)], [])
    return ast.copy_location(ast.Expr(called), statement)
