"""The partition logs in this broker's data directory: recovery at start, checkpoints, deletion, clean-shutdown file.

A log lies in `<topic>-<index>`, with a file `partition.metadata` that tells which topic of that name it is of: the file
is durable before there is a record. Before the first is written there is an empty directory at most: thousands of
topics that nobody writes to cost next to nothing. A log on the disk that is deleted is durably renamed first, to
`<topic>-<index>.<topic id>-delete`; then the checkpoints forget it; then it is removed. So a power cut leaves the whole
log, or what the next start removes, and a new topic of the same name finds nothing of the old one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final
from uuid import UUID

from cluster_image.config import NO_LIMIT, Config
from cluster_image.storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    CleanShutdownFile,
    OffsetCheckpoint,
    PartitionMetadataFile,
    TopicPartition,
)
from cluster_image.storage.disk import Disk
from cluster_image.storage.errors import StorageError
from cluster_image.storage.log import Log, LogConfig
from cluster_image.storage.segment import base_offset_of

from . import rules

log = logging.getLogger(__name__)

_DELETED: Final = "-delete"
_LOG_DIRECTORY: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")
_LONGEST_NAME: Final = 255  # of a directory
#: Segments that a checkpoint deletes, a millisecond or two each; the next one goes on.
_REMOVED_AT_ONCE: Final = 64


class LogManager:
    def __init__(self, config: Config, disk: Disk) -> None:
        self._config = config
        self._disk = disk
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self._announced: set[TopicPartition] = set()  # see announce()
        self._clean_shutdown = CleanShutdownFile(disk)
        self._watermark_file = OffsetCheckpoint(disk, HIGH_WATERMARK_FILE)
        self._recovery_file = OffsetCheckpoint(disk, RECOVERY_POINT_FILE)
        self._start_file = OffsetCheckpoint(disk, LOG_START_FILE)
        self._recovery_points: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}  # as the file has them: of logs that begin above 0
        self._any_begun_anew = False  # whose start is not noted yet
        self._flushed: dict[TopicPartition, int] | None = None  # as this process has written them
        #: As of the last checkpoint before this start, of logs that are there.
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: Broker epoch of the session before if it ended cleanly, else -1 (002, 5.2).
        self.previous_epoch = -1

    def load(self) -> None:
        """Recover every log on the disk, and remove what is left of deleted ones. Raises OSError."""
        epoch = self._clean_shutdown.take()
        clean = epoch is not None
        self.previous_epoch = -1 if epoch is None else epoch
        recovery_points = self._recovery_file.find()
        self._recovery_points = recovery_points or {}
        self._starts = self._start_file.read()
        self.high_watermarks = self._watermark_file.read()
        for name in self._disk.list(""):
            key = _key_of(name)
            if name.endswith(_DELETED):
                self._remove_directory(name)
            elif key is not None and key[0] != "__cluster_metadata":
                self._load_one(name, key, clean)
        noted = (*self.high_watermarks, *self._recovery_points, *self._starts)
        missing = {key for key in noted if key not in self._logs}
        # close() has named every log in this file, each with its end, and nothing has changed since.
        whole = recovery_points is not None and recovery_points.keys() == self._logs.keys()
        if clean and (not whole or any(self._is_short(key) for key in self._logs)):
            # It ended cleanly, and then the disk lost something: the controller must not count on what was there, and
            # what is there now may be damaged, too.
            log.warning("something is lost since the clean shutdown", extra={"previous_epoch": self.previous_epoch})
            clean, self.previous_epoch = False, -1
            self._verify_all()
        if missing:
            # A deletion got no further. Another log of that name must not be taken for what they tell of.
            self._forget(missing)
            self.checkpoint(self.high_watermarks)
        log.info("logs loaded", extra={"clean": clean, "previous_epoch": self.previous_epoch, "logs": len(self._logs)})

    def _is_short(self, key: TopicPartition) -> bool:
        """Has this log less than was once durable?"""
        opened = self._logs[key]
        repaired = opened.recovery.truncated_bytes or opened.recovery.removed_segments
        lost_its_end = opened.end_offset < self._recovery_points.get(key, 0)
        return bool(repaired) or lost_its_end or opened.lacks_from is not None

    def _verify_all(self) -> None:
        """Open every log again, believing nothing of it that its batches do not prove by their CRC."""
        self._recovery_points = {}
        for key, opened in list(self._logs.items()):
            opened.abandon()
            self._open(key, self._topic_ids[key], LogConfig(), clean=False)

    def _load_one(self, name: str, key: TopicPartition, clean: bool) -> None:
        topic_id = PartitionMetadataFile(self._disk, name).read()
        if topic_id is not None:
            self._open(key, topic_id, LogConfig(), clean)
        elif any(base_offset_of(file) is not None for file in self._disk.list(name)):
            raise StorageError(f"{name} has records, and no readable partition.metadata tells of which topic")
        else:
            self._remove_directory(name)  # its creation got no further

    def get(self, topic: str, topic_id: UUID, index: int, config: Config) -> Log:
        """The partition's log, created if this broker has none yet; with the topic's settings from now on."""
        key = (topic, index)
        flush_ms = config["log.flush.interval.ms"]
        log_config = LogConfig(
            segment_bytes=config["log.segment.bytes"],
            flush_interval_messages=config["log.flush.interval.messages"],
            flush_interval_ms=None if flush_ms == NO_LIMIT else flush_ms,
        )
        if key in self._logs and self._topic_ids[key] != topic_id:
            self.delete([key], self.high_watermarks)
        existing = self._logs.get(key)
        if existing is None:
            directory = _directory(key)
            prepare = partial(self._make_directory, directory, topic_id)
            return self._add(key, topic_id, Log.create(self._disk, directory, log_config, prepare))
        existing.config = log_config
        return existing

    def announce(self, key: TopicPartition) -> None:
        """Make the directory of a log that has not been written to, if it is still here, for whoever looks which
        replicas this broker has. It is empty, and need not be durable."""
        known = self._logs.get(key)
        if known is not None and known.is_untouched and key not in self._announced:
            self._disk.add_directory(_directory(key))
            self._announced.add(key)

    def _make_directory(self, directory: str, topic_id: UUID) -> None:
        self._disk.make_directory(directory)
        PartitionMetadataFile(self._disk, directory).write(topic_id)

    def _open(self, key: TopicPartition, topic_id: UUID, config: LogConfig, clean: bool) -> Log:
        noted = self._starts.get(key, 0)
        opened = Log.open(
            self._disk,
            _directory(key),
            config,
            clean=clean,
            recovery_point=self._recovery_points.get(key),
            start_offset=noted,
        )
        if rules.lacks_its_begin(opened.start_offset, noted):
            opened.lacks_from = noted
            log.warning(
                "log lacks its begin", extra={"log": opened.directory, "from": noted, "to": opened.start_offset}
            )
        if opened.recovery.truncated_bytes or opened.recovery.removed_segments:
            log.warning("log repaired", extra={"log": opened.directory, **opened.recovery._asdict()})
        return self._add(key, topic_id, opened)

    def _add(self, key: TopicPartition, topic_id: UUID, partition_log: Log) -> Log:
        self._logs[key] = partition_log
        self._topic_ids[key] = topic_id
        partition_log.before_start_falls = partial(self._forget_start, key)
        partition_log.after_begun_anew = self._note_soon
        return partition_log

    def _note_soon(self) -> None:
        self._any_begun_anew = True

    def _forget_start(self, key: TopicPartition) -> None:
        if key in self._starts:
            starts = {other: start for other, start in self._starts.items() if other != key}
            self._start_file.write(starts)
            self._starts = starts

    @property
    def topics(self) -> Mapping[TopicPartition, UUID]:
        """Of each log that is here, whose it is."""
        return self._topic_ids

    @property
    def opened(self) -> Collection[Log]:
        """All that are here. To look at, not to act on."""
        return self._logs.values()

    # -- deletion ---------------------------------------------------------------------------------------------

    def delete(self, keys: Iterable[TopicPartition], high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Delete these logs, for good: nothing may use them any more. high_watermarks: as for checkpoint().
        Raises OSError; what is left of them is removed at the next start."""
        deleted = []
        for key in keys:
            partition_log, topic_id = self._logs.pop(key), self._topic_ids.pop(key)
            partition_log.abandon()
            announced = key in self._announced
            self._announced.discard(key)
            if partition_log.is_untouched:
                if announced:
                    self._disk.remove_directory(_directory(key))
                continue
            directory = _deleted_directory(key, topic_id)
            if self._disk.exists(directory):
                self._remove_directory(directory)  # of an earlier deletion that failed
            self._disk.rename(_directory(key), directory)
            deleted.append((key, directory))
        if not deleted:
            return
        self._disk.sync_directory("")
        self._forget([key for key, _ in deleted])
        self.checkpoint(high_watermarks)
        for _, directory in deleted:
            self._remove_directory(directory)
        log.info("logs deleted", extra={"logs": [_directory(key) for key, _ in deleted]})

    def strays(self, expected: Callable[[UUID, int], bool]) -> dict[TopicPartition, UUID]:
        """Logs, each with its topic, of topics that are gone, or that have moved to other brokers while this one did
        not have them open. expected: does this broker have a replica of that partition?"""
        return {key: self._topic_ids[key] for key in self._logs if not expected(self._topic_ids[key], key[1])}

    def _forget(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self.high_watermarks.pop(key, None)
            self._recovery_points.pop(key, None)

    def _remove_directory(self, name: str) -> None:
        """Not durably: the next start would do it again."""
        for file in self._disk.list(name):
            self._disk.remove(f"{name}/{file}")
        self._disk.remove_directory(name)

    # -- durability -------------------------------------------------------------------------------------------

    def flush_timed(self, now: float) -> float | None:
        """Flush the logs that log.flush.interval.ms requires it of by `now`, in seconds. When the next of them is due;
        None: none ever. Raises StorageError."""
        due = [each.maybe_flush(now) for each in self._logs.values()]
        return min((time for time in due if time is not None), default=None)

    def note_starts(self) -> None:
        """Durably note where logs begin that have begun anew: before another broker is told what is in them, as a log
        that begins above what is noted counts as one that lacks its begin (rules.lacks_its_begin), and is thrown away.
        Raises OSError."""
        if self._any_begun_anew:
            self._note_starts(self._touched())

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Durably note high watermarks, where each log begins, and up to where it need not be checked after a crash;
        then delete segments of what lies below."""
        touched = self._touched()
        self._watermark_file.write({key: offset for key, offset in high_watermarks.items() if key in touched})
        self._note_starts(touched)
        flushed = {key: each.flushed_offset for key, each in touched.items()}
        if flushed != self._flushed:
            self._recovery_file.write(flushed)
            self._flushed = flushed
        left = _REMOVED_AT_ONCE
        for key, each in touched.items():
            if left > 0 and each.has_obsolete_segments and not each.is_given_up:
                removed = each.remove_obsolete_segments(left)
                left -= removed
                log.info("segments deleted", extra={"log": _directory(key), "segments": removed})

    def _touched(self) -> dict[TopicPartition, Log]:
        return {key: each for key, each in self._logs.items() if not each.is_untouched}

    def _note_starts(self, touched: Mapping[TopicPartition, Log]) -> None:
        starts = {key: start for key, each in touched.items() if (start := self._start_to_note(key, each)) > 0}
        if starts != self._starts:
            self._start_file.write(starts)
            self._starts = starts
        self._any_begun_anew = False

    def _start_to_note(self, key: TopicPartition, opened: Log) -> int:
        return opened.start_offset if opened.lacks_from is None else self._starts.get(key, 0)

    def close(self, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int) -> None:
        """The end of a controlled shutdown (002, 5.2): flush everything, then say so. Raises OSError, and says nothing
        then, if a log cannot be flushed; the others are all the same."""
        with ExitStack() as closing:
            for partition_log in self._logs.values():
                closing.callback(partition_log.close)
        self._flushed = None  # the next start asks this file whether all logs are there
        self.checkpoint(high_watermarks)
        self._clean_shutdown.write(broker_epoch)


def _key_of(name: str) -> TopicPartition | None:
    """Whose log a directory of this name holds; None for what is no log's."""
    match = _LOG_DIRECTORY.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def _directory(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


def _deleted_directory(key: TopicPartition, topic_id: UUID) -> str:
    suffix = f"-{key[1]}.{topic_id.hex}{_DELETED}"
    return key[0][: _LONGEST_NAME - len(suffix)] + suffix
