"""Takes the partitions' ISR proposals to the controller with AlterPartition and brings the answers back.

One request is under way at a time. A request whose outcome is unknown is sent again as it was: until the controller
has spoken, the partition keeps its maximal ISR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.errors import ErrorCode

from cluster_image.network.tasks import Failed, start_task
from cluster_image.replication.replica import PartitionKey
from cluster_image.wire.integers import BrokerId, i8, i32, i64

from .channel import ControllerChannel
from .leadership import IsrProposal
from .partition import Partition

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1


class IsrManager:
    def __init__(
        self,
        channel: ControllerChannel,
        broker_id: int,
        broker_epoch: Callable[[], int],
        partitions: Callable[[], Iterable[Partition]],
        failed: Failed,
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._partitions = partitions
        self._failed = failed
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = start_task(self._run(), self._failed)

    def proposals_changed(self) -> None:
        self._work.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._channel.close()

    async def _run(self) -> None:
        # A proposal that the controller has refused as outdated stays pending until the metadata log resolves it: it is
        # not sent again.
        settled: dict[PartitionKey, IsrProposal] = {}
        while True:
            await self._work.wait()
            self._work.clear()
            proposed = {
                p.key: (p, p.leadership.proposal)
                for p in self._partitions()
                if p.leadership is not None and p.leadership.proposal is not None
            }
            settled = {key: proposal for key, proposal in settled.items() if key in proposed}
            pending = {key: each for key, each in proposed.items() if settled.get(key) is not each[1]}
            if not pending:
                continue
            try:
                answer = await self._channel.request(self._request(pending))
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)
                self._work.set()
                continue
            if answer.error_code is not ErrorCode.none:
                log.warning("AlterPartition refused", extra={"error": answer.error_code.name})
                await asyncio.sleep(_RETRY_SECONDS)
                self._work.set()
                continue
            if self._take(answer, pending, settled):
                await asyncio.sleep(_RETRY_SECONDS)
                self._work.set()

    def _request(self, pending: dict[PartitionKey, tuple[Partition, IsrProposal]]) -> AlterPartitionRequest:
        topics: dict[Any, list[PartitionData]] = {}
        for (topic_id, index), (_, proposal) in pending.items():
            topics.setdefault(topic_id, []).append(
                PartitionData(
                    partition_index=i32(index),
                    leader_epoch=i32(proposal.leader_epoch),
                    leader_recovery_state=i8(proposal.leader_recovery_state),
                    partition_epoch=i32(proposal.partition_epoch),
                    new_isr_with_epochs=tuple(
                        BrokerState(
                            broker_id=BrokerId(r),
                            broker_epoch=i64(self._broker_epoch() if r == self._broker_id else epoch),
                        )
                        for r, epoch in proposal.isr
                    ),
                )
            )
        return AlterPartitionRequest(
            broker_id=BrokerId(self._broker_id),
            broker_epoch=i64(self._broker_epoch()),
            topics=tuple(TopicData(topic_id=t, partitions=tuple(ps)) for t, ps in topics.items()),
        )

    def _take(
        self,
        answer: Any,
        pending: dict[PartitionKey, tuple[Partition, IsrProposal]],
        settled: dict[PartitionKey, IsrProposal],
    ) -> bool:
        """Apply each partition's answer. True: some were refused by a controller that must first catch up."""
        retry = False
        for topic in answer.topics:
            for data in topic.partitions:
                key = (topic.topic_id, int(data.partition_index))
                if key not in pending:
                    continue
                partition, proposal = pending[key]
                if data.error_code is ErrorCode.none:
                    isr = tuple(int(r) for r in data.isr)
                    partition.proposal_accepted(proposal, isr, int(data.leader_epoch), int(data.partition_epoch))
                    log.info("isr", extra={"partition": str(partition), "isr": list(isr)})
                elif data.error_code is ErrorCode.not_controller:
                    retry = True
                else:
                    settled[key] = proposal
                    partition.proposal_refused(proposal, data.error_code)
                    log.info(
                        "isr refused",
                        extra={"partition": str(partition), "error": data.error_code.name, "isr": str(proposal.isr)},
                    )
        return retry
