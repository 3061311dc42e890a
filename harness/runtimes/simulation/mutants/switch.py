"""Puts a mutant into the code that runs in this process, and takes it out again."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from harness.runtimes.simulation.mutants.places import CLUSTER, Mutant, find, mutated, source_of


@contextmanager
def switched_on(id_: str | None) -> Iterator[None]:
    """The function has the mutant's code meanwhile, whoever has imported it by whatever name. None: nothing is changed.
    Raises BadArguments."""
    if id_ is None:
        yield
        return
    mutant = find(id_)
    function, code = function_named(mutant.module, mutant.function), _code(mutant)
    before = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = before


def function_named(module: str, function: str) -> FunctionType:
    """function: its qualified name."""
    found: Any = importlib.import_module(f"{CLUSTER}.{module}")
    for name in function.split("."):
        found = vars(found)[name]
    found = getattr(found, "fget", None) or getattr(found, "func", None) or getattr(found, "__func__", found)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    assert isinstance(found, FunctionType), f"{module}:{function} is no function"
    return found


def _code(mutant: Mutant) -> CodeType:
    """Raises BadArguments."""
    compiled = compile(mutated(mutant), str(source_of(mutant.module)), "exec", dont_inherit=True)
    return next(each for each in codes_of(compiled) if each.co_qualname == mutant.function)


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """Of all that is defined in it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_of(constant)
