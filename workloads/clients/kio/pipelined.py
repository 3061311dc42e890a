"""Idempotent producers with several batches in flight, as Kafka's own (max.in.flight.requests.per.connection=5).

Each is a producer of one partition, with an id and an epoch. What has not been acknowledged it keeps, in the order of
its sequence numbers, and sends again unchanged, to whoever leads then: one at a time, until there is nothing left of
which an attempt has failed. Of a new epoch, too, nothing follows before the first batch is acknowledged: a leader that
knows nothing of a producer takes whatever number comes (KIP-360).

If the first of them is refused for good, or cannot be delivered in time, all that is kept is given up, and the producer
goes on with a higher epoch of its own making, as Kafka's does: without a transactional id, InitProducerId only gives
new ids. Whatever may still be on its way is refused from then on.

Now and then it does what networks and impatient clients do: a request goes out twice; an answer is not waited for; a
batch that was acknowledged comes once more, late and on another connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

from cluster_image.network import Connection
from harness.record.history import Operation
from workloads.clients.kio import outcomes
from workloads.clients.kio.client import CannotSend, Link
from workloads.clients.kio.idempotence import DELIVERY_REQUESTS, FENCED, OUT_OF_STEP, new_producer_id, taken, together
from workloads.clients.kio.metadata import Partition
from workloads.clients.kio.outcomes import Outcome
from workloads.clients.kio.producing import Answered, Sender, produce

MAX_IN_FLIGHT: Final = 5
#: Of the requests: those that are sent twice, those whose answer may be lost, and, of what was acknowledged, what comes
#: once more.
TWICE: Final = 0.05
HANGS_UP: Final = 0.03
AGAIN: Final = 0.05
#: Before so many batches it pauses, so that several are due at once.
PAUSES: Final = 0.2
_PAUSES_FOR_S: Final = 0.5
#: Seconds, at most, from a request to the end of its connection, and from an acknowledgement to the copy.
_HANGS_UP_AFTER_S: Final = 0.05
_AGAIN_AFTER_S: Final = 3.0


class Identity(NamedTuple):
    producer_id: int
    epoch: int


@dataclass(eq=False)
class _Batch:
    """deadline: of the event loop. attempts: how often it was sent, and outcome of all of them; leader, error, offset:
    of the last."""

    appends: Operation
    data: bytes
    count: int
    deadline: float
    attempts: int = 0
    outcome: Outcome = "fail"
    leader: Partition | None = None
    error: str | None = None
    offset: int | None = None


class PipelinedSender(Sender):
    """An incarnation of a producer. identity: that it takes over; None: it asks for a new id. seed: for what it does
    now and then. late: does it send again what was acknowledged?"""

    def __init__(self, *given: Any, seed: int, identity: Identity | None = None, late: bool = True, **named: Any):
        super().__init__(*given, **named)
        epoch = 0 if identity is None else identity.epoch
        self._random = Random(f"{seed}/producer/{self._process}/{self._partition}/{epoch}")
        self._late = late
        self.identity = identity
        #: Another incarnation has taken over: the next epoch is that one's.
        self.is_superseded = False
        #: It was refused for good since.
        self.is_over = False
        self._sequence = 0
        self._acknowledged = False  # anything of this epoch
        self._window: list[_Batch] = []
        self._refused = False  # its first batch, for good
        self._settling = False
        self._change: asyncio.Future[None] | None = None
        self._copies: set[asyncio.Task[None]] = set()  # that are still to be sent

    async def run(self) -> None:
        """Until cancelled, or it is over; settle() then."""
        self._keep(asyncio.get_running_loop().create_task(self._deliver()))
        while not self.is_over:
            if self.identity is None or len(self._window) >= MAX_IN_FLIGHT:
                await asyncio.wait((self._changed(),))
                continue
            if self._random.random() < PAUSES:
                await asyncio.sleep(self._random.uniform(0.0, _PAUSES_FOR_S))
            count = await self._pacer.take(self._partition)
            if not self.is_over and self.identity is not None:
                self._window.append(self._batch(count, self.identity))
                self._tell()
        if self._failure is not None:
            raise self._failure

    async def settle(self) -> None:
        """Attempts that are under way are the last ones."""
        self._settling = True
        self._tell()
        for copy in self._copies:
            copy.cancel()
        await super().settle()

    def stop(self) -> None:
        """Send nothing more: what run() does then. Its last answers are waited for by settle()."""
        self._settling = self.is_over = True
        self._tell()

    @property
    def process(self) -> int:
        return self._process

    @property
    def partition(self) -> int:
        return self._partition

    # -- the window -------------------------------------------------------------------------------------------

    def _changed(self) -> asyncio.Future[None]:
        """Done once something of this producer is another: its window, its identity, what is wanted of it. Shared: do
        not cancel."""
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        return self._change

    def _tell(self) -> None:
        if self._change is not None:
            self._change.set_result(None)
            self._change = None

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._in_flight[task] = None
        task.add_done_callback(self._sent)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        super()._sent(sending)
        if self._failure is not None:
            self.is_over = True
            self._tell()

    def _batch(self, count: int, identity: Identity) -> _Batch:
        client = self._client
        appends = self._recorder.invoke_append(self._process, client.topic, self._partition, count, self._clock())
        data = self._encode(
            appends.values, timestamp_ms=int(self._wall_clock() * 1000), producer_id=identity.producer_id,
            producer_epoch=identity.epoch, base_sequence=self._sequence,
        )  # fmt: skip
        self._sequence += count
        deadline = asyncio.get_running_loop().time() + DELIVERY_REQUESTS * client.request_timeout
        return _Batch(appends, data, count, deadline)

    def _finish(self, batch: _Batch) -> None:
        self._window.remove(batch)
        error = batch.error or (outcomes.NOT_SENT if batch.outcome == "fail" else None)
        self._recorder.complete(
            batch.appends, self._clock(), batch.outcome, offset=batch.offset, error=error,
            leader_epoch=None if batch.leader is None else batch.leader.leader_epoch,
        )  # fmt: skip
        self._tally.appended(batch.outcome, batch.count, error)
        if batch.outcome == "ok":
            self._tally.acknowledged(self._partition, self._clock())
        self._tell()

    def _give_up(self) -> None:
        """All that is kept. What comes next has a higher epoch, unless that is another incarnation's."""
        for batch in list(self._window):
            self._finish(batch)
        self.is_over = self.is_over or self.is_superseded
        if self.identity is not None:
            self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        self._sequence, self._acknowledged, self._refused = 0, False, False
        self._tell()

    # -- attempts ---------------------------------------------------------------------------------------------

    async def _deliver(self) -> None:
        loop, metadata = asyncio.get_running_loop(), self._client.metadata
        while not (self._settling or self.is_over):
            if self.identity is not None and not self._window:
                await asyncio.wait((self._changed(),))
                continue
            known, moved = metadata.partitions.get(self._partition), metadata.leader_change(self._partition)
            try:
                connection = await self._link.to(known.leader if known is not None else None)
                if self.identity is None:
                    self.identity = Identity(await new_producer_id(connection, self._client.request_timeout), 0)
                    self._tell()
            except CannotSend as failure:
                error: str | None = failure.error
            else:
                assert known is not None
                error = await self._send_window(connection, known, moved)
            if error is None or self._settling:
                continue
            if self._window and (self._refused or loop.time() > self._window[0].deadline):
                self._give_up()
            self._back_off(error)
            metadata.ask_again()
            await asyncio.wait((moved,), timeout=self._backoff)
        for batch in list(self._window):
            self._finish(batch)

    async def _send_window(
        self, connection: Connection, leader: Partition, moved: asyncio.Future[None]
    ) -> str | None:
        """Until nothing is left to send, or something has failed, or there is another leader, who can be asked at
        once. Returns the error."""
        answers: dict[asyncio.Task[Answered], _Batch] = {}
        error: str | None = None
        while True:
            if error is None and not self._settling:
                for batch in self._next(answers.values()):
                    answers[self._attempt(connection, batch, leader)] = batch
            if not answers:
                return error
            waited: list[asyncio.Future[Any]] = [*answers, moved, self._changed()]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if moved.done():
                error = error or outcomes.CONNECTION_LOST
                self._link.close()  # which ends what is not answered
                await asyncio.wait(answers)
            for task in [task for task in answers if task.done()]:
                error = self._answered(answers.pop(task), task.result()) or error

    def _next(self, under_way: Collection[_Batch]) -> Sequence[_Batch]:
        """What may be sent now."""
        if not self._window:
            return ()
        first = self._window[0]
        alone = not self._acknowledged or first.attempts > (first in under_way)
        return [batch for batch in (self._window[:1] if alone else self._window) if batch not in under_way]

    def _attempt(self, connection: Connection, batch: _Batch, leader: Partition) -> asyncio.Task[Answered]:
        loop = asyncio.get_running_loop()
        batch.attempts += 1
        batch.leader = leader
        attempt = loop.create_task(self._produce(connection, batch.data))
        drawn = self._random.random()
        if drawn < TWICE:
            batch.outcome = "info"  # whatever becomes of one of them, the other may be appended
            self._keep(loop.create_task(self._send_copy(connection, batch.data)))
        elif drawn < TWICE + HANGS_UP:
            loop.call_later(self._random.uniform(0.0, _HANGS_UP_AFTER_S), connection.close)
        return attempt

    async def _produce(self, connection: Connection, batch: bytes) -> Answered:
        answered = taken(await super()._produce(connection, batch))
        # What is out of step is refused before anything is appended.
        return answered._replace(outcome="fail") if answered.error in OUT_OF_STEP else answered

    def _answered(self, batch: _Batch, answered: Answered) -> str | None:
        batch.outcome = together(batch.outcome, answered.outcome)
        batch.error, batch.offset = answered.error, answered.offset
        if answered.outcome == "ok":
            self._acknowledged = True
            self._back_off(None)
            self._finish(batch)
            if self._late and self._random.random() < AGAIN:
                self._send_again(batch.data)
            return None
        self.is_over = self.is_over or (self.is_superseded and batch.error in FENCED)
        if batch is self._window[0] and batch.error in OUT_OF_STEP:
            self._refused = True  # others are, too, if one before them was not taken
        return batch.error or outcomes.MALFORMED_RESPONSE

    # -- copies, whose answers tell nothing --------------------------------------------------------------------

    async def _send_copy(self, connection: Connection, data: bytes) -> None:
        await produce(self._client, connection, self._partition, data, self._acks)

    def _send_again(self, data: bytes) -> None:
        async def later(seconds: float) -> None:
            await asyncio.sleep(seconds)
            known = self._client.metadata.partitions.get(self._partition)
            link = Link(self._client)
            try:
                await self._send_copy(await link.to(known.leader if known is not None else None), data)
            except CannotSend:
                pass
            finally:
                link.close()

        copy = asyncio.get_running_loop().create_task(later(self._random.uniform(0.0, _AGAIN_AFTER_S)))
        self._copies.add(copy)
        copy.add_done_callback(self._copies.discard)
        self._keep(copy)
