"""Which mutants change anything of a run, as far as the run of the code itself tells: those to whose place it comes,
with values by which the change makes a difference there."""

from __future__ import annotations

import ast
import importlib
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any, Final

from harness.runtimes.simulation.mutants.places import CLUSTER, Mutant, functions_of, places, source_of
from harness.runtimes.simulation.mutants.switch import codes_of, function_named

#: Names in each module meanwhile, of functions: that notes a line, and a mutant that made a difference.
_NOTE: Final = "__reached__"
_COMPARED: Final = "__compared__"
_DECIDED: Final = "__decided__"
_ORDERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
}  # fmt: skip
#: Comparisons that differ at one value.
_NEIGHBOURS: Final = ({ast.Lt, ast.LtE}, {ast.Gt, ast.GtE})
#: Functions that change nothing.
_TELL: Final = frozenset({
    "abs", "all", "any", "bool", "frozenset", "int", "isinstance", "len", "max", "min", "round", "set", "sorted", "sum",
    "tuple",
})  # fmt: skip


@dataclass
class Reached:
    """lines: by module, the first ones of those statements within functions that were carried out. differed: ids of
    the mutants that were asked about and whose change made a difference, of those of which that can be told."""

    lines: dict[str, set[int]] = field(default_factory=dict)
    differed: set[str] = field(default_factory=set)
    told: frozenset[str] = frozenset()  # ids of those

    def may_differ_with(self, mutant: Mutant) -> bool:
        """Can the run be another with this mutant? One that was asked about."""
        if mutant.id in self.told:
            return mutant.id in self.differed
        return statement_of(mutant) in self.lines[mutant.module]


@contextmanager
def watched(mutants: Iterable[Mutant]) -> Iterator[Reached]:
    """What comes to these, from now on. Raises BadArguments."""
    by_module: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_module[mutant.module].append(mutant)
    seen, told, before = Reached(), set[str](), []
    try:
        for module, own in by_module.items():
            seen.lines[module] = set()
            vars(importlib.import_module(f"{CLUSTER}.{module}")).update({
                _NOTE: seen.lines[module].add, _COMPARED: _compared(seen.differed), _DECIDED: _decided(seen.differed),
            })  # fmt: skip
            tree = _noting(module, own, told)
            marked: dict[str, CodeType] = {}
            for code in codes_of(compile(tree, str(source_of(module)), "exec", dont_inherit=True)):
                marked.setdefault(code.co_qualname, code)  # of a property its getter, as function_named has it
            for name, _ in functions_of(tree):
                function = function_named(module, name)
                before.append((function, function.__code__))
                function.__code__ = marked[name]
        seen.told = frozenset(told)
        yield seen
    finally:
        for function, code in reversed(before):
            function.__code__ = code
        for module in seen.lines:
            for name in (_NOTE, _COMPARED, _DECIDED):
                vars(importlib.import_module(f"{CLUSTER}.{module}")).pop(name, None)


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


def _compared(differed: set[str]) -> Callable[[str, str, str, Any, Any], Any]:
    def compared(id_: str, kind: str, other: str, left: Any, right: Any) -> Any:
        """kind, other: of the comparison that there is, and of the mutant's."""
        result = _ORDERS[kind](left, right)
        if bool(_ORDERS[other](left, right)) != bool(result):
            differed.add(id_)
        return result

    return compared


def _decided(differed: set[str]) -> Callable[[str, bool, Any], Any]:
    def decided(id_: str, by: bool, value: Any) -> Any:
        """by: what the value must be taken for to make a difference."""
        if bool(value) is by:
            differed.add(id_)
        return value

    return decided


def _noting(module: str, mutants: Iterable[Mutant], told: set[str]) -> ast.Module:
    """The module, with a note before each statement of its functions, and where these mutants make a difference. told:
    ids of those that will be noted are added."""
    tree = ast.parse(source_of(module).read_text())
    wanted = {mutant.id for mutant in mutants}
    changes: dict[ast.AST, list[tuple[Mutant, ast.AST]]] = defaultdict(list)
    for mutant, (node, replacement) in places(module, tree):
        if mutant.id in wanted:
            changes[node].append((mutant, replacement))
    _Telling(changes, told).visit(tree)
    for _, function in functions_of(tree):
        for node in list(ast.walk(function)):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    setattr(node, name, [each for statement in block for each in (_note(statement), statement)])
    return ast.fix_missing_locations(tree)


