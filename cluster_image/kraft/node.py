"""One node of a cluster with KRaft: wires a controller, a broker or both to its seams. Implements node.Node.

A node that is both has one log of the metadata, of which it is a voter, and an image of it for each of the two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random

from kio.schema.errors import ErrorCode

from cluster_image import wire
from cluster_image.config import Config
from cluster_image.network import Entity, Network
from cluster_image.network.authorization import authorized
from cluster_image.network.tasks import Failed
from cluster_image.storage.disk import Disk
from cluster_image.telemetry.trace import Trace, no_trace

from .broker.server import BrokerServer
from .controller.server import ControllerServer
from .raft import RaftClient, RaftListener, rpc

log = logging.getLogger(__name__)

METADATA_DIRECTORY = "__cluster_metadata-0"


class Node:
    """random: the source of every random choice. wall_clock: seconds since 1970, for the times in the metadata log and
    the age of records."""

    def __init__(
        self,
        config: Config,
        disk: Disk,
        network: Network,
        random: Random,
        failed: Failed,
        *,
        wall_clock: Callable[[], float],
        trace: Trace = no_trace,
    ) -> None:
        self._config = config
        self._network = network
        self._failed = failed
        self._trace = trace
        self._raft = RaftClient(
            config["node.id"],
            config["controller.quorum.voters"],
            config["cluster.id"],
            disk,
            METADATA_DIRECTORY,
            network,
            random,
            config,
            wall_clock=wall_clock,
            trace=trace,
        )
        self._controller: ControllerServer | None = None
        self._broker: BrokerServer | None = None
        if "controller" in config["process.roles"]:
            self._controller = ControllerServer(config, self._raft, network, random, failed, trace)
        if "broker" in config["process.roles"]:
            self._broker = BrokerServer(config, disk, network, self._raft, random, failed, trace, wall_clock=wall_clock)
        if self._controller is not None and self._broker is not None:
            self._raft.listener = _Both(self._controller, self._broker)

    @property
    def raft(self) -> RaftClient:
        return self._raft

    @property
    def broker(self) -> BrokerServer | None:
        return self._broker

    @property
    def controller(self) -> ControllerServer | None:
        return self._controller

    async def start(self) -> None:
        """A controller: when it serves. A broker, also one that is both: when the controller has unfenced it."""
        self._trace("start", node_id=self._config["node.id"], voters=tuple(self._config["controller.quorum.voters"]))
        await self._raft.start()
        self._raft.failed.add_done_callback(self._quorum_failed)
        if self._controller is not None:
            await self._controller.start()
            address = self._config.listener("controller")
            handler = authorized(self._controller.handle, _refusal)
            await self._network.listen(address, handler, wire.SUPPORTED["controller"])
        if self._broker is not None:
            await self._broker.start()
        log.info("started")

    def _quorum_failed(self, failed: asyncio.Future[None]) -> None:
        error = None if failed.cancelled() else failed.exception()
        if error is not None:
            self._failed(error)

    async def shut_down(self) -> None:
        """A controlled shutdown."""
        log.info("shutting down")
        if self._broker is not None:
            await self._broker.shut_down()
        if self._controller is not None:
            await self._controller.close()
        await self._raft.close()
        await self._network.close()
        log.info("stopped")


def _refusal(request: Entity, error: ErrorCode) -> Entity | None:
    """Of the quorum's own requests."""
    return rpc.refusal(request, error) if isinstance(request, rpc.REQUESTS) else None


class _Both:
    """Tells a controller and a broker of one process what the quorum tells: the controller first, which decides."""

    def __init__(self, controller: RaftListener, broker: RaftListener) -> None:
        self._listeners = (controller, broker)

    def on_commit(self, base_offset: int, epoch: int, records: list[bytes]) -> None:
        for listener in self._listeners:
            listener.on_commit(base_offset, epoch, records)

    def on_snapshot(self, end_offset: int, epoch: int, records: list[bytes]) -> None:
        for listener in self._listeners:
            listener.on_snapshot(end_offset, epoch, records)

    def snapshot(self) -> Sequence[bytes]:
        return self._listeners[0].snapshot()

    def on_leader(self, epoch: int) -> None:
        for listener in self._listeners:
            listener.on_leader(epoch)

    def on_resign(self, epoch: int) -> None:
        for listener in self._listeners:
            listener.on_resign(epoch)
