"""Prometheus metrics of a node of whichever generation, served on `metrics.port`.

HTTP is served by the library's threads, so a slow reader holds up nobody. A thread may not look at the node's state,
which changes under it: each scrape asks the event loop for one reading of plain values, in one turn, and writes the
text itself. A loop that does not answer within a second is reported as `chaos_event_loop_responsive 0`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..config import ConfigError
from ..network import Address, Connection, Entity, Handler, Listening, Network, Peer, Versions

_PATIENCE_SECONDS: Final = 1.0
#: A node's state at one moment: plain values.
R = TypeVar("R")


class MetricsError(ConfigError):
    """Metrics cannot be served. The message is one sentence."""


class CountingNetwork:
    """A network that counts the requests it hands to its handlers, by API."""

    def __init__(self, network: Network) -> None:
        self.requests: Counter[str] = Counter()
        self._network = network

    async def connect(self, address: Address, *, client_id: str, timeout: float) -> Connection:
        return await self._network.connect(address, client_id=client_id, timeout=timeout)

    async def listen(self, address: Address, handler: Handler, served: Versions | None = None) -> Listening:
        def count(request: Entity, peer: Peer) -> Any:
            self.requests[type(request).__name__] += 1
            return handler(request, peer)

        return await self._network.listen(address, count, served)

    async def close(self) -> None:
        await self._network.close()


def gauge(
    name: str, help: str, values: Iterable[tuple[tuple[str, ...], float]], labels: tuple[str, ...] = ()
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def requests_received(counted: Iterable[tuple[str, int]]) -> CounterMetricFamily:
    """counted: by the name of a request."""
    requests = CounterMetricFamily("kafka_network_requestmetrics_requests", "Requests received", labels=("request",))
    for request, count in sorted(counted):
        requests.add_metric((request.removesuffix("Request"),), count)
    return requests


class LoopCollector(Collector, Generic[R]):
    """What the library's threads call at each scrape. read: called by the event loop; families: what it has read, in
    the library's terms."""

    def __init__(
        self, read: Callable[[], R], families: Callable[[R], Iterable[Metric]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._read = read
        self._families = families
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        return ()  # else registering would collect, from within the loop

    def collect(self) -> Iterable[Metric]:
        answer: Future[R] = Future()
        try:
            self._loop.call_soon_threadsafe(self._answer, answer)
            reading = answer.result(_PATIENCE_SECONDS)
        except (TimeoutError, RuntimeError):  # the second: the loop is closed
            answer.cancel()
            return [gauge("chaos_event_loop_responsive", "0: no answer within a second", [((), 0)])]
        responsive = gauge(
            "chaos_event_loop_responsive", "1: the node's event loop has answered within a second", [((), 1)]
        )
        return [responsive, *self._families(reading)]

    def _answer(self, answer: Future[R]) -> None:
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(self._read())
            except Exception as error:
                answer.set_exception(error)


def serve(collector: Collector, address: Address) -> None:
    """Until the process ends. Raises MetricsError."""
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise MetricsError(f"metrics.port: {address} cannot be listened on ({error.strerror or error})") from error
