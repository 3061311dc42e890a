"""Workload `idempotent`: as `append`, by producers with enable.idempotence (KIP-98).

Each sender is a producer of its own, with a producer id and a sequence number for its partition, and one batch in
flight. Like Kafka's producer it sends a batch again, unchanged, until that is acknowledged or its delivery time-out has
passed; all of that is one operation of the history, and whatever its attempts did, the batch may be in the log once.

A batch that was given up leaves a hole in the sequence numbers if it never reached the log, so the sender goes on with
a new producer id then; Kafka's producer raises its epoch (KIP-360). The old batch may still be appended: it is `info`.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from cluster_image.network import Connection
from harness.plan.plan import Plan
from harness.record.history import Operation
from workloads.append import AppendWorkload
from workloads.clients.kio import outcomes
from workloads.clients.kio.client import CannotSend
from workloads.clients.kio.idempotence import DELIVERY_REQUESTS, OUT_OF_STEP, new_producer_id, taken, together
from workloads.clients.kio.metadata import Partition
from workloads.clients.kio.outcomes import Outcome
from workloads.clients.kio.producing import Answered, Sender


class IdempotentSender(Sender):
    """One producer of one partition."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._producer_id: int | None = None
        self._sequence = 0
        self._settling = False

    async def run(self) -> None:
        while True:
            count = await self._pacer.take(self._partition)
            delivery = asyncio.get_running_loop().create_task(self._deliver(count))
            self._in_flight[delivery] = None
            delivery.add_done_callback(self._sent)
            await asyncio.wait((delivery,))  # goes on if this is cancelled: settle() waits for it
            delivery.result()

    async def settle(self) -> None:
        """An attempt that is under way is the last one; what waits for another one is given up."""
        self._settling = True
        await super().settle()

    async def _deliver(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DELIVERY_REQUESTS * self._client.request_timeout
        appends: Operation | None = None
        leader: Partition | None = None  # of the last attempt
        batch = b""
        outcome: Outcome = "fail"
        while True:
            known = self._client.metadata.partitions.get(self._partition)
            moved = self._client.metadata.leader_change(self._partition)
            try:
                connection = await self._link.to(known.leader if known is not None else None)
                if self._producer_id is None:
                    timeout = self._client.request_timeout
                    self._producer_id, self._sequence = await new_producer_id(connection, timeout), 0
            except CannotSend as failure:
                answered = Answered("fail", failure.error)
            else:
                assert known is not None
                leader = known
                if appends is None:
                    appends = self._invoke(count)
                    batch = self._numbered(appends)
                answered = await self._attempt(connection, batch, moved)
            outcome = together(outcome, answered.outcome)
            over = outcome == "ok" or answered.error in OUT_OF_STEP
            if over or self._settling or loop.time() > deadline:
                break
            self._back_off(answered.error)
            self._client.metadata.ask_again()
            await asyncio.wait((moved,), timeout=self._backoff)
            if self._settling:
                break
        self._end(appends, leader, count, answered._replace(outcome=outcome))

    def _invoke(self, count: int) -> Operation:
        client = self._client
        return self._recorder.invoke_append(self._process, client.topic, self._partition, count, self._clock())

    def _numbered(self, appends: Operation) -> bytes:
        return self._encode(
            appends.values, timestamp_ms=int(self._wall_clock() * 1000), producer_id=self._producer_id,
            producer_epoch=0, base_sequence=self._sequence,
        )  # fmt: skip

    async def _attempt(self, connection: Connection, batch: bytes, moved: asyncio.Future[None]) -> Answered:
        """Until it is answered, or once the partition has another leader: that one can be asked at once."""
        sending = asyncio.get_running_loop().create_task(self._produce(connection, batch))
        await asyncio.wait((sending, moved), return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            self._link.close()  # which ends it
        return taken(await sending)

    def _end(self, appends: Operation | None, leader: Partition | None, count: int, answered: Answered) -> None:
        if appends is None or leader is None:
            self._refuse(count, answered.error or outcomes.NO_LEADER)
            return
        if answered.outcome == "ok":
            self._sequence += count
        else:
            self._producer_id = None
        self._complete(appends, leader, count, answered)


class IdempotentWorkload(AppendWorkload):
    """As append, by idempotent producers, which send a batch again until it is acknowledged: it is in the log once."""

    sender: ClassVar[type[Sender]] = IdempotentSender
    #: Of a plan (Plan.idempotence).
    idempotent: ClassVar[bool] = True
    takes_producers: ClassVar[bool] = False

    @classmethod
    def impossible(cls, plan: Plan) -> str | None:
        """Why a plan cannot be carried out with it, as a clause."""
        if plan.client != "kio":
            return "it is of the client kio; others are idempotent in workload append, by --client-set"
        return None if plan.acks == "all" else f"an idempotent producer needs acks=all, and --acks is {plan.acks}"
