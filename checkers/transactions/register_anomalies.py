"""rw-register: what is wrong without any cycle of transactions.

    G1a              a read returned what a transaction that failed had written
    G1b              a read returned what its transaction overwrote itself
    internal         a transaction contradicts what it read of, or wrote to, the key before
    future-read      a transaction read what it only wrote afterwards
    garbage-read     a read returned what nobody wrote, and was not there from the beginning
    lost-update      two transactions read the same version of a key and then both wrote to it
    cyclic-versions  of a key, what the plan allows to assume puts versions before each other

Definitions are those of Elle (elle.rw-register, elle.txn), but that a nil which was read counts as any other value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import networkx as nx
import numpy as np

from checkers.transactions.history import FAIL, OK
from checkers.transactions.lists import NOWHERE
from checkers.transactions.registers import INITIAL, LINEARIZABLE, SEQUENTIAL, Order, Registers
from checkers.transactions.report import Report, shorten
from checkers.witness import listing
from spark_history.files import Ints


def check(registers: Registers, report: Report) -> None:
    for look in LOOKS:
        look(registers, report)


def _value(registers: Registers, version: int) -> str:
    return registers.naming.value(registers.version_value[version])


def _key(registers: Registers, version: int) -> str:
    return registers.naming.key(registers.keys[registers.version_key[version]])


def _did(registers: Registers, row: int) -> tuple[int, str]:
    """The transaction, and what it did."""
    version = int(registers.version[row])
    key, value = _key(registers, version), _value(registers, version)
    did = f"read key {key}: {value}" if registers.micro.read[row] else f"write {value} to key {key}"
    return int(registers.micro.txn[row]), did


def _each_version(registers: Registers, rows: Ints) -> list[tuple[int, int, int]]:
    """(version, the first of these reads that returned it, how many did)."""
    versions, first, count = np.unique(registers.version[rows], return_index=True, return_counts=True)
    return list(zip(versions.tolist(), rows[first].tolist(), count.tolist(), strict=True))


def _written(registers: Registers) -> tuple[Ints, Ints]:
    """Believed reads of what somebody wrote, and the rows that did."""
    reads = np.flatnonzero(registers.seen)
    wrote = registers.wrote[registers.version[reads]]
    known = wrote != NOWHERE
    return reads[known], wrote[known]


def _garbage(registers: Registers, report: Report) -> None:
    reads = np.flatnonzero(registers.seen)
    versions = registers.version[reads]
    of_nobody = registers.wrote[versions] == NOWHERE
    if len(reads):
        of_nobody &= versions != registers.initial[registers.version_key[versions]]
    for version, row, count in _each_version(registers, reads[of_nobody]):
        reader = _did(registers, row)
        report.add(
            "garbage-read",
            f"{report.name(reader[0])} read {_value(registers, version)} in key {_key(registers, version)}, which no "
            "transaction ever wrote",
            [reader],
            value=int(registers.version_value[version]),
            count=count,
        )


def _aborted(registers: Registers, report: Report) -> None:
    reads, wrote = _written(registers)
    failed = registers.txns.outcome[registers.micro.txn[wrote]] == FAIL
    for version, row, count in _each_version(registers, reads[failed]):
        reader, writer = _did(registers, row), _did(registers, int(registers.wrote[version]))
        report.add(
            "G1a",
            f"{report.name(reader[0])} read {_value(registers, version)} in key {_key(registers, version)}, which "
            f"{report.name(writer[0])} wrote, and that transaction failed",
            [writer, reader],
            value=int(registers.version_value[version]),
            count=count,
        )


def _intermediate(registers: Registers, report: Report) -> None:
    reads, wrote = _written(registers)
    last = np.full(len(registers.firsts), NOWHERE)
    writes = np.flatnonzero(~registers.micro.read)
    last[registers.group[writes]] = writes
    over = last[registers.group[wrote]]
    bad = (over != wrote) & (registers.micro.txn[wrote] != registers.micro.txn[reads])
    for version, row, count in _each_version(registers, reads[bad]):
        write = int(registers.wrote[version])
        reader, writer = _did(registers, row), _did(registers, write)
        then = _did(registers, int(last[registers.group[write]]))
        report.add(
            "G1b",
            f"{report.name(reader[0])} read {_value(registers, version)} in key {_key(registers, version)}, an "
            f"intermediate state: {report.name(writer[0])} wrote it, and then {then[1]}",
            [writer, then, reader],
            value=int(registers.version_value[version]),
            count=count,
        )


def _internal(registers: Registers, report: Report) -> None:
    """What came before in the group says what a read must return, be it a write or a read."""
    rows = np.flatnonzero(registers.seen)
    rows = rows[~np.isin(rows, registers.firsts)]
    bad = rows[registers.version[rows] != registers.version[rows - 1]]
    # A contradiction a group: what follows from a wrong read is not told.
    _, first, count = np.unique(registers.group[bad], return_index=True, return_counts=True)
    for row, number in zip(bad[first].tolist(), count.tolist(), strict=True):
        before, reader = _did(registers, row - 1), _did(registers, row)
        version = int(registers.version[row])
        did = "read" if registers.micro.read[row - 1] else "written"
        report.add(
            "internal",
            f"{report.name(reader[0])} read {_value(registers, version)} in key {_key(registers, version)}, though it "
            f"had {did} {_value(registers, int(registers.version[row - 1]))} just before",
            [before, reader],
            value=int(registers.version_value[version]),
            count=number,
        )


def _future(registers: Registers, report: Report) -> None:
    reads, wrote = _written(registers)
    bad = (registers.micro.txn[wrote] == registers.micro.txn[reads]) & (wrote > reads)
    for version, row, count in _each_version(registers, reads[bad]):
        reader, writer = _did(registers, row), _did(registers, int(registers.wrote[version]))
        report.add(
            "future-read",
            f"{report.name(reader[0])} read {_value(registers, version)} in key {_key(registers, version)} and wrote "
            "it only afterwards",
            [reader, writer],
            value=int(registers.version_value[version]),
            count=count,
        )


def _lost_updates(registers: Registers, report: Report) -> None:
    ok = registers.txns.outcome[registers.group_txn] == OK
    groups = np.flatnonzero(ok & (registers.read_row != NOWHERE) & (registers.write_row != NOWHERE))
    rows = registers.read_row[groups]
    order = np.argsort(registers.version[rows], kind="stable")
    rows, groups = rows[order], groups[order]
    versions, first, count = np.unique(registers.version[rows], return_index=True, return_counts=True)
    for version, at, number in zip(versions.tolist(), first.tolist(), count.tolist(), strict=True):
        if number < 2:
            continue
        steps = []
        for group in groups[at : at + 2].tolist():
            steps += [_did(registers, int(each[group])) for each in (registers.read_row, registers.write_row)]
        names = " and ".join(report.name(txn) for txn in dict.fromkeys(txn for txn, _ in steps))
        more = f" (and {number - 2} more)" if number > 2 else ""
        report.add(
            "lost-update",
            f"{names}{more} read key {_key(registers, version)} as {_value(registers, version)}, and then each wrote "
            "to it: one of them did not see what the other had written",
            steps,
            count=number - 1,
        )


# --- versions that come before each other ----------------------------------------------------------------------------


def _cyclic(registers: Registers, report: Report) -> None:
    for versions, order in registers.cyclic:
        named = [_value(registers, version) for version in versions.tolist()]
        cycle = _short_cycle(order)
        said = listing([_why(registers, report, order, at) for at in cycle], str)
        steps = [step for at in cycle for step in _steps(registers, order, at)]
        report.add(
            "cyclic-versions",
            f"the versions {shorten(named)} of key {_key(registers, int(versions[0]))} come before each other: {said}",
            steps,
            value=int(registers.version_value[versions[-1]]),
            count=len(versions),
        )


def _short_cycle(order: Order) -> Sequence[int]:
    """Entries of the order around a cycle, the shortest through one of its versions."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    ends = zip(order.before.tolist(), order.after.tolist(), strict=True)
    graph.add_edges_from((before, after, {"at": at}) for at, (before, after) in enumerate(ends))
    first = int(order.after[-1])
    ways = ([first, *nx.shortest_path(graph, head, first)] for head in sorted(graph.successors(first))[:_HEADS])
    best = min(ways, key=len)
    return [int(graph.edges[pair]["at"]) for pair in pairwise(best)]


