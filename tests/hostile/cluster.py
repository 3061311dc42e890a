"""Three brokers and three controllers, a process each, and what becomes of them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import admin as confluent_admin

from cluster_image.network import Address
from tests.clusters.local_cluster import JAAS
from tests.clusters.process_cluster import ProcessCluster

from .load import PARTITIONS
from .stranger import Target

TOPIC: Final = "written"
_SAMPLE_S: Final = 0.05


class Troubles(NamedTuple):
    """How often, since the cluster is complete."""

    fencings: int
    depositions: int


class Cluster:
    def __init__(self, directory: Path) -> None:
        settings = {"sasl.jaas.config": JAAS, "default.replication.factor": 3, "min.insync.replicas": 2}
        self.processes = ProcessCluster(directory, 3, controllers=3, **{k: str(v) for k, v in settings.items()})
        self._most: dict[int, float] = {}  # MB, by node
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def start(self) -> Target:
        self.processes.start()
        bootstrap = self.bootstrap
        admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        topic = confluent_admin.NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)
        admin.create_topics([topic], operation_timeout=20)[TOPIC].result(20)
        topic_id = _until_known(admin)
        self._sampler.start()
        return Target(
            [self._address(node) for node in (1, 2, 3)], [self._address(node) for node in (101, 102, 103)], "processes",
            TOPIC, topic_id,
        )  # fmt: skip

    @property
    def bootstrap(self) -> str:
        return ",".join("{}:{}".format(*self._address(node)) for node in (1, 2, 3))

    def _address(self, node: int) -> Address:
        return Address("127.0.0.1", self.processes.ports[node])

    def most_memory(self) -> tuple[float, int]:
        """MB and node, since the last call."""
        with self._lock:
            most, self._most = self._most, {}
        return max(((megabytes, node) for node, megabytes in most.items()), default=(0.0, 0))

    def ended(self) -> list[int]:
        """Nodes whose processes have ended."""
        return [node for node in self.processes.ids if self.processes.pid(node) is None]

    def troubles(self) -> Troubles:
        fencings = depositions = 0
        for node in self.processes.ids:
            for line in self.processes.log(node).splitlines():
                message = _message(line)
                fencings += message in ("fenced", "heartbeat refused")
                depositions += message == "no longer active controller"
        return Troubles(fencings, depositions)

    def ends(self) -> Mapping[int, int]:
        """High watermarks by partition; of those that nobody tells, none."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": "g", "log_level": 0})
        try:
            return {
                p: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, p), timeout=20)[1]
                for p in range(PARTITIONS)
            }
        except confluent_kafka.KafkaException:
            return {}
        finally:
            consumer.close()

    def settle(self) -> None:
        """Deletes the topics that strangers have made, and waits until they are gone. Raises TimeoutError."""
        admin = confluent_admin.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for _ in range(20):
            left = sorted(set(admin.list_topics(timeout=20).topics) - {TOPIC})
            if not left:
                return
            for deleted in admin.delete_topics(left[:200], operation_timeout=20).values():
                deleted.exception(20)
        raise TimeoutError("topics that strangers made are still there")

    def stop(self) -> None:
        self._done.set()
        self.processes.stop()

    def _sample(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            for node in self.processes.ids:
                megabytes = _resident_mb(self.processes.pid(node))
                with self._lock:
                    self._most[node] = max(self._most.get(node, 0.0), megabytes)


def _until_known(admin: Any) -> uuid.UUID:
    """The topic's id. Brokers hear of a topic one after the other."""
    for _ in range(100):
        try:
            described = admin.describe_topics(confluent_kafka.TopicCollection([TOPIC]))[TOPIC].result(20)
            return _uuid(described.topic_id)
        except confluent_kafka.KafkaException:
            time.sleep(0.1)
    raise TimeoutError(f"nobody knows {TOPIC}")


def _resident_mb(pid: int | None) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0 kB")
    return int(line.split()[1]) / 1024


def _message(line: str) -> str:
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return ""
    return str(entry.get("message")) if isinstance(entry, dict) else ""


def _uuid(topic_id: Any) -> uuid.UUID:
    bits = (topic_id.get_most_significant_bits() % 2**64) << 64 | topic_id.get_least_significant_bits() % 2**64
    return uuid.UUID(int=bits)
