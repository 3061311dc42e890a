"""Liveness of deletion, of whole logs: a broker keeps none of what its metadata does not place on it, nor a directory
of one that it has deleted (000, 2.3; Apache Kafka's LogManager; KAFKA-14616: logs that nobody deleted are in the way of
the next topic of their name)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from checkers.inside.violation import Violated
from checkers.properties import RECORDS_DELETED
from cluster_image.kraft.broker.server import BrokerServer
from cluster_image.kraft.node import METADATA_DIRECTORY, Node

from ..durability import Disk
from .lasting import Overdue

#: Seconds that it may take: logs are deleted a few at a time.
WITHIN_S: Final = 10.0
LOOK_EVERY_S: Final = 0.5


class Leftovers:
    """session_s: broker.session.timeout.ms, in seconds. A broker has had a heartbeat answered in each so long a time,
    or the time begins anew: a process that stands still deletes nothing."""

    def __init__(self, session_s: float) -> None:
        self._disks: dict[str, Disk] = {}
        self._overdue: Overdue[tuple[str, str]] = Overdue(LOOK_EVERY_S, session_s)

    def node_started(self, name: str, disk: Disk) -> None:
        self._disks[name] = disk

    def look(self, nodes: Mapping[str, Node], now: float) -> None:
        """At all brokers, every LOOK_EVERY_S. Raises Violated."""
        if not self._overdue.is_time(now):
            return
        for name, node in nodes.items():
            broker = node.broker
            if broker is None or broker.lifecycle is None or not broker.acts_on_metadata or name not in self._disks:
                continue
            for what in _left(node.raft.node_id, broker, self._disks[name]):
                seconds = self._overdue.seconds((name, what), broker.lifecycle.lease_until, now)
                if seconds > WITHIN_S:
                    raise Violated(RECORDS_DELETED, f"{name} has kept {what}, for {seconds:.1f} s", nodes=(name,))


def _left(broker_id: int, broker: BrokerServer, disk: Disk) -> Iterator[str]:
    """Clauses."""
    names = {METADATA_DIRECTORY}
    for (topic, index), topic_id in broker.logs.items():
        names.add(f"{topic}-{index}")
        registration = broker.image.partition(topic_id, index)
        if registration is None or broker_id not in registration.replicas:
            yield f"a log of {topic}-{index}, of which it is no replica"
    for directory in disk.directories():
        if directory not in names:
            yield f"directory {directory}, of which it has no log"
