"""What is found, as anomalies: those that the consistency model forbids, and those that it does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkers.anomalies import MAX_WITNESSES, Anomalies
from checkers.naming import Naming
from checkers.properties import ALLOWED_TRANSACTIONS as ALLOWED
from checkers.properties import TRANSACTIONS
from checkers.transactions.history import FAIL, NOTHING, OK, Transactions
from checkers.witness import Edge, Step, encode
from spark_history.log import NEVER

_OUTCOMES: Final = {OK: "ok", FAIL: "fail"}


@dataclass
class Report:
    txns: Transactions
    forbidden: frozenset[str]
    naming: Naming
    anomalies: Anomalies = field(init=False)

    def __post_init__(self) -> None:
        self.anomalies = Anomalies(self.txns.run, None, None)

    def name(self, txn: int) -> str:
        """How a sentence speaks of a transaction, given by its index."""
        return f"transaction {self.txns.op[txn]}"

    def add(
        self,
        anomaly: str,
        message: str,
        steps: Iterable[tuple[int, str]],
        *,
        value: int | None = None,
        offset: int | None = None,
        count: int = 1,
        edges: Iterable[tuple[int, int, str]] = (),
        property_: str | None = None,
    ) -> None:
        """steps: transactions (by index) and what they did; edges: of a cycle, from, to and why."""
        txns = self.txns
        named = property_ or (TRANSACTIONS if anomaly in self.forbidden else ALLOWED)
        if not self.anomalies.wanted(named, anomaly):
            self.anomalies.add_unlisted(named, anomaly, 1, records=count)
            return
        merged: dict[int, list[str]] = {}
        for txn, what in steps:
            said = merged.setdefault(txn, [])
            if what not in said:
                said.append(what)
        drawn = [
            Step(
                int(txns.op[txn]),
                None if txns.process[txn] == NOTHING else int(txns.process[txn]),
                _few(what, 12, ", "),
                int(txns.invoke[txn]),
                None if txns.complete[txn] == NEVER else int(txns.complete[txn]),
                _OUTCOMES.get(int(txns.outcome[txn]), "info"),
            )
            for txn, what in merged.items()
        ]
        why = [Edge(int(txns.op[source]), int(txns.op[target]), text) for source, target, text in edges]
        self.anomalies.add(
            named,
            anomaly,
            message,
            value=value,
            offset=offset,
            ops=[int(txns.op[txn]) for txn in merged],
            count=count,
            witness=encode(drawn, edges=why),
        )

    def unlisted(self, anomaly: str, count: int, property_: str | None = None) -> None:
        """As many more, without a witness."""
        named = property_ or (TRANSACTIONS if anomaly in self.forbidden else ALLOWED)
        self.anomalies.add_unlisted(named, anomaly, count)

    def merge(self, rows: Iterable[Mapping[str, Any]], tally: Iterable[tuple[str, str, int, int]]) -> None:
        """What another report of the same run holds."""
        for property_, anomaly, witnesses, records in tally:
            key = (property_, anomaly)
            room = max(MAX_WITNESSES - self.anomalies.witnesses[key], 0)
            mine = [dict(row) for row in rows if (row["property"], row["anomaly"]) == key]
            self.anomalies.rows += mine[:room]
            self.anomalies.witnesses[key] += witnesses
            self.anomalies.records[key] += records


def shorten(elements: Sequence[object], most: int = 12) -> str:
    """A list as people read it: its beginning and its end."""
    return f"[{_few(elements, most, ' ')}]"


def _few(elements: Sequence[object], most: int, between: str) -> str:
    if len(elements) <= most:
        return between.join(map(str, elements))
    half = most // 2
    return between.join([*map(str, elements[:half]), "…", *map(str, elements[-half:])])
