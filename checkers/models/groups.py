"""Several registers as the objects that they are: groups of keys that no operation ties to one another.

Linearizability is local (Herlihy and Wing, "Linearizability: a correctness condition for concurrent objects", 1990): a
history is linearizable if and only if that of each object by itself is. Keys that some operation reads or writes
together are of one group; operations of different groups have nothing to do with each other, and are searched apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from checkers.models.calls import Call
from checkers.models.objects import UNKNOWN, UNWRITTEN, Model


def groups(calls: Sequence[Call], model: Model) -> Iterator[tuple[Sequence[Call], Model]]:
    """The calls of each group of keys, small groups first, and its initial value. Calls on no key are left out."""
    above: dict[Any, Any] = {}

    def root(key: Any) -> Any:
        above.setdefault(key, key)
        while above[key] != key:
            above[key] = key = above[above[key]]
        return key

    first: list[Any] = []
    for call in calls:
        keys = _keys(call)
        for key in keys[1:]:
            above[root(key)] = root(keys[0])
        first.append(keys[0] if keys else UNWRITTEN)
    found: dict[Any, list[Call]] = {}
    for call, key in zip(calls, first, strict=True):
        if key is not UNWRITTEN:
            found.setdefault(root(key), []).append(call)
    initial: dict[Any, list[tuple[Any, Any]]] = {}
    everywhere = [pair for pair in model.initial if pair[0] is UNWRITTEN]
    for pair in model.initial:
        if pair[0] is not UNWRITTEN:
            initial.setdefault(root(pair[0]), []).append(pair)
    for group, own in sorted(found.items(), key=lambda each: len(each[1])):
        yield own, replace(model, initial=frozenset([*everywhere, *initial.get(group, ())]))


def _keys(call: Call) -> list[Any]:
    kind, argument, result = call.action
    if kind == "txn":
        return [key for _, key, _ in argument] + (
            [key for _, key, _ in result] if result is not UNKNOWN and result is not None else []
        )
    asked = argument if kind == "write" else result
    return [] if asked is UNKNOWN or asked is None else [key for key, _ in asked]
