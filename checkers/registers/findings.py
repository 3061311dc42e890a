"""What zones find wrong with registers, as anomalies with names, witnesses and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from checkers import witness
from checkers.anomalies import Anomalies, seconds
from checkers.naming import NIL
from checkers.registers.columns import FAIL, OK, READ, WRITE, Columns, RegisterNaming
from checkers.registers.zones import Simple, Zones
from spark_history.files import Ints
from spark_history.log import NEVER

REGISTER_LINEARIZABILITY: Final = "register linearizability"
STALE_READ: Final = "stale read"
LOST_WRITE: Final = "lost write"
SPLIT_BRAIN: Final = "split brain"
FUTURE_READ: Final = "future read"
PHANTOM: Final = "phantom"
FAILED_BUT_VISIBLE: Final = "failed but visible"
LOST_UPDATE: Final = "lost update"
NOT_LINEARIZABLE: Final = "not linearizable"


@dataclass(frozen=True)
class Report:
    """Where findings go, and how they name things."""

    columns: Columns
    naming: RegisterNaming
    anomalies: Anomalies
    origin: int  # ns, the beginning of the run

    def add(self, anomaly: str, message: str, rows: list[int], count: int = 1) -> None:
        """rows: of the witness, the one that is wrong last."""
        steps = [self.naming.step(self.columns, row) for row in dict.fromkeys(rows)]
        last = int(self.columns.value[rows[-1]])
        self.anomalies.add(
            REGISTER_LINEARIZABILITY,
            anomaly,
            f"key {self.naming.key(int(self.columns.key[rows[-1]]))}: {message}",
            value=None if last == NIL else last,
            ops=[step.op for step in steps],
            count=count,
            witness=witness.encode(steps),
        )

    def listed(self, anomaly: str, count: int = 1) -> bool:
        """Whether one more, of so many records, is to have a row of its own; if not, it is counted."""
        if self.anomalies.wanted(REGISTER_LINEARIZABILITY, anomaly):
            return True
        self.anomalies.add_unlisted(REGISTER_LINEARIZABILITY, anomaly, 1, records=count)
        return False

    def who(self, row: int) -> str:
        process = int(self.columns.process[row])
        by = "" if process < 0 else f" of process {process}"
        return f"operation {self.columns.op[row]}{by}"

    def value(self, row: int) -> str:
        return self.naming.value(int(self.columns.value[row]))

    def what(self, row: int) -> str:
        return f"{self.naming.what(self.columns, row)} ({self.who(row)})"

    def invoked(self, row: int) -> str:
        return seconds(int(self.columns.invoke[row]), self.origin)

    def completed(self, row: int) -> str:
        return seconds(int(self.columns.complete[row]), self.origin)


def judge(report: Report, simple: Simple, writer: Ints) -> None:
    """All violations of the keys that zones decide."""
    columns = report.columns
    read = (columns.kind == READ) & (columns.outcome == OK)
    if not simple.decidable.all():
        read &= simple.decidable[simple.index]
    reads = np.flatnonzero(read)
    sources = writer[reads]
    unwritten = sources == -2
    early = (sources >= 0) & (columns.complete[reads] < columns.invoke[np.maximum(sources, 0)])
    strange = unwritten | early
    if strange.any():
        tell_unwritten(report, reads[unwritten], columns.value[reads[unwritten]])
        for row in reads[early].tolist():
            if report.listed(FUTURE_READ):
                _future(report, row, int(writer[row]))
        reads = reads[~strange]
    if len(columns):
        zones = Zones.of(columns, simple, writer, reads)
        older, newer = zones.clashes()
        if len(older):
            _Clashes(report, zones, older, newer).tell()


def tell_unwritten(report: Report, rows: Ints, values: Ints) -> None:
    """rows: operations that found `values`, which nothing set that may have taken effect. Did something that failed?"""
    if not len(rows):
        return
    columns = report.columns
    failed = np.flatnonzero((columns.kind != READ) & (columns.outcome == FAIL))
    failed = failed[np.isin(columns.value[failed], values)]
    by_value = {(int(columns.key[row]), int(columns.value[row])): row for row in failed[::-1].tolist()}
    for row, value in zip(rows.tolist(), values.tolist(), strict=True):
        write = by_value.get((int(columns.key[row]), value))
        name = PHANTOM if write is None else FAILED_BUT_VISIBLE
        if not report.listed(name):
            continue
        message = f"{report.what(row)} had found {report.naming.value(value)} by {report.completed(row)}, "
        if write is None:
            report.add(name, message + "which nothing ever wrote", [row])
        else:
            report.add(name, message + f"though {report.what(write)} failed and nothing else wrote it", [write, row])


def _future(report: Report, read: int, write: int) -> None:
    report.add(
        FUTURE_READ,
        f"{report.who(read)} had read {report.value(read)} by {report.completed(read)}, before {report.who(write)} "
        f"began to write it at {report.invoked(write)}",
        [write, read],
    )


class _Clashes:
    """Two clusters each, A (older) and B (newer): some operation of either certainly precedes one of the other's.

    If one operation of B lies between two of A, and A's last is a read, then that read is stale. If nothing lies
    between, then A and B were each seen after the other, by different operations: split brain.
    """

    def __init__(self, report: Report, zones: Zones, older: Ints, newer: Ints) -> None:
        self.report, self.zones, self.older, self.newer = report, zones, older, newer
        # Of every cluster: the row of its write (-1: the initial value), of the operation that completed first, of
        # the one invoked last.
        self.write = np.concatenate([np.full(zones.keys, -1), zones.writes])
        self.first, self.last = self.write.copy(), self.write.copy()
        soonest = zones.complete[zones.reads] == zones.f[zones.cluster]
        self.first[zones.cluster[soonest]] = zones.reads[soonest]
        by_write = (self.write >= 0) & (zones.complete[self.write] == zones.f)
        self.first[by_write] = self.write[by_write]
        later = zones.invoke[zones.reads] == zones.s[zones.cluster]
        self.last[zones.cluster[later]] = zones.reads[later]

    def tell(self) -> None:
        zones = self.zones
        a, b = self.older, self.newer
        between, back = self._between(a, b), self._between(b, a)
        # Which is the older one? If the write of either lies between, then the other; else that which has to go.
        by_write, back_by_write = between == self.write[b], (back == self.write[a]) & (back >= 0)
        swapped = (back >= 0) & ((between < 0) | (back_by_write & ~by_write))
        a, b = np.where(swapped, b, a), np.where(swapped, a, b)
        between = np.where(swapped, back, between)
        split = between < 0

        limit = np.full(len(zones.f), NEVER)
        limit[a[~split]] = zones.complete[between[~split]]
        stale = np.bincount(zones.cluster[zones.invoke[zones.reads] > limit[zones.cluster]], minlength=len(zones.f))[a]
        readers = np.bincount(zones.cluster, minlength=len(zones.f))[b]
        lost = ~split & (readers == 0) & (stale >= 2)

        counts = np.where(split, 1, np.maximum(stale, 1)).tolist()
        for i, (is_split, is_lost) in enumerate(zip(split.tolist(), lost.tolist(), strict=True)):
            name = SPLIT_BRAIN if is_split else LOST_WRITE if is_lost else STALE_READ
            if not self.report.listed(name, counts[i]):
                continue
            if is_split:
                self._split(int(a[i]), int(b[i]))
            else:
                self._stale(name, int(a[i]), int(between[i]), counts[i])

    def _between(self, a: Ints, b: Ints) -> Ints:
        """Rows of operations of b that began after one of a had completed, and completed before another of a began:
        the write if it does. -1: none found."""
        zones = self.zones
        found = np.full(len(a), -1)
        for candidate in (self.last[b], self.first[b], self.write[b]):
            fits = (candidate >= 0) & (zones.f[a] < zones.invoke[candidate]) & (zones.complete[candidate] < zones.s[a])
            found = np.where(fits, candidate, found)
        return found

    def _stale(self, name: str, a: int, between: int, count: int) -> None:
        report, columns, last = self.report, self.report.columns, int(self.last[a])
        # The write that made the value current, if it had ended by then, else a read that saw it.
        write, first = int(self.write[a]), int(self.first[a])
        if write >= 0 and self.zones.complete[write] < self.zones.invoke[between]:
            first = write
        old = report.value(last)
        did = "written" if columns.kind[between] == WRITE else "read"
        message = (
            f"{report.who(last)}, invoked at {report.invoked(last)}, read {old}, but {report.who(between)} had "
            f"{did} {report.value(between)} by {report.completed(between)}, "
        )
        if first < 0:
            message += f"and {old} is the initial value"
        else:
            seen = "written" if columns.kind[first] == WRITE else "read"
            message += f"after {old} was {seen} by {report.who(first)} at {report.completed(first)}"
        if name == LOST_WRITE:
            message += f"; {count:,} reads after it still returned {old}, and none ever {report.value(between)}"
        elif count > 1:
            message += f"; {count:,} reads in all returned {old} after that"
        report.add(name, message, [row for row in (first, between, last) if row >= 0], count)

    def _split(self, a: int, b: int) -> None:
        report = self.report
        rows = [int(row) for row in (self.first[a], self.last[b], self.first[b], self.last[a])]
        value = [report.value(int(self.last[cluster])) for cluster in (a, b)]

        def order(earlier: int, later: int) -> str:
            end = report.completed(earlier)
            return f"{report.what(earlier)} had completed by {end}, before {report.what(later)} began"

        pairs = [order(*pair) for pair in (rows[:2], rows[2:]) if pair[0] >= 0]
        report.add(
            SPLIT_BRAIN,
            f"values {value[0]} and {value[1]} were each current after the other, though each was written once: "
            + "; and ".join(pairs),
            [row for row in rows if row >= 0],
        )
