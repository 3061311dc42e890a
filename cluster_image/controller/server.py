"""The controller's edge: serves requests, runs the timer, and puts the metadata log between decision and answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ..config import Config
from ..messages import NO_THROTTLE, make, response_module
from ..metadata.image import MetadataImage, PartitionRegistration
from ..metadata.records import MetadataRecord, PartitionChangeRecord, PartitionRecord, decode, encode, numbers
from ..network import Entity, Network, Peer
from ..raft import NotLeader, RaftClient
from ..tasks import Failed, start_task
from ..trace import Trace, no_trace
from . import unclean_recovery
from .controller import Controller, Step

log = logging.getLogger(__name__)

_RAFT_REQUESTS: Final = frozenset(
    {"VoteRequest", "BeginQuorumEpochRequest", "EndQuorumEpochRequest", "FetchRequest", "DescribeQuorumRequest"}
)
#: How often sessions are looked at. Small against any session time-out.
_TICK_SECONDS: Final = 0.1
#: A request that its quorum has not committed by then is answered with an error: the outcome is then unknown.
_COMMIT_TIMEOUT_SECONDS: Final = 5.0


class ControllerServer:
    """One voter: follows the log always, and decides while it is the quorum's leader."""

    def __init__(
        self,
        config: Config,
        raft: RaftClient,
        network: Network,
        random: Random,
        failed: Failed,
        trace: Trace = no_trace,
    ) -> None:
        self._failed = failed
        self._trace = trace
        self._network = network
        self._config = config
        self._raft = raft
        self._random = random
        self._committed = MetadataImage()
        self._active: Controller | None = None
        self._timer: asyncio.Task[None] | None = None
        raft.listener = self
        self._operations: dict[str, Callable[[Controller, Any, float], Step]] = {
            "BrokerRegistrationRequest": Controller.register_broker,
            "BrokerHeartbeatRequest": Controller.heartbeat,
            "AlterPartitionRequest": lambda c, request, now: c.alter_partition(request),
            "CreateTopicsRequest": lambda c, request, now: c.create_topics(request),
            "AllocateProducerIdsRequest": lambda c, request, now: c.allocate_producer_ids(request),
        }

    async def start(self) -> None:
        self._timer = start_task(self._watch(), self._failed)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def active(self) -> Controller | None:
        """While this node leads the quorum; its image holds what it has written, committed or not."""
        return self._active

    @property
    def image(self) -> MetadataImage:
        """What is committed."""
        return self._committed

    # -- what the quorum tells -------------------------------------------------------------------------------

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        for offset, value in enumerate(records, base_offset):
            self._committed.replay(offset, decode(value))

    def on_leader(self, epoch: int) -> None:
        log.info("active controller", extra={"epoch": epoch})
        now = asyncio.get_running_loop().time()
        self._active = Controller(self._committed.copy(), self._config, self._config["cluster.id"], self._random, now)

    def on_resign(self, epoch: int) -> None:
        # What this term has written and not seen committed may or may not survive: the next term starts from the log.
        log.info("no longer active controller", extra={"epoch": epoch})
        self._active = None

    # -- requests --------------------------------------------------------------------------------------------

    async def handle(self, request: Entity, peer: Peer) -> Entity | None:
        name = type(request).__name__
        if name in _RAFT_REQUESTS:
            return await self._raft.handle(request, peer)
        operation = self._operations.get(name)
        if operation is None:
            raise ConnectionError(f"{name} is not for a controller")
        try:
            step = await self._perform(lambda controller, now: operation(controller, request, now))
        except NotLeader:
            return error_answer(request, ErrorCode.not_controller)
        except TimeoutError:
            return error_answer(request, ErrorCode.request_timed_out)
        return step.answer

    async def _perform(self, operation: Callable[[Controller, float], Step]) -> Step:
        """Decide, write, replay, and return once all that the decision was based on is committed.

        Raises NotLeader, or TimeoutError when the quorum does not commit in time: the outcome is then unknown."""
        raft = self._raft
        raft.expire()
        controller = self._active
        if controller is None:
            raise NotLeader
        # Offsets also go to the quorum's own control records, which no image sees.
        controller.image.end_offset = raft.end_offset
        step = operation(controller, asyncio.get_running_loop().time())
        if step.records:
            last = raft.append([encode(record) for record in step.records])
            for offset, record in enumerate(step.records, last - len(step.records) + 1):
                controller.image.replay(offset, record)
                self._trace_decision(controller.image, offset, record)
        await raft.committed(raft.end_offset - 1, _COMMIT_TIMEOUT_SECONDS)
        return step

    def _trace_decision(self, image: MetadataImage, offset: int, record: MetadataRecord) -> None:
        where = ""
        if isinstance(record, PartitionRecord | PartitionChangeRecord) and record.topic_id is not None:
            where = f"{image.topics_by_id[record.topic_id].name}-{record.partition_id}"
        self._trace("decide", where, type=type(record).__name__, offset=offset, **numbers(record))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                while self._active is not None:
                    records = (await self._perform(Controller.fence_one_expired)).records
                    if not records:
                        break
                    log.info("fenced", extra={"records": [str(record) for record in records]})
                await self._recover_uncleanly()
            except (NotLeader, TimeoutError):
                continue

    async def _recover_uncleanly(self) -> None:
        """Give partitions a leader of which nobody is known to be complete, from the best log there is."""
        partitions = unclean_recovery.recoverable(self._committed) if self._active is not None else []
        if not partitions:
            return
        addresses = {broker.id: broker.address for broker in self._committed.brokers.values()}
        ends = await unclean_recovery.inspect_logs(self._network, addresses, partitions)
        for partition in partitions:
            logs = ends[partition.topic_id, partition.index]
            leader = unclean_recovery.best_log(partition, logs)
            if leader is not None:
                log.warning(
                    "unclean recovery: possible data loss",
                    extra={"partition": f"{partition.topic}-{partition.index}", "leader": leader, "logs": logs},
                )
                await self._perform(partial(_recover, partition, leader))


def _recover(partition: PartitionRegistration, leader: int, controller: Controller, now: float) -> Step:
    return controller.recover(partition, leader)


def error_answer(request: Any, error: ErrorCode) -> Entity:
    """An answer that carries only an error, for any request that the controller serves."""
    module = response_module(request)
    name = type(request).__name__.replace("Request", "Response")
    if name == "CreateTopicsResponse":
        topics = tuple(
            make(
                module.CreatableTopicResult, name=t.name, error_code=error, error_message=None, topic_id=None,
                topic_config_error_code=ErrorCode.none, num_partitions=-1, replication_factor=-1, configs=None,
            )
            for t in request.topics
        )  # fmt: skip
        return make(module.CreateTopicsResponse, throttle_time=NO_THROTTLE, topics=topics)
    extra = {"producer_id_start": -1, "producer_id_len": 0, "topics": (), "should_shut_down": False}
    return make(getattr(module, name), throttle_time=NO_THROTTLE, error_code=error, **extra)
