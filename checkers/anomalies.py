"""What a checker returns: anomalies, one row a witness, and how many there are of each name.

`count` says how many records or operations a row stands for. A log that is badly broken has many independent
violations: MAX_WITNESSES rows of each name are kept a log, and the tally counts them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.properties import LOST_APPEND
from spark_history.files import Ints

ANOMALIES: Final = pa.schema(
    [
        ("run", pa.string()),
        ("property", pa.string()),
        ("anomaly", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.int64()),
        ("ops", pa.list_(pa.int64())),
        ("count", pa.int64()),
        ("message", pa.string()),
        ("witness", pa.string()),  # JSON, see witness.py: the operations that contradict each other; null: none
    ]
)

#: Acknowledged or observed appends that are not in the final log: every one of them.
LOST: Final = pa.schema(
    [
        ("run", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.int64()),
        ("op", pa.int64()),
        ("invoke", pa.int64()),
        ("complete", pa.int64()),  # when it was acknowledged, monotonic ns; null: never, but a read returned it
        ("observed", pa.int64()),  # of one that was not acknowledged: when a read first returned it
        ("found", pa.int64()),  # the value that the final log holds at its offset; null: it ends before
    ]
)

#: lost.parquet: each of them with what took it, as far as that was measured (checkers/inside/attribution.py).
ATTRIBUTED: Final = pa.schema(
    [
        *LOST,
        ("fault", pa.int32()),  # the one that took it; null: not known
        ("node", pa.string()),  # the replica that had it last; null: not known
        ("takers", pa.list_(pa.int32())),  # all faults that took a copy of it, in order of time
        ("cause", pa.string()),  # a clause, the same for all of which the same is known
    ]
)


MAX_WITNESSES: Final = 100
MAX_LOST_WITNESSES: Final = 1000
MAX_MESSAGE: Final = 6000  # characters: twice what a dozen operations need


@dataclass
class Anomalies:
    """Those of one log, or of a violated invariant, as they are found."""

    run: str
    topic: str | None  # None: of no log in particular
    partition: int | None
    rows: list[dict[str, Any]] = field(default_factory=list)
    witnesses: Counter[tuple[str, str]] = field(default_factory=Counter)  # by property and anomaly
    records: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(
        self,
        property_: str,
        anomaly: str,
        message: str,
        *,
        offset: int | None = None,
        value: int | None = None,
        ops: Iterable[int] = (),
        count: int = 1,
        witness: str | None = None,
    ) -> None:
        key = (property_, anomaly)
        self.witnesses[key] += 1
        self.records[key] += count
        if self.witnesses[key] <= _most(anomaly):
            self.rows.append(
                {
                    "run": self.run,
                    "property": property_,
                    "anomaly": anomaly,
                    "topic": self.topic,
                    "partition": self.partition,
                    "offset": offset,
                    "value": value,
                    "ops": [int(op) for op in ops],
                    "count": int(count),
                    "message": cut(message),
                    "witness": witness,
                }
            )

    def wanted(self, property_: str, anomaly: str) -> bool:
        """Would one more have a row of its own?"""
        return self.witnesses[property_, anomaly] < _most(anomaly)

    def add_unlisted(self, property_: str, anomaly: str, count: int, *, records: int | None = None) -> None:
        """As many more without a row; of one record each unless told how many of all."""
        if count:
            self.witnesses[property_, anomaly] += count
            self.records[property_, anomaly] += count if records is None else records

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, schema=ANOMALIES)

    @property
    def tally(self) -> list[tuple[str, str, int, int]]:
        """(property, anomaly, witnesses, records)."""
        return [(*key, witnesses, self.records[key]) for key, witnesses in self.witnesses.items() if witnesses]


def cut(message: str) -> str:
    """Whoever made it: no sentence is longer than MAX_MESSAGE and a few."""
    half = MAX_MESSAGE // 2
    return message if len(message) <= MAX_MESSAGE else f"{message[:half]}…{message[-half:]}"


def _most(anomaly: str) -> int:
    return MAX_LOST_WITNESSES if anomaly == LOST_APPEND else MAX_WITNESSES


@dataclass(frozen=True)
class Found:
    """What a checker found in one or more runs."""

    anomalies: pa.Table  # ANOMALIES
    tally: Sequence[tuple[str, str, str, int, int]]  # (run, property, anomaly, witnesses, records)


def examples(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By property, the sentence of its first anomaly in `rows` (ANOMALIES), lost appends before all others."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        first = found.setdefault(row["property"], row)
        if row["anomaly"] == LOST_APPEND and first["anomaly"] != LOST_APPEND:
            found[row["property"]] = row
    return {property_: row["message"] for property_, row in found.items()}


def stretches(offsets: Ints) -> list[tuple[int, int]]:
    """Sorted, distinct offsets as ranges of neighbours: [1, 2, 3, 7] -> [(1, 3), (7, 7)]."""
    if not len(offsets):
        return []
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    firsts, lasts = offsets[np.append(0, breaks + 1)], offsets[np.append(breaks, len(offsets) - 1)]
    return [(int(first), int(last)) for first, last in zip(firsts, lasts, strict=True)]


def seconds(time: int, origin: int) -> str:
    """A monotonic time as people read it: since the run began."""
    return f"{(time - origin) / 1e9:.3f} s"
