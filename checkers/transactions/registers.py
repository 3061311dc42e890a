"""rw-register: transactions that write and read registers (Elle's rw-register), and what follows from versions.

A value is written to a key at most once, so a version is known by its value, and who wrote it too; the initial version
(nil, or the plan's `initial`) is before all others. Unlike a list, a register does not tell the order of its versions.
What is known of it is what the plan allows to assume of each key (the options of Elle's check, off unless given):

    wfr_keys           writes follow reads: what a transaction read of a key comes before what it wrote to it
    sequential_keys    each process sees later and later versions of a key
    linearizable_keys  so does real time: what a transaction saw or wrote of a key comes before what one did that was
                       invoked after its completion

The last two relate a transaction to the next ones that touch the same key: the last version that the one leaves to the
first that the other meets. Only what is external counts: of a transaction's reads of a key the first, if nothing it
wrote came before, and of its writes the last (Kingsbury and Alvaro, Elle, VLDB 2020, on registers). Where what is
assumed contradicts itself on a key, the versions there are cyclic; that is told, and what was assumed last (in the
order above) is left out on that key.

Then, of different transactions,

    wr  who wrote a version, and who read it
    ww  who wrote a version, and who wrote one that comes after it
    rw  who read a version, and who wrote one that comes after it

Transactions are ok, or indeterminate and wrote what was read: these have happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from checkers.naming import Naming
from checkers.transactions.graph import RW, WR, WW, components
from checkers.transactions.history import FAIL, NOTHING, OK, Micro, Transactions
from checkers.transactions.lists import MANY, NOWHERE, Dependencies
from spark_history.errors import HistoryError
from spark_history.files import Bools, Ints
from spark_history.log import NEVER

#: What versions can be ordered by, in the order in which it is taken.
INITIAL, WFR, SEQUENTIAL, LINEARIZABLE = range(4)
OPTIONS: Final[Mapping[int, str]] = {
    WFR: "wfr_keys", SEQUENTIAL: "sequential_keys", LINEARIZABLE: "linearizable_keys",
}  # fmt: skip


@dataclass(frozen=True)
class Assumed:
    """What the plan allows to assume. initial: the value of the initial version; NOTHING: nil."""

    sources: frozenset[int]
    initial: int

    @staticmethod
    def of(plan: Mapping[str, Any]) -> Assumed:
        """Raises HistoryError."""
        for name in OPTIONS.values():
            if not isinstance(plan.get(name, False), bool | None):
                raise HistoryError(f"the plan's {name} must be true or false, not {plan[name]!r}")
        initial = plan.get("initial")
        if not (initial is None or type(initial) is int):
            raise HistoryError(f"the plan's initial value of an rw-register must be nil or an integer, not {initial!r}")
        sources = frozenset(source for source, name in OPTIONS.items() if plan.get(name))
        return Assumed(sources, NOTHING if initial is None else initial)


@dataclass(frozen=True)
class Order:
    """Pairs of versions, an entry each: `before` comes before `after`, by `source`, because of what these two groups
    did (NOWHERE: of the initial version)."""

    before: Ints
    after: Ints
    source: Ints
    one: Ints
    other: Ints

    def __len__(self) -> int:
        return len(self.before)

    def take(self, which: Any) -> Order:
        return Order(*(column[which] for column in vars(self).values()))

    def plus(self, more: Order) -> Order:
        """Each pair once, with the source that was taken first."""
        both = Order(*(np.concatenate(pair) for pair in zip(vars(self).values(), vars(more).values(), strict=True)))
        order = np.lexsort((np.arange(len(both)), both.after, both.before))
        found = both.take(order)
        new = np.ones(len(found), bool)
        new[1:] = (found.before[1:] != found.before[:-1]) | (found.after[1:] != found.after[:-1])
        return found.take(new)


_NONE: Final = np.empty(0, np.int64)
_NO_ORDER: Final = Order(_NONE, _NONE, _NONE, _NONE, _NONE)


class Registers:
    """The micro-operations of some keys, all of them: a row each. A group is what one transaction did to one key."""

    def __init__(self, txns: Transactions, micro: Micro, naming: Naming, assumed: Assumed) -> None:
        self.txns, self.micro, self.naming, self.assumed = txns, micro, naming, assumed
        self.ok = txns.outcome[micro.txn] == OK
        self.keys, self.key_of = np.unique(micro.key, return_inverse=True)
        self.seen = micro.read & self.ok  # reads that are believed
        self._find_versions()
        self._find_groups()

    def _find_versions(self) -> None:
        micro, number = self.micro, len(self.keys)
        values, of_row = np.unique(np.append(micro.value, self.assumed.initial), return_inverse=True)
        many = len(values)
        rows = self.key_of * many + of_row[:-1]
        first = np.arange(number) * many + of_row[-1]
        versions, codes = np.unique(np.concatenate([first, rows]), return_inverse=True)
        #: by version: its key (a place in `keys`) and its value; by key: the initial version; by row: its version
        self.version_key, self.version_value = versions // many, values[versions % many]
        self.initial, self.version = codes[:number], codes[number:]
        writes = np.flatnonzero(~micro.read)
        #: by version: the row that wrote it; NOWHERE: none
        self.wrote = np.full(len(versions), NOWHERE)
        self.wrote[self.version[writes]] = writes

    def _find_groups(self) -> None:
        key, txn = self.key_of, self.micro.txn
        new = np.ones(len(key), bool)
        new[1:] = (key[1:] != key[:-1]) | (txn[1:] != txn[:-1])
        self.firsts = np.flatnonzero(new)  # by group: its first row
        self.group = np.cumsum(new) - 1
        self.group_txn, self.group_key = txn[self.firsts], key[self.firsts]
        outcome = self.txns.outcome[self.group_txn]
        #: by group: the row of its external read and write; NOWHERE: none, or none that is known
        self.read_row = np.where(self.seen[self.firsts], self.firsts, NOWHERE)
        self.write_row = np.full(len(self.firsts), NOWHERE)
        writes = np.flatnonzero(~self.micro.read)
        self.write_row[self.group[writes]] = writes  # of several, numpy keeps the last
        happened = outcome != FAIL
        self.write_row[~happened] = NOWHERE
        #: by version: is it what a transaction wrote last, that may have happened?
        self.installed = np.zeros(len(self.wrote), bool)
        self.installed[self.version[self.write_row[self.write_row != NOWHERE]]] = True

    @property
    def twice(self) -> str | None:
        """Why nothing can be said: a value that was written to one key twice, or that was there from the beginning."""
        writes = np.flatnonzero(~self.micro.read)
        versions = np.append(self.version[writes], self.initial)
        order = np.argsort(versions, kind="stable")
        again = np.flatnonzero(versions[order[1:]] == versions[order[:-1]])
        if not len(again):
            return None
        version = versions[order[again[0]]]
        of = self.version_key[version]
        value, key = self.naming.value(self.version_value[version]), self.naming.key(self.keys[of])
        first = version == self.initial[of]
        how = f"{value} was written to key {key}, and is what it holds before"
        how = how if first else f"value {value} was written to key {key} twice"
        return f"{how}: only unique values make it decidable"

    # --- the order of versions -----------------------------------------------------------------------------------

    @cached_property
    def order(self) -> Order:
        """What comes before what, as far as it does not contradict itself. Not transitive."""
        return self._ordered[0]

    @cached_property
    def cyclic(self) -> list[tuple[Ints, Order]]:
        """Versions that come before each other, as many as do, and what says so."""
        return self._ordered[1]

    @cached_property
    def not_drawn(self) -> int:
        """Keys with too many transactions at the same time, or that read the same version, to relate each to each."""
        _, _, crowded = self._ordered
        return len(crowded | self._crowded)

    @cached_property
    def _ordered(self) -> tuple[Order, list[tuple[Ints, Order]], set[int]]:
        order, cycles, crowded = self._by_initial(), [], set[int]()
        looks = {WFR: self._by_wfr, SEQUENTIAL: self._by_process, LINEARIZABLE: self._by_real_time}
        for source, look in looks.items():
            if source not in self.assumed.sources:
                continue
            more, many = look()
            crowded |= many
            both = order.plus(more)
            members = components(len(self.wrote), both.before, both.after)
            if members:
                keys = np.unique(self.version_key[np.concatenate(members)])
                cycles += [(each, _within(both, each)) for each in members]
                both = order.plus(more.take(~np.isin(self.version_key[more.before], keys)))
            order = both
        return order, cycles, crowded

    @cached_property
    def _met(self) -> tuple[Ints, Ints, Ints]:
        """Groups that met a version: their numbers, the first and the last version."""
        read = np.where(self.read_row != NOWHERE, self.version[self.read_row], NOWHERE)
        written = np.where(self.write_row != NOWHERE, self.version[self.write_row], NOWHERE)
        first = np.where(read != NOWHERE, read, written)
        last = np.where(written != NOWHERE, written, read)
        groups = np.flatnonzero(first != NOWHERE)
        return groups, first[groups], last[groups]

    def _by_initial(self) -> Order:
        _, first, last = self._met
        versions = np.unique(np.concatenate([first, last]))
        before = self.initial[self.version_key[versions]] if len(versions) else versions
        versions, before = versions[versions != before], before[versions != before]
        nobody = np.full(len(versions), NOWHERE)
        return _NO_ORDER.plus(Order(before, versions, np.full(len(versions), INITIAL), nobody, nobody))

    def _by_wfr(self) -> tuple[Order, set[int]]:
        groups = np.flatnonzero((self.read_row != NOWHERE) & (self.write_row != NOWHERE))
        groups = groups[self.txns.outcome[self.group_txn[groups]] == OK]
        read, written = (self.version[rows[groups]] for rows in (self.read_row, self.write_row))
        return _pairs(read, written, WFR, groups, groups), set()

    def _by_process(self) -> tuple[Order, set[int]]:
        groups, first, last = self._met
        txn = self.group_txn[groups]
        process = self.txns.process[txn]
        rows = np.flatnonzero(process != NOTHING)
        rows = rows[np.lexsort((txn[rows], process[rows], self.group_key[groups[rows]]))]
        # Of each, the one before it on the same key, by the same process, that is ok.
        place = np.arange(len(rows))
        ok = self.txns.outcome[txn[rows]] == OK
        before = np.maximum.accumulate(np.where(ok, place, NOWHERE)) if len(rows) else place
        before = np.concatenate(([NOWHERE], before[:-1]))[: len(rows)]
        later = np.flatnonzero(before != NOWHERE)
        one, other = rows[before[later]], rows[later]
        same = (process[one] == process[other]) & (self.group_key[groups[one]] == self.group_key[groups[other]])
        same &= self.txns.done[txn[one]] < self.txns.invoke[txn[other]]
        one, other = one[same], other[same]
        return _pairs(last[one], first[other], SEQUENTIAL, groups[one], groups[other]), set()

    def _by_real_time(self) -> tuple[Order, set[int]]:
        """A transaction, and those that were over when it was invoked and before no other such one."""
        groups, first, last = self._met
        key = self.group_key[groups]
        invoke, done = (time[self.group_txn[groups]] for time in (self.txns.invoke, self.txns.done))
        # Times by rank, raised by key, so that one search serves all keys.
        times = np.unique(np.concatenate([invoke, done]))
        raised = key * (len(times) + 1)
        began, over = (raised + np.searchsorted(times, each) for each in (invoke, done))
        ok = np.flatnonzero(done != NEVER)
        ok = ok[np.argsort(over[ok], kind="stable")]
        ends = over[ok]
        high = np.searchsorted(ends, began)  # of those that were over, one past the last
        low = np.searchsorted(ends, raised)
        # The latest invocation of any of these: who was over before it, comes before that one.
        latest = np.maximum.accumulate(began[ok]) if len(ok) else _NONE
        bound = np.where(high > low, latest[np.maximum(high - 1, 0)] if len(ok) else 0, 0)
        low = np.maximum(low, np.searchsorted(ends, bound))
        number = np.maximum(high - low, 0)
        crowded = _too_many(np.bincount(key, number, len(self.keys)))
        number[np.isin(key, crowded)] = 0
        which = np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)
        one, other = ok[np.repeat(low, number) + which], np.repeat(np.arange(len(groups)), number)
        order = _pairs(last[one], first[other], LINEARIZABLE, groups[one], groups[other])
        return order, set(crowded.tolist())

    # --- dependencies ----------------------------------------------------------------------------------------------

    @cached_property
    def _whole(self) -> tuple[Order, set[int]]:
        """The order, and what follows of it across versions that no transaction has installed (it failed, or wrote
        another after it): from what comes before such a one to what comes after it. And keys where that is too much."""
        order = self.order
        through = ~self.installed
        through[self.initial] = False
        before, after = dict[int, set[int]](), dict[int, set[int]]()
        ends = zip(order.before.tolist(), order.after.tolist(), strict=True)
        for one, other in ends if _meet(order, through) else ():
            after.setdefault(one, set()).add(other)
            before.setdefault(other, set()).add(one)
        more: list[tuple[int, int]] = []
        work, crowded = dict[int, int](), set[int]()
        for version in np.flatnonzero(through).tolist():
            earlier, later = before.get(version, ()), after.get(version, ())
            key = int(self.version_key[version])
            work[key] = work.get(key, 0) + len(earlier) * len(later)
            if work[key] > MANY:
                crowded.add(key)
                continue
            for one in earlier:
                new = [other for other in later if other not in after[one]]
                more += [(one, other) for other in new]
                after[one].update(new)
                for other in new:
                    before[other].add(one)
        pairs = np.array(more, np.int64).reshape(-1, 2)
        nobody = np.full(len(pairs), NOWHERE)
        return order.plus(Order(pairs[:, 0], pairs[:, 1], nobody, nobody, nobody)), crowded

    def dependencies(self) -> Dependencies:
        parts = [self._wr(), self._ww(), self._rw()]
        columns = [np.concatenate([part[i] for part in parts]) for i in range(6)]
        kept = columns[0] != columns[1]
        return Dependencies(*(column[kept] for column in columns))

    @cached_property
    def _external_reads(self) -> Ints:
        rows: Ints = self.read_row[self.read_row != NOWHERE]
        return rows

    def _wr(self) -> tuple[Ints, ...]:
        rows = self._external_reads
        rows = rows[self.installed[self.version[rows]]]
        writer = self.micro.txn[self.wrote[self.version[rows]]]
        return self._edges(writer, self.micro.txn[rows], WR, self.version[rows], np.full(len(rows), NOTHING))

    def _edges(self, source: Ints, target: Ints, kind: int, version: Ints, before: Ints) -> tuple[Ints, ...]:
        key = self.keys[self.version_key[version]]
        return source, target, np.full(len(source), kind), key, self.version_value[version], before

    def _ww(self) -> tuple[Ints, ...]:
        order, _ = self._whole
        order = order.take(self.installed[order.before] & self.installed[order.after])
        source, target = (self.micro.txn[self.wrote[each]] for each in (order.before, order.after))
        return self._edges(source, target, WW, order.after, self.version_value[order.before])

    @cached_property
    def _followed(self) -> tuple[Order, Ints, Ints, Ints]:
        """Pairs of a version and one that was written after it; all external reads by version; and for each pair where
        the reads of the first begin, and how many there are."""
        order, _ = self._whole
        order = order.take(self.installed[order.after])
        # From the initial version only to those that come after no other: the rest follows.
        first = order.before == self.initial[self.version_key[order.before]] if len(order) else np.empty(0, bool)
        preceded = np.zeros(len(self.wrote), bool)
        preceded[order.after[~first & self.installed[order.before]]] = True
        order = order.take(~(first & preceded[order.after]))
        reads = self._external_reads
        reads = reads[np.argsort(self.version[reads], kind="stable")]
        sorted_ = self.version[reads]
        low, high = (np.searchsorted(sorted_, order.before, side) for side in ("left", "right"))
        return order, reads, low, high - low

    @cached_property
    def _crowded(self) -> set[int]:
        order, _, _, number = self._followed
        per_key = np.bincount(self.version_key[order.after], number, len(self.keys))
        return set(_too_many(per_key).tolist()) | self._whole[1]

    def _rw(self) -> tuple[Ints, ...]:
        order, reads, low, number = self._followed
        if self._crowded:
            key = self.version_key[order.after]
            many = np.isin(key, list(self._crowded))
            # What was acknowledged first is the one to contradict real time.
            done = self.txns.done[self.micro.txn[self.wrote[order.after]]]
            soonest = np.lexsort((done, order.before != self.initial[key], key))
            first = soonest[np.append(True, np.diff(key[soonest]) != 0)]
            many[first] = False
            number = np.where(many, np.minimum(number, 1), number)
        which = np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)
        rows = reads[np.repeat(low, number) + which]
        after, before = (np.repeat(each, number) for each in (order.after, order.before))
        target = self.micro.txn[self.wrote[after]]
        return self._edges(self.micro.txn[rows], target, RW, after, self.version_value[before])


def _too_many(per_key: Any) -> Ints:
    """Keys with more than MANY pairs, or, the fewest first, that have more with those before them."""
    order = np.argsort(per_key, kind="stable")
    found: Ints = np.sort(order[np.cumsum(per_key[order]) > MANY])
    return found


def _meet(order: Order, through: Bools) -> bool:
    """Does any of these versions come both after one and before one?"""
    return bool(len(np.intersect1d(order.before[through[order.before]], order.after[through[order.after]])))


def _pairs(before: Ints, after: Ints, source: int, one: Ints, other: Ints) -> Order:
    different = before != after
    found = Order(before, after, np.full(len(before), source), one, other).take(different)
    return _NO_ORDER.plus(found)


def _within(order: Order, versions: Ints) -> Order:
    return order.take(np.isin(order.before, versions) & np.isin(order.after, versions))
