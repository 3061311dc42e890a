"""What members of groups tell, as rows of GROUP_EVENTS (spark_history/schema.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from harness.record.history import HistoryRecorder
from workloads.clients.driven.runs import spread

_COLUMNS = (
    ("process", pa.int32()), ("op", pa.int64()), ("group", pa.string()), ("kind", pa.string()), ("topic", pa.string()),
    ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64()), ("generation", pa.int32()),
    ("invoke", pa.int64()), ("complete", pa.int64()), ("outcome", pa.string()), ("error", pa.string()),
)  # fmt: skip
_SCHEMA = pa.schema(_COLUMNS)
#: Kinds that are of the member as a whole.
_OF_THE_MEMBER = frozenset({"join", "pause", "resume", "leave", "crash"})


class GroupRecorder:
    """topic: that groups read. What is told is on record after flush()."""

    def __init__(self, recorder: HistoryRecorder, topic: str) -> None:
        self._recorder = recorder
        self._topic = topic
        self._rows: list[dict[str, Any]] = []
        self._op = 0
        #: Commits that were told as they began, by process and number.
        self._commits: dict[tuple[int, int], Mapping[str, Any]] = {}

    def told(self, group: str, process: int, said: Mapping[str, Any]) -> None:
        """What a driver says of a member."""
        kind = said["kind"]
        if kind == "commit":
            self._commit(group, process, said)
        elif kind in _OF_THE_MEMBER:
            self._add(group, process, said)
        elif kind in ("assign", "revoke", "lose"):
            for partition in said["partitions"]:
                self._add(group, process, said, partition=partition)
        elif kind == "reset":
            for partition, end in said["offsets"].items():
                self._add(group, process, said, partition=int(partition), end=end)
        else:
            for partition, (start, end) in said["ranges"].items():
                self._add(group, process, said, partition=int(partition), start=start, end=end)
            self._read(process, said)

    def member(self, group: str, process: int, kind: str, invoke: int, complete: int | None) -> None:
        """What the harness knows of a member: that it left, or crashed. Of commits under way nobody will tell."""
        self._add(group, process, {"kind": kind, "invoke": invoke, "complete": complete})
        for (of, number), said in list(self._commits.items()):
            if of == process:
                del self._commits[of, number]
                self._rows_of_commit(group, process, said, None, "info", "CLIENT_CRASHED")

    def committed(self, group: str, partition: int, offset: int | None, invoke: int, complete: int) -> None:
        """As it was answered after the end."""
        said = {"kind": "committed", "invoke": invoke, "complete": complete}
        self._add(group, -1, said, partition=partition, end=offset)

    def flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._recorder.add_rows("group_events", pa.Table.from_pylist(rows, schema=_SCHEMA))

    def _commit(self, group: str, process: int, said: Mapping[str, Any]) -> None:
        key = process, said["id"]
        if said.get("complete") is None:
            self._commits[key] = said
            return
        begun = self._commits.pop(key)
        error = said.get("error")
        outcome = "ok" if error is None else "info"  # whatever is told, it may have been committed
        self._rows_of_commit(group, process, begun, said["complete"], outcome, error)

    def _rows_of_commit(
        self, group: str, process: int, begun: Mapping[str, Any], complete: int | None, outcome: str, error: str | None
    ) -> None:
        said = {**begun, "complete": complete, "error": error}
        for partition, end in begun["offsets"].items():
            self._add(group, process, said, partition=int(partition), end=end, outcome=outcome)

    def _add(
        self, group: str, process: int, said: Mapping[str, Any], *, partition: int | None = None,
        start: int | None = None, end: int | None = None, outcome: str = "ok",
    ) -> None:  # fmt: skip
        self._rows.append(
            {
                "process": process, "op": self._op, "group": group, "kind": said["kind"],
                "topic": None if partition is None else self._topic, "partition": partition, "start": start, "end": end,
                "generation": said.get("generation"), "invoke": said["invoke"], "complete": said["complete"],
                "outcome": outcome, "error": said.get("error"),
            }
        )  # fmt: skip
        self._op += 1

    def _read(self, process: int, said: Mapping[str, Any]) -> None:
        """What a member was handed over is also a read of the log, as of every other consumer."""
        for partition, runs in said.get("runs", {}).items():
            offsets, values = spread(runs)
            operation = self._recorder.invoke(process, "read", self._topic, int(partition), said["invoke"])
            self._recorder.complete(
                operation, said["complete"], "ok", offset=int(offsets[0]), records=(offsets, values)
            )
