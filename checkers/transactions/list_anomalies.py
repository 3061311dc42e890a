"""list-append: what is wrong without any cycle.

    G1a                 a read returned an append of a transaction that failed
    G1b                 a read ends with an append that its transaction followed up with another to the same key
    internal            a transaction contradicts what it read of, or appended to, the key before, or its appends to
                        the key stand in another order than it made them
    future-read         a transaction read what it only appended afterwards
    dirty-update        a committed transaction's append stands after one of a transaction that failed
    duplicate-elements  one element stands twice in a list
    incompatible-order  two reads of a key, neither of which is a prefix of the other
    garbage-read        a read returned what nobody appended
    lost-update         two transactions read the same list and then both appended to it

Definitions are those of Elle (elle.list-append, elle.txn). What is suspicious is found on arrays; what it is, is then
told from the few transactions that it concerns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from checkers.transactions.history import FAIL, OK
from checkers.transactions.lists import NOWHERE, Lists
from checkers.transactions.report import Report, shorten
from spark_history.files import Ints

#: Keys and transactions that are looked at one by one, of each kind of suspicion; more are counted.
SUSPECTS: Final = 2000


def check(lists: Lists, report: Report) -> None:
    for look in LOOKS:
        look(lists, report)


def _list(lists: Lists, operation: int) -> list[int]:
    low = lists.starts[operation]
    return [int(value) for value in lists.micro.value[low : low + lists.lengths[operation]]]


def _elements(lists: Lists, values: Sequence[int]) -> str:
    return shorten([*map(lists.naming.value, values)])


def _key(lists: Lists, operation: int) -> str:
    return lists.naming.key(lists.keys[lists.key_of[operation]])


def _value(lists: Lists, append: int) -> str:
    return lists.naming.value(lists.value[append])


def _read(lists: Lists, operation: int) -> tuple[int, str]:
    """The transaction, and what it did."""
    elements = _elements(lists, _list(lists, operation))
    return int(lists.txn_of[operation]), f"read key {_key(lists, operation)}: {elements}"


def _append(lists: Lists, append: int) -> tuple[int, str]:
    operation = int(lists.appends[append])
    return int(lists.writer[append]), f"append {_value(lists, append)} to key {_key(lists, operation)}"


def _observed(lists: Lists) -> tuple[Ints, Ints, Ints, Ints]:
    """Of every element that a believed read returned: key, value, an operation that returned it, how many did.

    Those of reads that differ from the longest stand by themselves."""
    keys, values = lists.element_key, lists.element
    plain = lists.seen & ~lists.differs & (lists.lengths > 0)
    lengths = np.sort(lists.key_of[plain] * (2**32) + lists.lengths[plain])
    counts = np.searchsorted(lengths, (keys + 1) * 2**32) - np.searchsorted(lengths, keys * 2**32 + lists.rank + 1)
    rows = np.flatnonzero(lists.differs[lists.of_row])
    operations = lists.of_row[rows]
    return (
        np.concatenate([keys, lists.key_of[operations]]),
        np.concatenate([values, lists.micro.value[rows]]),
        np.concatenate([lists.longest[keys], operations]),
        np.concatenate([np.maximum(counts, 1), np.ones(len(rows), np.int64)]),
    )


def _returned(lists: Lists, wanted: Callable[[Ints], Ints]) -> list[tuple[int, int, int, int]]:
    """(value, append or NOWHERE, an operation that returned it, how many) of the elements whose append `wanted`
    picks out, each once."""
    keys, values, operations, counts = _observed(lists)
    appends = lists.append_of(keys, values)
    found: dict[tuple[int, int], list[int]] = {}
    for i in wanted(appends).tolist():
        entry = found.setdefault((int(keys[i]), int(values[i])), [int(appends[i]), int(operations[i]), 0])
        entry[2] += int(counts[i])
    return [(value, *entry) for (_, value), entry in found.items()]  # type: ignore[misc]


def _garbage(lists: Lists, report: Report) -> None:
    for value, _, operation, count in _returned(lists, lambda appends: np.flatnonzero(appends == NOWHERE)):
        reader = _read(lists, operation)
        report.add(
            "garbage-read",
            f"{report.name(reader[0])} read {lists.naming.value(value)} in key {_key(lists, operation)}, which no "
            "transaction ever appended: "
            f"{_elements(lists, _list(lists, operation))}",
            [reader],
            value=value,
            count=count,
        )


def _aborted(lists: Lists, report: Report) -> None:
    failed = lists.txns.outcome[lists.writer] == FAIL
    if not failed.any():
        return

    def of_failed(appends: Ints) -> Ints:
        known = np.flatnonzero(appends != NOWHERE)
        found: Ints = known[failed[appends[known]]]
        return found

    for value, append, operation, count in _returned(lists, of_failed):
        reader, writer = _read(lists, operation), _append(lists, append)
        report.add(
            "G1a",
            f"{report.name(reader[0])} read {lists.naming.value(value)} in key {_key(lists, operation)}, which "
            f"{report.name(writer[0])} appended, and that transaction failed",
            [writer, reader],
            value=value,
            count=count,
        )


def _intermediate(lists: Lists, report: Report) -> None:
    appends = lists.appends  # by key and transaction
    same = (lists.key_of[appends[1:]] == lists.key_of[appends[:-1]]) & (lists.writer[1:] == lists.writer[:-1])
    followed = np.append(same, False)
    reads = np.flatnonzero(lists.last_append != NOWHERE)
    last = lists.last_append[reads]
    bad = followed[last] & (lists.writer[last] != lists.txn_of[reads])
    for operation, append in zip(reads[bad].tolist(), last[bad].tolist(), strict=True):
        reader, writer = _read(lists, operation), _append(lists, append)
        report.add(
            "G1b",
            f"{report.name(reader[0])} read key {_key(lists, operation)} up to {_value(lists, append)}, an "
            f"intermediate state: {report.name(writer[0])} appended {_value(lists, append + 1)} after it",
            [writer, reader],
            value=int(lists.value[append]),
        )


def _suspicious_groups(lists: Lists) -> Ints:
    """Groups (a transaction's operations on one key, by their first operation) that may contradict themselves."""
    key, txn = lists.key_of, lists.txn_of
    new = np.ones(len(key), bool)
    new[1:] = (key[1:] != key[:-1]) | (txn[1:] != txn[:-1])
    firsts = np.flatnonzero(new)
    group = np.cumsum(new) - 1
    several = np.diff(np.append(firsts, len(key))) > 1
    rows = np.flatnonzero(several[group] & (lists.outcomes == OK))
    if not len(rows):
        return rows
    mine, reads = group[rows], lists.reads[rows]
    numbers = np.arange(len(rows))
    # The read before each operation (the operation itself not) and the first one from it on, if of the same group.
    before = np.maximum.accumulate(np.where(reads, numbers, NOWHERE))
    before = np.concatenate(([NOWHERE], before[:-1]))
    before[(before != NOWHERE) & (mine[before] != mine)] = NOWHERE
    after = np.minimum.accumulate(np.where(reads, numbers, len(rows))[::-1])[::-1]
    after = np.where(after < len(rows), after, NOWHERE)
    after[(after != NOWHERE) & (mine[after] != mine)] = NOWHERE
    written = np.cumsum(~reads)  # appends up to each operation
    length = lists.lengths[rows]
    odd = lists.differs[rows]
    has = reads & (before != NOWHERE)
    odd[has] |= length[has] != length[before[has]] + (written[has] - written[before[has]])
    rank = np.full(len(rows), NOWHERE)
    place = np.full(len(lists.starts), NOWHERE)
    place[lists.appends] = lists.append_rank
    rank[~reads] = place[rows[~reads]]
    has = ~reads & (after != NOWHERE)
    due = length[after[has]] - (written[after[has]] - written[has] + 1)
    odd[has] |= (rank[has] == NOWHERE) | (rank[has] != due)
    has = ~reads & (before != NOWHERE) & (rank != NOWHERE)
    odd[has] |= rank[has] < length[before[has]]
    # With an element that stands twice, ranks do not tell.
    doubled = np.zeros(len(lists.keys), bool)
    doubled[lists.element_key[lists.again]] = True
    odd |= doubled[key[rows]]
    found: Ints = np.unique(firsts[mine[odd]])
    return found


def _within(lists: Lists, report: Report) -> None:
    """internal and future-read: a transaction against itself, a key each."""
    for first in _suspicious_groups(lists).tolist():
        key, txn = lists.key_of[first], int(lists.txn_of[first])
        state: list[int] | None = None  # the whole list, as it must be
        appended: list[int] = []  # since the beginning, where that is not known
        earlier_reads: set[int] = set()
        future = internal = None
        operation = first
        while operation < len(lists.starts) and lists.key_of[operation] == key and lists.txn_of[operation] == txn:
            elements = _list(lists, operation)
            if lists.reads[operation]:
                if state is not None and elements != state:
                    internal = internal or (elements, _elements(lists, state))
                elif state is None and appended and elements[-len(appended) :] != appended:
                    internal = internal or (elements, f"a list that ends with {_elements(lists, appended)}")
                state, appended = elements, []
                earlier_reads.update(elements)
            else:
                if elements[0] in earlier_reads:
                    future = elements[0] if future is None else future
                if state is not None:
                    state = [*state, elements[0]]
                else:
                    appended.append(elements[0])
            operation += 1
        steps = [(txn, f"{operation - first} operations on key {_key(lists, first)}")]
        if internal is not None:
            report.add(
                "internal",
                f"{report.name(txn)} read key {_key(lists, first)} as {_elements(lists, internal[0])}, but from what "
                f"it had read and appended before, {internal[1]} was due",
                steps,
            )
        if future is not None:
            report.add(
                "future-read",
                f"{report.name(txn)} read {lists.naming.value(future)} in key {_key(lists, first)} and appended it "
                "only afterwards",
                steps,
                value=future,
            )


def _own_order(lists: Lists, report: Report) -> None:
    """internal too, though Elle does not look: what a transaction appended to a key stands in another order."""
    appends, rank = lists.appends, lists.append_rank
    same = (lists.key_of[appends[1:]] == lists.key_of[appends[:-1]]) & (lists.writer[1:] == lists.writer[:-1])
    for append in np.flatnonzero(same & (rank[1:] != NOWHERE) & (rank[1:] < rank[:-1])).tolist():
        first, then = _append(lists, append), _append(lists, append + 1)
        reader = _read(lists, int(lists.longest[lists.key_of[appends[append]]]))
        report.add(
            "internal",
            f"{report.name(first[0])} appended {_value(lists, append)} before {_value(lists, append + 1)} to one "
            f"key, but {report.name(reader[0])} {reader[1]}",
            [first, then, reader],
            value=int(lists.value[append + 1]),
        )


def _duplicates(lists: Lists, report: Report) -> None:
    for element in np.flatnonzero(lists.again).tolist():
        key, value = lists.element_key[element], int(lists.element[element])
        _duplicate(lists, report, int(lists.longest[key]), value, int(lists.rank[element]))
    for operation in np.flatnonzero(lists.differs).tolist():
        elements = _list(lists, operation)
        seen: set[int] = set()
        for place, value in enumerate(elements):
            if value in seen:
                _duplicate(lists, report, operation, value, place)
            seen.add(value)


def _duplicate(lists: Lists, report: Report, operation: int, value: int, place: int) -> None:
    reader = _read(lists, operation)
    first = _list(lists, operation).index(value)
    report.add(
        "duplicate-elements",
        f"{report.name(reader[0])} read {lists.naming.value(value)} in key {_key(lists, operation)} twice, at "
        f"positions {first} and {place}: {_elements(lists, _list(lists, operation))}",
        [reader],
        value=value,
    )


def _incompatible(lists: Lists, report: Report) -> None:
    odd = np.flatnonzero(lists.differs)
    keys, first, count = np.unique(lists.key_of[odd], return_index=True, return_counts=True)
    for key, operation, number in zip(keys, odd[first].tolist(), count.tolist(), strict=True):
        longest = int(lists.longest[key])
        readers = [_read(lists, operation), _read(lists, longest)]
        pair = enumerate(zip(_list(lists, operation), _list(lists, longest), strict=False))
        place, (mine, other) = next((i, values) for i, values in pair if values[0] != values[1])
        report.add(
            "incompatible-order",
            f"{report.name(readers[0][0])} read {lists.naming.value(mine)} at position {place} of key "
            f"{_key(lists, operation)}, where {report.name(readers[1][0])} read {lists.naming.value(other)}: "
            "neither list is a prefix of the other",
            readers,
            count=number,
        )


def _dirty_updates(lists: Lists, report: Report) -> None:
    outcome = np.full(len(lists.element), OK)
    known = lists.wrote != NOWHERE
    outcome[known] = lists.txns.outcome[lists.writer[lists.wrote[known]]]
    failed = known & (outcome == FAIL) & ~lists.again
    for key in np.unique(lists.element_key[failed])[:SUSPECTS].tolist():
        dirty: int | None = None
        for element in range(lists.first_element[key], lists.first_element[key + 1]):
            if not known[element]:
                continue
            append = int(lists.wrote[element])
            if outcome[element] == FAIL:
                dirty = append if dirty is None else dirty
            elif outcome[element] == OK and dirty is not None:
                writers = [_append(lists, dirty), _append(lists, append)]
                report.add(
                    "dirty-update",
                    f"{report.name(writers[1][0])} committed its append of {_value(lists, append)} to key "
                    f"{lists.naming.key(lists.keys[key])} on top of {_value(lists, dirty)}, which "
                    f"{report.name(writers[0][0])} appended, and that transaction failed",
                    writers,
                    value=int(lists.value[append]),
                )
                dirty = None


def _lost_updates(lists: Lists, report: Report) -> None:
    key, txn = lists.key_of, lists.txn_of
    new = np.ones(len(key), bool)
    new[1:] = (key[1:] != key[:-1]) | (txn[1:] != txn[:-1])
    group = np.cumsum(new) - 1
    firsts = np.flatnonzero(new)
    writes = np.zeros(len(firsts), bool)
    writes[group[~lists.reads]] = True
    # A read that comes first, and an append to the same key later on.
    candidates = firsts[lists.reads[firsts] & lists.seen[firsts] & writes]
    plain = candidates[~lists.differs[candidates]]
    version = key[plain] * 2**32 + lists.lengths[plain]
    order = np.argsort(version, kind="stable")
    again = np.zeros(len(order), bool)
    same = version[order[1:]] == version[order[:-1]]
    again[1:] |= same
    again[:-1] |= same
    colliding: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for operation in plain[order[again]].tolist():
        colliding[int(key[operation]), int(lists.lengths[operation])].append(operation)
    for operation in candidates[lists.differs[candidates]].tolist():
        colliding[int(key[operation]), NOWHERE, *_list(lists, operation)].append(operation)
    for operations in colliding.values():
        if len(operations) > 1:
            _lost_update(lists, report, operations)


def _lost_update(lists: Lists, report: Report, operations: Sequence[int]) -> None:
    readers = [_read(lists, operation) for operation in operations[:2]]
    names = " and ".join(report.name(txn) for txn, _ in readers)
    more = f" (and {len(operations) - 2} more)" if len(operations) > 2 else ""
    report.add(
        "lost-update",
        f"{names}{more} read key {_key(lists, operations[0])} as {_elements(lists, _list(lists, operations[0]))}, and "
        "then each appended to it: one of them did not see what the other had appended",
        readers,
        count=len(operations) - 1,
    )


LOOKS: Final = (
    _garbage,
    _aborted,
    _intermediate,
    _within,
    _own_order,
    _duplicates,
    _incompatible,
    _dirty_updates,
    _lost_updates,
)
