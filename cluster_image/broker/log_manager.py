"""The partition logs in this broker's data directory: recovery at start, checkpoints, the clean-shutdown file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack

from ..config import Config
from ..disk import Disk
from ..storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    CleanShutdownFile,
    OffsetCheckpoint,
    TopicPartition,
)
from ..storage.log import Log, LogConfig

log = logging.getLogger(__name__)


class LogManager:
    def __init__(self, config: Config, disk: Disk) -> None:
        self._config = config
        self._disk = disk
        self._logs: dict[TopicPartition, Log] = {}
        self._clean_shutdown = CleanShutdownFile(disk)
        self._watermark_file = OffsetCheckpoint(disk, HIGH_WATERMARK_FILE)
        self._recovery_file = OffsetCheckpoint(disk, RECOVERY_POINT_FILE)
        self._recovery_points: dict[TopicPartition, int] = {}
        #: As of the last checkpoint before this start.
        self.high_watermarks: Mapping[TopicPartition, int] = {}
        #: Broker epoch of the session before if it ended cleanly, else -1 (002, 5.2).
        self.previous_epoch = -1

    def load(self) -> None:
        """Recover every log on the disk. Raises OSError."""
        epoch = self._clean_shutdown.take()
        clean = epoch is not None
        self.previous_epoch = -1 if epoch is None else epoch
        self._recovery_points = self._recovery_file.read()
        self.high_watermarks = self._watermark_file.read()
        for name in self._disk.list(""):
            topic, separator, index = name.rpartition("-")
            if separator and index.isdigit() and topic != "__cluster_metadata":
                self._open((topic, int(index)), LogConfig(), clean)
        log.info("logs loaded", extra={"clean": clean, "previous_epoch": self.previous_epoch, "logs": len(self._logs)})

    def get(self, topic: str, index: int, config: Config) -> Log:
        """The partition's log, created if this broker has none yet; with the topic's settings from now on."""
        log_config = LogConfig(
            segment_bytes=config["log.segment.bytes"],
            flush_interval_messages=config["log.flush.interval.messages"],
            flush_interval_ms=config["log.flush.interval.ms"],
        )
        existing = self._logs.get((topic, index))
        if existing is None:
            # A log that was created empty has nothing to recover.
            return self._open((topic, index), log_config, clean=True)
        existing.config = log_config
        return existing

    def _open(self, key: TopicPartition, config: LogConfig, clean: bool) -> Log:
        opened = Log.open(
            self._disk, f"{key[0]}-{key[1]}", config, clean=clean, recovery_point=self._recovery_points.get(key)
        )
        if opened.recovery.truncated_bytes or opened.recovery.removed_segments:
            log.warning("log repaired", extra={"log": opened.directory, **opened.recovery._asdict()})
        self._logs[key] = opened
        return opened

    def flush_timed(self, now: float) -> None:
        for partition_log in self._logs.values():
            partition_log.maybe_flush(now)

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Durably note high watermarks, and up to where each log need not be checked after a crash."""
        self._watermark_file.write(high_watermarks)
        self._recovery_file.write({key: partition_log.flushed_offset for key, partition_log in self._logs.items()})

    def close(self, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int) -> None:
        """The end of a controlled shutdown (002, 5.2): flush everything, then say so. Raises OSError, and says nothing
        then, if a log cannot be flushed; the others are all the same."""
        with ExitStack() as closing:
            for partition_log in self._logs.values():
                closing.callback(partition_log.close)
        self.checkpoint(high_watermarks)
        self._clean_shutdown.write(broker_epoch)
