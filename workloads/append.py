"""Workload `append`: unique values are appended to every partition, read as they come and once more at the end.

Processes of the history: 0 to concurrency - 1 are the producers, then come the readers, and the process after them
does the final reads; with --delete-records one more deletes. A producer has at most one batch in flight a partition
(two around a change of leader).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final

from cluster_image.network import Address, Network
from cluster_image.network.tcp import TcpNetwork
from cluster_image.storage.records import encode_int64s
from harness.cluster import Cluster
from harness.plan.plan import Plan
from harness.record.history import Recorder
from harness.report.console import Counts
from workloads.clients.kio.client import REQUEST_TIMEOUT_S, Client
from workloads.clients.kio.deleting import Deleter
from workloads.clients.kio.producing import Sender
from workloads.clients.kio.reading import Reader
from workloads.pacing import Pacer
from workloads.tally import Tally

READERS: Final = 2
_RECORD_BYTES: Final = 16  # on the wire, without the batch's header


class AppendWorkload:
    """Appends unique values to every partition and reads them back, as they come and at the end.

    Implements harness.run.components.Workload.

    network, clock (monotonic ns) and wall_clock (seconds since 1970): a simulation gives its own.
    request_timeout: seconds.
    """

    #: What a plan says of the topic's logs (Plan.log), and settings that the topic is made with.
    log: ClassVar[Mapping[str, Any]] = {}
    topic_settings: ClassVar[Mapping[str, str]] = {}
    sender: ClassVar[type[Sender]] = Sender
    #: Does it delete records, if a plan says so?
    can_delete_records: ClassVar[bool] = True
    #: Values as one record batch.
    encode: ClassVar[Callable[..., bytes]] = staticmethod(encode_int64s)

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        recorder: Recorder,
        *,
        network: Network | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], float] = time.time,
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._plan = plan
        self._recorder = recorder
        self._clock = clock
        self._wall_clock = wall_clock
        self._random = Random(f"{plan.seed}/workload")
        self._owns_network = network is None
        self._network = network or TcpNetwork()
        brokers = [Address(*node.address) for node in cluster.brokers]
        self._client = Client(self._network, brokers, plan.topic, request_timeout=request_timeout)
        self._tally = Tally()

    async def set_up(self) -> None:
        """Once all brokers are there, make the topic and wait until every partition is led and in sync. Retries until
        cancelled; raises HarnessFailure if the cluster refuses the topic."""
        plan = self._plan
        self._client.start()
        await self._client.wait_brokers()
        await self._client.create_topic(
            plan.partitions,
            plan.replication_factor,
            {"min.insync.replicas": str(plan.min_insync_replicas), **self.topic_settings},
        )
        await self._client.wait_ready(plan.partitions, plan.ready_isr)

    async def run(self, stop: asyncio.Event) -> None:
        """Append and read until `stop` is set, then wait for the appends in flight, at most a request timeout."""
        plan = self._plan
        pacer = Pacer(plan.rate, plan.partitions)
        self._tally.begin(plan.partitions, self._clock(), pacer.turn_s)
        senders = [
            self.sender(
                self._client,
                self._recorder,
                self._tally,
                pacer,
                process,
                partition,
                plan.acks,
                encode=self.encode,
                clock=self._clock,
                wall_clock=self._wall_clock,
            )
            for process in range(plan.concurrency)
            for partition in range(plan.partitions)
        ]
        bytes_per_s = plan.rate * _RECORD_BYTES / plan.brokers
        loops = [sender.run() for sender in senders]
        loops += [self._reader(n).tail(bytes_per_s, Random(self._random.random())) for n in range(READERS)]
        loops.append(pacer.run())
        if plan.delete_records is not None:
            deleter = Deleter(
                self._client, self._recorder, plan.concurrency + READERS + 1, plan.delete_records,
                Random(f"{plan.seed}/deletions"), clock=self._clock,
            )  # fmt: skip
            loops.append(deleter.run(plan.partitions))
        try:
            await _until(stop, loops)
        finally:
            await asyncio.gather(*(sender.settle() for sender in senders))

    async def final_read(self) -> None:
        """Read every partition from its start to its end. Retries until cancelled."""
        reader = self._reader(READERS)
        await asyncio.gather(*(reader.read_all(partition, "final_read") for partition in range(self._plan.partitions)))

    async def close(self) -> None:
        """The network too, if it is the workload's own."""
        await self._client.close()
        if self._owns_network:
            await self._network.close()

    def counts(self) -> Counts:
        return self._tally.counts()

    def served(self) -> Mapping[str, tuple[float, float]]:
        """See harness.run.calm.Served."""
        now, topic = self._clock(), self._plan.topic
        return {f"{topic}-{p}": self._tally.served(p, now) for p in range(self._plan.partitions)}

    def _reader(self, number: int) -> Reader:
        process = self._plan.concurrency + number
        compacted = self.log.get("cleanup.policy") == "compact"
        return Reader(
            self._client, self._recorder, self._tally, process, clock=self._clock, compacted=compacted,
            start_moves=self._plan.log_start != 0,
        )  # fmt: skip


async def _until(stop: asyncio.Event, loops: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run endless loops side by side until `stop` is set. One that fails ends them all."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            await stop.wait()
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
