"""Foreign histories of registers, and of other objects, as tables.

Registers (`register`, `cas-register`): REGISTERS from read, write and cas. Which register: `:key`, or the first of
`[key value]` where the history is keyed as jepsen.independent does it: the value of every operation is such a pair, a
read being invoked with [key nil] and a cas with [key [old new]].

Other objects (mutex, queue, set, kv …): CALLS, `:f` as it stands, values as JSON: keywords and symbols as their names,
sets as sorted arrays, what JSON has no notation for as a string of EDN.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_history.files import HistoryError, nullable
from spark_history.jepsen import edn
from spark_history.jepsen.operations import NULL, Numbers, Operations, Pair, Rows, category, ints, table
from spark_history.jepsen.plain import to_json, untag
from spark_history.schema import CALLS, REGISTERS

KINDS: Final = ("read", "write", "cas")
_KIND: Final = {"read": 0, "write": 1, "cas": 2, "r": 0, "w": 1, "compare-and-set": 2}


def is_keyed(pairs: Sequence[Pair]) -> bool:
    """Is the value of each of these operations a [key value]? Where there is no read, a value may just be a vector."""
    if not pairs or any("key" in pair.invoke.more for pair in pairs):
        return False
    return any(pair.invoke.f in ("read", "r") for pair in pairs) and all(_is_keyed(pair) for pair in pairs)


def _is_keyed(pair: Pair) -> bool:
    value = untag(pair.invoke.value)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return False
    if _KIND.get(pair.invoke.f or "") == 0:
        done = None if pair.complete is None or pair.complete.type != "ok" else untag(pair.complete.value)
        return value[1] is None and (done is None or (_is_two(done) and done[0] == value[0]))
    return _KIND.get(pair.invoke.f or "") != 2 or _is_two(value[1])


def _is_two(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2


class Keys:
    """Takes the key off a value."""

    def __init__(self, path: Any, keyed: bool) -> None:
        self._path = path
        self._keyed = keyed

    def split(self, pair: Pair) -> tuple[Any, Any, Any]:
        """Key (None: there is one object), value of the invocation, value of the completion."""
        invoke, complete = pair.invoke, pair.complete
        done = complete.value if complete is not None else None
        if not self._keyed:
            return invoke.more.get("key"), invoke.value, done
        value = untag(invoke.value)
        if not _is_two(value):
            raise HistoryError(
                f"{self._path} line {invoke.line}: the value of this operation is no [key value], as those before were"
            )
        done = untag(done)
        return value[0], value[1], done[1] if _is_two(done) else None


def registers(
    operations: Operations, pairs: Iterable[Pair], run: str, *, keyed: bool
) -> tuple[pa.Table, Numbers, Numbers]:
    """REGISTERS, with what the numbers of values and of keys stand for. Raises HistoryError."""
    path = operations.foreign.path
    rows, values, keys = Rows(), Numbers(), Numbers()
    kind, key, value, expected = array("b"), array("q"), array("q"), array("q")
    split = Keys(path, keyed).split
    for pair in pairs:
        code = _KIND.get(pair.invoke.f or "")
        if code is None:
            raise HistoryError(
                f"{path} line {pair.invoke.line}: {pair.invoke.f or 'an operation without :f'} is nothing that a "
                "register does (read, write, cas)"
            )
        of, argument, done = split(pair)
        outcome = rows.add(pair)
        if code == 0:
            result, asked = (done if outcome == "ok" else None), None
        else:
            result, asked = (done if outcome == "ok" and done is not None else argument), None
            if code == 2:
                result = untag(result)
                if not _is_two(result):
                    raise HistoryError(
                        f"{path} line {pair.invoke.line}: the value of a cas is [old new], not {_short(argument)}"
                    )
                asked, result = result
        kind.append(code)
        key.append(0 if of is None else keys.of(of))
        value.append(NULL if result is None else values.of(result))
        expected.append(NULL if asked is None else values.of(asked))
    order = rows.order()
    columns = rows.columns(run, operations.timed, order, open_info=True)
    columns |= {
        "kind": category(KINDS, np.frombuffer(kind, np.int8)[order].astype(np.int32)),
        "key": pa.array(ints(key)[order]),
        "value": nullable(ints(value)[order], NULL),
        "expected": nullable(ints(expected)[order], NULL),
    }
    return table(REGISTERS, columns), values, keys


def calls(operations: Operations, pairs: Iterable[Pair], run: str, workload: str, *, keyed: bool) -> pa.Table:
    """CALLS. Of multi-register any list of micro-operations is a txn. Raises HistoryError."""
    rows, split = Rows(), Keys(operations.foreign.path, keyed).split
    kinds: list[str] = []
    texts: tuple[list[str | None], ...] = ([], [], [])
    for pair in pairs:
        key, argument, result = split(pair)
        f = pair.invoke.f
        if workload == "multi-register" and isinstance(argument, (tuple, list)):
            f = "txn"
        if f is None:
            raise HistoryError(f"{operations.foreign.path} line {pair.invoke.line}: the operation has no :f")
        outcome = rows.add(pair)
        kinds.append(f)
        texts[0].append(None if key is None else to_json(key))
        texts[1].append(to_json(argument))
        texts[2].append(to_json(result) if outcome == "ok" else None)
    order = rows.order()
    columns = rows.columns(run, operations.timed, order, open_info=True)
    columns["kind"] = pa.array(kinds, pa.string()).dictionary_encode()
    for name, column in zip(("key", "argument", "result"), texts, strict=True):
        columns[name] = pa.array(column, pa.string())
    for name in ("kind", "key", "argument", "result"):
        columns[name] = columns[name].take(pa.array(order))
    return table(CALLS, columns)


def _short(value: Any) -> str:
    text = edn.write(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
