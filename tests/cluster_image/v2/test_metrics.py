"""What an operator sees of a broker: state changes that wait, and those that are done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster_image.v2.metrics import Completed, families, read


def replica(index: int, *, leads: bool, isr: frozenset[int]) -> Any:
    return SimpleNamespace(
        topic="t", index=index, is_leader=leads, serves_clients=leads, isr=isr, replicas=(1, 2, 3), high_watermark=7,
        log=SimpleNamespace(end_offset=9),
    )  # fmt: skip


def text(broker: Any, completed: Completed, requests: Mapping[str, int]) -> str:
    class Once(Collector):
        def collect(self) -> Iterable[Metric]:
            return families(read(broker, completed, requests))

    registry = CollectorRegistry()
    registry.register(Once())
    return generate_latest(registry).decode()


def test_what_waits_and_what_is_done() -> None:
    passed_on: list[str] = []
    completed = Completed(lambda event, where="", **fields: passed_on.append(event))
    for event, kind in (
        ("state change received", "start-replica"), ("state change completed", "start-replica"),
        ("state change completed", "close-replica"), ("state change completed", "start-replica"),
    ):  # fmt: skip
        completed(event, "t-0", kind=kind, leader=1, epoch=0)
    completed("append", "t-0", end=1)
    assert len(passed_on) == 5
    led = replica(0, leads=True, isr=frozenset({1, 2}))
    broker: Any = SimpleNamespace(
        partitions={0: led, 1: replica(1, leads=False, isr=frozenset())}, backlog=17, is_connected=True
    )
    shown = text(broker, completed, {"FetchRequest": 3})
    for line in (
        "kafka_server_statechanges_backlog 17.0",
        'kafka_server_statechanges_completed_total{kind="start-replica"} 2.0',
        'kafka_server_statechanges_completed_total{kind="close-replica"} 1.0',
        "kafka_server_replicamanager_partitioncount 2.0",
        "kafka_server_replicamanager_leadercount 1.0",
        "kafka_server_replicamanager_underreplicatedpartitions 1.0",
        'kafka_cluster_partition_highwatermark{partition="0",topic="t"} 7.0',
        'kafka_network_requestmetrics_requests_total{request="Fetch"} 3.0',
    ):
        assert line in shown.splitlines()
