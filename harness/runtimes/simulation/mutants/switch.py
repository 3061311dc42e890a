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
    function, code = _function(mutant), _code(mutant)
    before = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = before


def _function(mutant: Mutant) -> FunctionType:
    found: Any = importlib.import_module(f"{CLUSTER}.{mutant.module}")
    for name in mutant.function.split("."):
        found = vars(found)[name]
    found = getattr(found, "fget", None) or getattr(found, "func", None) or getattr(found, "__func__", found)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    assert isinstance(found, FunctionType), f"{mutant.id} is no function"
    return found


def _code(mutant: Mutant) -> CodeType:
    """Raises BadArguments."""
    compiled = compile(mutated(mutant), str(source_of(mutant.module)), "exec", dont_inherit=True)
    return next(each for each in _codes(compiled) if each.co_qualname == mutant.function)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
