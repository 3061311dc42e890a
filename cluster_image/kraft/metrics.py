"""Prometheus metrics of a node, on `metrics.port` (telemetry/scraping.py). Names are those that Kafka's own get from
Prometheus' JMX exporter.

Nothing is counted where it happens. State is read when it is asked for; changes of ISRs and elections are counted from
the trace (trace.py), requests at the network's edge.

| name, after `kafka_`                                        | is                                                   |
| ----------------------------------------------------------- | ---------------------------------------------------- |
| `server_replicamanager_partitioncount`, `_leadercount`      | replicas here, and those of them that lead           |
| `…_underreplicatedpartitions`                               | led here, ISR smaller than the replica set           |
| `…_underminisrpartitioncount`, `…_atminisrpartitioncount`   | led here, ISR below or at `min.insync.replicas`      |
| `…_isrshrinks_total`, `…_isrexpands_total`                  | of partitions led here                               |
| `server_kafkaserver_brokerstate`                            | 1 starting 2 recovery 3 running 6 leaving 7 stopping |
| `server_brokerfenced` (own)                                 | 1 while the controller keeps this broker fenced      |
| `server_fetchsessioncache_numincrementalfetchsessions`      | fetch sessions (KIP-227)                             |
| `server_leaderreplication_bytes_total` (own)                | sent to throttled replicas out of sync (KIP-73)      |
| `server_followerreplication_bytes_total` (own)              | taken by throttled replicas here, while out of sync  |
| `cluster_partition_insyncreplicascount`, `_replicascount`   | replicas of the ISR, and all, by topic and partition |
| `…_highwatermark`, `…_leaderepoch`, `…_isleader` (own)      | by topic and partition                               |
| `…_followerlag` (own)                                       | records that `replica` lacks, told by its leader     |
| `log_log_logendoffset`, `_logstartoffset`, `_size`          | their `rate()`s are records and bytes a second       |
| `network_requestmetrics_requests_total`                     | requests received, by API; ApiVersions aside         |
| `controller_kafkacontroller_activecontrollercount`          | 1 on the active controller                           |
| `…_activebrokercount`, `…_fencedbrokercount`                | as committed, like what follows                      |
| `…_globaltopiccount`, `…_globalpartitioncount`              | topics, partitions                                   |
| `…_offlinepartitionscount`                                  | without a leader                                     |
| `…_preferredreplicaimbalancecount`                          | not led by their first replica                       |
| `controller_controllerstats_leaderelections_total`          | leaders named by this controller                     |
| `…_uncleanleaderelections_total`                            | of these, from outside ISR and ELR: a possible loss  |
| `server_raft_metrics_current_leader`, `_current_epoch`      | of the metadata quorum; -1: none known               |
| `…_current_state`                                           | 1 for the label `state` that is true                 |
| `…_log_end_offset`, `…_high_watermark`                      | of the metadata log; committed below the second      |
| `…_replica_lag` (own)                                       | by `replica`, at the quorum's leader                 |
| `server_broker_metadata_metrics_last_applied_record_offset` | of the metadata log, by this node                    |
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from cluster_image.config import Config
from cluster_image.telemetry.scraping import LoopCollector, gauge, requests_received
from cluster_image.telemetry.trace import Trace

from .broker.lifecycle import State
from .broker.partition import Partition
from .broker.server import BrokerServer
from .controller.server import ControllerServer
from .metadata.records import RECOVERING
from .node import Node
from .raft.quorum import Role

_BROKER_STATES: Final = {
    State.STARTING: 1,
    State.RECOVERY: 2,
    State.RUNNING: 3,
    State.PENDING_CONTROLLED_SHUTDOWN: 6,
    State.SHUTTING_DOWN: 7,
}
#: The figures of one partition, in the order of PartitionReading.figures.
_OF_PARTITION: Final = (
    ("kafka_cluster_partition_replicascount", "Replicas that the metadata names"),
    ("kafka_cluster_partition_insyncreplicascount", "Size of the ISR"),
    ("kafka_cluster_partition_isleader", "1: led here"),
    ("kafka_cluster_partition_leaderepoch", "Leader epoch"),
    ("kafka_cluster_partition_highwatermark", "High watermark as known here"),
    ("kafka_log_log_logstartoffset", "First offset of this replica's log"),
    ("kafka_log_log_logendoffset", "Offset after this replica's last record"),
    ("kafka_log_log_size", "Bytes of this replica's log"),
)


class Events:
    """Counts what a trace tells, and passes it on."""

    def __init__(self, node_id: int, passed_on: Trace) -> None:
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections = 0
        self.unclean_elections = 0
        self._me = node_id
        self._passed_on = passed_on
        self._led: dict[str, frozenset[int]] = {}  # partitions led here, with their ISR

    def __call__(self, event: str, where: str = "", **fields: Any) -> None:
        if event == "isr" and where in self._led:
            before, after = self._led[where], frozenset(fields["isr"])
            self.isr_shrinks += len(after) < len(before)
            self.isr_expands += len(after) > len(before)
            self._led[where] = after
        elif event == "role":
            if fields["leader"] == self._me:
                self._led[where] = frozenset(fields["isr"])
            else:
                self._led.pop(where, None)
        elif event == "decide":
            elects = fields["type"] == "PartitionChangeRecord" and fields.get("leader", -1) >= 0
            self.elections += elects
            self.unclean_elections += elects and fields.get("leader_recovery_state") == RECOVERING
        self._passed_on(event, where, **fields)


@dataclass(slots=True)
class PartitionReading:
    topic: str
    index: int
    figures: tuple[int, ...]
    lags: Mapping[int, int]  # by follower; none where this broker does not lead


@dataclass(slots=True)
class Reading:
    """A node's state at one moment. `figures`, `counts`: by name."""

    figures: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    role: Role | None = None
    replica_lags: dict[int, int] = field(default_factory=dict)
    partitions: list[PartitionReading] = field(default_factory=list)


