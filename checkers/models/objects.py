"""The objects that can be searched: what each of their operations does, asks for, and got.

An action is (f, argument, result), with hashable values (see freeze()); the result of an info operation is UNKNOWN.
actions.py makes them, so that here values have the shapes that the operations have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkers.models.calls import Call


class Unknown:
    """The result of an operation that did not say."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN: Final = Unknown()
Action = tuple[str, Any, Any]


_NOT_FROZEN: Final = frozenset({list, dict, bool})  # of what JSON decodes to


def freeze(value: Any) -> Any:
    """What JSON decodes to, made hashable; equal if and only if the JSON is, but for the order in objects."""
    if isinstance(value, list):
        return tuple([freeze(each) if type(each) in _NOT_FROZEN else each for each in value])
    if isinstance(value, dict):
        return frozenset((key, freeze(each)) for key, each in value.items())
    if isinstance(value, bool):
        return ("bool", value)  # True == 1
    return value


def _all(info: Sequence[Call], _: Sequence[Call]) -> Sequence[Call]:
    return info


@dataclass(frozen=True)
class Model:
    """An object, as calls.Object has it. operations: the names (Jepsen's :f) that it has; readers: those that change
    nothing; always: those that can take place in every state."""

    initial: Any
    operations: frozenset[str]
    readers: frozenset[str]
    step: Callable[[Any, Action], Iterable[Any]]
    useful: Callable[[Sequence[Call], Sequence[Call]], Sequence[Call]] = _all
    always: frozenset[str] = frozenset()

    def reads(self, action: Action) -> bool:
        return action[0] in self.readers

    def total(self, action: Action) -> bool:
        return action[0] in self.always

    def overwrites(self, action: Action) -> bool:
        return False

    def lost(self, state: Any) -> bool:
        return False


def _fits(result: Any, truth: Any) -> bool:
    return result is UNKNOWN or bool(result == truth)


#: In place of a key, in the state of several registers: what those hold that nobody has written.
UNWRITTEN: Final = object()


def _multi_register(state: Any, action: Action) -> Iterable[Any]:
    """State: (key, value) pairs. A txn holds micro-operations (f, key, value), in order; else these are of one f."""
    f, argument, result = action
    values = {pair[0]: pair for pair in state}
    steps = argument if result is UNKNOWN or f == "write" else result
    if f != "txn":  # a map of keys to values
        steps = tuple((f, key, value) for key, value in steps or ())
    unwritten = values.get(UNWRITTEN, (UNWRITTEN, None))
    changed = False
    for name, key, value in steps:
        if name in ("w", "write"):
            values[key] = (key, value)
            changed = True
        elif result is not UNKNOWN and values.get(key, unwritten)[1] != value:
            return ()
    return (frozenset(values.values()) if changed else state,)


def _mutex(state: Any, action: Action) -> Iterable[Any]:
    """State: whether it is held."""
    held = action[0] == "acquire"
    return () if state == held else (held,)


def _owned_mutex(state: Any, action: Action) -> Iterable[Any]:
    """State: the client that holds it, or None. The argument names the client."""
    f, client, _ = action
    if f == "acquire":
        return (client,) if state is None else ()
    return (None,) if state is not None and state == client else ()


def _fifo_queue(state: Any, action: Action) -> Iterable[Any]:
    f, argument, result = action
    if f == "enqueue":
        return ((*state, argument),)
    if result is None:  # it was empty
        return () if state else (state,)
    if result is UNKNOWN:
        return (state[1:],)
    return (state[1:],) if state and state[0] == result else ()


def _queue(state: Any, action: Action) -> Iterable[Any]:
    """State: a multiset, as (value, how many) pairs. States are made one after the other, as there may be many."""
    f, argument, result = action
    if f == "enqueue":
        count = next((count for value, count in state if value == argument), 0)
        yield (state - {(argument, count)}) | {(argument, count + 1)}
    elif result is None:
        if not state:
            yield state
    else:
        for value, count in state:
            if result is UNKNOWN or value == result:
                left = state - {(value, count)}
                yield left | {(value, count - 1)} if count > 1 else left


