"""Foreign histories of transactions: TRANSACTIONS and MICRO_OPERATIONS from Elle's list-append and rw-register, and
Jepsen's kafka.

list-append: `[[:append k v] [:r k [v …]] …]`. A read that found nothing is nil or [].
rw-register: `[[:w k v] [:r k v] …]`. What nobody has written is nil.
kafka: `[[:send k v] …]`, completed as `[:send k [offset v]]`, and `[:poll]`, completed as `[:poll {k [[offset v] …]}]`,
beside which `:rebalance-log [{:keys [k …]} …]` says which partitions the consumer lost or was given meanwhile.
`:assign [k …]` and `:subscribe [k …]` give the consumer other partitions, `:unsubscribe`, `:crash` and `:close` take
all away: see ASSIGNMENTS. `:debug-topic-partitions` looks at the cluster only, and is left out.

Of a transaction that is ok its completion says what it did, and must be of the same micro-operations as the invocation
(unless one of the two says nothing): what it leaves out may have happened all the same. Of any other the invocation
says what it may have done. Its completion may be nil, or an error, or name the micro-operations of the invocation as
far as it came. What a list-append of these read proves nothing (its reads may be of what was undone with it). A kafka
consumer returns committed records only, so what they polled is kept, as are offsets that were acknowledged to them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_history.errors import HistoryError
from spark_history.files import Ints, nullable
from spark_history.jepsen.events import edn
from spark_history.jepsen.events.edn import Named
from spark_history.jepsen.events.event import Event, plain_name, says_nothing, shown
from spark_history.jepsen.events.events import Foreign
from spark_history.jepsen.events.plain import untag
from spark_history.jepsen.operations import NULL, Numbers, Operations, Pair, Rows, category, ints, table
from spark_history.schema import ASSIGNMENTS, MICRO_OPERATIONS, TRANSACTIONS

KINDS: Final = ("append", "read", "send", "poll", "write")
_APPEND, _READ, _SEND, _POLL, _WRITE = range(5)
#: With a completion: when the consumer was given other partitions during the transaction, and which.
REBALANCE_LOG: Final = "rebalance-log"
#: What clients of Jepsen's kafka workload do that is no transaction, but changes what a consumer polls next.
ASSIGNS: Final = ("assign", "subscribe", "unsubscribe", "crash", "close")
#: Of these, what names partitions.
_NAME_KEYS: Final = ("assign", "subscribe")
#: With an assign: the consumer goes to the beginning of all its partitions.
FROM_START: Final = "seek-to-beginning?"
#: What changes nothing.
_LOOKS: Final = "debug-topic-partitions"


def head(micro: Any) -> str | None:
    """What a micro-operation does; None: this is none."""
    if not isinstance(micro, (tuple, list)) or not micro:
        return None
    first = micro[0]
    return first.name if isinstance(first, Named) else first.removeprefix(":") if isinstance(first, str) else None


@dataclass
class _Micro:
    """Rows of MICRO_OPERATIONS. `row`: of the transaction in Rows."""

    row: array[int] = field(default_factory=lambda: array("q"))
    position: array[int] = field(default_factory=lambda: array("q"))
    kind: array[int] = field(default_factory=lambda: array("b"))
    key: array[int] = field(default_factory=lambda: array("q"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    value: array[int] = field(default_factory=lambda: array("q"))
    keys: Numbers = field(default_factory=Numbers)
    values: Numbers = field(default_factory=Numbers)

    def add(self, row: int, position: int, kind: int, key: Any, offset: int | None, value: int) -> None:
        self.row.append(row)
        self.position.append(position)
        self.kind.append(kind)
        self.key.append(self.keys.of(key))
        self.offset.append(NULL if offset is None else _offset(offset))
        self.value.append(value)

    def add_list(self, row: int, position: int, key: Any, values: Any) -> None:
        """The records of one read of a list."""
        if not values:
            self.add(row, position, _READ, key, None, NULL)
            return
        count = len(values)
        self.row.extend(array("q", [row]) * count)
        self.position.extend(array("q", [position]) * count)
        self.kind.extend(array("b", [_READ]) * count)
        self.key.extend(array("q", [self.keys.of(key)]) * count)
        self.offset.extend(range(count))
        self.value.extend(map(self.values.of, values))

    def spell_keys(self, foreign: Foreign) -> dict[int, int]:
        """In JSON the keys of a poll are texts, be they numbers where something is sent to them. So a text of digits to
        which nothing is sent is that number. What was changed, by number. Raises HistoryError if it cannot be told."""
        texts = {each: edn.read(name) for each, name in self.keys.names.items() if name[0] == '"'}
        numbers = {int(each): int(text) for each, text in texts.items() if _INTEGER.fullmatch(text)}
        if not numbers:
            return {}
        key, kind = np.array(self.key, np.int64), np.array(self.kind, np.int8)
        sent = set(np.unique(key[kind == _SEND]).tolist())
        for each, number in numbers.items():
            if foreign.notation == "JSON" and each in sent and number in sent:
                raise HistoryError(
                    f'{foreign.path} has the keys {number} and "{number}": of which a poll is cannot be told in JSON'
                )
        changed = {each: number for each, number in numbers.items() if each not in sent}
        distinct, which = np.unique(key, return_inverse=True)
        spelt = np.array([changed.get(each, each) for each in distinct.tolist()], np.int64)
        self.key = array("q", spelt[which].tobytes())
        return changed

    def table(self, run: str, order: Ints) -> pa.Table:
        number = np.empty(len(order), np.int64)  # of the transaction of each row
        number[order] = np.arange(len(order))
        op = number[ints(self.row)]
        by_op = np.argsort(op, kind="stable")
        kind = np.frombuffer(self.kind, np.int8)[by_op] if len(self.kind) else np.empty(0, np.int8)
        columns = {
            "run": category([run], np.zeros(len(op), np.int32)),
            "op": pa.array(op[by_op]),
            "position": pa.array(ints(self.position)[by_op].astype(np.int32)),
            "kind": category(KINDS, kind.astype(np.int32)),
            "key": pa.array(ints(self.key)[by_op]),
            "offset": nullable(ints(self.offset)[by_op], NULL),
            "value": nullable(ints(self.value)[by_op], NULL),
        }
        return table(MICRO_OPERATIONS, columns)


@dataclass
class _Assignments:
    """Rows of ASSIGNMENTS, in the order of completion."""

    keys: Numbers
    rows: Rows = field(default_factory=Rows)
    kind: list[int] = field(default_factory=list)
    named: list[list[int] | None] = field(default_factory=list)
    from_start: list[bool] = field(default_factory=list)

    def add(self, path: Path, pair: Pair) -> None:
        """Raises HistoryError."""
        outcome = self.rows.add(pair)
        kind, (of, value) = str(pair.invoke.f), _said(pair, outcome)
        self.kind.append(ASSIGNS.index(kind))
        events = [each for each in (pair.invoke, pair.complete) if each is not None]
        self.from_start.append(any(bool(each.more.get(FROM_START)) for each in events))
        if kind not in _NAME_KEYS:
            self.named.append(None)
            return
        if not (value is None or isinstance(value, (tuple, list, frozenset))):
            raise HistoryError(f"{path} line {of.line}: {shown(value)} is no list of partitions to {kind}")
        self.named.append([self.keys.of(key) for key in value or ()])

    def table(self, run: str, timed: bool, spelt: Mapping[int, int]) -> pa.Table:
        """spelt: keys that turned out to be others."""
        order = self.rows.order()
        named = [self.named[row] for row in order.tolist()]
        keys = [None if each is None else [spelt.get(key, key) for key in each] for each in named]
        columns = self.rows.columns(run, timed, order, open_info=False)
        columns |= {
            "kind": category(ASSIGNS, np.array(self.kind, np.int32)[order]),
            "keys": pa.array(keys, ASSIGNMENTS.field("keys").type),
            "from_start": pa.array(np.array(self.from_start, bool)[order]),
        }
        return table(ASSIGNMENTS, columns)


def _said(pair: Pair, outcome: str) -> tuple[Event, Any]:
    """What an assignment was of, and the event that says so: the completion if it took effect and says anything."""
    done = pair.complete
    if outcome == "ok" and done is not None and done.has_value and done.value is not None:
        return done, untag(done.value)
    return pair.invoke, untag(pair.invoke.value)


def transactions(
    operations: Operations, pairs: Iterable[Pair], run: str, workload: str
) -> tuple[dict[str, pa.Table], Numbers, Numbers, dict[str, list[int]]]:
    """`transactions` and `micro_operations`, and `assignments` if there are any, with what the numbers of values and of
    keys stand for, and which partitions were re-assigned during a transaction (by its number). workload: list-append,
    rw-register or kafka. Raises HistoryError."""
    rows, micro = Rows(), _Micro()
    assigned = _Assignments(micro.keys)
    rebalanced: dict[int, list[int]] = {}
    kafka = workload == "kafka"
    read = _READERS[workload]
    for pair in pairs:
        if pair.invoke.f == _LOOKS:
            continue
        if pair.invoke.f in ASSIGNS:
            if kafka:
                assigned.add(operations.foreign.path, pair)
            continue
        row = len(rows.at)
        outcome = rows.add(pair)
        try:
            _check_same(operations.foreign.path, pair, outcome)
            read(operations.foreign.path, micro, row, outcome, pair)
            if pair.complete is not None and pair.complete.more.get(REBALANCE_LOG):
                rebalanced[row] = _rebalanced(micro.keys, pair.complete.more[REBALANCE_LOG])
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
            done = pair.complete
            of = done if done is not None and (outcome == "ok" or _micro_operations(done.value)) else pair.invoke
            raise HistoryError(
                f"{operations.foreign.path} line {of.line}: {shown(of.value)} is no transaction of {workload}"
            ) from None
    spelt: dict[int, int] = {}
    if kafka and (spelt := micro.spell_keys(operations.foreign)):
        rebalanced = {row: sorted({spelt.get(key, key) for key in keys}) for row, keys in rebalanced.items()}
    order = rows.order()
    # A poll that an indeterminate transaction tells of was over when it completed, whenever its sends take effect.
    columns = rows.columns(run, operations.timed, order, open_info=not kafka)
    tables = {"transactions": table(TRANSACTIONS, columns), "micro_operations": micro.table(run, order)}
    if assigned.kind:
        tables["assignments"] = assigned.table(run, operations.timed, spelt)
    number = np.argsort(order)  # of the transaction of each row
    by_op = {str(number[row]): keys for row, keys in rebalanced.items() if keys}
    return tables, micro.values, micro.keys, by_op


def _rebalanced(numbers: Numbers, log: Any) -> list[int]:
    """The partitions in a `:rebalance-log [{:keys [0 1], …} …]`. Raises TypeError if it is another thing."""
    keys: set[int] = set()
    for entry in map(untag, log):
        of = {plain_name(name): value for name, value in entry.items()}.get("keys")
        keys.update(numbers.of(key) for key in of or ())
    return sorted(keys)


def _check_same(path: Path, pair: Pair, outcome: str) -> None:
    """Raises HistoryError if an ok transaction did other things than it was invoked for, ValueError and its like if a
    value is no transaction."""
    if outcome != "ok" or pair.complete is None or pair.complete.value is None or pair.invoke.value is None:
        return
    asked, done = pair.invoke.value, pair.complete.value
    if len(asked) == len(done):
        for one, other in zip(asked, done, strict=True):
            if not (one[0] == other[0] and one[1:2] == other[1:2] and one[2:3] == other[2:3]) and not _same(one, other):
                break
        else:
            return
    raise _other_things(path, pair)


def _other_things(path: Path, pair: Pair) -> HistoryError:
    assert pair.complete is not None
    return HistoryError(
        f"{path} line {pair.complete.line}: the transaction did {shown(pair.complete.value)}, but what was invoked on "
        f"line {pair.invoke.line} is {shown(pair.invoke.value)}"
    )


def _same(asked: Any, done: Any) -> bool:
    """Are these one micro-operation, but for what it found?"""
    what = head(asked)
    if what != head(done):
        return False
    if what == "poll":
        return True
    value = done[2]
    if what == "send" and isinstance(value, (tuple, list)):
        value = value[1]
    return bool(asked[1] == done[1] and (what in ("r", "read") or asked[2] in (value, done[2])))


def _read_lists(path: Path, micro: _Micro, row: int, outcome: str, pair: Pair) -> None:
    """Raises ValueError and its like if the value has another form, HistoryError if an ok read says nothing."""
    for position, each in enumerate(_done(path, outcome, pair)):
        what, key, argument = each
        name = what if isinstance(what, str) else what.name
        if name in ("append", ":append"):
            micro.add(row, position, _APPEND, key, None, micro.values.of(argument))
        elif name not in ("r", ":r", "read"):
            raise ValueError(name)
        elif outcome == "ok":
            if not (argument is None or isinstance(argument, (tuple, list))):  # the order of a set says nothing
                raise ValueError(argument)
            micro.add_list(row, position, key, argument)


def _read_registers(path: Path, micro: _Micro, row: int, outcome: str, pair: Pair) -> None:
    """Raises ValueError and its like if the value has another form, HistoryError if an ok read says nothing."""
    for position, each in enumerate(_done(path, outcome, pair)):
        _, key, argument = each
        value = NULL if argument is None else micro.values.of(argument)
        what = head(each)
        if what in ("w", "write"):
            micro.add(row, position, _WRITE, key, None, value)
        elif what not in ("r", "read"):
            raise ValueError(what)
        elif outcome == "ok":
            micro.add(row, position, _READ, key, None, value)


def _done(path: Path, outcome: str, pair: Pair) -> Any:
    """What a transaction did, or may have done, as far as it says. Raises HistoryError if an ok read says nothing."""
    value = pair.invoke.value
    done = pair.complete if outcome == "ok" else None
    if done is not None and done.value is not None:
        value = done.value
    elif value is None and pair.complete is not None and _micro_operations(pair.complete.value):
        value = pair.complete.value  # only this says what may have been appended
    elif done is not None and any(head(each) in ("r", "read") for each in value):
        raise says_nothing(path, done)
    return value


def _read_logs(path: Path, micro: _Micro, row: int, outcome: str, pair: Pair) -> None:
    """Raises ValueError and its like if the value has another form, HistoryError if a completion that is not ok is of
    other micro-operations than its invocation."""
    asked, done = pair.invoke.value, None if pair.complete is None else pair.complete.value
    if outcome != "ok":
        done = _as_far_as_it_came(path, pair)
    for position, each in enumerate(asked if done is None else done):
        what = head(each)
        if what == "send":
            offset, value = None, each[2]
            if done is not None and isinstance(value, (tuple, list)):
                offset, value = value
            micro.add(row, position, _SEND, each[1], offset, micro.values.of(value))
        elif what != "poll":
            raise ValueError(what)
        elif done is not None:
            for key, records in (each[1] if len(each) > 1 and each[1] is not None else {}).items():
                if not isinstance(records, (tuple, list)):
                    raise ValueError(records)
                for offset, value in records:
                    micro.add(row, position, _POLL, key, offset, micro.values.of(value))
                if not records:
                    micro.add(row, position, _POLL, key, None, NULL)


def _as_far_as_it_came(path: Path, pair: Pair) -> Any:
    """Of a transaction that is not ok, what its completion says of its micro-operations, and of those that it says
    nothing of what the invocation does; None: it says nothing at all. Raises HistoryError."""
    if pair.complete is None or not _micro_operations(pair.complete.value):
        return None
    asked, done = pair.invoke.value, pair.complete.value
    if asked is None:
        return done
    if len(done) > len(asked) or not all(_same(*each) for each in zip(asked, done, strict=False)):
        raise _other_things(path, pair)
    return [*done, *asked[len(done) :]]


def _micro_operations(value: Any) -> bool:
    """Is this a list of micro-operations, and of nothing else?"""
    return isinstance(value, (tuple, list)) and all(head(each) in _HEADS for each in value)


_HEADS: Final = frozenset({"append", "r", "read", "w", "write", "send", "poll"})
_READERS: Final = {"list-append": _read_lists, "rw-register": _read_registers, "kafka": _read_logs}
#: As JSON has them as keys of a map.
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")


def _offset(value: Any) -> int:
    if type(value) is not int or not -Numbers.FIRST < value < Numbers.FIRST:
        raise ValueError(value)
    return value
