"""Reads what lies on a Kafka node's disk beside the records themselves: table `disk_state` of the history.

| what | file | offset, epoch | fields |
| --- | --- | --- | --- |
| segment | *.log | its name | first, next (offsets; null: no batch), batches, records, last_epoch |
| epoch | *.log | the first offset of each epoch among its batches | |
| epoch checkpoint | leader-epoch-checkpoint | each entry | |
| recovery point | recovery-point-offset-checkpoint | each entry | |
| high watermark | replication-offset-checkpoint | each entry | |
| log start | log-start-offset-checkpoint | each entry | |
| cleaner offset | cleaner-offset-checkpoint | each entry | |
| clean shutdown | .kafka_cleanshutdown | | |
| producer snapshot | *.snapshot | its name | producers |
| quorum state | quorum-state | leaderEpoch | as it is |
| meta properties | meta.properties | | as it is |

A file that cannot be read is a row of its kind with a problem, and no fields.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import google_crc32c
import pyarrow as pa

from cluster_image.storage.records import iter_batches, validate_batch
from harness.record.collected import why
from harness.targets.target import ReadableDisk, Recorder
from spark_history.schema import DISK_STATE

_COLUMNS: Final = DISK_STATE.remove(DISK_STATE.get_field_index("run"))
_PARTITION_CHECKPOINTS: Final = {
    "recovery-point-offset-checkpoint": "recovery point",
    "replication-offset-checkpoint": "high watermark",
    "log-start-offset-checkpoint": "log start",
    "cleaner-offset-checkpoint": "cleaner offset",
}
_EPOCHS: Final = "leader-epoch-checkpoint"
#: A producer snapshot: version, CRC-32C of what follows, and the number of producers (storage/…/ProducerSnapshot.json).
_SNAPSHOT: Final = struct.Struct(">hIi")
_CRC_ENDS: Final = 6
_SNAPSHOT_VERSIONS: Final = (1, 2)

Row = dict[str, Any]


class Unreadable(ValueError):
    """A file that is not what its name says."""


def record_disk_state(
    disks: Mapping[str, ReadableDisk], at_cuts: Mapping[tuple[str, int], ReadableDisk], recorder: Recorder,
    compacted: Collection[str] = (),
) -> None:  # fmt: skip
    """disks: by node, each with its log directory as the root. at_cuts: the same right after power cuts, by node and
    number. compacted: topics of which batches may lack records."""
    rows = [row for node, disk in sorted(disks.items()) for row in _of_node(node, disk, compacted)]
    rows += [
        row | {"cut": cut} for (node, cut), disk in sorted(at_cuts.items()) for row in _of_node(node, disk, compacted)
    ]
    recorder.add_rows("disk_state", pa.Table.from_pylist(rows, schema=_COLUMNS))


def _of_node(node: str, disk: ReadableDisk, compacted: Collection[str] = ()) -> Iterator[Row]:
    for name in _names(disk, ""):
        place = _place(name)
        if name in _PARTITION_CHECKPOINTS:
            yield from _file(node, disk, name, _PARTITION_CHECKPOINTS[name], None, _partition_entries)
        elif name == ".kafka_cleanshutdown":
            yield _row(node, name, "clean shutdown")
        elif name == "meta.properties":
            yield from _file(node, disk, name, "meta properties", None, _properties)
        elif place is not None:
            yield from _of_partition(node, disk, name, place, place[0] in compacted)


def _of_partition(
    node: str, disk: ReadableDisk, directory: str, place: tuple[str, int], compacted: bool
) -> Iterator[Row]:
    for name in _names(disk, directory):
        file = f"{directory}/{name}"
        base = name.partition(".")[0]
        if name.endswith(".log") and base.isdecimal():
            yield from _segment(node, disk, file, place, int(base), compacted)
        elif name.endswith(".snapshot") and base.isdecimal():
            for row in _file(node, disk, file, "producer snapshot", place, _producers):
                yield {**row, "offset": int(base)}
        elif name == _EPOCHS:
            yield from _file(node, disk, file, "epoch checkpoint", place, _epoch_entries)
        elif name == "quorum-state":
            yield from _file(node, disk, file, "quorum state", place, _quorum_state)


def _names(disk: ReadableDisk, directory: str) -> Sequence[str]:
    try:
        return disk.list(directory)
    except OSError:
        return ()  # it is none, or another piece says that it cannot be read


def _place(name: str) -> tuple[str, int] | None:
    topic, dash, partition = name.rpartition("-")
    return (topic, int(partition)) if dash and topic and partition.isascii() and partition.isdecimal() else None


def _row(node: str, file: str, what: str, place: tuple[str, int] | None = None, **more: Any) -> Row:
    topic, partition = place or (None, None)
    row: Row = {"node": node, "cut": None, "file": file, "what": what, "topic": topic, "partition": partition,
                "offset": None, "epoch": None, "fields": "{}", "problem": None}  # fmt: skip
    return row | more


def _file(
    node: str, disk: ReadableDisk, file: str, what: str, place: tuple[str, int] | None,
    entries: Callable[[bytes], Iterator[Row]],
) -> Iterator[Row]:  # fmt: skip
    try:
        found = list(entries(disk.read(file)))
    except Exception as error:  # whatever a node may have written
        yield _row(node, file, what, place, problem=why(error) if isinstance(error, OSError) else str(error))
        return
    for entry in found:
        yield _row(node, file, what, place) | entry


def _segment(
    node: str, disk: ReadableDisk, file: str, place: tuple[str, int], base: int, compacted: bool
) -> Iterator[Row]:
    batches = records = 0
    first: int | None = None
    following: int | None = None
    last_epoch, problem = -1, None
    try:
        content = disk.read(file)
        for start, _, header in iter_batches(content):
            validate_batch(content, start, header, compacted)
            if following is not None and header.base_offset < following:
                raise Unreadable(f"a batch begins at offset {header.base_offset}, below {following}, where it should")
            if header.leader_epoch < last_epoch:
                raise Unreadable(f"at offset {header.base_offset} the leader epoch goes down from {last_epoch} to "
                                 f"{header.leader_epoch}")  # fmt: skip
            if header.leader_epoch > last_epoch:
                yield _row(node, file, "epoch", place, offset=header.base_offset, epoch=header.leader_epoch)
            first = header.base_offset if first is None else first
            following, last_epoch = header.next_offset, header.leader_epoch
            batches, records = batches + 1, records + max(header.record_count, 0)
    except Exception as error:
        problem = why(error) if isinstance(error, OSError) else str(error)
    fields = {"first": first, "next": following, "batches": batches, "records": records, "last_epoch": last_epoch}
    yield _row(node, file, "segment", place, offset=base, fields=json.dumps(fields), problem=problem)


def _lines(content: bytes) -> list[list[str]]:
    """Of a checkpoint: version 0, the number of entries, and as many lines; none of an empty file, as it is until it is
    written for the first time (CheckpointFile.java)."""
    if not content:
        return []
    lines = content.decode("utf-8").splitlines()
    if len(lines) < 2 or lines[0] != "0" or not lines[1].isdecimal():
        raise Unreadable("it does not begin with version 0 and the number of its entries")
    entries = [line.split(" ") for line in lines[2:]]
    if len(entries) != int(lines[1]):
        raise Unreadable(f"it says that it has {lines[1]} entries, and has {len(entries)}")
    return entries


def _partition_entries(content: bytes) -> Iterator[Row]:
    for entry in _lines(content):
        if len(entry) != 3:
            raise Unreadable(f"{' '.join(entry)!r} is no topic, partition and offset")
        yield {"topic": entry[0], "partition": int(entry[1]), "offset": int(entry[2])}


def _epoch_entries(content: bytes) -> Iterator[Row]:
    for entry in _lines(content):
        if len(entry) != 2:
            raise Unreadable(f"{' '.join(entry)!r} is no epoch and offset")
        yield {"epoch": int(entry[0]), "offset": int(entry[1])}


def _properties(content: bytes) -> Iterator[Row]:
    pairs = (line.partition("=") for line in content.decode("utf-8").splitlines() if not line.startswith("#"))
    found = {name.strip(): value.strip() for name, _, value in pairs if name.strip()}
    if not found:
        raise Unreadable("it is empty")
    yield {"fields": json.dumps(found)}


def _quorum_state(content: bytes) -> Iterator[Row]:
    found = json.loads(content)
    if not isinstance(found, dict) or not isinstance(found.get("leaderEpoch"), int):
        raise Unreadable("it has no leaderEpoch")
    yield {"epoch": found["leaderEpoch"], "fields": json.dumps(found)}


def _producers(content: bytes) -> Iterator[Row]:
    if len(content) < _SNAPSHOT.size:
        raise Unreadable(f"it has {len(content)} bytes")
    version, crc, count = _SNAPSHOT.unpack_from(content)
    if version not in _SNAPSHOT_VERSIONS:
        raise Unreadable(f"its version is {version}")
    if google_crc32c.value(content[_CRC_ENDS:]) != crc:
        raise Unreadable("its CRC does not match its content")
    yield {"fields": json.dumps({"producers": count})}
