"""long-fork (jepsen.tests.long-fork): what parallel snapshot isolation allows, and snapshot isolation does not.

A transaction writes one key, which nobody else writes, or reads a group of keys. If one read of a group sees the write
of x and not that of y, and another that of y and not that of x, there is no order of the two writes: a `long-fork`.

So of two reads of a group one must see all that the other does. In the order of how much they see, it is enough that
each sees what the one before it did. Groups are of one size, the plan's `group_size` if it says; a read of another size
is refused. A key that is written twice, or read with two values, leaves the history undecided, as in Jepsen.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from checkers.models.invariants.history import Found, History, Row, Told, shown
from checkers.models.objects import freeze
from spark_history.errors import HistoryError

Micro = list[tuple[str, Any, Any]]


def judge(history: History) -> Found:
    size = history.option("group_size", int, "an integer", None)
    writers: dict[Any, Row] = {}
    reads: dict[frozenset[Any], list[tuple[frozenset[Any], Row]]] = {}
    values: dict[Any, Any] = {}
    found = Found()
    for row in history.rows:
        asked = _micro(history, row, "argument")
        writes = [key for f, key, _ in asked if f == "w"]
        if len(writes) == 1 and len(asked) == 1:
            if writes[0] in writers:
                found.doubt = f"key {shown(writes[0])} was written twice: a long fork is of keys that are written once"
            writers.setdefault(writes[0], row)
            continue
        if writes:
            raise HistoryError(
                f"operation {row['op']}: a transaction of a long-fork is one write, or reads alone, and not "
                f"{row['argument']}"
            )
        if row["outcome"] != "ok":
            continue
        read = {key: value for _, key, value in _micro(history, row, "result")}
        if len(read) < len(asked):
            raise HistoryError(f"operation {row['op']}: a read of a group names each key once, not {row['argument']}")
        size = len(read) if size is None else size
        if len(read) != size:
            raise HistoryError(f"operation {row['op']} reads {len(read)} keys, and groups here are of {size}")
        present = frozenset(key for key, value in read.items() if value is not None)
        for key in present:
            if values.setdefault(key, read[key]) != read[key]:
                one, other = shown(values[key]), shown(read[key])
                found.doubt = f"key {shown(key)} was read as {one} and as {other}, though it is written once"
        history.budget.hold(64 * len(read))
        reads.setdefault(frozenset(read), []).append((present, row))
    found.counts = {"groups": len(reads)}
    if found.doubt is not None:
        return found
    for group in reads.values():
        group.sort(key=lambda read: len(read[0]))
        for less, more in pairwise(group):
            if not less[0] <= more[0]:
                found.told.append(_fork(writers, less, more))
    return found


def _fork(writers: Mapping[Any, Row], one: tuple[frozenset[Any], Row], other: tuple[frozenset[Any], Row]) -> Told:
    x, y = (min(seen - unseen, key=shown) for seen, unseen in ((one[0], other[0]), (other[0], one[0])))
    rows = [one[1], other[1], *(writers[key] for key in (x, y) if key in writers)]
    ops = one[1]["op"], other[1]["op"]
    message = f"operation {ops[0]} saw the write of key {shown(x)} and not that of {shown(y)}, and operation {ops[1]}"
    return Told("long-fork", f"{message} that of {shown(y)} and not that of {shown(x)}", rows)


def _micro(history: History, row: Row, name: str) -> Micro:
    """Raises HistoryError."""
    said = [each for each in (name, "argument", "result") if row[each] not in (None, "null")]
    value = history.value(row, said[0]) if said else None
    if not isinstance(value, list) or not value or not all(_is_micro(each) for each in value):
        raise history.must_be(row, name, "[[w key value]], or a list of [r key value]")
    return [(each[0][0], freeze(each[1]), freeze(each[2])) for each in value]


def _is_micro(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and value[0] in ("r", "read", "w", "write")
