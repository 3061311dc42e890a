"""Workload `append`: unique values are appended to every partition, read as they come and once more at the end.

Processes of the history: 0 to concurrency - 1 are the producers, then come the readers, and the process after them
does the final reads; with --delete-records the next one deletes, and with --short-lived-topics the one after that
appends to these topics and reads them. A producer has at most one batch in flight a partition
(two around a change of leader); with --producers it is another kind (workloads/clients/kio/senders.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from cluster_image.network import Address, Network
from cluster_image.storage.records import encode_int64s
from harness.cluster import Cluster
from harness.plan.plan import Plan
from harness.record.history import HistoryRecorder
from harness.report.console import Counts
from harness.targets.security import PLAINTEXT
from harness.targets.security.network import network_to
from workloads.clients.client import Session, until
from workloads.clients.kio.administration.deleting import Deleter
from workloads.clients.kio.administration.short_lived import ShortLivedTopics
from workloads.clients.kio.client import REQUEST_TIMEOUT_S, Client
from workloads.clients.kio.one_by_one import LogClient
from workloads.clients.kio.producing import Sender
from workloads.clients.kio.senders import sender_of
from workloads.pacing import Pacer
from workloads.tally import Tally

READERS: Final = 2


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
    #: Are its producers of the kind that a plan says?
    takes_producers: ClassVar[bool] = True
    #: Are its batches as large as a plan says?
    takes_records_per_batch: ClassVar[bool] = True
    #: Does it delete records, if a plan says so?
    can_delete_records: ClassVar[bool] = True
    #: Does it make other topics beside its own, if a plan says so?
    can_have_short_lived_topics: ClassVar[bool] = True
    #: Values as one record batch.
    encode: ClassVar[Callable[..., bytes]] = staticmethod(encode_int64s)

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        recorder: HistoryRecorder,
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
        self._network = network or network_to(cluster)
        bootstrap = getattr(cluster, "bootstrap", None) or [node.address for node in cluster.brokers]
        brokers = [Address(*address) for address in bootstrap]
        self._connect = partial(Client, self._network, brokers, request_timeout=request_timeout)
        self._client = self._connect(plan.topic)
        self._tally = Tally()
        self._session = session = Session(
            plan, brokers, recorder, self._tally, READERS, plan.concurrency, int(self.log.get("keys", 0)), clock,
            wall_clock, own=self._client, sender=sender_of(plan, self.sender), encode=self.encode,
            security=getattr(cluster, "security", PLAINTEXT),  # a stand-in may not say
        )  # fmt: skip
        self._access = plan.client_kind.access(session)
        self._settings = {
            **getattr(cluster, "topic_settings", {}),  # a stand-in may not say
            "min.insync.replicas": str(plan.min_insync_replicas), **self.topic_settings,
        }  # fmt: skip
        self._short_lived = ShortLivedTopics(
            plan, self._connect, recorder, plan.concurrency + READERS + 2, self._settings, clock=clock,
            wall_clock=wall_clock,
        )  # fmt: skip

    async def set_up(self) -> None:
        """Once all brokers are there, make the topic and wait until every partition is led and in sync. Retries until
        cancelled; raises HarnessFailure if the cluster refuses the topic."""
        plan = self._plan
        self._client.start()
        await self._client.wait_brokers()
        await self._client.create_topic(plan.partitions, plan.replication_factor, self._settings)
        await self._client.wait_ready(plan.partitions, plan.ready_isr)

    async def run(self, stop: asyncio.Event) -> None:
        """Append and read until `stop` is set, then wait for the appends in flight, for a bounded time."""
        plan = self._plan
        pacer = Pacer(plan.rate, plan.partitions, plan.records_per_batch)
        self._tally.begin(plan.partitions, self._clock(), pacer.turn_s)
        producers = self._access.producers(pacer)
        loops = [producer.run() for producer in producers]
        loops += self._access.readers(self._random)
        loops.append(pacer.run())
        if plan.delete_records is not None:
            deleter = Deleter(
                self._client, self._recorder, plan.concurrency + READERS + 1, plan.delete_records,
                Random(f"{plan.seed}/deletions"), clock=self._clock,
            )  # fmt: skip
            loops.append(deleter.run(plan.partitions))
        if plan.short_lived_topics is not None:
            loops.append(self._short_lived.run())
        try:
            await until(stop, loops)
        finally:
            await asyncio.gather(*(producer.settle() for producer in producers))

    def log_clients(self) -> list[LogClient]:
        """plan.concurrency of them, processes 0 and up of the history, for a workload that decides by itself when it
        appends and reads what. To be closed."""
        plan = self._plan
        self._tally.begin(plan.partitions, self._clock())
        return [
            LogClient(
                self._client, self._recorder, self._tally, process, plan.acks, clock=self._clock,
                wall_clock=self._wall_clock,
            )
            for process in range(plan.concurrency)
        ]  # fmt: skip

    async def final_read(self) -> None:
        """Read every partition from its start to its end. Retries until cancelled."""
        await self._access.read_all()
        await self._short_lived.read_all()

    async def close(self) -> None:
        """The network too, if it is the workload's own."""
        await self._short_lived.close()
        await self._access.close()
        await self._client.close()
        if self._owns_network:
            await self._network.close()

    def counts(self) -> Counts:
        return self._tally.counts()

    def served(self) -> Mapping[str, tuple[float, float]]:
        """See harness.run.calm.Served."""
        now, topic = self._clock(), self._plan.topic
        return {f"{topic}-{p}": self._tally.served(p, now) for p in range(self._plan.partitions)}

    def facts(self) -> Mapping[str, Any]:
        """What became of the clients, for run.json."""
        short_lived = self._short_lived.facts()
        return {**self._access.facts(), **({"short_lived_topics": short_lived} if short_lived else {})}
