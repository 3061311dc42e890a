"""Which workload a history is of, after its operations.

| operations                                                | workload                                 |
| --------------------------------------------------------- | ---------------------------------------- |
| values of micro-operations [:append k v], [:r k [v …]]    | list-append                              |
| values of [:send k v], [:poll …]; or assign, subscribe    | kafka                                    |
| values of [:w k v] or [:write k v], [:r k v]              | multi-register; rw-register where a      |
|                                                           | consistency level or what it has of keys |
|                                                           | is asked for (long-fork only if it is)   |
| read of {k nil …}, write                                  | multi-register                           |
| append, read, list-offsets, final-read of ["topic" p …]   | append, our own                          |
| read, write; cas                                          | register; cas-register                   |
| write, read of collections, where none is written         | comments                                 |
| write or add, read of [k [subkey …]]                      | sequential                               |
| read, transfer of {:from :to :amount}                     | bank                                     |
| acquire, release                                          | mutex (owned-mutex only if asked for)    |
| enqueue, dequeue; drain                                   | queue (fifo-queue only if asked for);    |
|                                                           | total-queue                              |
| add, read of collections; of numbers                      | set (set-full only if asked for);        |
|                                                           | counter                                  |
| get, put, append                                          | kv                                       |

What fits several is refused, with the list of them. Reads alone fit many: a bank reads as a register does, but a value
that nobody wrote is wrong of one and right of the other. So nothing is ever judged on a guess that only reads support.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import Any, Final

from spark_history.errors import HistoryError
from spark_history.jepsen import logs, registers, transactions
from spark_history.jepsen.events.event import plain_name
from spark_history.jepsen.events.plain import untag
from spark_history.jepsen.operations import Pair


class Undecided(HistoryError):
    """The operations of a history fit several workloads: somebody has to say which it is."""


_BY_F: Final = (
    (frozenset({"read", "write"}), "register"),
    (frozenset({"read", "write", "cas"}), "cas-register"),
    (frozenset({"read", "transfer"}), "bank"),
    (frozenset({"acquire", "release"}), "mutex"),
    (frozenset({"enqueue", "dequeue"}), "queue"),
    (frozenset({"enqueue", "dequeue", "drain"}), "total-queue"),
    (frozenset({"add", "read"}), "set"),
    (frozenset({"get", "put", "append"}), "kv"),
)
_ANOTHER: Final = "something that is not known here"
#: What transactions fit that do nothing but read.
_OF_READING_TRANSACTIONS: Final = ("list-append", "multi-register", "rw-register", "long-fork", _ANOTHER)
#: Entries of plans that no other workload of such transactions has.
OF_TRANSACTIONS: Final = ("consistency", "wfr_keys", "sequential_keys", "linearizable_keys")
_OF_GETS: Final = ("kv", _ANOTHER)


def workload(path: Path, pairs: Sequence[Pair], *, initial: bool = False, levelled: bool = False) -> str:
    """initial: is the first value given? levelled: is one of OF_TRANSACTIONS? Raises Undecided if the operations fit
    several, HistoryError if they fit none."""
    found = candidates(pairs, initial=initial)
    if len(found) == 1:
        return "rw-register" if found[0] == "multi-register" and levelled else found[0]
    named = ", ".join(sorted({pair.invoke.f for pair in pairs if pair.invoke.f is not None})[:8])
    reported = f"its operations: {named}" if named else "its operations have no :f"
    if found:
        several = f"{', '.join(found[:-1])} or {found[-1]}"
        raise Undecided(f"{path} could be a history of {several} ({reported}); say which by --workload")
    raise HistoryError(f"{path} is of no workload known here ({reported}); say which by --workload")


def needs_more(pairs: Sequence[Pair]) -> bool:
    """Might more operations tell more? All these do is read, or what they do fits several."""
    return bool(pairs) and ({pair.invoke.f for pair in pairs} <= {"read", "get"} or len(candidates(pairs)) > 1)


def candidates(pairs: Sequence[Pair], *, initial: bool = False) -> Sequence[str]:
    """All that the operations fit; none if there are no operations."""
    fs = {pair.invoke.f for pair in pairs}
    if not fs:
        return ()
    heads = _heads(pairs)
    if heads & {"send", "poll"} or fs & {"assign", "subscribe"}:
        return ("kafka",)
    if "append" in heads:
        return ("list-append",)
    if heads & {"w", "write"}:
        return ("multi-register",)
    if heads:
        return _OF_READING_TRANSACTIONS
    if fs <= logs.FS and all(_of_a_log(pair) for pair in pairs):
        return ("append",)
    if fs == {"read"}:
        return _of_reads(pairs, initial=initial)
    if fs == {"get"}:
        return _OF_GETS
    found = next((name for names, name in _BY_F if fs <= names), None)
    if found is None:
        return ()
    if found == "register" and any(isinstance(untag(pair.invoke.value), Mapping) for pair in pairs if _reads(pair)):
        return ("multi-register",)
    if found == "bank" and not all(_of_a_bank(pair) for pair in pairs):
        return ()
    if found == "register":
        return (_written_and_read(pairs),)
    return _set_or_counter(pairs) if found == "set" else (found,)


def _heads(pairs: Sequence[Pair]) -> set[str | None]:
    """What micro-operations there are."""
    heads = set[str | None]()
    for pair in pairs:
        value = untag(pair.invoke.value)
        if value is None and pair.complete is not None:
            value = untag(pair.complete.value)
        if _is_list(value) and value and _is_list(value[0]):
            heads.update(transactions.head(each) for each in value)
    return heads & {"append", "r", "read", "w", "write", "send", "poll"}


def _of_reads(pairs: Sequence[Pair], *, initial: bool) -> Sequence[str]:
    """Of a history in which all that is done is :read."""
    read = [value for value in _values_read(pairs) if value is not None]
    if not read:  # of a register no value need have been written for that, and no set or counter is nil
        return ("register",)
    maps, numbers = (any(of(value) for value in read) for of in (_is_map, _is_number))
    collections = any(_is_collection(value) for value in read)
    if initial and not maps and not collections:
        return ("register",)  # which then is all that a cas-register or a counter can be
    found = {
        "register": True, "cas-register": True, "multi-register": maps, "bank": maps, "set": collections,
        "set-full": collections, "comments": collections, "counter": numbers,
    }  # fmt: skip
    return (*(name for name, fits in found.items() if fits), _ANOTHER)


def _written_and_read(pairs: Sequence[Pair]) -> str:
    """Of what is written and read: a register, unless all that is read are collections and none is ever written."""
    read = [value for value in _values_read(pairs) if value is not None]
    keyed = registers.is_keyed(pairs)
    written = [_reported(pair.invoke.value, keyed=keyed) for pair in pairs if not _reads(pair)]
    if not read or not written or any(map(_is_collection, written)) or not all(map(_is_collection, read)):
        return "register"
    return "sequential" if all(map(_is_of_subkeys, read)) else "comments"


def _of_a_bank(pair: Pair) -> bool:
    """Is this a read, or a transfer that says from where to where, and how much?"""
    value = untag(pair.invoke.value)
    return _reads(pair) or (isinstance(value, Mapping) and {"from", "to", "amount"} <= set(map(plain_name, value)))


def _is_of_subkeys(value: Any) -> bool:
    return _is_list(value) and len(value) == 2 and _is_list(untag(value[1]))


def _set_or_counter(pairs: Sequence[Pair]) -> Sequence[str]:
    """Of what is added and read. What is read tells, and what is added only if it is no number."""
    read = _values_read(pairs)
    numbers, collections = (any(of(value) for value in read) for of in (_is_number, _is_collection))
    if read and all(map(_is_of_subkeys, read)) and not registers.is_keyed(pairs):
        return ("sequential",)
    if numbers != collections:
        return ("counter",) if numbers else ("set",)
    keyed = registers.is_keyed(pairs)
    added = [_reported(pair.invoke.value, keyed=keyed) for pair in pairs if not _reads(pair)]
    if not numbers and any(value is not None and not _is_number(value) for value in added):
        return ("set",)
    return ("set", "counter")


def _values_read(pairs: Sequence[Pair]) -> list[Any]:
    keyed = registers.is_keyed(pairs)
    done = [pair.complete for pair in pairs if _reads(pair) and pair.complete is not None]
    return [_reported(event.value, keyed=keyed) for event in done if event.type == "ok"]


def _reported(value: Any, *, keyed: bool) -> Any:
    """What an operation says, of whichever key."""
    value = untag(value)
    return untag(value[1]) if keyed and _is_list(value) and len(value) == 2 else value


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_collection(value: Any) -> bool:
    return _is_list(value) or isinstance(value, (frozenset, set))


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool)


def _reads(pair: Pair) -> bool:
    return pair.invoke.f == "read"


def _of_a_log(pair: Pair) -> bool:
    value = untag(pair.invoke.value)
    return _is_list(value) and len(value) == 3 and isinstance(value[0], str)


def _is_list(value: Any) -> bool:
    return isinstance(value, (tuple, list))
