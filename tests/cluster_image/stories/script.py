"""Verbs to tell a whole simulated cluster a story moment by moment, as the protocol documents tell theirs.

A story is about one partition. It calls brokers by their numbers, and the partition's state is written as in 002:
`Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]`. Invariants are checked after every step, and the first one violated
ends the story. Nothing gets to a disk by itself: what is not synced and not `written_back` goes with the power.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.create_topics.v7.request import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32

from checkers.inside.violation import Violation
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.metadata.image import PartitionRegistration
from cluster_image.kraft.metadata.records import RECOVERED
from cluster_image.kraft.metrics import Events
from cluster_image.network import Address, Entity
from cluster_image.storage.records import build_batch, decode_values
from cluster_image.wire.messages import milliseconds
from harness.cluster import Evidence
from harness.plan.plan import Plan
from harness.runtimes.simulation.cluster import SimulatedCluster
from harness.runtimes.simulation.disk import disk
from harness.runtimes.simulation.disk.page_cache import Directory
from harness.runtimes.simulation.node import SimulatedNode
from harness.runtimes.simulation.runtime import SimulationRuntime
from harness.targets.kraft.target import Kraft
from workloads.clients.kio import requests

TOPIC: Final = "story"
#: Virtual seconds. Longer than any time-out of the cluster.
PATIENCE_S: Final = 30.0

Story = Callable[["Script"], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Ending:
    """violation: the property whose violation ended the story, None if it was told to its end. losses: what was lost
    outside the contract, as the invariants tell."""

    violation: Violation | None
    losses: list[str]


def tell(
    story: Story,
    replicas: tuple[int, ...],
    min_insync_replicas: int,
    *,
    bug: str | None = None,
    watched: bool = True,
    seed: int = 4,
    settings: Mapping[str, str] | None = None,
    spare: int = 0,
    controllers: int = 3,
    combined: bool = False,
) -> Ending:
    """replicas: of the partition, its first leader first. spare: brokers beyond these. watched: are the invariants
    checked? If not, the story goes on after something has gone wrong and can look at the consequences. settings: of
    every node."""
    plan = Plan(
        run="story", on="simulation", seed=seed, brokers=len(replicas) + spare, topic=TOPIC, partitions=1,
        replication_factor=len(replicas), min_insync_replicas=min_insync_replicas, bug=bug, encode_messages=True,
        settings=dict(settings or {}), controllers=controllers, combined=combined,
    )  # fmt: skip
    runtime = SimulationRuntime(Kraft())

    async def main() -> Ending:
        cluster = await runtime.start(plan, Path(), lambda line: None)
        assert isinstance(cluster, SimulatedCluster)
        invariants = cluster.invariants
        if not watched:
            nobody: Any = dict.fromkeys(_CALLED, _ignore)
            cluster.invariants = SimpleNamespace(**nobody, unsettled=invariants.unsettled)  # type: ignore[assignment]
        script = Script(cluster)
        telling = asyncio.create_task(_reported(story, script, replicas))
        await asyncio.wait((telling, cluster.violated), return_when=asyncio.FIRST_COMPLETED)
        if cluster.violated.done():
            telling.cancel()
            return Ending(cluster.violated.result(), invariants.losses)
        telling.result()
        return Ending(None, invariants.losses)

    with patch.object(disk, "WRITTEN_BACK", (0.0,)):
        return runtime.run(main())


async def _reported(story: Story, script: Script, replicas: tuple[int, ...]) -> None:
    await script.settled()
    await script.create_topic(replicas)
    await story(script)


#: Of the invariants, by the cluster.
_CALLED: Final = ("node_started", "node_gone", "changed", "asks", "answers", "check", "check_liveness", "check_all")


def _ignore(*arguments: object, **named: object) -> None: ...


class Script:
    """`until` and `next_state` are exact to the step: what follows them happens at the same virtual instant."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._clients = cluster.network.endpoint(cluster.loop.new_process("clients"), "clients")
        self._cut: dict[tuple[str, str], None] = {}
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._states: list[str] = []  # all that the controllers have given the partition, in order
        self._reported = 0  # how many of them next_state() has returned
        self._registration: PartitionRegistration | None = None
        self._events = Events(0, _ignore)
        cluster.observe = lambda at, node, event, where, fields: self._events(event, where, **fields)
        self._check = cluster.loop.after_step
        cluster.loop.after_step = self._after_step

    # -- clients ----------------------------------------------------------------------------------------------

    async def create_topic(self, replicas: tuple[int, ...]) -> None:
        await self._ask(1, CreateTopicsRequest(topics=(assigned(replicas),), timeout=milliseconds(5000)))
        await self.until(lambda: all(self._partition(replica) is not None for replica in replicas))

    def send(self, *values: str, acks: str = "all") -> asyncio.Task[ErrorCode]:
        """One batch, to the leader. The result is the answer, once there is one."""
        batch = build_batch([value.encode() for value in values], timestamp_ms=0)
        request = requests.produce_request(TOPIC, {0: batch}, requests.ACKS[acks], PATIENCE_S)

        async def answer() -> ErrorCode:
            return requests.produce_answers(await self._ask(self.leader, request))[0].error

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

    async def elect_uncleanly(self, through: int) -> ErrorCode:
        """An operator asks this broker for it."""
        asked = TopicPartitions(topic=TopicName(TOPIC), partitions=(i32(0),))
        request = ElectLeadersRequest(election_type=i8(1), topic_partitions=(asked,), timeout=milliseconds(30000))
        answer = await self._ask(through, request)
        error: ErrorCode = answer.replica_election_results[0].partition_result[0].error_code
        return error

    async def reassign(self, *replicas: int, through: int = 1) -> ErrorCode:
        """An administrator asks this broker for it; without replicas, to cancel the one under way."""
        target = tuple(BrokerId(replica) for replica in replicas) or None
        partition = ReassignablePartition(partition_index=i32(0), replicas=target)
        topics = (ReassignableTopic(name=TopicName(TOPIC), partitions=(partition,)),)
        answer = await self._ask(through, AlterPartitionReassignmentsRequest(topics=topics))
        assert answer.error_code is ErrorCode.none, answer
        error: ErrorCode = answer.responses[0].partitions[0].error_code
        return error

    async def ask_controller(self, name: str, request: Entity) -> Entity:
        """On the quorum's own listener, whether it leads or not."""
        node = self._node(name)
        return await self._ask_at(Address(*(node.controller_address or node.address)), request)

    async def _ask(self, broker: int, request: Entity) -> Entity:
        return await self._ask_at(Address(*self._node(broker).address), request)

    async def _ask_at(self, address: Address, request: Entity) -> Entity:
        connection = await self._clients.connect(address, client_id="story", timeout=PATIENCE_S)
        try:
            return await connection.request(request, timeout=PATIENCE_S)
        finally:
            connection.close()

    # -- what befalls the nodes -------------------------------------------------------------------------------

    async def kill(self, broker: int) -> None:
        await self._node(broker).kill()

    async def kill_active_controller(self) -> None:
        for node in self._cluster.controllers:
            controller = None if node.running is None else node.running.controller
            if controller is not None and controller.active is not None:
                await node.kill()

    async def start(self, broker: int) -> None:
        await self._node(broker).start()

    async def shut_down(self, broker: int) -> None:
        """In an orderly way, to the end of its process."""
        node = self._node(broker)
        assert node.process is not None and node.running is not None
        await self._loop.spawn(node.process, node.running.shut_down())
        await node.kill()

    def write_back(self, *brokers: int) -> None:
        """Their operating systems write all there is in the page cache to the disk."""
        for broker in brokers:
            _sync(self._node(broker).disk.root)

    async def cut_power(self, node: int | str) -> Evidence:
        return await self._node(node).cut_power()

    async def restore_power(self, node: int | str) -> None:
        await self._node(node).restore_power()

    def running(self, name: str) -> Any:
        """The process of a node, to look into; None if it has none."""
        return self._node(name).running

    @property
    def active_controllers(self) -> list[str]:
        """Those who take themselves for it: two, for a while, after one was cut off."""
        nodes = [node for node in self._cluster.controllers if node.running is not None]
        controllers = [(node.name, node.running.controller) for node in nodes if node.running is not None]
        return [name for name, controller in controllers if controller is not None and controller.active is not None]

    @property
    def controllers(self) -> list[str]:
        return [node.name for node in self._cluster.controllers]

    def cut(self, *links: tuple[int | str, int | str]) -> None:
        """These links too, from one broker (or node, by its name) to another, let nothing pass from now on."""
        self._cut |= {(self._node(a).name, self._node(b).name): None for a, b in links}
        self._cluster.network.cut("story", self._cut)

    def mend(self, *links: tuple[int | str, int | str]) -> None:
        """All links, if none is named."""
        for a, b in links or ():
            del self._cut[self._node(a).name, self._node(b).name]
        if not links:
            self._cut.clear()
        self._cluster.network.cut("story", self._cut)

    # -- what is seen -----------------------------------------------------------------------------------------

    def log_of(self, broker: int) -> list[str]:
        """All records that a running broker has."""
        log = self._replica(broker).log
        return values_of(log.read(0, 1 << 20))

    def end_of(self, broker: int) -> int:
        return self._replica(broker).log.end_offset

    def high_watermark_of(self, broker: int) -> int:
        return self._replica(broker).high_watermark

    def ends(self) -> dict[int, tuple[int, int]]:
        """Log end offset and high watermark by broker."""
        return {node.id: (self.end_of(node.id), self.high_watermark_of(node.id)) for node in self._cluster.brokers}

    def follows(self, broker: int, leader: int) -> bool:
        partition = self._partition(broker)
        return partition is not None and partition.leader == leader

    @property
    def registration(self) -> PartitionRegistration:
        """As the active controller has written it."""
        assert self._registration is not None
        return self._registration

    def has_replica(self, broker: int) -> bool:
        """Does this broker run and have a replica, as far as it knows?"""
        return self._partition(broker) is not None

    @property
    def leader(self) -> int:
        assert self._registration is not None
        return self._registration.leader

    @property
    def recovering(self) -> bool:
        """Has the leader been elected uncleanly, and not told yet that it has recovered?"""
        return self._registration is not None and self._registration.leader_recovery_state != RECOVERED

    @property
    def unclean_elections(self) -> int:
        """As the controllers' metrics count them, of all of them."""
        return self._events.unclean_elections

    @property
    def states(self) -> list[str]:
        """All that the controllers have made of the partition, also what next_state() has yet to return."""
        return list(self._states)

    async def next_state(self) -> str:
        """What the controller makes of the partition next, of all that this has not returned yet."""
        await self.until(lambda: len(self._states) > self._reported)
        self._reported += 1
        return self._states[self._reported - 1]

    # -- time -------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool]) -> None:
        if condition():
            return
        reached = self._loop.create_future()
        self._waiting.append((condition, reached))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await reached
        except TimeoutError:
            raise AssertionError(f"it does not come to that; so far: {'; '.join(self._states)}") from None
        finally:
            self._waiting.remove((condition, reached))

    async def passing(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def settled(self) -> None:
        """All nodes run, and every replica is in sync."""
        for _ in range(int(PATIENCE_S / 0.1)):
            amiss = self._cluster.unsettled()
            if amiss is None:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(amiss)

    # -- inside -----------------------------------------------------------------------------------------------

    def _after_step(self) -> None:
        registration = self._decided()
        if registration is not None and registration != self._registration:
            self._registration = registration
            self._states.append(as_text(registration))
        for condition, reached in self._waiting:
            if not reached.done() and condition():
                reached.set_result(None)
        self._check()

    def _decided(self) -> PartitionRegistration | None:
        """As the active controller has written it."""
        for node in self._cluster.controllers:
            controller = None if node.running is None else node.running.controller
            if controller is not None and controller.active is not None:
                topic = controller.active.image.topics.get(TOPIC)
                return None if topic is None else topic.partitions[0]
        return None

    def _node(self, node: int | str) -> SimulatedNode:
        return self._cluster.node(f"broker-{node}" if isinstance(node, int) else node)

    def _partition(self, broker: int) -> Partition | None:
        running = self._node(broker).running
        if running is None or running.broker is None:
            return None
        return next(iter(running.broker.partitions.values()), None)

    def _replica(self, broker: int) -> Partition:
        partition = self._partition(broker)
        assert partition is not None, f"broker {broker} has no replica to look at now"
        return partition


def assigned(replicas: tuple[int, ...]) -> CreatableTopic:
    """The topic of a story: one partition, with these replicas."""
    assignment = CreatableReplicaAssignment(
        partition_index=i32(0), broker_ids=tuple(BrokerId(replica) for replica in replicas)
    )
    return CreatableTopic(
        name=TopicName(TOPIC), num_partitions=i32(-1), replication_factor=i16(-1), assignments=(assignment,),
        configs=(),
    )  # fmt: skip


def fetch_all() -> Entity:
    """A consumer's request for all that there is."""
    return requests.fetch_request(
        TOPIC,
        [requests.FetchFrom(0, 0, -1)],
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        partition_max_bytes=1 << 20,
    )


def as_text(registration: PartitionRegistration) -> str:
    leader = "NoLeader" if registration.leader < 0 else registration.leader
    return (
        f"Leader={leader}, ISR={sorted(registration.isr)}, ELR={sorted(registration.elr)}, "
        f"LastKnownELR={sorted(registration.last_known_elr)}"
    )


def values_of(batches: bytes) -> list[str]:
    return [value.decode() for _, _, value in decode_values(batches)]


def _sync(directory: Directory) -> None:
    directory.sync()
    for entry in directory.entries.values():
        if isinstance(entry, Directory):
            _sync(entry)
        elif entry is not None:
            entry.sync()
