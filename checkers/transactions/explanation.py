"""Cycles as sentences like Elle's, with a witness each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from checkers.transactions.cycles import Cycle
from checkers.transactions.graph import PROCESS, REALTIME, RW, WR, WW
from checkers.transactions.history import NOTHING
from checkers.transactions.report import Report
from checkers.witness import listing
from spark_history.files import Ints

#: By row of an edge, (key, value, before): see lists.Dependencies.
Details = Mapping[int, tuple[int, int, int]]

LIST_APPEND: Final = "list-append"
RW_REGISTER: Final = "rw-register"
KAFKA: Final = "kafka"

_Why = tuple[str, str, str]  # what the source did, what the target did, and why that orders them


def explain(cycle: Cycle, details: Details, workload: str, report: Report, property_: str | None = None) -> None:
    """Adds the cycle to the report."""
    edges = cycle.edges
    names = {int(txn): f"T{number}" for number, txn in enumerate(edges.source, 1)}
    steps: list[tuple[int, str]] = []
    reasons: list[tuple[int, int, str]] = []
    ends = (edges.source.tolist(), edges.target.tolist(), edges.kind.tolist(), edges.row.tolist())
    for source, target, kind, row in zip(*ends, strict=True):
        did, then, why = _edge(report, workload, (source, target, kind), details.get(row), names)
        steps += [(txn, what) for txn, what in ((source, did), (target, then)) if what]
        reasons.append((source, target, why))
    said = [f"{names[source]} < {names[target]}, because {why}" for source, target, why in reasons]
    let = listing(list(names.items()), lambda each: f"{each[1]} = {report.name(each[0])}", ", ")
    first = listing(said[:-1], str)
    report.add(
        cycle.name,
        f"Let {let}. {first}{'. ' if first else ''}However, {said[-1]}: a contradiction!",
        steps,
        edges=reasons,
        property_=property_,
    )


def _edge(
    report: Report,
    workload: str,
    edge: tuple[int, int, int],
    details: tuple[int, int, int] | None,
    names: Mapping[int, str],
) -> _Why:
    source, target, kind = edge
    txns = report.txns
    a, b = names[source], names[target]
    if kind == PROCESS:
        return "", "", f"process {txns.process[source]} executed {a} before {b}"
    if kind == REALTIME:
        gap = (int(txns.invoke[target]) - int(txns.complete[source])) / 1e9
        return "", "", f"{a} completed {gap:.6f} s before the invocation of {b}"
    assert details is not None, "what orders these transactions is on record"
    key, value, before = details
    naming = report.naming
    return _SENTENCES[workload, kind](
        a, b, naming.key(key), naming.value(value), None if before == NOTHING else naming.value(before)
    )


def _list_ww(a: str, b: str, key: str, value: str, before: str | None) -> _Why:
    why = f"{b} appended {value} after {a} appended {before} to key {key}"
    return f"append {before} to key {key}", f"append {value} to key {key}", why


def _list_wr(a: str, b: str, key: str, value: str, before: str | None) -> _Why:
    why = f"{b} observed {a}'s append of {value} to key {key}"
    return f"append {value} to key {key}", f"read key {key} up to {value}", why


def _list_rw(a: str, b: str, key: str, value: str, before: str | None) -> _Why:
    then = f"append {value} to key {key}"
    if before is None:
        why = f"{a} observed the initial (empty) state of key {key}, which {b} ended by appending {value}"
        return f"read key {key}: []", then, why
    return f"read key {key} up to {before}", then, f"{a} did not observe {b}'s append of {value} to key {key}"


def _register_ww(a: str, b: str, key: str, value: str, before: str | None) -> _Why:
    why = f"{a} set key {key} to {before}, and {b} set it to {value}, which came later in the version order"
    return f"write {before} to key {key}", f"write {value} to key {key}", why


def _register_wr(a: str, b: str, key: str, value: str, before: str | None) -> _Why:
    return f"write {value} to key {key}", f"read key {key}: {value}", f"{a} wrote {value} to key {key}, which {b} read"


def _register_rw(a: str, b: str, key: str, value: str, before: str | None) -> _Why:
    read = "nil" if before is None else before
    why = f"{a} read key {key} as {read}, and {b} set it to {value}, which came later in the version order"
    return f"read key {key}: {read}", f"write {value} to key {key}", why


def _log_ww(a: str, b: str, key: str, value: str, before: str | None) -> _Why:
    why = f"{a} sent {before} to partition {key} before {b} sent {value}"
    return f"send {before} to partition {key}", f"send {value} to partition {key}", why


def _log_wr(a: str, b: str, key: str, value: str, before: str | None) -> _Why:
    why = f"{a} sent {value} to partition {key}, which was polled by {b}"
    return f"send {value} to partition {key}", f"poll {value} of partition {key}", why


_SENTENCES: Final[Mapping[tuple[str, int], Callable[[str, str, str, str, str | None], _Why]]] = {
    (LIST_APPEND, WW): _list_ww,
    (LIST_APPEND, WR): _list_wr,
    (LIST_APPEND, RW): _list_rw,
    (RW_REGISTER, WW): _register_ww,
    (RW_REGISTER, WR): _register_wr,
    (RW_REGISTER, RW): _register_rw,
    (KAFKA, WW): _log_ww,
    (KAFKA, WR): _log_wr,
}


def rows_of(cycles: Sequence[Cycle]) -> list[int]:
    """Rows of the edges whose details the explanations need."""
    return sorted({row for cycle in cycles for row in _rows(cycle.edges.row)})


def _rows(rows: Ints) -> list[int]:
    return [row for row in rows.tolist() if row >= 0]
