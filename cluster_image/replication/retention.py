"""What retention.ms and retention.bytes leave of a log (Apache Kafka: UnifiedLog.deleteOldSegments).

Whole segments go, the oldest first. With cleanup.policy=compact alone none does. The newest goes too where all of it is
out of date: the log then begins a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from cluster_image.config import Config
from cluster_image.network.tasks import Failed
from cluster_image.storage.log import Log

from . import rules

#: Seconds between two looks at logs that keep their records for long (log.retention.check.interval.ms of Apache Kafka).
LONGEST_INTERVAL_S: Final = 300.0


def deletes(config: Config) -> bool:
    """May records of the topic be deleted at all, by retention or by clients?"""
    return "delete" in config["log.cleanup.policy"].split(",")


def interval(config: Config) -> float | None:
    """Seconds between two looks at a log with these settings: log.retention.check.interval.ms, or up to Apache Kafka's
    five minutes where retention.ms is longer than that interval and there is nothing else to look for. None: nothing is
    ever deleted."""
    age: int = config["log.retention.ms"]
    shortest = config.seconds("log.retention.check.interval.ms")
    if not deletes(config) or (age < 0 and config["log.retention.bytes"] < 0):
        return None
    if config["log.retention.bytes"] >= 0:
        return shortest
    return max(shortest, min(age / 1000, LONGEST_INTERVAL_S))


def next_start(log: Log, config: Config, high_watermark: int, now: int, is_leader: bool) -> int:
    """Where the log starts once retention has been applied. now: ms since 1970."""
    start = log.start_offset
    if not deletes(config):
        return start
    stretches = log.stretches
    size = sum(stretch.size for stretch in stretches)
    for number, stretch in enumerate(stretches, 1):
        if not rules.may_delete_segment(stretch.end_offset, high_watermark, is_leader):
            break
        old = rules.is_out_of_date(stretch.latest_timestamp, now, config["log.retention.ms"])
        # The newest segment is as large as it is; it is not rolled for its size.
        surplus = number < len(stretches) and rules.is_beyond_size(size, stretch.size, config["log.retention.bytes"])
        if not old and not surplus:
            break
        start = max(start, stretch.end_offset)
        size -= stretch.size
    return start


class Retained(Protocol):
    """A replica, leader or not."""

    @property
    def config(self) -> Config: ...

    def apply_retention(self, now: int) -> None: ...


class Retention:
    """Applies it to all partitions now and then, as often as one of them needs it. Where none has anything that could
    be deleted soon, it does not wake at all. wall_clock: seconds since 1970."""

    def __init__(
        self, partitions: Callable[[], Iterable[Retained]], wall_clock: Callable[[], float], failed: Failed
    ) -> None:
        self._partitions = partitions
        self._wall_clock = wall_clock
        self._failed = failed
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def wanted(self, config: Config) -> None:
        """By a partition that is new, or whose settings have changed."""
        seconds = interval(config)
        if seconds is None or self._stopped:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        if self._timer is None or due < self._timer.when():
            self._cancel()
            self._timer = loop.call_at(due, self._apply)

    def stop(self) -> None:
        self._stopped = True
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _apply(self) -> None:
        self._timer = None
        now = int(self._wall_clock() * 1000)
        try:
            for partition in list(self._partitions()):
                partition.apply_retention(now)
        except Exception as error:
            self._failed(error)
            return
        shortest = min(
            {id(p.config): p.config for p in self._partitions()}.values(), key=lambda c: interval(c) or float("inf"),
            default=None,
        )  # fmt: skip
        if shortest is not None:
            self.wanted(shortest)
