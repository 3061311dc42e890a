"""Access by this project's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final

from harness.errors import BadArguments
from harness.plan.plan import Plan
from workloads.clients.client import Access, Client, Producer, Session
from workloads.clients.kio.reading import Reader
from workloads.pacing import Pacer

_RECORD_BYTES: Final = 16  # on the wire, without the batch's header


class Kio(Client):
    """This project's own asyncio client, on the messages of kio: it repeats nothing, and sees every response."""

    name = "kio"
    summary: ClassVar = "this project's own, which repeats nothing: what it says of an append is all that is known"
    runtimes: ClassVar = frozenset({"docker", "simulation", "ssh"})
    secures: ClassVar = True  # the workload's network does

    def check_setting(self, name: str, value: str) -> None:
        raise BadArguments(f"--client-set {name}: client kio has no settings; --acks and --concurrency are the plan's")

    def is_idempotent(self, acks: str, settings: Mapping[str, str]) -> bool:
        return True  # it sends nothing twice

    def promises_idempotence(self, acks: str, settings: Mapping[str, str]) -> bool:
        return False

    def access(self, session: Session) -> Access:
        return KioAccess(session)


class KioAccess(Access):
    """A sender for each producer and partition; readers with a connection for each node."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _plan(self) -> Plan:
        return self._session.plan

    def producers(self, pacer: Pacer) -> Sequence[Producer]:
        session, plan = self._session, self._plan
        return [
            session.sender(
                session.own, session.recorder, session.tally, pacer, process, partition, plan.acks,
                encode=session.encode, clock=session.clock, wall_clock=session.wall_clock,
            )
            for process in range(plan.concurrency)
            for partition in range(plan.partitions)
        ]  # fmt: skip

    def readers(self, random: Random) -> Sequence[Coroutine[Any, Any, None]]:
        bytes_per_s = self._plan.rate * _RECORD_BYTES / self._plan.brokers
        return [
            self._reader(number).tail(bytes_per_s, Random(random.random())) for number in range(self._session.readers)
        ]

    async def read_all(self) -> None:
        reader = self._reader(self._session.readers)
        await asyncio.gather(*(reader.read_all(partition, "final_read") for partition in range(self._plan.partitions)))

    async def close(self) -> None:
        """The client is the workload's."""

    def _reader(self, number: int) -> Reader:
        session, plan = self._session, self._plan
        return Reader(
            session.own, session.recorder, session.tally, session.first_reader + number, clock=session.clock,
            compacted=plan.log.get("cleanup.policy") == "compact", start_moves=plan.log_start != 0,
        )  # fmt: skip
