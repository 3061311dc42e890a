"""Registers with compare-and-set or repeated values, one key's operations at a time.

If no value is set twice, they are judged as chains of values (checkers/models/chains.py); else searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from checkers.models.bounds import Bounds, Budget
from checkers.models.calls import Call
from checkers.models.chains import INITIAL, Name, Write, judge_chains
from checkers.models.core import bounds_of_core, find_core
from checkers.models.search import search
from checkers.registers import findings
from checkers.registers.columns import CAS, FAIL, OK, READ, REFUSED, WRITE
from checkers.registers.findings import Report
from checkers.witness import listing
from spark_history.files import Ints
from spark_history.log import NEVER

Action = tuple[int, int, int]  # kind, value, expected
OTHER: Final = 1 << 80  # no value of 64 bits


class Register:
    """For the search: a state is the value. A cas from a value to itself, and one that was refused, read.

    Of the values that none of the calls asks for, all are one state: OTHER. It is lost, unless some cas was refused,
    as that asks for all values but one.
    """

    def __init__(self, initial: int, calls: Sequence[Call]) -> None:
        self._asked = {call.action[1] if call.action[0] == READ else call.action[2] for call in calls
                       if call.action[0] != WRITE and (call.complete is not None or call.action[0] == CAS)}  # fmt: skip
        self._refused = any(call.action[0] == REFUSED for call in calls)
        self.initial = self._state(initial)

    def _state(self, value: int) -> int:
        return value if value in self._asked else OTHER

    def step(self, state: int, action: Action) -> tuple[int, ...]:
        kind, value, expected = action
        if kind == WRITE:
            return (self._state(value),)
        if kind == CAS:
            return (self._state(value),) if state == expected else ()
        if kind == READ:
            return (state,) if state == value else ()
        return (state,) if state != expected else ()

    def reads(self, action: Action) -> bool:
        kind, value, expected = action
        return kind in (READ, REFUSED) or (kind == CAS and value == expected)

    def total(self, action: Action) -> bool:
        return action[0] == WRITE

    def overwrites(self, action: Action) -> bool:
        return action[0] == WRITE

    def lost(self, state: int) -> bool:
        return state == OTHER and not self._refused

    def useful(self, info: Sequence[Call], other: Sequence[Call]) -> Sequence[Call]:
        """Writes of values that somebody asks for later: a write that only another one follows is as good as none."""
        asked: dict[int, int] = {}  # until when
        for call in other:
            kind, value, expected = call.action
            if kind == REFUSED:
                return info  # asks for all values but one
            if kind != WRITE:
                sought = value if kind == READ else expected
                until = NEVER if call.complete is None else call.complete
                asked[sought] = max(asked.get(sought, until), until)
        kept: list[Call] = []
        rest = list(info)
        while True:
            useful = [call for call in rest if asked.get(call.action[1], -NEVER) >= call.invoke]
            if not useful:
                return kept
            kept += useful
            rest = [call for call in rest if asked.get(call.action[1], -NEVER) < call.invoke]
            for call in useful:
                if call.action[0] == CAS:
                    asked[call.action[2]] = NEVER


def judge_key(report: Report, low: int, high: int, initial: int, bounds: Bounds) -> str | None:
    """The rows from low to high are one key's. What is wrong goes to `report`. Returns why it is undecided."""
    columns = report.columns
    rows = np.flatnonzero(columns.outcome[low:high] != FAIL) + low
    rows = rows[(columns.kind[rows] != READ) | (columns.outcome[rows] == OK)]
    strange = _impossible(report, low, high, rows, initial)
    if len(strange):
        rows = rows[~np.isin(rows, strange)]
        if (columns.kind[strange] == CAS).any():
            return None  # what it set may have been read: the rest cannot be judged without it
    calls = [
        Call(row, (kind, value, expected), invoke, None if complete == NEVER else complete)
        for row, kind, value, expected, invoke, complete in zip(
            rows.tolist(),
            *(getattr(columns, name)[rows].tolist() for name in ("kind", "value", "expected", "invoke", "complete")),
            strict=True,
        )
    ]
    wrong = _judge_directly(calls, initial)
    if wrong is not None:
        if wrong:
            _explain(report, sorted({call.number for call in wrong}))
        return None
    budget = Budget(bounds)
    answer = search(calls, Register(initial, calls), budget)
    if answer.linearizable is None:
        return f"key {report.naming.key(int(columns.key[low]))}: {answer.doubt()}"
    if not answer.linearizable:
        core = find_core(
            calls, lambda some, _: Register(initial, some), answer, bounds_of_core(budget, len(report.anomalies.rows))
        )
        _explain(report, [call.number for call in core], answer.done)
    return None


def _judge_directly(calls: Sequence[Call], initial: int) -> Sequence[Call] | None:
    """Where each value is set at most once, a cas is a write that tells what it replaced. None: that is not so."""
    writes: dict[Name, Write] = {}
    reads: list[tuple[Call, Name]] = []
    for call in calls:
        kind, value, expected = call.action
        if kind == READ:
            reads.append((call, INITIAL if value == initial else value))
        elif kind == REFUSED or value == initial or value in writes:
            return None
        else:
            after = None if kind == WRITE else INITIAL if expected == initial else expected
            writes[value] = Write(call, after)
    return judge_chains(writes, reads)


def _impossible(report: Report, low: int, high: int, rows: Ints, initial: int) -> Ints:
    """Rows of ok reads and cas that found a value that nothing can have set."""
    columns = report.columns
    sets = rows[(columns.kind[rows] == WRITE) | (columns.kind[rows] == CAS)]
    there = np.append(columns.value[sets], initial)
    ok = columns.outcome[rows] == OK
    reads = rows[ok & (columns.kind[rows] == READ)]
    swaps = rows[ok & (columns.kind[rows] == CAS)]
    reads = reads[~np.isin(columns.value[reads], there)]
    swaps = swaps[~np.isin(columns.expected[swaps], there)]
    findings.tell_unwritten(report, reads, columns.value[reads])
    findings.tell_unwritten(report, swaps, columns.expected[swaps])
    return np.concatenate([reads, swaps])


def _explain(report: Report, core: list[int], done: int | None = None) -> None:
    columns = report.columns
    kinds = columns.kind[core]
    first, last = core[0], core[-1]
    found = {int(columns.expected[row]) for row in core if columns.kind[row] == CAS}
    listed = listing(core, lambda row: f"{report.what(row)} from {report.invoked(row)} to {report.completed(row)}")
    early = columns.value[first] == columns.value[last] and columns.complete[first] < columns.invoke[last]
    if len(core) == 2 and kinds[0] == READ and kinds[1] != READ and early:
        name = findings.FUTURE_READ
        message = f"{listed}: the read had found the value before it was set"
    elif len(core) == 1:
        name = findings.FUTURE_READ if kinds[0] == READ else findings.NOT_LINEARIZABLE
        message = f"{listed} found a value that was not there before it completed"
    else:
        name = findings.NOT_LINEARIZABLE
        if (kinds == CAS).all() and len(found) == 1:
            name = findings.LOST_UPDATE
        elif columns.kind[last] == READ:
            name = findings.STALE_READ
        message = (
            f"these cannot all have taken effect between invocation and completion, whatever the others did: {listed}"
        )
    if done is not None:
        message += f" (the {done:,} operations that completed first can be explained)"
    report.add(name, message, core)
