"""What simulated nodes told of themselves and left on their disks, as rows that a test can change."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

from checkers.inside.nodes import judge
from checkers.inside.of_nodes import OfNodes, Options
from harness.explore.simulate import Simulated, simulate
from harness.plan.plan import Plan
from spark_history.schema import TABLES

Row = dict[str, Any]


@dataclass
class NodeHistory:
    """Rows of `trace` and `metadata_log`, their fields parsed."""

    trace: list[Row]
    metadata_log: list[Row]
    options: Options
    faults: list[Row]  # evidence parsed

    @staticmethod
    def of(simulated: Simulated) -> NodeHistory:
        assert simulated.violation is None and not simulated.crash
        trace, metadata_log = (
            [row | {"fields": json.loads(row["fields"])} for row in simulated.tables[table].to_pylist()]
            for table in ("trace", "metadata_log")
        )
        faults = [row | {"evidence": json.loads(row["evidence"])} for row in simulated.tables["faults"].to_pylist()]
        return NodeHistory(trace, metadata_log, Options.of(simulated.plan.model_dump(mode="json")), faults)

    def copy(self) -> NodeHistory:
        return copy.deepcopy(self)

    def tables(self) -> dict[str, pa.Table]:
        return {
            name: pa.Table.from_pylist(
                [row | {"run": "r", "fields": json.dumps(row["fields"])} for row in rows], schema=TABLES[name]
            )
            for name, rows in (("trace", self.trace), ("metadata_log", self.metadata_log))
        }

    def judge(self) -> OfNodes:
        return judge("r", self.tables(), self.options, self.faults)

    def reported(self, *events: str, node: str = "", **fields: Any) -> list[Row]:
        """Lines of the trace."""
        return [
            row
            for row in self.trace
            if row["event"] in events
            and row["node"].startswith(node)
            and all(row["fields"].get(name) == value for name, value in fields.items())
        ]

    def lives(self) -> Iterator[list[Row]]:
        """The lines of each process."""
        life: list[Row] = []
        for row in self.trace:
            if row["event"] == "start" and life:
                yield life
                life = []
            life.append(row)
        yield life

    def tell_after(self, row: Row, event: str, **fields: Any) -> None:
        """A line more, right after another of the same node and partition."""
        at = self.trace.index(row)
        self.trace.insert(at + 1, row | {"event": event, "fields": fields})
        self._number()

    def silence(self, rows: list[Row]) -> None:
        """Take lines out."""
        silenced = {id(row) for row in rows}
        self.trace = [row for row in self.trace if id(row) not in silenced]

    def _number(self) -> None:
        for number, row in enumerate(self.trace):
            row["number"] = number

    def records(self, type_: str = "", *, of: Callable[[Row], bool] = lambda fields: True) -> list[int]:
        """Offsets of the metadata log whose record is of that type, and about a topic's partition where it must be."""
        return sorted(
            {row["offset"] for row in self.metadata_log if row["type"].startswith(type_) and of(row["fields"])}
        )

    def copies(self, offset: int) -> list[Row]:
        """The record at an offset of the metadata log, on every node."""
        return [row for row in self.metadata_log if row["offset"] == offset and row["snapshot"] is None]

    def cut_metadata_log(self, end: int, node: str = "") -> None:
        """Whole batches, of one node's copy or of all."""
        self.metadata_log = [
            row
            for row in self.metadata_log
            if not row["node"].startswith(node) or row["snapshot"] is not None or row["batch"] < end
        ]

    def rewrite(self, offset: int, **fields: Any) -> None:
        """Change a record on every node, as if it had been written so."""
        for row in self.copies(offset):
            row["fields"] = row["fields"] | fields


def simulated(nemesis: tuple[str, ...], seed: int, *, min_insync_replicas: int = 2, **settings: str) -> NodeHistory:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    plan = Plan(
        run=f"seed-{seed}", on="simulation", seed=seed, time_limit=8, rate=100, partitions=2, nemesis=nemesis,
        min_insync_replicas=min_insync_replicas, settings=given,
    )  # fmt: skip
    return NodeHistory.of(simulate(plan, traced=True))


def killed_at_random(history: NodeHistory, random: Random) -> NodeHistory:
    """As if each process had been killed before it had written the last of what it told."""
    shorter = history.copy()
    shorter.trace = [row for life in shorter.lives() for row in life[: random.randint(1, len(life))]]
    return shorter
