"""The operations on registers as NumPy columns, in the order of key and invocation."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.naming import NIL, Naming
from checkers.witness import Step
from spark_history.errors import HistoryError
from spark_history.files import NO_CODE, Bools, Ints, codes, compact, integers
from spark_history.log import NEVER
from spark_history.schema import REGISTERS

KINDS: Final = ("read", "write", "cas")
READ, WRITE, CAS = range(3)
REFUSED: Final = 3  # a cas that failed, and is evidence that the value was another one
OUTCOMES: Final = ("ok", "fail", "info")
OK, FAIL, INFO = range(3)
#: What of REGISTERS is needed.
COLUMNS: Final = pa.schema([field for field in REGISTERS if field.name not in ("run", "error")])

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Columns:
    """Rows are operations, sorted by key, then invocation. Times in monotonic ns."""

    op: Ints
    process: Ints
    key: Ints
    kind: Codes  # READ, WRITE, CAS or REFUSED
    outcome: Codes  # OK, FAIL or INFO
    value: Ints  # NIL: nil
    expected: Ints
    invoke: Ints
    complete: Ints  # NEVER: an operation that may take effect at any time, whatever was recorded of its end
    ended: Ints  # as recorded; NEVER: not

    def __len__(self) -> int:
        return len(self.op)

    @staticmethod
    def of(table: pa.Table) -> Columns:
        """table: at least COLUMNS, of any order. Raises HistoryError."""
        table = table.select(COLUMNS.names).cast(compact(COLUMNS)).combine_chunks()
        for name in ("op", "kind", "key", "invoke", "outcome"):
            if table[name].null_count:
                raise HistoryError(f"an operation on a register lacks its {name!r}")
        outcome = _codes(table, "outcome", OUTCOMES)
        ended = integers(table, "complete", NEVER)
        columns = Columns(
            op=integers(table, "op", 0),
            process=integers(table, "process", -1),
            key=integers(table, "key", 0),
            kind=_codes(table, "kind", KINDS),
            outcome=outcome,
            value=integers(table, "value", NIL),
            expected=integers(table, "expected", NIL),
            invoke=integers(table, "invoke", 0),
            complete=np.where(outcome == INFO, NEVER, ended),
            ended=ended,
        )
        columns._check_sanity()
        key, invoke = columns.key, columns.invoke
        later = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & (invoke[1:] >= invoke[:-1]))
        return columns if later.all() else columns.take(np.lexsort((invoke, key)))

    def take(self, rows: Ints | slice) -> Columns:
        return Columns(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def proving_nothing(self, rows: Bools) -> Columns:
        """With these operations as info."""
        return replace(self, outcome=np.where(rows, INFO, self.outcome), complete=np.where(rows, NEVER, self.complete))

    def believing_refusals(self) -> Columns:
        """With each cas that failed as a reading."""
        refused = (self.kind == CAS) & (self.outcome == FAIL) & (self.ended < NEVER)
        return replace(self, kind=np.where(refused, REFUSED, self.kind), outcome=np.where(refused, OK, self.outcome))

    def _check_sanity(self) -> None:
        if (early := np.flatnonzero(self.ended < self.invoke)).size:
            raise HistoryError(f"operation {self.op[early[0]]} completed before it was invoked: its times are wrong")
        if (open_ := np.flatnonzero((self.outcome == OK) & (self.complete == NEVER))).size:
            raise HistoryError(f"operation {self.op[open_[0]]} is ok but has no completion")
        ordered = self.op if (self.op[1:] > self.op[:-1]).all() else np.sort(self.op)
        if (twice := np.flatnonzero(ordered[1:] == ordered[:-1])).size:
            raise HistoryError(
                f"operation {ordered[twice[0]]} is on record twice: the recorder is at fault, not the system under test"
            )

    def counts(self) -> dict[str, int]:
        """`<kind> <outcome>` for each that occurs, and all of them."""
        both = np.bincount(self.kind.astype(np.int64) * len(OUTCOMES) + self.outcome, minlength=9)
        named = {
            f"{kind} {outcome}": int(both[i * len(OUTCOMES) + j])
            for i, kind in enumerate(KINDS)
            for j, outcome in enumerate(OUTCOMES)
        }
        keys = int(np.count_nonzero(self.key[1:] != self.key[:-1])) + bool(len(self))
        return {"operations": len(self), "keys": keys} | {name: count for name, count in named.items() if count}


def _codes(table: pa.Table, column: str, names: tuple[str, ...]) -> Codes:
    found = codes(table, column, names)
    if len(found) and found.min() == NO_CODE:
        strange = table[column][int(np.argmin(found))].as_py()
        raise HistoryError(f"an operation on a register has the {column} {strange!r}: there are {', '.join(names)}")
    return found


class RegisterNaming(Naming):
    """And how sentences tell of operations."""

    def what(self, columns: Columns, row: int) -> str:
        """An operation as a person would say it."""
        value = self.value(int(columns.value[row]))
        kind = columns.kind[row]
        if kind >= CAS:
            return f"cas from {self.value(int(columns.expected[row]))} to {value}" + (
                " (refused)" if kind == REFUSED else ""
            )
        return f"{KINDS[kind]} {value}"

    def step(self, columns: Columns, row: int) -> Step:
        ended, process = int(columns.ended[row]), int(columns.process[row])
        return Step(
            op=int(columns.op[row]),
            process=None if process < 0 else process,
            what=f"{self.what(columns, row)} (key {self.key(int(columns.key[row]))})",
            invoke=int(columns.invoke[row]),
            complete=None if ended == NEVER else ended,
            outcome=OUTCOMES[columns.outcome[row]],
        )
