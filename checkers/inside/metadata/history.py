"""The state that the metadata log gives, record by record: is it valid after each committed batch?

See copies.py for which of the nodes' copies it is read from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from checkers.inside.metadata.copies import (
    MATCHING,
    NodeLog,
    Reported,
    check_majority,
    check_prefixes,
    reference_of,
    whole_rows,
)
from checkers.inside.metadata.findings import Findings
from checkers.inside.metadata.replay import (
    Change,
    Contradiction,
    MetadataState,
    PartitionState,
    Place,
    UnknownRecord,
    complaints,
)
from spark_history.files import Ints, integers

_NONE: Final = -1


@dataclass
class MetadataHistory:
    """What the reference says. states: by partition, by partition epoch; of an uncommitted end too.

    complete: does it hold all that any node may have acted on? elections: in order. committed: what lies below this
    offset is known to be."""

    complete: bool
    states: dict[Place, dict[int, PartitionState]] = field(default_factory=dict)
    elections: list[Change] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)  # topics that are gone, and perhaps came again
    again: set[str] = field(default_factory=set)  # those that did
    trimmed: bool = False  # is its beginning known from a snapshot alone?
    committed: int = 0
    notes: list[str] = field(default_factory=list)
    # Of committed records, in order; see memberships.py. steps: the state of a partition after a record at an offset,
    # and MinISR then. registrations: (offset, broker, last offset of the batch). unfenced: (offset, broker).
    # strategies: of unclean recovery, by topic that had its own.
    steps: list[tuple[Place, int, PartitionState, int]] = field(default_factory=list)
    registrations: list[tuple[int, int, int]] = field(default_factory=list)
    unfenced: list[tuple[int, int]] = field(default_factory=list)
    strategies: dict[str, str] = field(default_factory=dict)


def judge_history(
    table: pa.Table,
    logs: Mapping[str, NodeLog],
    reported: Reported,
    found: Findings,
    *,
    min_insync_replicas: int,
    elr_enabled: bool,
    recovery_quorum: bool = True,
) -> MetadataHistory:
    """CommittedPrefix of the copies, and what must hold of the controller's state after each committed batch.
    recovery_quorum: does LastKnownELR name all who may be complete? (Kafka's names the last leader alone.)"""
    reference = reference_of(logs, reported)
    if reference is None:
        return MetadataHistory(False, notes=["no node with a metadata log has told how much of it is committed"])
    log = reference.log
    committed = max(reported.delivered.values(), default=0)
    history = MetadataHistory(reference.complete, committed=min(committed, log.end))
    if reference.complete:
        check_majority(logs, reported, log, committed, found)
    else:
        history.committed = min(reported.delivered.get(log.node, 0), log.end)
        history.notes.append("not every controller's metadata log was collected")
    check_prefixes(logs, reported, log, history.committed, found)
    rows = whole_rows(log, logs)
    history.trimmed = bool(log.start) and len(rows) == len(log.rows)
    beginning = min((end for end in log.snapshots if end >= log.start), default=_NONE) if history.trimmed else 0
    if beginning == _NONE:
        history.complete = False
        history.notes.append(f"the metadata log of {log.node} begins at offset {log.start}, without a snapshot")
        return history
    replay = _Replay(table, logs, history, found, min_insync_replicas, elr_enabled, recovery_quorum)
    rows = rows[integers(table, "offset", _NONE)[rows] >= beginning]
    replay.run(log.snapshots[beginning] if history.trimmed else np.empty(0, np.int64), rows, beginning)
    return history


_Record = tuple[int, str, Mapping[str, Any]]


class _Replay:
    """From the first record to the last, with a look at the state after each committed batch."""

    def __init__(
        self, table: pa.Table, logs: Mapping[str, NodeLog], history: MetadataHistory, found: Findings,
        min_insync_replicas: int, elr_enabled: bool, recovery_quorum: bool,
    ) -> None:  # fmt: skip
        self._table = table
        self._history = history
        self._found = found
        self._min_isr = min_insync_replicas
        self._elr_enabled = elr_enabled
        self._recovery_quorum = recovery_quorum and elr_enabled
        self._state = MetadataState()
        self._was_writable: dict[Place, tuple[bool, int]] = {}  # had it MinISR members in sync, and MinISR then
        self._snapshots: dict[int, list[tuple[str, Ints]]] = {}
        for node, log in logs.items():
            for end, rows in log.snapshots.items():
                self._snapshots.setdefault(end, []).append((node, rows))

    def run(self, snapshot: Ints, rows: Ints, beginning: int) -> None:
        """snapshot: rows of what stands for everything below `beginning`, if the log no longer holds it."""
        history, state = self._history, self._state
        try:
            for change in _replayed(state, _batches(self._table, snapshot)):
                _remember(history, change.after)
            for partition in state.partitions.values():
                self._note_writable(partition)
                self._note_step(partition.place, beginning - 1)
            for topic, own in state.settings.items():
                self._note_strategy(topic, own.get("unclean.recovery.strategy"))
            self._check_state(list(state.partitions), beginning)
            for records in _batches(self._table, rows):
                self._batch(records)
        except UnknownRecord as unknown:
            history.complete = False
            history.notes.append(f"the metadata log holds a record of an unknown type, {unknown}: not replayed further")
        except Contradiction as error:
            history.complete = False
            history.notes.append("the metadata log was not replayed further than a record that contradicts its state")
            self._found.add("ValidControllerState", "contradictory record", f"{error}")
        history.removed.update(state.removed)
        history.again.update(state.again)

    def _batch(self, records: Sequence[_Record]) -> None:
        history, state = self._history, self._state
        changes = list(_replayed(state, [records]))
        for change in changes:
            _remember(history, change.after)
        history.elections += [change for change in changes if change.elects]
        end = records[-1][0] + 1
        if end > history.committed:
            return
        for change in changes:
            self._note_step(change.after.place, change.after.offset)
        self._note_settings(records)
        brokers = any("Broker" in type_ for _, type_, _ in records)
        self._check_state(list(state.partitions) if brokers else [change.after.place for change in changes], end)
        for change in changes:
            self._check_recovery_quorum(change)
        for node, rows in self._snapshots.get(end, ()):
            self._check_snapshot(node, rows, end)

    def _check_state(self, places: Sequence[Place], end: int) -> None:
        for complaint in complaints(self._state, places, self._min_isr, self._elr_enabled):
            topic, index = complaint.place
            self._found.add(
                complaint.property, complaint.anomaly,
                f"with all metadata below offset {end} the state of {topic}-{index} is not valid: {complaint.message}",
                place=complaint.place, once=(complaint.anomaly, complaint.place, complaint.message),
            )  # fmt: skip

    def _note_step(self, place: Place, offset: int) -> None:
        partition = self._state.partitions.get(place)
        if partition is not None:  # else removed by a later record of the batch
            min_isr = self._state.min_isr(partition, self._min_isr)
            self._history.steps.append((place, offset, partition, min_isr))

    def _note_settings(self, records: Sequence[_Record]) -> None:
        """Registrations, and settings of topics that matter to the contract."""
        for offset, type_, fields in records:
            if type_ == "RegisterBrokerRecord":
                self._history.registrations.append((offset, fields["broker_id"], records[-1][0]))
            elif type_ == "BrokerRegistrationChangeRecord" and fields["fenced"] < 0:
                self._history.unfenced.append((offset, fields["broker_id"]))
            elif type_ == "ConfigRecord" and fields["name"] == "min.insync.replicas":
                for place in [place for place in self._state.partitions if place[0] == fields["resource_name"]]:
                    self._note_step(place, offset)
            elif type_ == "ConfigRecord" and fields["name"] == "unclean.recovery.strategy":
                self._note_strategy(fields["resource_name"], fields["value"])

    def _note_strategy(self, topic: str, strategy: str | None) -> None:
        """The first that promises nothing stays noted."""
        if strategy is not None and self._history.strategies.get(topic, "balanced").lower() == "balanced":
            self._history.strategies[topic] = strategy

    def _note_writable(self, partition: PartitionState) -> None:
        min_isr = self._state.min_isr(partition, self._min_isr)
        before, least = self._was_writable.get(partition.place, (False, min_isr))
        self._was_writable[partition.place] = len(partition.isr) >= min_isr or (before and min_isr <= least), min_isr

    def _check_recovery_quorum(self, change: Change) -> None:
        """Of who may be complete, enough are known, once there have been MinISR members in sync."""
        partition = change.after
        if change.before is None:
            self._was_writable.pop(partition.place, None)
        self._note_writable(partition)
        was_writable, min_isr = self._was_writable[partition.place]
        empty = not partition.isr and not partition.elr
        if self._recovery_quorum and empty and was_writable and len(partition.last_known_elr) < min_isr:
            self._found.add(
                "MinIsrRecoveryQuorum", "too few known to have been eligible",
                f"as of metadata offset {partition.offset} ISR and ELR of {partition.topic}-{partition.index} are "
                f"empty, and only {len(partition.last_known_elr)} replicas are known to have been eligible, fewer "
                f"than {min_isr}: {partition}",
                place=partition.place, offset=partition.offset,
            )  # fmt: skip

    def _check_snapshot(self, node: str, rows: Ints, end: int) -> None:
        """A snapshot is the state that the log gives."""
        state = MetadataState()
        for _ in _replayed(state, _batches(self._table, rows)):
            pass
        if state.image() != self._state.image():
            self._found.add(
                MATCHING, "snapshot differs from the log",
                f"the snapshot of everything below offset {end} on {node} is not the state that the metadata log gives",
                offset=end, once=("snapshot", node, end),
            )  # fmt: skip


def _batches(table: pa.Table, rows: Ints) -> Iterator[list[_Record]]:
    """Whole batches of (offset, type, fields)."""
    if not len(rows):
        return
    chosen = table.select(["offset", "batch", "type", "fields"]).take(pa.array(rows)).to_pydict()
    records: list[_Record] = []
    current = _NONE
    columns = (chosen[name] for name in ("offset", "batch", "type", "fields"))
    for offset, batch, type_, fields in zip(*columns, strict=True):
        if batch != current and records:
            yield records
            records = []
        current = batch
        records.append((offset, type_, json.loads(fields)))
    yield records


def _replayed(state: MetadataState, batches: Iterable[Sequence[_Record]]) -> Iterator[Change]:
    """Raises Contradiction, UnknownRecord."""
    for records in batches:
        for offset, type_, fields in records:
            try:
                change = state.replay(offset, type_, fields)
            except Contradiction as error:
                raise Contradiction(
                    f"the {type_} at offset {offset} of the metadata log contradicts the state before it: {error}"
                ) from None
            if change is not None:
                yield change


def _remember(history: MetadataHistory, state: PartitionState) -> None:
    history.states.setdefault(state.place, {})[state.partition_epoch] = state
