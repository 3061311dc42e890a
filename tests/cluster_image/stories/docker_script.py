"""Verbs to tell a cluster in containers a story, with the machine's own network and disks: see script.py.

What the controllers decide is read from the metadata log itself, by an observer of the quorum in this process, so that
no state in between is missed.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.errors import ErrorCode

from cluster_image.config import parse
from cluster_image.kraft.controller.log_inspection import ask_for_logs
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration
from cluster_image.kraft.metadata.records import decode
from cluster_image.kraft.raft import QuorumConfig, RaftClient
from cluster_image.network import Address, Entity
from cluster_image.network.tcp import TcpNetwork
from cluster_image.storage.disk import LocalDisk
from cluster_image.storage.records import build_batch
from cluster_image.wire.messages import milliseconds
from harness.cluster import Evidence
from harness.plan.plan import Plan
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.node import DockerNode
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from harness.targets.kafka_api.properties import CONTROLLER_PORT, FIRST_CONTROLLER_ID
from harness.targets.kraft.target import Kraft
from tests.cluster_image.stories.script import TOPIC, as_text, assigned, fetch_all, values_of
from workloads.clients.kio import requests

PATIENCE_S: Final = 60.0
POLL_S: Final = 0.02

#: os.sync() would write back the disks of all nodes.
_WRITE_BACK: Final = """
import os
for directory, _, files in os.walk("/data"):
    for name in (".", *files):
        opened = os.open(os.path.join(directory, name), os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)
"""

Story = Callable[["DockerScript"], Coroutine[Any, Any, None]]


def tell_in_docker(story: Story, directory: Path, **settings: str) -> None:
    """To three brokers with a topic of one partition, replicas 1, 2 and 3, MinISR 2. settings: of every node."""
    plan = Plan(run=f"test-story-{os.getpid()}", topic=TOPIC, partitions=1, min_insync_replicas=2, settings=settings)

    async def main() -> None:
        runtime = DockerRuntime(Kraft())
        cluster = await runtime.start(plan, directory, lambda line: None)
        script = DockerScript(cluster, directory)
        try:
            await script.begin()
            await story(script)
        finally:
            await script.end()
            await cluster.stop()

    try:
        DockerRuntime(Kraft()).run(main())
    finally:
        cleanup.remove_run(engine.connect(), plan.run)


class _States:
    """Follows the metadata log: every state that the controllers have given the partition, in order."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.states: list[PartitionRegistration] = []

    def on_commit(self, base_offset: int, epoch: int, records: list[bytes]) -> None:
        for offset, value in enumerate(records, base_offset):
            for key in self.image.replay(offset, decode(value)):
                registration = self.image.partition(*key)
                assert registration is not None
                self.states.append(registration)

    def on_snapshot(self, image: MetadataImage) -> None:
        raise AssertionError("a story is too short for a snapshot")

    def on_leader(self, epoch: int) -> None: ...

    def on_resign(self, epoch: int) -> None: ...


