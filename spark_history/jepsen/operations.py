"""Operations of a foreign history: each invocation with its completion, on one time line.

Real time is the order of the history, as in Jepsen: an operation precedes another if its completion stands before the
other's invocation. A process has one operation at a time, so a completion belongs to the last invocation of its
process. A process that crashed (`info`) may go on under the same number. An operation without a completion, or with
an `info`, may take effect at any time after its invocation. Events that name no process (as elle-cli's examples) are of
one for each :f.

The times of the result are the history's own (`:time`, ns) if they say the same as the order: they never run back,
and nothing is invoked at the time at which something else has completed before, for operations that touch count as
concurrent. Otherwise second n stands for the n-th event, from 0.

Processes that are not numbers (`:nemesis`) are not clients: their events become faults.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_history.errors import HistoryError
from spark_history.files import Ints, compact, nullable
from spark_history.jepsen.events import edn
from spark_history.jepsen.events.event import Event, short
from spark_history.jepsen.events.events import Foreign
from spark_history.jepsen.events.plain import plain_text
from spark_history.schema import FAULTS

SECOND: Final = 10**9
NULL: Final = int(np.iinfo(np.int64).min)
PLAN: Final = "plan"  # what the nemesis of an export says first
OUTCOMES: Final = ("ok", "fail", "info")
_OUTCOME: Final = {name: code for code, name in enumerate(OUTCOMES)}
_MOST_PROCESSES: Final = 1 << 31  # int32


class Pair(NamedTuple):
    invoke: Event
    at: int  # position of the event in the history, from 0
    complete: Event | None
    until: int  # position; NULL: there is no completion


@dataclass
class Operations:
    """pairs() is to be gone through once; the rest is complete after that."""

    foreign: Foreign
    nemesis: list[tuple[int, Event]] = field(default_factory=list)  # with their positions
    timed: bool = True  # the history's own times can be used
    events: int = 0

    def pairs(self) -> Iterator[Pair]:
        """In the order of completions, those without one last. Raises HistoryError."""
        path = self.foreign.path
        open_: dict[_Who, tuple[Event, int]] = {}
        last, completed = NULL, False
        position = -1
        for event in self.foreign.events:
            position += 1
            process = event.process
            if isinstance(process, str):
                if process != "nemesis" and event.type != "info":
                    raise HistoryError(
                        f"{path} line {event.line}: the process {short(process)} has a name, and only nemesis may: "
                        "processes of clients are numbers, and its operations would be left out"
                    )
                self.nemesis.append((position, event))
                continue
            time = event.time
            if time is None or time < last:
                self.timed = False
            elif time > last:
                last, completed = time, False
            if event.type == "invoke":
                if completed:
                    self.timed = False
                if process is not None and not -_MOST_PROCESSES <= process < _MOST_PROCESSES:
                    raise HistoryError(f"{path} line {event.line}: {process} is too large a number for a process")
                who = _who_is(event)
                if who in open_:
                    before = open_[who][0].line
                    raise HistoryError(
                        f"{path} line {event.line}: {_who(process)} invokes {event.f or 'an operation'}, but its "
                        f"operation of line {before} has not completed"
                    )
                open_[who] = event, position
                continue
            completed = True
            who = _who_is(event)
            if process is None and who not in open_:  # the one that there is, if it does not say what it completes
                unnamed = [each for each in open_ if isinstance(each, tuple)]
                who = unnamed[0] if len(unnamed) == 1 else who
            if who not in open_:
                raise HistoryError(
                    f"{path} line {event.line}: {_who(process)} completes {event.f or 'an operation'} ({event.type}), "
                    "but has invoked none"
                )
            invoke, at = open_.pop(who)
            if event.f != invoke.f and event.f is not None and invoke.f is not None:
                raise HistoryError(
                    f"{path} line {event.line}: {_who(process)} completes {event.f}, but what it had invoked, on line "
                    f"{invoke.line}, is {invoke.f}"
                )
            yield Pair(invoke, at, event, position)
        for invoke, at in open_.values():
            yield Pair(invoke, at, None, NULL)
        self.events = position + 1


_Who = int | tuple[str | None]


def _who_is(event: Event) -> _Who:
    """Whose operation it is: of one process there is one at a time; of those that name none, one of each :f."""
    return event.process if isinstance(event.process, int) else (event.f,)


def _who(process: int | None) -> str:
    return "what names no process" if process is None else f"process {process}"


class Rows:
    """What all tables of operations have in common, a row an operation or several of the same invocation."""

    def __init__(self) -> None:
        self.process = array("q")
        self.at = array("q")  # positions and times of invocation and completion
        self.until = array("q")
        self.at_time = array("q")
        self.until_time = array("q")
        self.outcome = array("b")
        self.errors: dict[int, str] = {}  # by row

    def add(self, pair: Pair, count: int = 1) -> str:
        """`count` rows for a pair; the outcome."""
        invoke, at, complete, until = pair
        process = invoke.process or 0
        assert isinstance(process, int)
        outcome, until_time = "info", NULL
        if complete is not None:
            outcome = complete.type
            until_time = complete.time if complete.time is not None else NULL
            if complete.more and "error" in complete.more:
                for row in range(len(self.at), len(self.at) + count):
                    self.errors[row] = plain_text(complete.more["error"])
        if count == 1:
            self.process.append(process)
            self.at.append(at)
            self.until.append(until)
            self.at_time.append(invoke.time or 0)
            self.until_time.append(until_time)
            self.outcome.append(_OUTCOME[outcome])
            return outcome
        columns = (self.process, self.at, self.until, self.at_time, self.until_time, self.outcome)
        values = (process, at, until, invoke.time or 0, until_time, _OUTCOME[outcome])
        for column, value in zip(columns, values, strict=True):
            column.extend(array(column.typecode, [value]) * count)
        return outcome

    def order(self) -> Ints:
        """Rows in the order of invocation, which numbers the operations."""
        return np.argsort(ints(self.at), kind="stable")

    def columns(self, run: str, timed: bool, order: Ints, *, open_info: bool) -> dict[str, pa.Array]:
        """run, process, op, invoke, complete, outcome, error, in this order. open_info: `info` is no completion."""
        invoke, complete = (ints(self.at_time), ints(self.until_time)) if timed else (ints(self.at), ints(self.until))
        if not timed:
            invoke, complete = invoke * SECOND, np.where(complete == NULL, NULL, complete * SECOND)
        outcome = np.frombuffer(self.outcome, np.int8)[order]
        complete = complete[order]
        if open_info:
            complete = np.where(outcome == _OUTCOME["info"], NULL, complete)
        error: dict[int, str] = {}
        if self.errors:
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            error = {int(place[row]): text for row, text in self.errors.items()}
        return {
            "run": category([run], np.zeros(len(order), np.int32)),
            "process": pa.array(ints(self.process)[order].astype(np.int32)),
            "op": pa.array(np.arange(len(order))),
            "invoke": pa.array(invoke[order]),
            "complete": nullable(complete, NULL),
            "outcome": category(OUTCOMES, outcome.astype(np.int32)),
            "error": sparse(error, len(order)),
        }


def ints(values: array[int]) -> Ints:
    return np.frombuffer(values, np.int64) if len(values) else np.empty(0, np.int64)


def category(names: Sequence[str], codes: Any) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(names), pa.string()))


def sparse(texts: dict[int, str], size: int) -> pa.Array:
    """A category of which few rows have a value."""
    names = {text: code for code, text in enumerate(dict.fromkeys(texts.values()))}
    codes = np.full(size, -1, np.int32)
    for row, text in texts.items():
        codes[row] = names[text]
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(list(names), pa.string()))


def table(schema: pa.Schema, columns: dict[str, pa.Array]) -> pa.Table:
    return pa.table({name: columns[name] for name in schema.names}).cast(compact(schema))


class Numbers:
    """Values as int64. Integers are themselves; anything else gets a number from FIRST up. `names` says which."""

    FIRST: Final = 1 << 62

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, value: Any) -> int:
        if type(value) is int and -self.FIRST < value < self.FIRST:
            return value
        text = edn.write(value, canonical=True)
        return self._numbers.setdefault(text, self.FIRST + len(self._numbers))

    @property
    def names(self) -> dict[str, str]:
        return {str(number): text for text, number in self._numbers.items()}


def faults(operations: Operations, run: str) -> pa.Table:
    """FAULTS: those of an export in full, of any other history what its nemesis did."""
    rows: dict[int, dict[str, Any]] = {}
    for position, event in operations.nemesis:
        reported = event.value if isinstance(event.value, Mapping) else {}
        fields = {str(getattr(key, "name", key)): value for key, value in reported.items()}
        number, targets = fields.get("fault"), fields.get("targets") or ()
        if type(number) is not int or not 0 <= number < 1 << 31 or event.f is None:
            continue
        if not isinstance(targets, (tuple, list, frozenset)):
            continue  # no fault of ours
        usable = operations.timed and event.time is not None
        time = event.time if usable else position * SECOND
        if event.f.startswith("stop-"):
            if number in rows:
                rows[number]["end"] = time
            continue
        rows[number] = {
            "run": run, "fault": number, "nemesis": event.f.removeprefix("start-"),
            "targets": [str(each) for each in targets], "start": time, "end": None,
            "effective": bool(fields.get("effective", True)), "evidence": str(fields.get("evidence") or "{}"),
        }  # fmt: skip
    if rows:
        return pa.Table.from_pylist([rows[number] for number in sorted(rows)], schema=FAULTS)
    return _of_a_nemesis(operations, run)


def _of_a_nemesis(operations: Operations, run: str) -> pa.Table:
    """FAULTS from what the nemesis did: an operation `start-x` is in force until `stop-x`, `start` until `stop`, any
    other one (a kill, say) for the moment between its two events. Whether it took effect a history does not say."""
    rows: list[dict[str, Any]] = []
    begun: dict[str, dict[str, Any]] = {}
    for position, event in operations.nemesis:
        name = event.f or "nemesis"
        if name == PLAN:
            continue
        usable = operations.timed and event.time is not None
        time = event.time if usable and event.time is not None else position * SECOND
        if name == "stop" or name.startswith("stop-"):
            ended = begun.pop("start" + name.removeprefix("stop"), None)
            if ended is not None:
                ended["end"] = time
        elif name in begun:
            if not name.startswith("start"):
                begun.pop(name)["end"] = time
        else:
            row = {"run": run, "fault": len(rows), "nemesis": name.removeprefix("start-"), "targets": [], "start": time}
            rows.append(row | {"end": None, "effective": True, "evidence": "{}"})
            begun[name] = rows[-1]
    return pa.Table.from_pylist(rows, schema=FAULTS)
