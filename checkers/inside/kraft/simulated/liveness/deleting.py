"""Liveness of deletion: what retention does not keep goes, and its files with it (KIP-107; Apache Kafka's LogManager).

A leader looks every log.retention.check.interval.ms for segments that log.retention.bytes leaves no room for, of which
everything is committed; and every replica.high.watermark.checkpoint.interval.ms for files of what lies below its log's
start. Nothing is asked of log.retention.ms: clocks of nodes may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from checkers.inside.violation import Violated
from checkers.properties import RECORDS_DELETED
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.node import Node

from .lasting import Overdue

#: Seconds by which it may be late.
WITHIN_S: Final = 2.0
#: A leader has served a follower in each so long a time, or the time begins anew: a process that stands still deletes
#: nothing.
ACTS_EVERY_S: Final = 1.0
LOOK_EVERY_S: Final = 0.5

#: Node, partition, what is overdue and its offset.
_Key = tuple[str, str, str, int]


class Deleting:
    def __init__(self) -> None:
        self._overdue: Overdue[_Key] = Overdue(LOOK_EVERY_S, ACTS_EVERY_S)

    def look(self, nodes: Mapping[str, Node], now: float) -> None:
        """At whoever leads, every LOOK_EVERY_S. Raises Violated."""
        if not self._overdue.is_time(now):
            return
        for name, node in nodes.items():
            if node.broker is not None:
                for partition in node.broker.partitions.values():
                    if partition.leadership is not None and not partition.log.is_given_up:
                        self._look_at(name, partition, now)

    def _look_at(self, name: str, partition: Partition, now: float) -> None:
        assert partition.leadership is not None
        served = max((follower.last_fetch for follower in partition.leadership.followers.values()), default=None)
        if served is None:
            return
        for what, offset, within in _due(partition):
            seconds = self._overdue.seconds((name, str(partition), what, offset), served, now)
            if seconds > within + WITHIN_S:
                log = partition.log
                raise Violated(
                    RECORDS_DELETED,
                    f"{name}, leader of {partition}, {what} {offset}, for {seconds:.1f} s: its log is "
                    f"{log.start_offset} to {log.end_offset}, the high watermark {partition.high_watermark}",
                    str(partition),
                    (name,),
                )


def _due(partition: Partition) -> Iterator[tuple[str, int, float]]:
    """What a leader is to delete: a clause, an offset, and the seconds that it may take."""
    log, config = partition.log, partition.config
    if log.has_obsolete_segments:
        yield (
            "has kept files of what is below its log's start, from offset", log.oldest_offset,
            config.seconds("replica.high.watermark.checkpoint.interval.ms"),
        )  # fmt: skip
    elif _has_surplus(partition):
        yield (
            "has kept what log.retention.bytes leaves no room for, from offset", log.oldest_offset,
            config.seconds("log.retention.check.interval.ms"),
        )  # fmt: skip


def _has_surplus(partition: Partition) -> bool:
    """Does a leader's log keep log.retention.bytes without its oldest segment, which is committed?"""
    kept: int = partition.config["log.retention.bytes"]
    if kept < 0 or "delete" not in partition.config["log.cleanup.policy"].split(","):
        return False
    oldest, *others = partition.log.stretches
    return bool(others) and oldest.end_offset <= partition.high_watermark and sum(s.size for s in others) >= kept
