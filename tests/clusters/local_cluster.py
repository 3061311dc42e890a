"""A whole cluster in one process, over loopback and a directory a node: what tests use where no fault is needed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

from cluster_image.config import parse
from cluster_image.kraft.node import Node
from cluster_image.network.sasl import Credentials
from cluster_image.network.tcp import TcpNetwork
from cluster_image.storage.disk import LocalDisk
from cluster_image.telemetry.trace import Trace, no_trace

JAAS: Final = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="node" password="secret";'


def node_network() -> TcpNetwork:
    """Whose connections prove to be a node's."""
    return TcpNetwork(credentials=Credentials.of_jaas(JAAS))


class LocalCluster:
    """Brokers 1.., controllers 101...; combined: the first brokers are the controllers. Nodes can be stopped cleanly
    and started again on what they have on disk."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        controllers: int = 3,
        trace: Callable[[int], Trace] = lambda node: no_trace,
        combined: bool = False,
        **settings: str,
    ) -> None:
        self._directory = directory
        self._trace = trace
        self._settings = settings
        ids = [*range(1, brokers + 1), *range(101, 101 + controllers * (not combined))]
        voters = ids[:controllers] if combined else ids[brokers:]
        ports = free_ports(len(ids) + controllers * combined)
        self.ports = dict(zip(ids, ports, strict=False))
        self.quorum_ports = dict(zip(voters, ports[-controllers:], strict=True))
        self.nodes: dict[int, Node] = {}
        self._starts = 0

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for node, port in self.ports.items() if node < 100)

    async def start(self, *ids: int) -> None:
        """Start these nodes, all of them if none is named. Returns when every broker is unfenced."""
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for node_id in ids or self.ports:
                group.create_task(self._start(node_id))

    async def _start(self, node_id: int) -> None:
        role = "broker" if node_id < 100 else "controller"
        listeners = f"127.0.0.1:{self.ports[node_id]}"
        if role == "broker" and node_id in self.quorum_ports:
            role = "broker,controller"
            listeners = f"PLAINTEXT://{listeners},CONTROLLER://127.0.0.1:{self.quorum_ports[node_id]}"
        directory = self._directory / str(node_id)
        directory.mkdir(parents=True, exist_ok=True)
        properties: Mapping[str, str] = {
            "node.id": str(node_id),
            "process.roles": role,
            "cluster.id": "local",
            "controller.quorum.voters": ",".join(
                f"{node}@127.0.0.1:{port}" for node, port in self.quorum_ports.items()
            ),
            "listeners": listeners,
            "broker.rack": f"rack-{node_id % 100}",
            "log.dirs": str(directory),
            "min.insync.replicas": "2",
            "default.replication.factor": "3",
            "sasl.jaas.config": JAAS,
            **self._settings,
        }
        config = parse("\n".join(f"{name}={value}" for name, value in properties.items()))
        self._starts += 1
        random = Random(f"{node_id}/{self._starts}")  # a restart is a new incarnation
        node = Node(
            config,
            LocalDisk(directory),
            TcpNetwork(credentials=config["sasl.jaas.config"]),
            random,
            _fail,
            wall_clock=time.time,
            trace=self._trace(node_id),
        )
        self.nodes[node_id] = node
        await node.start()

    async def stop(self, *ids: int) -> None:
        """Controlled shutdown, brokers first."""
        for node_id in sorted(ids or self.nodes):
            await self.nodes.pop(node_id).shut_down()


def _fail(error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": "a node cannot go on", "exception": error})


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@asynccontextmanager
async def local_cluster(directory: Path, **options: str) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(directory, **options)  # type: ignore[arg-type]
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()