def _useful_of_queue(info: Sequence[Call], other: Sequence[Call]) -> Sequence[Call]:
    """An element that nobody is known to have taken explains nothing."""
    taken = {call.action[2] for call in other if call.action[0] == "dequeue"}
    return [call for call in info if call.action[0] == "dequeue" or call.action[1] in taken]


def _set(state: Any, action: Action) -> Iterable[Any]:
    f, argument, result = action
    if f == "add":
        return (state | {argument},)
    if result is UNKNOWN:
        return (state,)
    return (state,) if frozenset(result or ()) == state else ()


def _useful_of_set(info: Sequence[Call], other: Sequence[Call]) -> Sequence[Call]:
    """An element that nobody read explains nothing."""
    found = {element for call in other if call.action[0] == "read" for element in call.action[2] or ()}
    return [call for call in info if call.action[1] in found]


def _kv(state: Any, action: Action) -> Iterable[Any]:
    """One key: the history of each is judged by itself, and what the search is given is texts.Texts."""
    f, argument, result = action
    if f == "put":
        return (argument,)
    if f == "append":
        return (state + argument,)
    return (state,) if _fits(result if result is not None else "", state) else ()


def _counter(state: Any, action: Action) -> Iterable[Any]:
    f, argument, result = action
    if f == "add":
        return (state + argument,)
    return (state,) if _fits(result, state) else ()


def _names(*names: str) -> frozenset[str]:
    return frozenset(names)


def _useful_of_registers(info: Sequence[Call], other: Sequence[Call]) -> Sequence[Call]:
    """A transaction that wrote nothing that is read explains nothing: nothing that others read who are to be explained,
    or that one does which may explain them."""
    found = {pair for call in other for pair in _micro(call, "r")}
    writers: dict[tuple[Any, Any], list[Call]] = {}
    for call in info:
        for pair in _micro(call, "w"):
            writers.setdefault(pair, []).append(call)
    useful: dict[int, Call] = {}
    left = list(found)
    while left:
        for call in writers.pop(left.pop(), ()):
            useful[call.number] = call
            if call.action[2] is not UNKNOWN:
                left += _micro(call, "r")
    return list(useful.values())


def _micro(call: Call, f: str) -> list[tuple[Any, Any]]:
    """The keys and values that a call on several registers wrote, or read as far as that is known."""
    kind, argument, result = call.action
    if kind != "txn":  # a map
        asked = argument if kind == "write" else result
        return list(asked or ()) if kind[0] == f and asked is not UNKNOWN else []
    steps = argument if f == "w" or result is UNKNOWN else result
    return [(key, value) for name, key, value in steps or () if name[0] == f]


MODELS: Final[Mapping[str, Model]] = {
    "multi-register": Model(
        frozenset(), _names("txn", "read", "write"), _names("read"), _multi_register, _useful_of_registers,
        _names("write"),
    ),
    "mutex": Model(False, _names("acquire", "release"), _names(), _mutex),
    "owned-mutex": Model(None, _names("acquire", "release"), _names(), _owned_mutex),
    "fifo-queue": Model(
        (), _names("enqueue", "dequeue"), _names(), _fifo_queue, _useful_of_queue, _names("enqueue")
    ),
    "queue": Model(
        frozenset(), _names("enqueue", "dequeue"), _names(), _queue, _useful_of_queue, _names("enqueue")
    ),
    "set": Model(frozenset(), _names("add", "read"), _names("read"), _set, _useful_of_set, _names("add")),
    "kv": Model("", _names("get", "put", "append"), _names("get"), _kv, always=_names("put", "append")),
    "counter": Model(0, _names("add", "read"), _names("read"), _counter, always=_names("add")),
}  # fmt: skip
