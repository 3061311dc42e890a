"""Small files beside the logs, in Kafka's formats. Each is replaced atomically and durably.

A checkpoint that cannot be read is taken as missing: the logs are the truth, and every reader of a checkpoint is
safe without it.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from uuid import UUID

from .disk import Disk
from .epoch_cache import EpochEntry

HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

TopicPartition = tuple[str, int]


class OffsetCheckpoint:
    """One offset for each partition of a data directory: high watermarks, recovery points, or starts of logs."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def read(self) -> dict[TopicPartition, int]:
        return self.find() or {}

    def find(self) -> dict[TopicPartition, int] | None:
        """As read(), but None if it is missing or damaged."""
        try:
            return offsets_in(self._disk.read(self._path))
        except FileNotFoundError:
            return None

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        entries = (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))
        _write_entries(self._disk, self._path, entries)


def offsets_in(content: bytes) -> dict[TopicPartition, int] | None:
    """Of an OffsetCheckpoint's file; None: it is damaged."""
    offsets: dict[TopicPartition, int] = {}
    try:
        for line in entries_of(content):
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
    except ValueError:
        return None
    return offsets


class LeaderEpochCheckpoint:
    """A log's leader-epoch cache, written when the log is cut at either end or closed. As each batch names its leader
    epoch, the cache is made anew from the log at start; only the epoch of the record before the log's start is taken
    from here. (Apache Kafka writes it as each epoch begins.)"""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def read(self) -> list[EpochEntry]:
        try:
            return [EpochEntry(*map(int, line.split())) for line in _read_entries(self._disk, self._path)]
        except (ValueError, TypeError):
            return []

    def write(self, entries: Iterable[EpochEntry]) -> None:
        _write_entries(self._disk, self._path, (f"{entry.epoch} {entry.start_offset}" for entry in entries))


class PartitionMetadataFile:
    """Which topic a partition's log is of, by id: topics of the same name come and go."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{PARTITION_METADATA_FILE}"

    def read(self) -> UUID | None:
        """None if it is missing or damaged."""
        try:
            lines = dict(line.split(": ") for line in self._disk.read(self._path).decode().splitlines())
            return UUID(bytes=urlsafe_b64decode(lines["topic_id"] + "==")) if lines["version"] == "0" else None
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def write(self, topic_id: UUID) -> None:
        encoded = urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
        self._disk.write_atomically(self._path, f"version: 0\ntopic_id: {encoded}\n".encode())


class CleanShutdownFile:
    """Proof that a data directory was left complete: everything flushed, by the broker of the epoch it holds.

    At start `take` it before any log is opened; at the end of a controlled shutdown, when every log is closed,
    `write` it. (Section 5.2: a broker without it registers with an empty broker epoch.)
    """

    def __init__(self, disk: Disk, directory: str = "") -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{CLEAN_SHUTDOWN_FILE}" if directory else CLEAN_SHUTDOWN_FILE

    def take(self) -> int | None:
        """The broker epoch of the shutdown, None if it was unclean. The file is gone for good on return, so that
        a crash from here on is an unclean shutdown."""
        try:
            content = self._disk.read(self._path)
        except FileNotFoundError:
            return None
        use_up(self._disk, self._directory, self._path)
        return clean_epoch_in(content)

    def write(self, broker_epoch: int) -> None:
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
        self._disk.write_atomically(self._path, content.encode())


def use_up(disk: Disk, directory: str, path: str) -> None:
    """The file is proof of one shutdown: from here on, whatever happens, it is not there again (KAFKA-15582)."""
    disk.remove(path)
    disk.sync_directory(directory)


def clean_epoch_in(content: bytes) -> int | None:
    """The broker epoch in a CleanShutdownFile's file; None: it is damaged."""
    try:
        epoch = json.loads(content)["brokerEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return epoch if type(epoch) is int and 0 <= epoch < 1 << 63 else None


def _read_entries(disk: Disk, path: str) -> list[str]:
    """Of the file, none if it is missing. Raises ValueError."""
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return []
    return entries_of(content)


def entries_of(content: bytes) -> list[str]:
    """The lines after the version and the count. Raises ValueError if the count or version is wrong."""
    lines = content.decode().splitlines()
    if len(lines) < 2 or lines[0] != "0" or int(lines[1]) != len(lines) - 2:
        raise ValueError("version or number of entries is wrong")
    return lines[2:]


def _write_entries(disk: Disk, path: str, entries: Iterable[str]) -> None:
    lines = list(entries)
    disk.write_atomically(path, "\n".join(["0", str(len(lines)), *lines, ""]).encode())
