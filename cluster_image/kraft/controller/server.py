"""The controller's edge: serves requests, runs the timer, and puts the metadata log between decision and answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.network import Entity, Network, Peer
from cluster_image.network.tasks import Failed, start_task
from cluster_image.replication.replica import PartitionKey
from cluster_image.telemetry.trace import Trace, no_trace
from cluster_image.wire.unanswered import error_answer

from ..metadata import snapshot
from ..metadata.image import MetadataImage
from ..metadata.records import MetadataRecord, PartitionChangeRecord, PartitionRecord, decode, encode, numbers
from ..raft import NotLeader, RaftClient
from . import rules
from .controller import Controller
from .log_inspection import ask_for_logs
from .partitions import PREFERRED, UNCLEAN
from .term import Step
from .unclean_recovery import Question, Recovery, describe

log = logging.getLogger(__name__)

_RAFT_REQUESTS: Final = frozenset(
    {
        *("VoteRequest", "BeginQuorumEpochRequest", "EndQuorumEpochRequest", "DescribeQuorumRequest"),
        *("FetchRequest", "FetchSnapshotRequest"),
    }
)
#: An operator waits so much longer than unclean recovery waits for answers.
_OPERATOR_MARGIN_SECONDS: Final = 0.5
#: How often sessions are looked at. Small against any session time-out.
_TICK_SECONDS: Final = 0.1
#: A request that its quorum has not committed by then is answered with an error: the outcome is then unknown.
_COMMIT_TIMEOUT_SECONDS: Final = 5.0
#: Between steps of requests. A thousand topics are a thousand logs on each of their brokers: so some seventy are
#: made in a second, and there is time for what else the nodes have to do.
_BETWEEN_STEPS_SECONDS: Final = 0.040


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
        self._stepping = asyncio.Lock()  # requests in steps take turns
        self._trace = trace
        self._network = network
        self._config = config
        self._raft = raft
        self._random = random
        self._committed = MetadataImage()
        self._active: Controller | None = None
        self._timer: asyncio.Task[None] | None = None
        self._asking: dict[int, asyncio.Task[None]] = {}  # of unclean recovery, by broker
        #: Told of what is decided of a request, by which image, before any of it is written; and when.
        self.decided: Callable[[Entity, MetadataImage, Step, float], None] | None = None
        raft.listener = self
        self._operations: dict[str, Callable[[Controller, Any, float], Step]] = {
            "BrokerRegistrationRequest": Controller.register_broker,
            "BrokerHeartbeatRequest": Controller.heartbeat,
            "UnregisterBrokerRequest": Controller.unregister_broker,
            "AlterPartitionRequest": lambda c, request, now: c.alter_partition(request),
            "CreatePartitionsRequest": lambda c, request, now: c.create_partitions(request),
            "ElectLeadersRequest": lambda c, request, now: c.elect_leaders(request),
            "IncrementalAlterConfigsRequest": lambda c, request, now: c.alter_configs(request),
            "AlterPartitionReassignmentsRequest": lambda c, request, now: c.alter_partition_reassignments(request),
            "ListPartitionReassignmentsRequest": lambda c, request, now: c.list_partition_reassignments(request),
            "AllocateProducerIdsRequest": lambda c, request, now: c.allocate_producer_ids(request),
        }

        self._in_steps: dict[str, Callable[[Controller, Any], Iterator[Step]]] = {
            "CreateTopicsRequest": Controller.create_topics,
            "DeleteTopicsRequest": Controller.delete_topics,
        }

    async def start(self) -> None:
        self._timer = start_task(self._watch(), self._failed)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._asking.values():
            task.cancel()

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
            rules.apply(self._committed, offset, decode(value))

    def on_snapshot(self, end_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        self._committed = snapshot.image_of(records, end_offset)

    def snapshot(self) -> Sequence[bytes]:
        return snapshot.encoded(self._committed)

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
        operation, in_steps = self._operations.get(name), self._in_steps.get(name)
        if operation is None and in_steps is None:
            raise ConnectionError(f"{name} is not for a controller")
        try:
            if name == "ElectLeadersRequest" and getattr(request, "election_type", PREFERRED) == UNCLEAN:
                return await self._elect_uncleanly(request)
            if in_steps is not None:
                # Clients that wait for no more than that it is decided allow 0 s.
                async with asyncio.timeout(max(request.timeout.total_seconds(), _COMMIT_TIMEOUT_SECONDS)):
                    return await self._perform_in_steps(request, lambda controller: in_steps(controller, request))
            assert operation is not None
            step = await self._perform(
                lambda controller, now: self._told(request, controller, operation(controller, request, now))
            )
        except NotLeader:
            return await peer.aside(partial(error_answer, request, ErrorCode.not_controller))
        except TimeoutError:
            return await peer.aside(partial(error_answer, request, ErrorCode.request_timed_out))
        return step.answer

    def _told(self, request: Entity, controller: Controller, step: Step) -> Step:
        if self.decided is not None:
            self.decided(request, controller.image, step, asyncio.get_running_loop().time())
        return step

    async def _perform_in_steps(
        self, request: Entity, begin: Callable[[Controller], Iterator[Step]]
    ) -> Entity | None:
        """All steps of a request, one after the other, while others have their turn; the answer that the last has. A
        step that is begun is written; of one that was cancelled, nobody knows whether it is committed. Raises as
        _perform."""
        controller = self._active
        if controller is None:
            raise NotLeader
        steps, any_written = begin(controller), False

        def next_step(active: Controller, now: float) -> Step:
            if active is not controller:
                raise NotLeader
            return self._told(request, active, next(steps))

        while True:
            async with self._stepping:
                try:
                    step = await self._perform(next_step)
                except NotLeader:
                    if any_written:
                        raise TimeoutError("deposed before the last of it was decided") from None
                    raise
                if step.answer is not None:
                    return step.answer
                any_written = any_written or bool(step.records)
                await asyncio.sleep(_BETWEEN_STEPS_SECONDS)

    async def _perform(self, operation: Callable[[Controller, float], Step]) -> Step:
        """Decide, write, replay, and return once all that the decision was based on is committed.

        Raises NotLeader: nothing was written; or TimeoutError when it is not committed in time, or not by this
        controller: the outcome is then unknown."""
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
        try:
            await raft.committed(raft.end_offset - 1, _COMMIT_TIMEOUT_SECONDS)
        except NotLeader:
            if step.records:
                raise TimeoutError("deposed before the quorum had committed it") from None
            raise
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
                    records = (await self._perform(Controller.tick)).records
                    if not records:
                        break
                    log.info("due", extra={"records": [str(record) for record in records]})
                await self._recover_uncleanly()
            except (NotLeader, TimeoutError):
                continue

    # -- unclean recovery (002, 5.3) --------------------------------------------------------------------------

    async def _recover_uncleanly(self) -> None:
        """Ask for logs in the background, and elect whom the answers so far allow to be elected."""
        controller, now = self._active, asyncio.get_running_loop().time()
        if controller is None:
            return
        recovery = controller.unclean_recovery
        recovery.look()
        for broker, question in recovery.questions(now).items():
            if broker not in self._asking:
                self._asking[broker] = asyncio.create_task(self._ask(controller, broker, question))
        if recovery.decide(now):
            await self._perform(self._recover)

    async def _ask(self, controller: Controller, broker: int, question: Question) -> None:
        try:
            address = controller.image.brokers[broker].address
            controller.unclean_recovery.hear(broker, question, await ask_for_logs(self._network, address, question))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(error)
        finally:
            del self._asking[broker]

    def _recover(self, controller: Controller, now: float) -> Step:
        recoveries = controller.recover(now)
        for recovery in recoveries:
            self._report(recovery)
        return Step([recovery.record for recovery in recoveries])

    async def _elect_uncleanly(self, request: Any) -> Entity | None:
        """At an operator's word: ask for the logs, and answer once there are leaders or the time is up.

        Raises NotLeader, TimeoutError."""
        self._raft.expire()
        controller = self._active
        if controller is None:
            raise NotLeader
        wanted = controller.ask_for_recovery(request)
        patience = self._config.seconds("unclean.recovery.timeout.ms") + _OPERATOR_MARGIN_SECONDS
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(patience, request.timeout.total_seconds())

        def led(by: Controller) -> list[PartitionKey]:
            found = ((key, by.image.partition(*key)) for key in wanted)
            return [key for key, partition in found if partition is not None and partition.leader >= 0]

        while self._active is controller and loop.time() < deadline and len(led(controller)) < len(wanted):
            await asyncio.sleep(_TICK_SECONDS / 2)
        controller.unclean_recovery.withdraw(wanted)
        # Of another term of this node's, if there is one by now: what this one has written may be lost.
        return (await self._perform(lambda active, now: active.elect_leaders(request, led(active)))).answer

    def _report(self, recovery: Recovery) -> None:
        """At the decision: better one too many, if this controller loses its office first, than one too few."""
        partition = recovery.partition
        where, reported = f"{partition.topic}-{partition.index}", describe(recovery.logs, partition.replicas)
        log.warning(
            "unclean recovery: possible data loss",
            extra={
                "partition": where,
                "strategy": recovery.strategy,
                "leader": recovery.leader,
                "leader_epoch": recovery.leader_epoch,
                "elr": partition.elr,
                "last_known_elr": partition.last_known_elr,
                **reported,
            },
        )
        self._trace(
            "unclean recovery",
            where,
            leader=recovery.leader,
            leader_epoch=recovery.leader_epoch,
            strategy=recovery.strategy,
            **reported,
        )
