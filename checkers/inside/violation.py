"""A violated invariant of a simulated run, which is checked after every step: the content of violation.json, and how
it is worded.

The first violation stops the run. violation.json in the run's directory then holds

    {"property": "LeaderCompleteness", "message": a sentence, "where": "chaos-3", "nodes": ["broker-1"],
     "time_ns": 1012345000000, "step": 8841, "event": "role"}

`where` is the partition or "", `nodes` are those at fault, `time_ns` lies on the time line of the operations, and
`event` is what happened in that step. Source of the names: design, section 1.5, and kip_966_properties.tla of
Vanlightly/kafka-tlaplus.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from checkers.anomalies import Anomalies, seconds
from checkers.properties import HANG, LIVENESS, VIOLATION
from spark_history.errors import HistoryError

VIOLATION_FILE: Final = "violation.json"


class Violated(Exception):
    """property: a name of the table in checkers/inside/kraft/simulated/__init__.py. where: "topic-0", or "" for the
    metadata quorum. message: a sentence with the numbers that a person needs. nodes: those at fault, by name."""

    def __init__(self, property_: str, message: str, where: str = "", nodes: Iterable[str] = ()) -> None:
        self.property = property_
        self.message = message
        self.where = where
        self.nodes = tuple(nodes)
        super().__init__(f"{property_}{f' on {where}' if where else ''}: {message}")


class Unmet(str):
    """What must become true and does not hold yet, as a clause. property: that is broken if it never does."""

    property: str

    def __new__(cls, clause: str, property: str = LIVENESS) -> Unmet:
        made = super().__new__(cls, clause)
        made.property = property
        return made


@dataclass(frozen=True)
class Violation:
    """The content of violation.json. time_ns: virtual. step: callbacks of nodes and clients run until then. event: the
    last thing that changed. where: "topic-0", or empty."""

    property: str
    message: str
    where: str
    nodes: tuple[str, ...]
    time_ns: int
    step: int
    event: str

    @staticmethod
    def of(fields: Any) -> Violation:
        """Raises HistoryError if a field is missing or of another type."""
        if not isinstance(fields, Mapping):
            raise HistoryError("a violation must be an object")
        for name, kind in _FIELDS.items():
            if not isinstance(fields.get(name), kind):
                raise HistoryError(f"a violation with {name} = {fields.get(name)!r} cannot be judged")
        return Violation(**{name: fields[name] for name in _FIELDS} | {"nodes": tuple(map(str, fields["nodes"]))})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"nodes": list(self.nodes)}

    def save(self, directory: Path) -> None:
        (directory / VIOLATION_FILE).write_text(json.dumps(self.as_dict(), indent=2) + "\n")

    def sentence(self, origin: int) -> str:
        """What was violated, where and when, e.g. for the reason of a verdict. origin: when the run began, ns."""
        happened = self.property if self.property == HANG else f"{self.property} violated"
        where = f" on {self.where}" if self.where else ""
        time = seconds(self.time_ns, origin) if self.time_ns >= origin else "the start, before any operation"
        return f"{happened}{where} at {time}: {self.message.rstrip('.')}"

    def anomalies(self, run: str, origin: int) -> Anomalies:
        topic, _, partition = self.where.rpartition("-")
        known = bool(topic) and partition.isdecimal()
        found = Anomalies(run, topic if known else None, int(partition) if known else None)
        details = "; ".join(filter(None, (f"step {self.step:,}", self.event, ", ".join(self.nodes))))
        found.add(self.property, VIOLATION, f"{self.sentence(origin)} ({details})")
        return found


_FIELDS: Final[dict[str, type | tuple[type, ...]]] = {
    "property": str,
    "message": str,
    "where": str,
    "nodes": (list, tuple),
    "time_ns": int,
    "step": int,
    "event": str,
}
