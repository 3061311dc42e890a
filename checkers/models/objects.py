"""The objects that can be searched: what each of their operations does, asks for, and got.

An action is (f, argument, result), with hashable values (see freeze()); the result of an info operation is UNKNOWN.
actions.py makes them, so that here values have the shapes that the operations have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkers.models.search import Call


class Unknown:
    """The result of an operation that did not say."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN: Final = Unknown()
Action = tuple[str, Any, Any]


def freeze(value: Any) -> Any:
    """What JSON decodes to, made hashable; equal if and only if the JSON is, but for the order in objects."""
    if isinstance(value, list):
        return tuple(freeze(each) for each in value)
    if isinstance(value, dict):
        return frozenset((key, freeze(each)) for key, each in value.items())
    if isinstance(value, bool):
        return ("bool", value)  # True == 1
    return value


def _all(info: Sequence[Call], _: Sequence[Call]) -> Sequence[Call]:
    return info


@dataclass(frozen=True)
class Model:
    """An object, as search.Object has it. operations: the names (Jepsen's :f) that it has; readers: those that change
    nothing."""

    initial: Any
    operations: frozenset[str]
    readers: frozenset[str]
    step: Callable[[Any, Action], Iterable[Any]]
    useful: Callable[[Sequence[Call], Sequence[Call]], Sequence[Call]] = _all

    def reads(self, action: Action) -> bool:
        return action[0] in self.readers


def _fits(result: Any, truth: Any) -> bool:
    return result is UNKNOWN or bool(result == truth)


#: In place of a key, in the state of several registers: what those hold that nobody has written.
UNWRITTEN: Final = object()


def _multi_register(state: Any, action: Action) -> Iterable[Any]:
    """State: (key, value) pairs. A txn holds micro-operations (f, key, value), in order; else these are of one f."""
    f, argument, result = action
    values = dict(state)
    steps = argument if result is UNKNOWN or f == "write" else result
    if f != "txn":  # a map of keys to values
        steps = tuple((f, key, value) for key, value in steps or ())
    for name, key, value in steps:
        if name in ("w", "write"):
            values[key] = value
        elif result is not UNKNOWN and values.get(key, values.get(UNWRITTEN)) != value:
            return ()
    return (frozenset(values.items()),)


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
    """State: a multiset, as (value, how many) pairs."""
    f, argument, result = action
    counts = dict(state)
    if f == "enqueue":
        counts[argument] = counts.get(argument, 0) + 1
        return (frozenset(counts.items()),)
    if result is None:
        return () if counts else (state,)
    taken = list(counts) if result is UNKNOWN else [result] if result in counts else []
    after = []
    for value in taken:
        left = {**counts, value: counts[value] - 1}
        after.append(frozenset((each, count) for each, count in left.items() if count))
    return after


def _set(state: Any, action: Action) -> Iterable[Any]:
    f, argument, result = action
    if f == "add":
        return (state | {argument},)
    if result is UNKNOWN:
        return (state,)
    return (state,) if frozenset(result or ()) == state else ()


def _kv(state: Any, action: Action) -> Iterable[Any]:
    """One key: the history of each is judged by itself."""
    f, argument, result = action
    if f == "put":
        return (argument,)
    if f == "append":
        return (state + argument,)
    return (state,) if _fits(result if result is not None else "", state) else ()


def _useful_of_kv(info: Sequence[Call], other: Sequence[Call]) -> Sequence[Call]:
    """What was put or appended is in all later states, until the next put: so somebody has to get it."""
    gets = [call for call in other if call.action[0] == "get"]

    def seen(call: Call) -> bool:
        f, text, _ = call.action
        return any(
            get.end >= call.invoke
            and ((get.action[2] or "").startswith(text) if f == "put" else text in (get.action[2] or ""))
            for get in gets
        )

    return [call for call in info if seen(call)]


def _counter(state: Any, action: Action) -> Iterable[Any]:
    f, argument, result = action
    if f == "add":
        return (state + argument,)
    return (state,) if _fits(result, state) else ()


def _names(*names: str) -> frozenset[str]:
    return frozenset(names)


MODELS: Final[Mapping[str, Model]] = {
    "multi-register": Model(frozenset(), _names("txn", "read", "write"), _names("read"), _multi_register),
    "mutex": Model(False, _names("acquire", "release"), _names(), _mutex),
    "owned-mutex": Model(None, _names("acquire", "release"), _names(), _owned_mutex),
    "fifo-queue": Model((), _names("enqueue", "dequeue"), _names(), _fifo_queue),
    "queue": Model(frozenset(), _names("enqueue", "dequeue"), _names(), _queue),
    "set": Model(frozenset(), _names("add", "read"), _names("read"), _set),
    "kv": Model("", _names("get", "put", "append"), _names("get"), _kv, _useful_of_kv),
    "counter": Model(0, _names("add", "read"), _names("read"), _counter),
}
