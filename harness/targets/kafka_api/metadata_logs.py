"""Puts the metadata log, as it lies on every node's disk after a run, into its history: every record, decoded.

A log that has been trimmed starts above offset 0; a snapshot, `<end offset>-<epoch>.checkpoint`, then holds the state
of what is no longer in it, as records of the same types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cluster_image.storage.records import BatchHeader, RecordError, decode_values, iter_batches, validate_batch
from cluster_image.storage.segment import base_offset_of
from harness.record.collected import Collected, why
from harness.targets.kafka_api.replica_logs import LAST_OFFSET, copied_disks
from harness.targets.target import ReadableDisk, Recorder
from spark_history.schema import METADATA_LOG

METADATA_DIRECTORY: Final = "__cluster_metadata-0"
#: Types of control records, by their numbers in Kafka (ControlRecordType.java).
CONTROL: Final = {2: "LeaderChange", 3: "SnapshotHeader", 4: "SnapshotFooter", 5: "KRaftVersion", 6: "KRaftVoters"}
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
#: (type, fields) of a record by its value; ValueError or IndexError: of a later version.
Decode = Callable[[bytes], tuple[str, dict[str, Any]]]
#: (type, fields) of each record of a control batch.
Control = Callable[[bytes, BatchHeader], Iterable[tuple[str, dict[str, Any]]]]
_COLUMNS: Final = METADATA_LOG.remove(METADATA_LOG.get_field_index("run"))


def record_metadata_logs(
    disks: Path | Mapping[str, ReadableDisk], recorder: Recorder, decode: Decode, control: Control
) -> list[Collected]:
    """disks: the directory of a run's disks, or a disk a node. Returns a piece for each node's log; of one that could
    not be read to its end all before that point is added."""
    by_node = copied_disks(disks) if isinstance(disks, Path) else disks
    tables = [_COLUMNS.empty_table()]
    pieces = []
    for node, disk in sorted(by_node.items()):
        problems: list[str] = []
        count = 0
        try:
            files = sorted(disk.list(METADATA_DIRECTORY))
        except OSError:
            continue  # it never had one
        for name in files:
            snapshot = _SNAPSHOT.fullmatch(name)
            end = None if snapshot is None else int(snapshot[1])
            if (end is None and base_offset_of(name) is None) or (end is not None and end > LAST_OFFSET):
                continue
            try:
                table, damage = _read(node, disk.read(f"{METADATA_DIRECTORY}/{name}"), end, decode, control)
            except Exception as error:  # whatever a node may have written: it must not cost what others left
                problems.append(f"{name} of the metadata log on {node} could not be read: {why(error)}")
                continue
            tables.append(table)
            count += table.num_rows
            if damage is not None:
                problems.append(f"{name} of the metadata log on {node} could not be read to its end: {damage}")
        pieces.append(Collected(node, "metadata log", count, "; ".join(problems) or None))
    recorder.add_rows("metadata_log", pa.concat_tables(tables))
    return pieces


def _read(
    node: str, content: bytes, snapshot: int | None, decode: Decode, control: Control
) -> tuple[pa.Table, str | None]:
    """METADATA_LOG rows, but for `run`, and why these are not all."""
    rows: list[dict[str, Any]] = []
    damage = None
    try:
        for start, end, header in iter_batches(content):
            validate_batch(content, start, header)
            for offset, type_, record in _records(content[start:end], header, decode, control):
                rows.append(
                    {
                        "node": node, "offset": offset, "epoch": header.leader_epoch, "batch": header.base_offset,
                        "snapshot": snapshot, "type": type_, "fields": json.dumps(record),
                    }
                )  # fmt: skip
                if not 0 <= offset <= LAST_OFFSET:
                    rows.pop()
                    raise RecordError(f"a record at offset {offset}, where there can be none")
    except Exception as error:
        damage = why(error)
    return pa.Table.from_pylist(rows, schema=_COLUMNS), damage


def _records(
    batch: bytes, header: BatchHeader, decode: Decode, control: Control
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """(offset, type, fields) of each record of one batch."""
    if header.is_control:
        for delta, (type_, fields) in enumerate(control(batch, header)):
            yield header.base_offset + delta, type_, fields
        return
    for offset, _, value in decode_values(batch):
        try:
            yield offset, *decode(value)
        except (ValueError, IndexError):  # of a later version
            yield offset, "Unknown", {"value": value.hex()}