def read(node: Node, config: Config, events: Events, requests: Mapping[str, int]) -> Reading:
    """To be called by the node's event loop."""
    reading = Reading(requests=dict(requests))
    _read_quorum(node, reading)
    if node.broker is not None:
        _read_broker(node.broker, config, events, reading)
    if node.controller is not None:
        _read_controller(node.controller, events, reading)
    return reading


def _read_quorum(node: Node, reading: Reading) -> None:
    quorum = node.raft.quorum
    if quorum is None:
        return
    end = quorum.replica.log.end_offset
    reading.role = quorum.role
    reading.figures |= {
        "kafka_server_raft_metrics_current_leader": -1 if quorum.leader_id is None else quorum.leader_id,
        "kafka_server_raft_metrics_current_epoch": quorum.epoch,
        "kafka_server_raft_metrics_log_end_offset": end,
        "kafka_server_raft_metrics_high_watermark": quorum.replica.high_watermark,
    }
    if quorum.leadership is not None:
        answer = quorum.leadership.describe(quorum.voters)
        data = answer.topics[0].partitions[0]
        replicas = (*data.current_voters, *data.observers)
        reading.replica_lags = {
            int(r.replica_id): end - int(r.log_end_offset) for r in replicas if r.log_end_offset >= 0
        }


def _read_broker(broker: BrokerServer, config: Config, events: Events, reading: Reading) -> None:
    applied = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
    reading.figures[applied] = broker.image.end_offset - 1
    if broker.lifecycle is not None:
        reading.figures["kafka_server_kafkaserver_brokerstate"] = _BROKER_STATES[broker.lifecycle.state]
        reading.figures["kafka_server_brokerfenced"] = int(broker.lifecycle.fenced)
    partitions = list(broker.partitions.values())
    led = [p for p in partitions if p.is_leader]
    missing = [_min_isr(broker, config, p) - len(p.isr) for p in led]
    prefix = "kafka_server_replicamanager_"
    reading.figures |= {
        f"{prefix}partitioncount": len(partitions),
        f"{prefix}leadercount": len(led),
        f"{prefix}underreplicatedpartitions": sum(len(p.isr) < len(_assigned(broker, p)) for p in led),
        f"{prefix}underminisrpartitioncount": sum(m > 0 for m in missing),
        f"{prefix}atminisrpartitioncount": sum(m == 0 for m in missing),
        "kafka_server_fetchsessioncache_numincrementalfetchsessions": broker.fetch_sessions,
    }
    reading.counts |= {f"{prefix}isrshrinks": events.isr_shrinks, f"{prefix}isrexpands": events.isr_expands}
    sent, taken = broker.replicated
    reading.counts |= {
        "kafka_server_leaderreplication_bytes": sent,
        "kafka_server_followerreplication_bytes": taken,
    }
    for p in partitions:
        end = p.log.end_offset
        figures = (
            len(p.replicas), len(p.isr), int(p.is_leader), p.leader_epoch, p.high_watermark, p.log.start_offset, end,
            p.log.size,
        )  # fmt: skip
        followers = p.leadership.followers if p.leadership is not None else {}
        lags = {replica: end - max(f.end_offset, 0) for replica, f in followers.items()}
        reading.partitions.append(PartitionReading(p.topic, p.index, figures, lags))


