"""Foreign histories of registers, and of other objects, as tables.

Registers (`register`, `cas-register`): REGISTERS from read, write and cas. Which register: `:key`, or the first of
`[key value]` where the history is keyed as jepsen.independent does it: the value of every operation is such a pair, a
read being invoked with [key nil] and a cas with [key [old new]].

Other objects (mutex, queue, set, kv, bank …): CALLS, `:f` as it stands, values as JSON: see plain.spell(). The texts of
a kv are put together, so they stand as they are, and nothing else may be in their place; the keys of several registers
that are no texts stand in maps as JSON has them. What a queue's `drain` lists was dequeued by it (_Drains).

An ok operation that asks for something must have a value, be it nil. That of one that does not, is the invocation's; a
write or cas of a register that completes with another contradicts itself, and is refused.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_history.errors import HistoryError
from spark_history.files import nullable
from spark_history.jepsen.events import edn
from spark_history.jepsen.events.event import says_nothing, shown
from spark_history.jepsen.events.plain import spell, spell_map, untag
from spark_history.jepsen.operations import NULL, Numbers, Operations, Pair, Rows, category, ints, table
from spark_history.jepsen.transactions import head
from spark_history.schema import CALLS, REGISTERS

KINDS: Final = ("read", "write", "cas")
#: Operations whose completion says what they found.
_ASKING: Final = frozenset({"read", "r", "get", "dequeue", "drain"})
#: What transactions of micro-operations are done to.
_OF_REGISTERS: Final = frozenset({"multi-register", "long-fork"})
#: Such a read finds a collection, perhaps a set.
_COLLECTING: Final = frozenset({"read", "drain"})
_KIND: Final = {"read": 0, "write": 1, "cas": 2, "r": 0, "w": 1, "compare-and-set": 2}


def is_keyed(pairs: Sequence[Pair]) -> bool:
    """Is the value of each of these operations a [key value]? Where there is no [key nil], of a read or an acquire say,
    and no cas of [key [old new]], a value may just be a vector."""
    if any("key" in pair.invoke.more for pair in pairs) or not all(_is_keyed(pair) for pair in pairs):
        return False
    return any(untag(pair.invoke.value)[1] is None or _is_keyed_cas(pair) for pair in pairs)


def _is_keyed_cas(pair: Pair) -> bool:
    """And not one of a scalar to a vector, where all that is written are vectors."""
    key = untag(pair.invoke.value)[0]
    return _KIND.get(pair.invoke.f or "") == 2 and key is not None and not isinstance(key, (tuple, list))


def _is_keyed(pair: Pair) -> bool:
    value = untag(pair.invoke.value)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return False
    if pair.invoke.f in _ASKING:
        return value[1] is None
    return _KIND.get(pair.invoke.f or "") != 2 or _is_two(untag(value[1]))


def _is_two(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2


def _split(path: Path, pair: Pair, keyed: bool) -> tuple[Any, Any, Any]:
    """Key (None: there is one object), value of the invocation, value of an ok completion (None: it says none). Raises
    HistoryError."""
    invoke, complete = pair.invoke, pair.complete
    done = complete.value if complete is not None and complete.type == "ok" else None
    if complete is not None and complete.type == "ok" and not complete.has_value and invoke.f in _ASKING:
        raise says_nothing(path, complete)
    if not keyed:
        return invoke.more.get("key"), invoke.value, done
    value, done = untag(invoke.value), untag(done)
    if not _is_two(value):
        raise HistoryError(
            f"{path} line {invoke.line}: the value of this operation is {shown(value)}, no [key value], though this "
            "history is keyed"
        )
    if complete is None or complete.type != "ok" or (done is None and invoke.f not in _ASKING):
        return value[0], value[1], None
    if not _is_two(done) or done[0] != value[0]:
        raise HistoryError(
            f"{path} line {complete.line}: this completes {shown(done)}, but what was invoked on line {invoke.line} is "
            f"of the key {shown(value[0])}, so its value must be [{shown(value[0])} …]"
        )
    return value[0], value[1], done[1]


def _check_written(path: Path, pair: Pair, code: int, argument: Any, done: Any) -> None:
    """Does what writes a register complete with what was invoked, where both say it? Raises HistoryError."""
    asked, reported = untag(argument), untag(done)
    if code == 0 or asked is None or reported is None or pair.complete is None:
        return
    if (type(asked) is type(reported) is int and asked == reported) or (code == 2 and not _is_two(reported)):
        return  # nearly always; and what is no [old new] is told of otherwise
    if edn.write(asked, canonical=True) != edn.write(reported, canonical=True):  # 1, 1.0 and true are equal to Python
        raise HistoryError(
            f"{path} line {pair.complete.line}: what is completed here is {pair.invoke.f} {shown(done)}, but what was "
            f"invoked on line {pair.invoke.line} is {pair.invoke.f} {shown(argument)}"
        )


def registers(
    operations: Operations, pairs: Iterable[Pair], run: str, *, keyed: bool
) -> tuple[pa.Table, Numbers, Numbers]:
    """REGISTERS, with what the numbers of values and of keys stand for. Raises HistoryError."""
    path = operations.foreign.path
    rows, values, keys = Rows(), Numbers(), Numbers()
    kind, key, value, expected = array("b"), array("q"), array("q"), array("q")
    for pair in pairs:
        code = _KIND.get(pair.invoke.f or "")
        if code is None:
            raise HistoryError(
                f"{path} line {pair.invoke.line}: {pair.invoke.f or 'an operation without :f'} is nothing that a "
                "register does (read, write, cas)"
            )
        of, argument, done = _split(path, pair, keyed)
        rows.add(pair)
        _check_written(path, pair, code, argument, done)
        if code == 0:
            result, asked = done, None
        else:
            result, asked = (argument if done is None else done), None
            if result is None and not pair.invoke.has_value:
                line = pair.invoke.line
                raise HistoryError(f"{path} line {line}: this {pair.invoke.f} does not say what: it has no :value")
            if code == 2:
                result = untag(result)
                if not _is_two(result):
                    of_line = pair.invoke.line if done is None or pair.complete is None else pair.complete.line
                    raise HistoryError(f"{path} line {of_line}: the value of a cas is [old new], not {shown(result)}")
                asked, result = result
        kind.append(code)
        key.append(NULL if of is None else keys.of(of))
        value.append(NULL if result is None else values.of(result))
        expected.append(NULL if asked is None else values.of(asked))
    number = ints(key)
    if np.any(number == NULL):  # a key that is nil is none, and not the key 0 of others
        number = np.where(number == NULL, 0 if np.all(number == NULL) else keys.of(None), number)
    order = rows.order()
    columns = rows.columns(run, operations.timed, order, open_info=True)
    columns |= {
        "kind": category(KINDS, np.frombuffer(kind, np.int8)[order].astype(np.int32)),
        "key": pa.array(number[order]),
        "value": nullable(ints(value)[order], NULL),
        "expected": nullable(ints(expected)[order], NULL),
    }
    return table(REGISTERS, columns), values, keys


def calls(operations: Operations, pairs: Iterable[Pair], run: str, workload: str, *, keyed: bool) -> pa.Table:
    """CALLS. Of multi-register and long-fork any list of micro-operations is a txn; of a queue drains are dequeues.
    Raises HistoryError."""
    rows = Rows()
    drains = _Drains()
    kinds: list[str | None] = []
    texts: tuple[list[str | None], ...] = ([], [], [])

    def add(pair: Pair, *of_pair: str | None) -> None:
        rows.add(pair)
        for column, text in zip((texts[0], kinds, texts[1], texts[2]), of_pair, strict=True):
            column.append(text)

    for pair in pairs:
        key, argument, result = _split(operations.foreign.path, pair, keyed)
        f = pair.invoke.f
        if workload in _OF_REGISTERS and isinstance(argument or result, (tuple, list)):
            f = "txn"
        if f is None:
            raise HistoryError(f"{operations.foreign.path} line {pair.invoke.line}: the operation has no :f")
        of = None if key is None else _json(spell(key))
        asked, done = _texts(operations.foreign.path, pair, workload, f, argument, result)
        if workload == "queue":
            drains.see(operations.foreign.path, pair, of, f, result)
            if f == "drain":
                continue
        add(pair, of, f, asked, done)
    for pair, of, found in drains.dequeues():
        add(pair, of, "dequeue", "null", found)
    order = rows.order()
    columns = rows.columns(run, operations.timed, order, open_info=True)
    columns["kind"] = pa.array(kinds, pa.string()).dictionary_encode()
    for name, column in zip(("key", "argument", "result"), texts, strict=True):
        columns[name] = pa.array(column, pa.string())
    for name in ("kind", "key", "argument", "result"):
        columns[name] = columns[name].take(pa.array(order))
    return table(CALLS, columns)


def _texts(path: Path, pair: Pair, workload: str, f: str, argument: Any, result: Any) -> tuple[str, str | None]:
    """Argument, and result if the operation is ok, as JSON. Raises HistoryError."""
    ok = pair.complete is not None and pair.complete.type == "ok"
    if workload in _OF_REGISTERS and ok and result is None and pair.complete is not None and _reads(f, argument):
        raise says_nothing(path, pair.complete)
    if workload == "kv":
        event, held = (pair.complete, result) if f == "get" else (pair.invoke, argument)
        if event is not None and not (held is None or isinstance(held, str)):
            raise HistoryError(f"{path} line {event.line}: what a kv holds must be text, which {shown(held)} is not")
        asked, found = (value if isinstance(value, str) else spell(value) for value in (argument, result))
        return _json(asked), _json(found) if ok else None
    of_registers = workload in _OF_REGISTERS
    try:
        asked = _of_registers(argument) if of_registers else spell(argument)
        found = untag(result)
        if of_registers:
            found = _of_registers(found)
        elif f in _COLLECTING and isinstance(found, frozenset):
            elements = list(map(spell, found))
            # Any order will do that is always the same: that of integers takes the least time.
            found = sorted(elements, key=None if all(type(each) is int for each in elements) else _json)
        else:
            found = spell(found)
    except ValueError as error:
        alike = shown(error.args[0])
        raise HistoryError(f"{path} line {pair.invoke.line}: two keys of {alike} look alike in JSON") from None
    return _json(asked), _json(found) if ok else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _reads(f: str, argument: Any) -> bool:
    """Does an operation of several registers ask for what they hold?"""
    if f == "txn" and isinstance(argument, (tuple, list)):
        return any(head(micro) in ("r", "read") for micro in argument)
    return f == "read"


def _of_registers(value: Any) -> Any:
    """A map of keys to values, or micro-operations."""
    value = untag(value)
    if isinstance(value, dict):
        return spell_map(value, lambda key: _json(spell(key)))
    if not isinstance(value, (tuple, list)):
        return spell(value)
    return [[head(each) or spell(each[0]), *map(spell, each[1:])] if head(each) else spell(each) for each in value]


class _Drains:
    """Jepsen's `drain`, which takes all that is left in a queue, as dequeues: see dequeues()."""

    def __init__(self) -> None:
        self._taken: list[tuple[Pair, str | None, str]] = []  # by ok drains: the drain, the queue, the value
        self._crashed: list[tuple[Pair, str | None]] = []
        self._left: Counter[str | None] = Counter()  # how many values nobody is known to have dequeued

    def see(self, path: Path, pair: Pair, key: str | None, f: str, result: Any) -> None:
        """An operation; in the order of completions. Raises HistoryError."""
        outcome = "info" if pair.complete is None else pair.complete.type
        if f == "enqueue":
            self._left[key] += outcome != "fail"
        elif f == "drain" and outcome == "info":
            self._crashed.append((pair, key))
        elif outcome == "ok" and f in ("dequeue", "drain") and pair.complete is not None:
            values = [result] if f == "dequeue" else untag(result) or ()
            if not isinstance(values, (tuple, list, frozenset)):
                raise HistoryError(
                    f"{path} line {pair.complete.line}: an ok drain lists what it took, which {shown(result)} is not"
                )
            self._left[key] -= sum(value is not None for value in values)
            if f == "drain":
                self._taken += [(pair, key, _json(spell(value))) for value in values]

    def dequeues(self) -> Iterator[tuple[Pair, str | None, str | None]]:
        """Operation, queue and what was found.

        What an ok drain lists was dequeued by it, and a drain that crashed may have taken everything there was. That
        nothing be left is no concern of a queue: total-queue, whose drains stay what they are, judges that.
        """
        yield from self._taken
        for pair, key in self._crashed:
            yield from ((pair, key, None) for _ in range(self._left[key]))
