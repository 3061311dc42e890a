"""list-append: the order of versions of each key, and the dependencies that follow from it.

A read returns a whole list, so the longest read of a key tells the order of all elements in it (Kingsbury and Alvaro,
Elle: Inferring Isolation Anomalies from Experimental Observations, VLDB 2020). An append that no read returned comes
after those. Only reads by transactions that are ok are believed. Then, of different transactions,

    ww  the writers of two successive elements; the writer of the last one, and of an append that was never read
    wr  the writer of the last element of a read, and the reader
    rw  the reader of a list, and the writer of the element after its end; if none is known, every writer of an append
        that was never read

Writers are transactions that are ok or indeterminate: an indeterminate one whose append was read has happened, and of
another nothing can follow, so that it lies on no cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from checkers.naming import Naming
from checkers.transactions.graph import RW, WR, WW
from checkers.transactions.history import FAIL, NOTHING, OK, Micro, Transactions
from spark_history.errors import HistoryError
from spark_history.files import Bools, Ints

NOWHERE: Final = -1
#: Readers of the last version of one key, times appends to it that were never read: more of these edges are not drawn.
MANY: Final = 5_000_000


@dataclass(frozen=True)
class Dependencies:
    """Edges with what explains them, an entry each. Transactions by index; NOTHING: no value."""

    source: Ints
    target: Ints
    kind: Ints  # WW, WR or RW
    key: Ints
    value: Ints  # ww, rw: what the target wrote. wr: what the source wrote and the target read
    before: Ints  # ww: what the source wrote. rw: the last that the source read


class Lists:
    """The micro-operations of some keys, all of them. Arrays by operation have a name in the plural."""

    def __init__(self, txns: Transactions, micro: Micro, naming: Naming) -> None:
        """Raises HistoryError if a read has elements twice or left out at a position."""
        self.txns, self.micro, self.naming = txns, micro, naming
        key, txn, position = micro.key, micro.txn, micro.position
        new = np.ones(len(key), bool)
        new[1:] = (key[1:] != key[:-1]) | (txn[1:] != txn[:-1]) | (position[1:] != position[:-1])
        self.starts = np.flatnonzero(new)
        self.of_row = np.cumsum(new) - 1
        self.txn_of = txn[self.starts]
        self.outcomes = txns.outcome[self.txn_of]
        self.reads = micro.read[self.starts]
        self.lengths = np.diff(np.append(self.starts, len(key)))
        self.lengths[self.reads & (micro.value[self.starts] == NOTHING) & (self.lengths == 1)] = 0
        #: operations of keys that follow each other: where each key begins
        self.key_starts = np.flatnonzero(np.concatenate(([True], np.diff(key[self.starts]) != 0))[: len(self.starts)])
        self.keys = key[self.starts[self.key_starts]]
        operations = np.diff(np.append(self.key_starts, len(self.starts)))
        self.key_of = np.repeat(np.arange(len(self.keys)), operations)
        self.seen = self.reads & (self.outcomes == OK)  # reads that are believed
        self._check_offsets()
        self._find_orders()
        self._find_appends()

    def _check_offsets(self) -> None:
        believed = self.seen[self.of_row] & (self.lengths[self.of_row] > 0)
        place = np.arange(len(self.micro)) - self.starts[self.of_row]
        wrong = np.flatnonzero(believed & (self.micro.offset != place))
        if len(wrong):
            row = wrong[0]
            op, key = self.txns.op[self.micro.txn[row]], self.naming.key(self.micro.key[row])
            value = self.naming.value(self.micro.value[row])
            raise HistoryError(
                f"run {self.txns.run!r}: the read of key {key} by transaction {op} has element {value} "
                f"at position {self.micro.offset[row]}, where {place[row]} was due"
            )
        self.place = place

    def _find_orders(self) -> None:
        """The longest read of each key, the first of several: row `base`, `length` elements."""
        number = len(self.keys)
        lengths = np.where(self.seen, self.lengths, NOWHERE)
        self.length = np.maximum.reduceat(lengths, self.key_starts) if number else np.empty(0, np.int64)
        candidates = np.flatnonzero(self.seen & (lengths == self.length[self.key_of]))
        longest = np.full(number, NOWHERE)
        longest[self.key_of[candidates[::-1]]] = candidates[::-1]
        self.longest = longest
        self.length = np.maximum(self.length, 0)
        base = self.starts[longest] if number else np.empty(0, np.int64)
        # All orders one after the other: element e is the one at `rank` of the order of key `element_key`.
        self.first_element = np.concatenate(([0], np.cumsum(self.length)))
        self.element_key = np.repeat(np.arange(number), self.length)
        self.rank = np.arange(len(self.element_key)) - self.first_element[self.element_key]
        self.element = self.micro.value[base[self.element_key] + self.rank]
        # Which reads are no prefix of the longest.
        rows = np.flatnonzero(self.seen[self.of_row] & (self.lengths[self.of_row] > 0))
        expected = self.element[self.first_element[self.key_of[self.of_row[rows]]] + self.place[rows]]
        wrong = rows[self.micro.value[rows] != expected]
        self.differs = np.zeros(len(self.starts), bool)
        self.differs[self.of_row[wrong]] = True

    def _find_appends(self) -> None:
        #: operations that append; `value` and `writer` are of these
        self.appends = np.flatnonzero(~self.reads)
        self.value = self.micro.value[self.starts[self.appends]]
        self.writer = self.txn_of[self.appends]
        self._span = (int(self.micro.value.min(initial=0)), int(self.micro.value.max(initial=0)))
        codes = self._pairs(self.key_of[self.appends], self.value)
        self._append_order = np.argsort(codes, kind="stable")
        self._append_codes = codes[self._append_order]
        #: by element, which of the appends wrote it; NOWHERE: none
        self.wrote = self.append_of(self.element_key, self.element)
        #: by append, its place in the order of its key; NOWHERE: it was never read
        self.append_rank = np.full(len(self.appends), NOWHERE)
        known = np.flatnonzero(self.wrote != NOWHERE)[::-1]  # of an element that stands twice, the first counts
        self.append_rank[self.wrote[known]] = self.rank[known]
        #: elements that stand further down again
        self.again = np.zeros(len(self.element), bool)
        pairs = self._pairs(self.element_key, self.element)
        order = np.argsort(pairs, kind="stable")
        self.again[order[1:]] = pairs[order[1:]] == pairs[order[:-1]]

    def _pairs(self, keys: Ints, values: Ints) -> Ints:
        """One number for each key and value."""
        low, high = self._span
        if (high - low + 1) * max(len(self.keys), 1) < 2**62:
            return keys * (high - low + 1) + (values - low)
        if not hasattr(self, "_distinct"):
            self._distinct = np.unique(self.micro.value)
        return keys * len(self._distinct) + np.searchsorted(self._distinct, values)

    def append_of(self, keys: Ints, values: Ints) -> Ints:
        """By key and value, which of the appends wrote it."""
        if not len(self.appends):
            return np.full(len(keys), NOWHERE)
        codes = self._pairs(keys, values)
        place = np.minimum(np.searchsorted(self._append_codes, codes), len(self._append_codes) - 1)
        return np.where(self._append_codes[place] == codes, self._append_order[place], NOWHERE)

    @property
    def twice(self) -> str | None:
        """Why nothing can be said: a value that was appended to one key twice."""
        again = np.flatnonzero(self._append_codes[1:] == self._append_codes[:-1])
        if not len(again):
            return None
        append = self._append_order[again[0]]
        key = self.naming.key(self.keys[self.key_of[self.appends[append]]])
        value = self.naming.value(self.value[append])
        return f"value {value} was appended to key {key} twice: only unique values make it decidable"

    @cached_property
    def last_append(self) -> Ints:
        """By operation, which of the appends wrote the last element of a believed read; NOWHERE: none, or not known."""
        found = np.full(len(self.starts), NOWHERE)
        rows = np.flatnonzero(self.seen & (self.lengths > 0))
        keys = self.key_of[rows]
        found[rows] = self.wrote[self.first_element[keys] + self.lengths[rows] - 1]
        odd = np.flatnonzero(self.differs)
        last = self.micro.value[self.starts[odd] + self.lengths[odd] - 1]
        found[odd] = self.append_of(self.key_of[odd], last)
        return found

    @cached_property
    def not_drawn(self) -> int:
        """Keys with too many edges from readers of the last version to appends that were never read."""
        return int(np.count_nonzero(self._tail_sizes > MANY))

    @cached_property
    def _possible(self) -> Bools:
        """By append: may it have happened?"""
        possible: Bools = self.txns.outcome[self.writer] != FAIL
        return possible

    @cached_property
    def _standing(self) -> Ints:
        """Elements, in order, whose writer is known and did not fail, without those that stand again."""
        valid = (self.wrote != NOWHERE) & ~self.again
        valid[valid] = self._possible[self.wrote[valid]]
        return np.flatnonzero(valid)

    @cached_property
    def _unread(self) -> Ints:
        return np.flatnonzero(self._possible & (self.append_rank == NOWHERE))

    def dependencies(self) -> Dependencies:
        parts = [self._ww(), self._wr(), self._rw(), self._rw_of_unread()]
        columns = [np.concatenate([part[i] for part in parts]) for i in range(6)]
        kept = columns[0] != columns[1]
        return Dependencies(*(column[kept] for column in columns))

    def _ww(self) -> tuple[Ints, ...]:
        standing, unread = self._standing, self._unread
        appends = self.wrote[standing]
        keys = self.element_key[standing]
        follows = np.flatnonzero(keys[1:] == keys[:-1])
        earlier, later = appends[follows], appends[follows + 1]
        # After the last that was read, those that never were.
        last = np.full(len(self.keys), NOWHERE)
        last[keys] = appends  # of several, numpy keeps the last
        before = last[self.key_of[self.appends[unread]]]
        earlier = np.concatenate([earlier, before[before != NOWHERE]])
        later = np.concatenate([later, unread[before != NOWHERE]])
        return self._edges(self.writer[earlier], later, WW, self.value[earlier])

    def _edges(self, source: Ints, appends: Ints, kind: int, before: Ints) -> tuple[Ints, ...]:
        """To the writers of `appends`."""
        key = self.keys[self.key_of[self.appends[appends]]]
        return source, self.writer[appends], np.full(len(source), kind), key, self.value[appends], before

    def _wr(self) -> tuple[Ints, ...]:
        reads = np.flatnonzero(self.last_append != NOWHERE)
        appends = self.last_append[reads]
        possible = self._possible[appends]
        reads, appends = reads[possible], appends[possible]
        nothing = np.full(len(reads), NOTHING)
        kind = np.full(len(reads), WR)
        key = self.keys[self.key_of[reads]]
        return self.writer[appends], self.txn_of[reads], kind, key, self.value[appends], nothing

    @cached_property
    def _next(self) -> tuple[Ints, Ints]:
        """Believed reads whose version is known, and for each the number in _standing of the element that follows it;
        one past those of its key: none does."""
        reads = np.flatnonzero(self.seen & ((self.lengths == 0) | (self.last_append != NOWHERE) | ~self.differs))
        keys = self.key_of[reads]
        length = self.lengths[reads].copy()
        odd = np.flatnonzero(self.differs[reads])
        rank = np.full(len(odd), NOWHERE)
        written = self.last_append[reads[odd]] != NOWHERE
        rank[written] = self.append_rank[self.last_append[reads[odd[written]]]]
        length[odd] = rank + 1
        known = np.ones(len(reads), bool)
        known[odd] = rank != NOWHERE
        reads, keys, length = reads[known], keys[known], length[known]
        return reads, np.searchsorted(self._standing, self.first_element[keys] + length)

    def _last_read(self, reads: Ints) -> Ints:
        some = self.lengths[reads] > 0
        rows = self.starts[reads] + np.maximum(self.lengths[reads] - 1, 0)
        return np.where(some, self.micro.value[rows], NOTHING)

    def _rw(self) -> tuple[Ints, ...]:
        reads, following = self._next
        inside = following < len(self._standing)
        inside[inside] = self.element_key[self._standing[following[inside]]] == self.key_of[reads[inside]]
        reads, following = reads[inside], following[inside]
        appends = self.wrote[self._standing[following]]
        return self._edges(self.txn_of[reads], appends, RW, self._last_read(reads))

    @cached_property
    def _tails(self) -> tuple[Ints, Ints, Ints]:
        """Reads of the last version of their key, by key; and by key how many of them, and of unread appends."""
        reads, following = self._next
        past = np.searchsorted(self.element_key[self._standing], np.arange(len(self.keys)), "right")
        reads = reads[following >= past[self.key_of[reads]]]
        number = np.bincount(self.key_of[reads], minlength=len(self.keys))
        unread = np.bincount(self.key_of[self.appends[self._unread]], minlength=len(self.keys))
        return reads, number, unread

    @cached_property
    def _tail_sizes(self) -> Ints:
        _, readers, unread = self._tails
        return readers * unread

    def _rw_of_unread(self) -> tuple[Ints, ...]:
        reads, _, unread = self._tails
        keys = self.key_of[reads]
        # Where these would be too many, the append that was acknowledged first is the one to contradict real time.
        order = np.lexsort((self.txns.done[self.writer[self._unread]], self.key_of[self.appends[self._unread]]))
        appends = self._unread[order]
        first = np.concatenate(([0], np.cumsum(unread)))
        number = np.where(self._tail_sizes > MANY, np.minimum(unread, 1), unread)[keys]
        which = np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)
        appends = appends[np.repeat(first[keys], number) + which]
        reads = np.repeat(reads, number)
        return self._edges(self.txn_of[reads], appends, RW, self._last_read(reads))
