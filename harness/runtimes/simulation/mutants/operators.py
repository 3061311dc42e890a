"""The changes that mutants are made by, each of one node of a function's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Final

#: Of each comparison its neighbour, which differs at one value, and its opposite.
_COMPARISONS: Final[Mapping[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip

#: Whose arguments make no difference, or cannot be exchanged at all.
_SAME_EITHER_WAY: Final = frozenset({"min", "max", "isinstance"})


def comparison(node: ast.AST) -> Iterator[ast.AST]:
    """`a < b` becomes `a <= b`, and `a >= b`."""
    if not isinstance(node, ast.Compare):
        return
    for place, operator in enumerate(node.ops):
        for other in _COMPARISONS[type(operator)]:
            ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
            yield ast.Compare(left=node.left, ops=ops, comparators=node.comparators)


def constant(node: ast.AST) -> Iterator[ast.AST]:
    """`1` becomes `2`, `True` becomes `False`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(value=node.value + 1)


def condition(node: ast.AST) -> Iterator[ast.AST]:
    """`a and b` becomes `b`, and `a`; what an `if` decides is taken for true, and for false."""
    if isinstance(node, ast.BoolOp):
        for place in range(len(node.values)):
            left = [*node.values[:place], *node.values[place + 1 :]]
            yield left[0] if len(left) == 1 else ast.BoolOp(op=node.op, values=left)
    elif isinstance(node, ast.If):
        for value in (True, False):
            yield ast.If(test=ast.Constant(value=value), body=node.body, orelse=node.orelse)
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse


def call(node: ast.AST) -> Iterator[ast.AST]:
    """A statement that is a call is dropped."""
    called = _awaited(node.value) if isinstance(node, ast.Expr) else None
    if isinstance(called, ast.Call) and "super()" not in ast.unparse(called):  # it has __class__, which code must keep
        yield ast.Pass()


def argument(node: ast.AST) -> Iterator[ast.AST]:
    """Two neighbouring positional arguments of a call change places."""
    if not isinstance(node, ast.Call) or any(isinstance(each, ast.Starred) for each in node.args):
        return
    if isinstance(node.func, ast.Name) and node.func.id in _SAME_EITHER_WAY:
        return
    for place in range(len(node.args) - 1):
        one, other = node.args[place : place + 2]
        if ast.dump(one) != ast.dump(other):
            args = [*node.args[:place], other, one, *node.args[place + 2 :]]
            yield ast.Call(func=node.func, args=args, keywords=node.keywords)


Operator = Callable[[ast.AST], Iterator[ast.AST]]
OPERATORS: Final[Mapping[str, Operator]] = {
    each.__name__: each for each in (comparison, constant, condition, call, argument)
}  # fmt: skip


def _awaited(node: ast.AST) -> ast.AST:
    return node.value if isinstance(node, ast.Await) else node