_HEADS: Final = 20


def _groups(registers: Registers, order: Order, at: int) -> list[tuple[int, int]]:
    """(group, row) of who met the one version and the other."""
    if order.source[at] == INITIAL:
        return []
    found = []
    for group, version in ((int(order.one[at]), order.before[at]), (int(order.other[at]), order.after[at])):
        rows = [int(each[group]) for each in (registers.read_row, registers.write_row) if each[group] != NOWHERE]
        found.append((group, next(row for row in rows if registers.version[row] == version)))
    return found


def _steps(registers: Registers, order: Order, at: int) -> list[tuple[int, str]]:
    met = _groups(registers, order, at)
    if met:
        return [_did(registers, row) for _, row in met]
    version = order.after[at]
    rows = np.flatnonzero((registers.version == version) & (registers.seen | ~registers.micro.read))
    return [_did(registers, int(row)) for row in rows[:1]]


def _why(registers: Registers, report: Report, order: Order, at: int) -> str:
    before, after = (_value(registers, int(each[at])) for each in (order.before, order.after))
    source = order.source[at]
    if source == INITIAL:
        return f"{before} is there before {after} is written"
    (one, row), (other, last) = _groups(registers, order, at)
    txns = [int(registers.group_txn[group]) for group in (one, other)]
    names = [report.name(txn) for txn in txns]
    did = ["read" if registers.micro.read[each] else "wrote" for each in (row, last)]
    if source in (SEQUENTIAL, LINEARIZABLE):
        since = f"the next of process {registers.txns.process[txns[1]]}" if source == SEQUENTIAL else "invoked after it"
        return f"{names[0]} {did[0]} {before}, and {names[1]}, {since}, {did[1]} {after}"
    return f"{names[0]} read {before} and then wrote {after}"


LOOKS: Final = (_garbage, _aborted, _intermediate, _internal, _future, _lost_updates, _cyclic)
