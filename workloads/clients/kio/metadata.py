"""Who leads what: the cluster's metadata of one topic, kept fresh by asking every broker at once.

Each known broker is asked over a connection of its own, so a dead or paused one delays nobody. Answers are merged
by leader epoch: a broker cut off from the controllers cannot bring back a leader that was deposed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cluster_image.network import Address, Connection, Entity, Network
from workloads.clients.kio.requests import metadata_request

POLL_INTERVAL_S: Final = 0.5
MIN_POLL_INTERVAL_S: Final = 0.05  # however urgently it is asked for
CONNECT_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Partition:
    """leader: a node id; None while there is none."""

    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Metadata:
    """start() it before use; afterwards `brokers` and `partitions` are always the newest that is known."""

    def __init__(
        self, network: Network, bootstrap: Sequence[Address], topic: str, *, client_id: str, request_timeout: float
    ) -> None:
        self._network = network
        self._bootstrap = bootstrap
        self._topic = topic
        self._client_id = client_id
        self._request_timeout = request_timeout
        self._brokers: dict[int, Address] = {}
        self._partitions: dict[int, Partition] = {}
        self._polls: dict[Address, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._leader_changes: dict[int, asyncio.Future[None]] = {}
        self._update: asyncio.Future[None] | None = None

    @property
    def brokers(self) -> Mapping[int, Address]:
        """Where to reach each node, by its id."""
        return MappingProxyType(self._brokers)

    @property
    def partitions(self) -> Mapping[int, Partition]:
        return MappingProxyType(self._partitions)

    def led_by(self, node: int) -> dict[int, int]:
        """The leader epochs of the partitions that `node` leads, by partition."""
        return {index: known.leader_epoch for index, known in self._partitions.items() if known.leader == node}

    def start(self) -> None:
        for address in self._bootstrap:
            self._poll_from_now_on(address)

    async def close(self) -> None:
        tasks = [task for task, _ in self._polls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ask_again(self) -> None:
        """Something looks out of date: ask every broker now."""
        for _, wanted in self._polls.values():
            wanted.set()

    def leader_change(self, partition: int) -> asyncio.Future[None]:
        """Done as soon as the leader or leader epoch of `partition` is another than now. Shared: do not cancel."""
        change = self._leader_changes.get(partition)
        if change is None:
            change = self._leader_changes[partition] = asyncio.get_running_loop().create_future()
        return change

    async def updated(self, timeout: float) -> None:
        """Returns at the next answer of any broker, or after `timeout` seconds."""
        if self._update is None:
            self._update = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._update,), timeout=timeout)

    def _poll_from_now_on(self, address: Address) -> None:
        if address not in self._polls:
            wanted = asyncio.Event()
            self._polls[address] = asyncio.get_running_loop().create_task(self._poll(address, wanted)), wanted

    async def _poll(self, address: Address, wanted: asyncio.Event) -> None:
        connection: Connection | None = None
        request = metadata_request(self._topic)
        try:
            while True:
                wanted.clear()
                try:
                    if connection is None or connection.closed:
                        connection = await self._network.connect(
                            address, client_id=self._client_id, timeout=CONNECT_TIMEOUT_S
                        )
                    self._merge(await connection.request(request, timeout=self._request_timeout))
                except (ConnectionError, TimeoutError):
                    pass
                await asyncio.sleep(MIN_POLL_INTERVAL_S)
                try:
                    async with asyncio.timeout(POLL_INTERVAL_S - MIN_POLL_INTERVAL_S):
                        await wanted.wait()
                except TimeoutError:
                    pass
        finally:
            if connection is not None:
                connection.close()

    def _merge(self, response: Entity) -> None:
        for broker in response.brokers:
            self._brokers[broker.node_id] = Address(broker.host, broker.port)
            self._poll_from_now_on(self._brokers[broker.node_id])
        for topic in response.topics:
            for answer in topic.partitions if topic.name == self._topic else ():
                self._merge_partition(answer.partition_index, _partition(answer))
        if self._update is not None:
            self._update.set_result(None)
            self._update = None

    def _merge_partition(self, index: int, new: Partition) -> None:
        known = self._partitions.get(index)
        if known is not None and new.leader_epoch < known.leader_epoch:
            return
        self._partitions[index] = new
        if known is None or (known.leader, known.leader_epoch) != (new.leader, new.leader_epoch):
            change = self._leader_changes.pop(index, None)
            if change is not None:
                change.set_result(None)


def _partition(answer: Entity) -> Partition:
    leader = answer.leader_id if answer.leader_id >= 0 else None
    return Partition(leader, answer.leader_epoch, tuple(answer.replica_nodes), tuple(answer.isr_nodes))
