"""Turns rows of the table CALLS into calls that can be judged, and refuses values that no such operation can have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from checkers.models.bounds import Budget
from checkers.models.calls import Call
from checkers.models.objects import MODELS, UNKNOWN, UNWRITTEN, Model, freeze
from checkers.naming import short
from spark_history.errors import HistoryError


def model_of(plan: Mapping[str, Any]) -> tuple[str, Model]:
    """The workload and its model, with the plan's `initial`. Raises HistoryError."""
    name = plan.get("workload")
    if not isinstance(name, str) or name not in MODELS:
        raise HistoryError(f"there is no model of a {name!r}; there are {', '.join(MODELS)}")
    initial = plan.get("initial")
    if initial is None or name not in _INITIAL:
        return name, MODELS[name]
    fits, what = _INITIAL[name]
    if not fits(initial):
        raise HistoryError(f"the plan's initial value of a {name} must be {what}, not {short(json.dumps(initial))}")
    frozen = freeze(initial)
    if name == "multi-register" and not isinstance(initial, dict):
        frozen = frozenset({(UNWRITTEN, frozen)})
    return name, replace(MODELS[name], initial=frozen)


#: Of values, for a unit of work.
_LETTERS: Final = 16


def calls_of(
    workload: str, model: Model, rows: Sequence[Mapping[str, Any]], budget: Budget
) -> tuple[list[Call], Model]:
    """The operations of one object that did not fail, numbered as their rows; and the model, its keys spelt as theirs.

    Raises HistoryError, or Exceeded.
    """
    numbers = [number for number, row in enumerate(rows) if row["outcome"] != "fail"]
    values = []
    for number in numbers:
        row = rows[number]
        budget.spend(1 + (len(row["argument"] or "") + len(row["result"] or "")) // _LETTERS)
        values.append(_values(workload, model, row))
    if workload == "multi-register":
        keys = _keys([pair for number, pair in zip(numbers, values, strict=True) if rows[number]["kind"] == "txn"])
        values = [(_spelt(argument, keys), _spelt(result, keys)) for argument, result in values]
        model = replace(model, initial=_spelt(model.initial, keys))
    calls = []
    for number, (argument, result) in zip(numbers, values, strict=True):
        row = rows[number]
        action = _action(workload, row, argument, result)
        calls.append(Call(number, action, row["invoke"], row["complete"] if row["outcome"] == "ok" else None))
    return calls, model


def _values(workload: str, model: Model, row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Argument and result, frozen. The result of what is not ok is UNKNOWN."""
    op, f = row["op"], row["kind"]
    if f not in model.operations:
        raise HistoryError(
            f"operation {op} is a {f!r}, which a {workload} does not have: it has {', '.join(sorted(model.operations))}"
        )
    found = []
    for name, shape in zip(("argument", "result"), _SHAPES.get((workload, f), (_ANY, _ANY)), strict=True):
        if name == "result" and row["outcome"] != "ok":
            found.append(UNKNOWN)
            continue
        text = row[name]
        try:
            value = None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            raise HistoryError(f"the {name} of operation {op} is not JSON: {short(text)}") from None
        fits, what = shape
        if not fits(value):
            raise HistoryError(
                f"operation {op}: the {name} of a {f} of a {workload} must be {what}, not {short(str(text))}"
            )
        found.append(freeze(value))
    return found[0], found[1]


def _action(workload: str, row: Mapping[str, Any], argument: Any, result: Any) -> tuple[str, Any, Any]:
    """Only what the model looks at, so that operations that do the same are found equal."""
    f = row["kind"]
    if workload in ("mutex", "owned-mutex"):
        client = row["process"] if argument is None else argument
        return (f, client if workload == "owned-mutex" else None, None)
    if workload == "multi-register":
        if f == "write":
            return (f, argument, None)
        return (f, argument, argument if result is None else result)
    if f in ("read", "get", "dequeue"):
        return (f, None, result)
    return (f, argument, None)


# --- the keys of several registers ----------------------------------------------------------------------------------

_Keys = Mapping[str, frozenset[Any]]


def _keys(values: Sequence[tuple[Any, Any]]) -> _Keys:
    """By their text, the keys that transactions name. Those of a map are always text, as JSON has it, so that the 1 of
    `{1 5}` and that of `[:r 1 5]` look different. values: of transactions alone."""
    # With the type: 1 and 1.0 are equal, and their texts are not.
    keys = {(type(key), key) for pair in values for steps in pair if isinstance(steps, tuple) for _, key, _ in steps}
    found: dict[str, frozenset[Any]] = {}
    for _, key in keys:
        text = key if isinstance(key, str) else _text(key)
        found[text] = found.get(text, frozenset()) | {key}
    return found


def _text(key: Any) -> str:
    """A frozen key that is no text, as JSON writes it."""
    if isinstance(key, tuple) and len(key) == 2 and key[0] == "bool":
        return json.dumps(key[1])
    return json.dumps(key, default=repr)


def _spelt(value: Any, keys: _Keys) -> Any:
    """A map with its keys as micro-operations spell them; anything else as it is."""
    if not isinstance(value, frozenset):
        return value
    return frozenset((_spell(key, keys), each) for key, each in value)


def _spell(key: Any, keys: _Keys) -> Any:
    known = keys.get(key, frozenset()) if isinstance(key, str) else frozenset()
    if len(known) > 1:
        raise HistoryError(
            f'the keys {key} and "{key}" are both in use: which of them is meant by a map\'s cannot be told'
        )
    return next(iter(known), key)


# --- what values look like ------------------------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return type(value) is int


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def _is_micro(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 3 and each[0] in ("r", "read", "w", "write") for each in value
    )


_Shape = tuple[Callable[[Any], bool], str]
_ANY: Final[_Shape] = (lambda _: True, "anything")
_TEXT: Final[_Shape] = (_is_text, "a text")
_INTEGER: Final[_Shape] = (_is_integer, "an integer")
_MAP: Final[_Shape] = (_is_map, "a map of keys to values")
_MICRO: Final[_Shape] = (_is_micro, "a list of [r key value] and [w key value]")


def _or_nil(shape: _Shape) -> _Shape:
    fits, what = shape
    return (lambda value: value is None or fits(value)), f"{what} or nil"


#: Of the argument and, where the operation is ok, of the result. Others may be anything.
_SHAPES: Final[Mapping[tuple[str, str], tuple[_Shape, _Shape]]] = {
    ("set", "read"): (_ANY, _or_nil((lambda value: isinstance(value, list), "a list"))),
    ("kv", "get"): (_ANY, _or_nil(_TEXT)),
    ("kv", "put"): (_TEXT, _ANY),
    ("kv", "append"): (_TEXT, _ANY),
    ("counter", "add"): (_INTEGER, _ANY),
    ("multi-register", "txn"): (_MICRO, _or_nil(_MICRO)),
    ("multi-register", "read"): (_or_nil(_MAP), _or_nil(_MAP)),
    ("multi-register", "write"): (_MAP, _ANY),
}
_INITIAL: Final[Mapping[str, _Shape]] = {"kv": _TEXT, "counter": _INTEGER, "multi-register": _ANY}