class _Telling(ast.NodeTransformer):
    """Whatever decides by other values than the mutant's says so."""

    def __init__(self, changes: Mapping[ast.AST, list[tuple[Mutant, ast.AST]]], told: set[str]) -> None:
        self._changes = changes
        self._told = told

    def visit(self, node: ast.AST) -> ast.AST:
        tellers = []
        for mutant, replacement in self._changes.get(node, ()):  # before what is within the node is another
            if (tell := _teller(mutant.id, node, replacement)) is not None:
                tellers.append(tell)
                self._told.add(mutant.id)
        self.generic_visit(node)
        for tell in tellers:
            node = tell(node)
        return node


def _teller(id_: str, node: ast.AST, replacement: ast.AST) -> Callable[[ast.AST], ast.AST] | None:
    """What makes a node of this mutant's place tell, once what is within it does. None: it makes a difference whenever
    it is come to, or nobody can tell."""
    if isinstance(node, ast.If) and isinstance(replacement, ast.If):
        assert isinstance(replacement.test, ast.Constant)
        return _of_test(id_, not replacement.test.value) if _only_tells(node.test) else None
    if isinstance(node, ast.IfExp):
        return _of_test(id_, replacement is node.orelse) if _only_tells(node.test) else None
    if isinstance(node, ast.BoolOp):
        is_one = any(value is replacement for value in node.values)
        left = [replacement] if is_one else getattr(replacement, "values", [])
        (gone,) = (place for place, value in enumerate(node.values) if not any(value is each for each in left))
        return _of_part(id_, gone, isinstance(node.op, ast.Or)) if _only_tells(node.values[gone]) else None
    if isinstance(node, ast.Compare) and isinstance(replacement, ast.Compare) and len(node.ops) == 1:
        kinds = type(node.ops[0]), type(replacement.ops[0])
        if set(kinds) in _NEIGHBOURS:
            return _of_comparison(id_, *(kind.__name__ for kind in kinds))
    return None


def _only_tells(node: ast.AST) -> bool:
    """Does nothing come of it but its value? Of rules and such functions as `len` that is known."""
    for each in ast.walk(node):
        if isinstance(each, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
        if isinstance(each, ast.Call):
            called = each.func
            of = called.value if isinstance(called, ast.Attribute) else None
            is_rule = isinstance(of, ast.Name) and "rules" in of.id
            if not is_rule and not (isinstance(called, ast.Name) and called.id in _TELL):
                return False
    return True


def _of_test(id_: str, by: bool) -> Callable[[ast.AST], ast.AST]:
    def tell(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.If | ast.IfExp)
        node.test = _call(_DECIDED, node.test, id_, by, node.test)
        return node

    return tell


def _of_part(id_: str, place: int, by: bool) -> Callable[[ast.AST], ast.AST]:
    """Of `a and b`, where a is dropped: if it was false, whatever b is then."""

    def tell(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.BoolOp)
        node.values[place] = _call(_DECIDED, node.values[place], id_, by, node.values[place])
        return node

    return tell


def _of_comparison(id_: str, kind: str, other: str) -> Callable[[ast.AST], ast.AST]:
    def tell(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Compare)
        return _call(_COMPARED, node, id_, kind, other, node.left, node.comparators[0])

    return tell


def _call(name: str, place: ast.AST, *arguments: object) -> ast.expr:
    given = [each if isinstance(each, ast.expr) else ast.Constant(each) for each in arguments]  # type: ignore[arg-type]
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), given, []), place)


def _note(statement: ast.stmt) -> ast.stmt:
    called = ast.Call(ast.Name(_NOTE, ast.Load()), [ast.Constant(statement.lineno)], [])
    return ast.copy_location(ast.Expr(called), statement)