def _assigned(broker: BrokerServer, partition: Partition) -> Sequence[int]:
    """Its replicas without those that a reassignment is about to add."""
    registration = broker.image.partition(*partition.key)
    adding = registration.adding if registration is not None else ()
    return [replica for replica in partition.replicas if replica not in adding]


def _min_isr(broker: BrokerServer, config: Config, partition: Partition) -> int:
    topic = broker.image.topics_by_id.get(partition.key[0])
    minimum: int = config.for_topic(topic.settings if topic is not None else {})["min.insync.replicas"]
    return min(minimum, len(partition.replicas))


def _read_controller(controller: ControllerServer, events: Events, reading: Reading) -> None:
    image = controller.image
    partitions = list(image.partitions())
    prefix = "kafka_controller_kafkacontroller_"
    fenced = sum(b.fenced for b in image.brokers.values())
    reading.figures |= {
        "kafka_server_broker_metadata_metrics_last_applied_record_offset": image.end_offset - 1,
        f"{prefix}activecontrollercount": int(controller.active is not None),
        f"{prefix}activebrokercount": len(image.brokers) - fenced,
        f"{prefix}fencedbrokercount": fenced,
        f"{prefix}globaltopiccount": len(image.topics),
        f"{prefix}globalpartitioncount": len(partitions),
        f"{prefix}offlinepartitionscount": sum(p.leader < 0 for p in partitions),
        f"{prefix}preferredreplicaimbalancecount": sum(p.leader != p.replicas[0] for p in partitions),
    }
    stats = "kafka_controller_controllerstats_"
    reading.counts |= {
        f"{stats}leaderelections": events.elections,
        f"{stats}uncleanleaderelections": events.unclean_elections,
    }


def families(reading: Reading) -> Iterator[Metric]:
    """The reading in the library's terms."""
    for name, value in reading.figures.items():
        yield gauge(name, "See cluster_image/kraft/metrics.py", [((), value)])
    for name, value in reading.counts.items():
        yield CounterMetricFamily(name, "See cluster_image/kraft/metrics.py", value=value)
    yield requests_received(reading.requests.items())
    if reading.role is not None:
        states = [((role.value,), int(role is reading.role)) for role in Role]
        yield gauge("kafka_server_raft_metrics_current_state", "1: this is the state", states, ("state",))
    lags = [((str(replica),), lag) for replica, lag in sorted(reading.replica_lags.items())]
    yield gauge("kafka_server_raft_metrics_replica_lag", "Records behind the quorum's leader", lags, ("replica",))
    for place, (name, help) in enumerate(_OF_PARTITION):
        values = [((p.topic, str(p.index)), p.figures[place]) for p in reading.partitions]
        yield gauge(name, help, values, ("topic", "partition"))
    yield gauge(
        "kafka_cluster_partition_followerlag",
        "Records behind the leader",
        [((p.topic, str(p.index), str(r)), lag) for p in reading.partitions for r, lag in p.lags.items()],
        ("topic", "partition", "replica"),
    )


class NodeCollector(LoopCollector[Reading]):
    def __init__(
        self, node: Node, config: Config, events: Events, requests: Mapping[str, int], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(lambda: read(node, config, events, requests), families, loop)
