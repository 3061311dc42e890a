"""The asyncio Kafka client that the workloads share.

It sees every response and repeats nothing by itself, so that what it reports of an operation is exactly what is
known of it: see outcomes.py.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Address, Connection, Entity, Network
from harness.errors import HarnessFailure
from workloads.clients.kio import outcomes
from workloads.clients.kio.administration import requests
from workloads.clients.kio.metadata import CONNECT_TIMEOUT_S, Metadata

REQUEST_TIMEOUT_S: Final = 3.0
_RETRY_S: Final = 0.2
#: A broker takes no more new ones in a request (cluster_image/kraft/controller/topics.py).
PARTITIONS_AT_ONCE: Final = 1000
#: How a cluster answers CreateTopics whose brokers are not there yet: fewer than the replication factor, or none.
_NOT_YET: Final = frozenset({ErrorCode.invalid_replication_factor, ErrorCode.broker_not_available})


class CannotSend(Exception):
    """Nothing was sent, and nothing will be. `error` is its name in the history."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class NotReady(HarnessFailure):
    """The cluster refused the topic."""


class Refused(Exception):
    """What an administrator asked for, for good: who answered what, as a clause."""

    def __init__(self, message: str, error: ErrorCode) -> None:
        super().__init__(message)
        self.error = error


class Client:
    """Access to one topic of one cluster.

    bootstrap: addresses of some brokers. request_timeout: seconds to wait for any response.
    """

    def __init__(
        self,
        network: Network,
        bootstrap: Sequence[Address],
        topic: str,
        *,
        client_id: str = "chaos",
        request_timeout: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.topic = topic
        self.request_timeout = request_timeout
        self.metadata = Metadata(
            network, bootstrap, topic, client_id=client_id, request_timeout=min(request_timeout, CONNECT_TIMEOUT_S)
        )
        self._network = network
        self._bootstrap = bootstrap
        self._client_id = client_id

    def start(self) -> None:
        self.metadata.start()

    async def close(self) -> None:
        """Links are closed by those who opened them."""
        await self.metadata.close()

    async def connect(self, address: Address) -> Connection:
        """Raises ConnectionError or TimeoutError."""
        return await self._network.connect(address, client_id=self._client_id, timeout=CONNECT_TIMEOUT_S)

    async def create_topic(self, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        """Create the topic unless it exists, asking one broker after another until cancelled. Raises NotReady if it
        is refused for good."""
        first = min(partitions, PARTITIONS_AT_ONCE)
        request = requests.create_topic_request(self.topic, first, replication_factor, configs, self.request_timeout)
        try:
            await self.administer(request, ErrorCode.topic_already_exists)
            for count in range(first + PARTITIONS_AT_ONCE, partitions + PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE):
                request = requests.create_partitions_request(self.topic, min(count, partitions), self.request_timeout)
                await self.administer(request, ErrorCode.invalid_partitions)  # it has so many already
        except Refused as refused:
            raise NotReady(f"topic {self.topic} could not be created: {refused}") from None

    async def administer(self, request: Entity, done: ErrorCode = ErrorCode.none) -> Entity:
        """Have it carried out, asking one broker after another until cancelled. done: the error that says that an
        earlier request of the same did it. Raises Refused."""
        for address in itertools.cycle(self._bootstrap):
            try:
                connection = await self.connect(address)
                try:
                    response = await connection.request(request, timeout=self.request_timeout)
                finally:
                    connection.close()
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(_RETRY_S)
                continue
            error, message = requests.administered(response)
            if error in (ErrorCode.none, done):
                return response
            if not (error.retriable or error in _NOT_YET):
                reason = f"{outcomes.name(error)}" + (f" ({message})" if message else "")
                raise Refused(f"{address} answered {reason}", error)
            await asyncio.sleep(_RETRY_S)
        raise AssertionError("there is no end of brokers to ask")

    async def wait_brokers(self) -> None:
        """Returns once all brokers that it was told of are in the cluster's metadata: a topic that is made before would
        be placed on some of them."""
        while len(self.metadata.brokers) < len(self._bootstrap):
            self.metadata.ask_again()
            await self.metadata.updated(timeout=_RETRY_S)

    async def wait_ready(self, partitions: int, isr: int) -> None:
        """Returns once every partition has a leader and so many replicas in its ISR."""
        while self.why_not_ready(partitions, isr) is not None:
            self.metadata.ask_again()
            await self.metadata.updated(timeout=_RETRY_S)

    def why_not_ready(self, partitions: int, isr: int) -> str | None:
        """The first thing that wait_ready() waits for."""
        if not self.metadata.brokers:
            return "no broker answered"
        for index in range(partitions):
            known = self.metadata.partitions.get(index)
            if known is None:
                return f"partition {self.topic}-{index} does not exist"
            if known.leader not in self.metadata.brokers:
                return f"partition {self.topic}-{index} has no leader"
            if len(known.isr) < isr:
                return f"partition {self.topic}-{index} has only {list(known.isr)} of {list(known.replicas)} in its ISR"
        return None


class Link:
    """A connection for one task's own use, to whichever node it needs next."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._node: int | None = None
        self._connection: Connection | None = None

    async def to(self, node: int | None) -> Connection:
        """An open connection to that node; None stands for a leader that is not known. Raises CannotSend."""
        if self._connection is not None and self._node == node and not self._connection.closed:
            return self._connection
        self.close()
        address = None if node is None else self._client.metadata.brokers.get(node)
        if address is None:
            raise CannotSend(outcomes.NO_LEADER)
        try:
            connection = await self._client.connect(address)
        except (ConnectionError, TimeoutError):
            raise CannotSend(outcomes.CONNECTION_FAILED) from None
        self._node, self._connection = node, connection
        return connection

    def detach(self) -> None:
        """Leave the connection to a request that is still waiting on it."""
        self._node = self._connection = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self.detach()
