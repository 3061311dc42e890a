"""AcknowledgedOnceCommitted: an append with acks=all is acknowledged once it is committed: no sooner, and not given up
after that; and is given up once its time is up.

Judged as a broker answers Produce: where it acknowledges, some leader has had its high watermark past the batch; where
it says that the time is up, it has not led with its high watermark past it for LONG_S, and answered others meanwhile: a
process that was paused comes to all that it has missed at once, in whatever order.

Sources: 000, 2.6; Apache Kafka's DelayedProduce.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from checkers.inside.violation import Violated
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.node import Node
from cluster_image.replication.replica import PartitionKey

_ALL: Final = -1
#: Seconds by which an answer may be late, and looks at a node in that time at which it had answered others.
_LATE_S: Final = 1.0
_LEAST_ACTIVE: Final = 5
#: Of a record batch (Apache Kafka's DefaultRecordBatch): where the last offset stands, relative to the first one.
_LAST_OFFSET_DELTA: Final = slice(23, 27)
LONG_S: Final = 0.1
#: One of them may fall into what a process that was paused comes to at once: so it has answered others between the
#: first and the second, or between the second and the third.
_LOOKS: Final = 3

PROPERTY: Final = "AcknowledgedOnceCommitted"
#: However long a request allows (replication/produce.py).
_LONGEST_S: Final = 120.0


@dataclass(slots=True)
class _Waiting:
    """due: virtual seconds, when its time is up. looks: at its node, since then, at which that had answered others."""

    request: Any  # kept, so that no other has its identity
    due: float
    looks: int = 0


_Leading = dict[PartitionKey, tuple[int, int]]  # by partition: leader epoch and high watermark


class Acknowledging:
    def __init__(self) -> None:
        self._highest: dict[str, int] = {}  # high watermark that anybody has told of, by partition
        self._now = 0.0
        self._active: set[str] = set()  # nodes that have answered anything since the last look
        # By node, the oldest first: what it led at each look at which it had answered since the one before.
        self._led: dict[str, deque[_Leading]] = {}
        self._waiting: dict[str, dict[int, _Waiting]] = {}  # by node and identity of the request

    def node_started(self, name: str) -> None:
        """What it led before tells nothing of what it leads now."""
        self._led.pop(name, None)
        self._waiting.pop(name, None)

    def asked(self, name: str, request: Any, now: float) -> None:
        """A node has begun with it."""
        if type(request).__name__ == "ProduceRequest" and int(request.acks) == _ALL:
            due = now + min(request.timeout.total_seconds(), _LONGEST_S)
            self._waiting.setdefault(name, {})[id(request)] = _Waiting(request, due)

    def told(self, where: str, high_watermark: int) -> None:
        """A replica's high watermark has moved there. At once: it may not lead any more once the step is over."""
        self._highest[where] = max(self._highest.get(where, 0), high_watermark)

    def ended(self, name: str, request: Any) -> None:
        """It waits no more, whatever it was answered."""
        self._waiting.get(name, {}).pop(id(request), None)

    def look(self, nodes: Mapping[str, Node], now: float) -> None:
        """Some ten times a second. now: virtual seconds. Raises Violated."""
        if now - self._now < LONG_S:
            return
        self._now = now
        active, self._active = self._active, set()
        for name in sorted(active & nodes.keys()):
            broker = nodes[name].broker
            partitions = () if broker is None else broker.partitions.values()
            self._led.setdefault(name, deque(maxlen=_LOOKS)).append({
                each.key: (each.leader_epoch, each.high_watermark) for each in partitions if each.is_leader
            })  # fmt: skip
            for waiting in self._waiting.get(name, {}).values():
                waiting.looks += now > waiting.due + _LATE_S
                if waiting.looks > _LEAST_ACTIVE:
                    topics = ", ".join(str(topic.name) for topic in waiting.request.topic_data)
                    raise Violated(
                        PROPERTY, f"{name} has an append with acks=all to {topics} wait {now - waiting.due:.3f} s "
                        "beyond its time, and answers others", topics, (name,),
                    )  # fmt: skip

    def answered(self, name: str) -> None:
        """It has answered a request, whichever."""
        self._active.add(name)

    def before(self, name: str, partition: Partition) -> int:
        """The high watermark that a leader had LONG_S ago, or longer, and has answered others since; -1: it did not
        lead in this epoch."""
        led = self._led.get(name)
        epoch, watermark = led[0].get(partition.key, (-1, -1)) if led is not None and len(led) == _LOOKS else (-1, -1)
        return watermark if epoch == partition.leader_epoch else -1

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
            watermark = self.before(name, partition)
            if watermark >= end:
                raise _violated(name, where, end, f"is given up, as its time is up; the high watermark is {watermark}")


def _last_offset_delta(batch: bytes) -> int:
    return int.from_bytes(bytes(batch)[_LAST_OFFSET_DELTA], "big")


def _violated(name: str, where: str, end: int, message: str) -> Violated:
    return Violated(
        PROPERTY, f"the append with acks=all to {name} that ends at {end} {message}", where, (name,)
    )
