"""Apache Kafka over loopback: a controller and brokers in one Java virtual machine, each as `kafka.Kafka` starts it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.clusters.kafka_jvm import KafkaJvm, kafka_jvm
from tests.clusters.local_cluster import free_ports

CONTROLLER = 101
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"  # a UUID, as kafka-storage wants it


class ApacheKafka:
    """Brokers 1.. and controller 101. spares: further brokers, which start() leaves out. settings: of all."""

    def __init__(self, directory: Path, jvm: KafkaJvm, brokers: int, spares: int = 0, **settings: str) -> None:
        self._directory = directory
        self.jvm = jvm
        self._first = [CONTROLLER, *range(1, brokers + 1)]
        ids = [*self._first, *range(brokers + 1, brokers + spares + 1)]
        self.ports = dict(zip(ids, free_ports(len(ids)), strict=True))
        self._settings = settings
        self._servers: dict[int, Any] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for node_id, port in self.ports.items() if node_id != CONTROLLER)

    def start(self, *ids: int) -> None:
        """These nodes, or all but the spares; returns once they have started."""
        for node_id in ids or self._first:
            properties = self._properties(node_id)
            config = self.jvm.java.java.util.Properties()
            for name, value in properties.items():
                config.setProperty(name, value)
            kafka = self.jvm.java.kafka.server
            server = kafka.KafkaRaftServer(
                kafka.KafkaConfig.fromProps(config), self.jvm.java.org.apache.kafka.common.utils.Time.SYSTEM
            )
            self._servers[node_id] = server
            server.startup()

    def shut_down(self, node_id: int) -> None:
        """As an operator does it; returns once it has ended."""
        self._servers.pop(node_id).shutdown()

    def _properties(self, node_id: int) -> dict[str, str]:
        """Its disk is formatted when it starts for the first time."""
        disk = self._directory / str(node_id)
        listener = "CONTROLLER" if node_id == CONTROLLER else "PLAINTEXT"
        properties = {
            "node.id": str(node_id),
            "process.roles": "controller" if node_id == CONTROLLER else "broker",
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self.ports[CONTROLLER]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listeners": f"{listener}://127.0.0.1:{self.ports[node_id]}",
            "log.dirs": str(disk),
            **self._settings,
        }
        if not disk.exists():
            path = self._directory / f"{node_id}.properties"
            path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            self.jvm.run("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", path)
        return properties


@contextlib.contextmanager
def apache_kafka(directory: Path, brokers: int = 3, spares: int = 0, **settings: str) -> Iterator[ApacheKafka]:
    with kafka_jvm(directory / "jvm.log") as jvm:
        cluster = ApacheKafka(directory, jvm, brokers, spares, **settings)
        cluster.start()
        yield cluster