class DockerScript:
    def __init__(self, cluster: DockerCluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        config = parse((directory / "config" / "broker-1.properties").read_text())
        # Who follows the metadata log must prove to be a node.
        self._network = TcpNetwork(credentials=config["sasl.jaas.config"])
        self._seen = _States()
        self._reported = 0
        self._cut: set[tuple[str, str]] = set()
        voters = {
            FIRST_CONTROLLER_ID + i: Address(node.address[0], CONTROLLER_PORT)
            for i, node in enumerate(cluster.controllers)
        }
        self._observer = RaftClient(
            999, voters, config["cluster.id"], LocalDisk(str(directory / "observer")), "metadata", self._network,
            random.Random(0), QuorumConfig(), self._seen, wall_clock=time.time,
        )  # fmt: skip

    async def begin(self) -> None:
        await self._observer.start()
        await self.until(lambda: sum(b.active for b in self._seen.image.brokers.values()) == len(self._cluster.brokers))
        create = CreateTopicsRequest(topics=(assigned((1, 2, 3)),), timeout=milliseconds(5000))
        answer = await self._ask(1, create)
        assert answer.topics[0].error_code is ErrorCode.none, answer

    async def end(self) -> None:
        await self._observer.close()
        await self._network.close()

    # -- clients ----------------------------------------------------------------------------------------------

    def send(self, *values: str, acks: str = "all") -> asyncio.Task[ErrorCode]:
        """One batch, to the leader, which may have yet to learn that it is. The result is the answer."""
        batch = build_batch([value.encode() for value in values], timestamp_ms=0)
        request = requests.produce_request(TOPIC, {0: batch}, requests.ACKS[acks], PATIENCE_S)

        async def answer() -> ErrorCode:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        error = requests.produce_answers(await self._ask(self.leader, request))[0].error
                    except ConnectionError:  # it has lost its power
                        return ErrorCode.network_exception
                    if error not in (ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower):
                        return error
                    await asyncio.sleep(POLL_S)

        return asyncio.create_task(answer())

    async def produce(self, *values: str, acks: str = "all") -> None:
        """Records that are acknowledged."""
        error = await self.send(*values, acks=acks)
        assert error is ErrorCode.none, error

    async def read(self) -> list[str]:
        """All that a consumer gets from the leader."""
        answer = requests.fetch_answers(await self._ask(self.leader, fetch_all()))[0]
        assert answer.error is ErrorCode.none, answer.error
        return values_of(answer.records)

    async def end_of(self, broker: int) -> int:
        """Where a broker's log ends, committed or not; -1 if it does not answer."""
        partition = self._seen.states[-1]
        key = (partition.topic_id, partition.index)
        logs = await ask_for_logs(self._network, self._address(broker), [key])
        return logs[key].end_offset if key in logs else -1

    async def ends(self) -> dict[int, int]:
        return {node.id: await self.end_of(node.id) for node in self._cluster.brokers}

    async def _ask(self, broker: int, request: Entity) -> Entity:
        connection = await self._network.connect(self._address(broker), client_id="story", timeout=PATIENCE_S)
        try:
            return await connection.request(request, timeout=PATIENCE_S)
        finally:
            connection.close()

    # -- what befalls the nodes -------------------------------------------------------------------------------

    async def cut(self, *links: tuple[int, int]) -> None:
        """These links too, from broker to broker, let nothing pass from now on."""
        self._cut |= {(self._node(a).name, self._node(b).name) for a, b in links}
        await self._cluster.block("story", sorted(self._cut))

    async def mend(self, *links: tuple[int, int]) -> None:
        """All links, if none is named."""
        self._cut -= {(self._node(a).name, self._node(b).name) for a, b in links} if links else self._cut
        await self._cluster.block("story", sorted(self._cut))

    async def cut_power(self, node: int | str) -> Evidence:
        return await self._node(node).cut_power()

    async def restore_power(self, node: int | str) -> None:
        await self._node(node).restore_power()

    async def write_back(self, *brokers: int) -> None:
        """Their operating systems write all there is in the page cache to the disk."""
        api = engine.connect()
        for broker in brokers:
            made = await asyncio.to_thread(api.exec_create, self._node(broker).process, ["python3", "-c", _WRITE_BACK])
            await asyncio.to_thread(api.exec_start, made["Id"])

    @property
    def controllers(self) -> list[str]:
        return [node.name for node in self._cluster.controllers]

    # -- what is seen -----------------------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        return self._seen.states[-1].leader

    @property
    def in_sync(self) -> list[int]:
        return sorted(self._seen.states[-1].isr)

    async def next_state(self) -> str:
        """What the controllers have made of the partition next, of all that this has not returned yet."""
        await self.until(lambda: len(self._seen.states) > self._reported)
        self._reported += 1
        return as_text(self._seen.states[self._reported - 1])

    async def until(self, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    holds = condition()
                    if holds if isinstance(holds, bool) else await holds:
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            states = "; ".join(map(as_text, self._seen.states))
            raise AssertionError(f"it does not come to that; so far: {states}") from None

    async def passing(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _address(self, broker: int) -> Address:
        return Address(*self._node(broker).address)

    def _node(self, node: int | str) -> DockerNode:
        name = f"broker-{node}" if isinstance(node, int) else node
        return next(n for n in self._cluster.nodes if n.name == name)
