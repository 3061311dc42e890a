"""Puts what lies on the replicas' disks after a run into its history.

Reads <topic>-<partition>/*.log of every node: segments of record batches, named for their first offset. The nodes'
disks are disks/<node>/ of the run, as Cluster.collect leaves them, or still in the memory of the simulation.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cluster_image.storage.records import RecordError, decode_int64s, iter_batches, validate_batch
from harness.record.collected import CUT_DISKS, Collected, why
from harness.targets.target import ReadableDisk, Recorder

LAST_OFFSET: Final = (1 << 63) - 1
_LAST_PARTITION: Final = (1 << 31) - 1  # an int32, as the protocol and the history have it


def record_replica_logs(
    disks: Path | Mapping[str, ReadableDisk], topic: str, recorder: Recorder, *, compacted: bool = False
) -> list[Collected]:
    """Add every record of `topic` on every node's disk. disks: the directory of a run, or a disk a node. compacted:
    batches may lack records.

    Returns a piece for each disk and each log; of one that could not be read to its end all before that point is added.
    """
    by_node = copied_disks(disks) if isinstance(disks, Path) else disks
    pieces = []
    for node, disk in sorted(by_node.items()):
        try:
            partitions = _partitions(disk.list(""), topic)
        except OSError as error:
            pieces.append(Collected(node, "disk", problem=f"the disk of {node} could not be read: {error}"))
            continue
        beyond = [name for name, partition in partitions if partition > _LAST_PARTITION]
        partitions = [(name, partition) for name, partition in partitions if partition <= _LAST_PARTITION]
        reported = f"the disk of {node} has logs of partitions that there cannot be: {', '.join(beyond[:3])}"
        pieces.append(Collected(node, "disk", len(partitions), reported if beyond else None))
        for name, partition in partitions:
            offsets, epochs, values = array("q"), array("q"), array("q")
            problem = None
            try:
                for segment in disk.list(name):
                    if segment.endswith(".log"):
                        _read_segment(disk.read(f"{name}/{segment}"), compacted, offsets, epochs, values)
            except Exception as error:  # whatever a node may have written: it must not cost what others left
                problem = f"the log of {name} on {node} could not be read to its end: {why(error)}"
            columns = (_as_numpy(column)[: len(values)] for column in (offsets, epochs, values))
            recorder.add_replica_log(node, topic, partition, *columns)
            pieces.append(Collected(node, "replica log", len(values), problem, topic, partition))
    return pieces


class _Collected:
    """The copy of a node's disk. No LocalDisk: that opens files for writing, and these may belong to another user."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def list(self, directory: str) -> Sequence[str]:
        """Directories only at the root, where logs are."""
        entries = (self._root / directory).iterdir()
        return sorted(entry.name for entry in entries if directory or entry.is_dir())

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()


def copied_disks(disks: Path) -> dict[str, ReadableDisk]:
    return {directory.name: _Collected(directory) for directory in disks.glob("*") if directory.is_dir()}


def cut_disks(run_directory: Path) -> dict[tuple[str, int], ReadableDisk]:
    """What lay on a run's disks right after power cuts, by node and number of the cut."""
    named = ((folder, *folder.name.rpartition("-")[::2]) for folder in (run_directory / CUT_DISKS).glob("*"))
    return {(node, int(number)): _Collected(folder) for folder, node, number in named if number.isdecimal()}


def _partitions(names: Sequence[str], topic: str) -> list[tuple[str, int]]:
    """(directory, partition) of every replica of the topic."""
    numbers = ((name, name.removeprefix(f"{topic}-")) for name in sorted(names) if name.startswith(f"{topic}-"))
    return [(name, int(number)) for name, number in numbers if number.isascii() and number.isdecimal()]


def _read_segment(content: bytes, compacted: bool, offsets: array[int], epochs: array[int], values: array[int]) -> None:
    """Raises RecordError at the first batch that is not sound, after everything before it was taken."""
    for start, end, header in iter_batches(content):
        validate_batch(content, start, header, compacted)
        for batch in decode_int64s(content[start:end]):
            if batch.base_offset > LAST_OFFSET - len(batch.values):
                raise RecordError(f"a batch at offset {batch.base_offset}, beyond any that there can be")
            offsets.extend(range(batch.base_offset, batch.base_offset + len(batch.values)))
            epochs.extend([batch.leader_epoch] * len(batch.values))
            values.extend(batch.values)


def _as_numpy(column: array[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(column, dtype=np.int64)
