"""Prometheus metrics of a broker with ZooKeeper, on `metrics.port` (telemetry/scraping.py): Kafka's names where it has
such.

| name, after `kafka_`                                      | is                                                     |
| --------------------------------------------------------- | ------------------------------------------------------ |
| `server_replicamanager_partitioncount`, `_leadercount`    | replicas here, and those of them that lead             |
| `..._underreplicatedpartitions`                           | led here, ISR smaller than the replica set             |
| `server_statechanges_backlog` (own)                       | what this broker is asked for and has not come to      |
| `server_statechanges_completed_total` (own)               | by kind                                                |
| `server_zookeeper_connected` (own)                        | 1 while there is a session that is connected           |
| `cluster_partition_highwatermark`, `_isleader` (own)      | by topic and partition                                 |
| `log_log_logendoffset`                                    | likewise                                               |
| `network_requestmetrics_requests_total`                   | requests received, by API; ApiVersions aside           |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from cluster_image.telemetry.scraping import LoopCollector, gauge, requests_received
from cluster_image.telemetry.trace import Trace

from .server import BrokerServer

#: The figures of one partition, in the order of Reading.partitions.
_OF_PARTITION: Final = (
    ("kafka_cluster_partition_isleader", "1: led here"),
    ("kafka_cluster_partition_highwatermark", "High watermark as known here"),
    ("kafka_log_log_logendoffset", "Offset after this replica's last record"),
)


class Completed:
    """Counts the state changes that a trace tells of, by kind, and passes it on."""

    def __init__(self, passed_on: Trace) -> None:
        self.by_kind: Counter[str] = Counter()
        self._passed_on = passed_on

    def __call__(self, event: str, where: str = "", **fields: Any) -> None:
        if event == "state change completed" and fields.get("done", 1):
            self.by_kind[fields["kind"]] += 1
        self._passed_on(event, where, **fields)


@dataclass(frozen=True)
class Reading:
    """partitions: topic, index, does it lead, its high watermark, its log's end."""

    figures: Mapping[str, int]
    completed: Mapping[str, int]
    requests: Mapping[str, int]
    partitions: tuple[tuple[str, int, int, int, int], ...]


def read(broker: BrokerServer, completed: Completed, requests: Mapping[str, int]) -> Reading:
    """To be called by the node's event loop."""
    partitions = list(broker.partitions.values())
    led = [each for each in partitions if each.serves_clients]
    prefix = "kafka_server_replicamanager_"
    figures = {
        f"{prefix}partitioncount": len(partitions),
        f"{prefix}leadercount": len(led),
        f"{prefix}underreplicatedpartitions": sum(len(each.isr) < len(each.replicas) for each in led),
        "kafka_server_statechanges_backlog": broker.backlog,
        "kafka_server_zookeeper_connected": int(broker.is_connected),
    }
    return Reading(
        figures,
        dict(completed.by_kind),
        dict(requests),
        tuple(
            (each.topic, each.index, int(each.is_leader), each.high_watermark, each.log.end_offset)
            for each in partitions
        ),
    )


def families(reading: Reading) -> Iterator[Metric]:
    """The reading in the library's terms."""
    for name, value in reading.figures.items():
        yield gauge(name, "See cluster_image/v2/metrics.py", [((), value)])
    completed = CounterMetricFamily("kafka_server_statechanges_completed", "State changes done", labels=("kind",))
    for kind, count in sorted(reading.completed.items()):
        completed.add_metric((kind,), count)
    yield completed
    yield requests_received(reading.requests.items())
    for place, (name, help) in enumerate(_OF_PARTITION):
        values = [((topic, str(index)), figures[place]) for topic, index, *figures in reading.partitions]
        yield gauge(name, help, values, ("topic", "partition"))


class NodeCollector(LoopCollector[Reading]):
    def __init__(
        self, broker: BrokerServer, completed: Completed, requests: Mapping[str, int], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(lambda: read(broker, completed, requests), families, loop)
