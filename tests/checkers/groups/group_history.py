"""A history of consumer groups as the tests write it down: plain rows, and what else a run tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from checkers import groups
from checkers.groups.records import COLUMNS, acknowledged
from spark_history.files import compact
from spark_history.schema import GROUP_EVENTS

Event = dict[str, Any]
TOPIC: Final = "chaos"
GROUP: Final = "g"


@dataclass
class History:
    """acknowledged: (partition, offset, complete). Times are any whole numbers; settle: of each group, in these."""

    events: list[Event]
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {GROUP: {}})
    faults: list[dict[str, Any]] = field(default_factory=list)
    healed: int | None = None
    until: int = 0
    partitions: int | None = None

    @property
    def plan(self) -> dict[str, Any]:
        return {"topic": TOPIC, "partitions": self.partitions, "groups": dict(self.groups)}

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist([{"run": "r", **event} for event in self.events], schema=GROUP_EVENTS)

    def judge(self) -> groups.Groups:
        facts = groups.Facts("r", self.plan, self.faults, 0, self.until, self.healed)
        by_partition: dict[int, list[dict[str, Any]]] = {}
        for partition, offset, complete in self.acknowledged:
            row = {"kind": "append", "outcome": "ok", "offset": offset, "complete": complete}
            by_partition.setdefault(partition, []).append(row)
        logs = [(TOPIC, partition, [pa.Table.from_pylist(rows, schema=COLUMNS).cast(compact(COLUMNS))])
                for partition, rows in by_partition.items()]  # fmt: skip
        return groups.check(facts, self.table, acknowledged(logs))

    def anomalies(self) -> set[tuple[str, str, int]]:
        """(group, anomaly, partition), also the weak ones."""
        return named(self.judge())


def named(found: groups.Groups) -> set[tuple[str, str, int]]:
    return {
        (row["message"].removeprefix("group ").split(",")[0].split(":")[0], row["anomaly"], row["partition"])
        for anomalies in found.anomalies
        for row in anomalies.rows
    }


def events(rows: Iterable[Event]) -> list[Event]:
    """With every column, numbered by invocation."""
    whole: list[Event] = []
    empty = dict.fromkeys(("topic", "partition", "start", "end", "generation", "error"))
    for row in sorted(rows, key=lambda each: each["invoke"]):
        of = {} if row.get("partition") is None else {"topic": TOPIC}
        whole.append({**empty, "group": GROUP, "outcome": "ok", **of, **row, "op": len(whole)})
    return whole
