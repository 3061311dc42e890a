"""AcknowledgedOnceCommitted: an append with acks=all is acknowledged once it is committed: no sooner, and not given up
after that.

Judged as a broker answers Produce: where it acknowledges, some leader has had its high watermark past the batch; where
it says that the time is up, it has not led with its high watermark past it for LONG_S: a process that was paused comes
to all that it has missed at once, in whatever order.

Sources: 000, 2.6; Apache Kafka's DelayedProduce.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from checkers.inside.violation import Violated
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.node import Node

_ALL: Final = -1
#: Of a record batch (Apache Kafka's DefaultRecordBatch): where the last offset stands, relative to the first one.
_LAST_OFFSET_DELTA: Final = slice(23, 27)
LONG_S: Final = 0.1

_Leading = dict[tuple[str, str], tuple[int, int]]  # by node and partition: leader epoch and high watermark


class Acknowledging:
    def __init__(self) -> None:
        self._highest: dict[str, int] = {}  # high watermark that anybody has told of, by partition
        self._now = 0.0
        self._before: _Leading = {}  # LONG_S ago, or longer
        self._last: _Leading = {}

    def node_started(self, name: str) -> None:
        """What it led before tells nothing of what it leads now."""
        for known in (self._before, self._last):
            for key in [key for key in known if key[0] == name]:
                del known[key]

    def told(self, where: str, high_watermark: int) -> None:
        """A replica's high watermark has moved there. At once: it may not lead any more once the step is over."""
        self._highest[where] = max(self._highest.get(where, 0), high_watermark)

    def look(self, nodes: Mapping[str, Node], now: float) -> None:
        """Some ten times a second. now: virtual seconds."""
        if now - self._now < LONG_S:
            return
        self._now, self._before = now, self._last
        self._last = {
            (name, str(partition)): (partition.leader_epoch, partition.high_watermark)
            for name, node in nodes.items()
            if node.broker is not None
            for partition in node.broker.partitions.values()
            if partition.is_leader
        }

    def before(self, name: str, where: str, leader_epoch: int) -> int:
        """The high watermark that a leader had LONG_S ago, or longer; -1: it did not lead in this epoch."""
        epoch, watermark = self._before.get((name, where), (-1, -1))
        return watermark if epoch == leader_epoch else -1

    def check(self, name: str, node: Node, request: Any, response: Any) -> None:
        """Of ProduceRequest. Raises Violated."""
        broker = node.broker
        if int(request.acks) != _ALL or broker is None:
            return
        for topic, answers in zip(request.topic_data, response.responses, strict=True):
            known = broker.image.topics.get(topic.name)
            for asked, told in zip(topic.partition_data, answers.partition_responses, strict=True):
                if known is not None and told.base_offset >= 0 and asked.records:
                    end = int(told.base_offset) + _last_offset_delta(asked.records) + 1
                    partition = broker.partitions.get((known.id, int(asked.index)))
                    self._check(name, f"{topic.name}-{asked.index}", partition, end, told.error_code)

    def _check(self, name: str, where: str, partition: Partition | None, end: int, error: ErrorCode) -> None:
        if error is ErrorCode.none and (highest := self._highest.get(where, 0)) < end:
            raise _violated(name, where, end, f"is acknowledged, and the highest high watermark is {highest}")
        if error is ErrorCode.request_timed_out and partition is not None and partition.is_leader:
            watermark = self.before(name, where, partition.leader_epoch)
            if watermark >= end:
                raise _violated(name, where, end, f"is given up, as its time is up; the high watermark is {watermark}")


def _last_offset_delta(batch: bytes) -> int:
    return int.from_bytes(bytes(batch)[_LAST_OFFSET_DELTA], "big")


def _violated(name: str, where: str, end: int, message: str) -> Violated:
    return Violated(
        "AcknowledgedOnceCommitted", f"the append with acks=all to {name} that ends at {end} {message}", where, (name,)
    )
