"""Puts what lies on the replicas' disks after a run into its history.

Reads disks/<node>/<topic>-<partition>/*.log, as Cluster.collect leaves them: segments of record batches, named for
their first offset.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cluster_image.records import RecordError, decode_int64s, iter_batches, validate_batch


class ReplicaLogRecorder(Protocol):
    """The part of history.Recorder used here."""

    def add_replica_log(
        self, node: str, topic: str, partition: int, offsets: Any, leader_epochs: Any, values: Any
    ) -> None: ...


def record_replica_logs(disks: Path, topic: str, recorder: ReplicaLogRecorder) -> list[str]:
    """Add every record of `topic` on every node's disk.

    Returns a sentence for each log that could not be read to its end; all before that point is added.
    """
    problems = []
    for node, partition, directory in replica_directories(disks, topic):
        offsets, epochs, values = array("q"), array("q"), array("q")
        try:
            for segment in sorted(directory.glob("*.log")):
                _read_segment(segment.read_bytes(), offsets, epochs, values)
        except (RecordError, OSError) as error:
            problems.append(f"the log of {topic}-{partition} on {node} could not be read to its end: {error}")
        recorder.add_replica_log(node, topic, partition, *(_as_numpy(column) for column in (offsets, epochs, values)))
    return problems


def replica_directories(disks: Path, topic: str) -> Iterator[tuple[str, int, Path]]:
    """(node, partition, directory) of every replica, in order."""
    for directory in sorted(disks.glob(f"*/{topic}-*")):
        number = directory.name.removeprefix(f"{topic}-")
        if number.isdecimal() and directory.is_dir():
            yield directory.parent.name, int(number), directory


def _read_segment(content: bytes, offsets: array[int], epochs: array[int], values: array[int]) -> None:
    """Raises RecordError at the first batch that is not sound, after everything before it was taken."""
    for start, end, header in iter_batches(content):
        validate_batch(content, start, header)
        for batch in decode_int64s(content[start:end]):
            offsets.extend(range(batch.base_offset, batch.base_offset + len(batch.values)))
            epochs.extend([batch.leader_epoch] * len(batch.values))
            values.extend(batch.values)


def _as_numpy(column: array[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(column, dtype=np.int64)
