"""What a workload knows of the client that it appends and reads by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Protocol

from cluster_image.network import Address
from harness.plan.plan import Plan
from harness.record.history import HistoryRecorder
from harness.targets.security import PLAINTEXT, Security
from workloads.pacing import Pacer
from workloads.tally import Tally


@dataclass(frozen=True)
class Session:
    """What a workload gives its client.

    brokers: addresses to begin with. readers: how many follow the logs, as processes of the history from `first_reader`
    on; the process after them does the final reads. keys: of values, their remainder by this; 0:
    records have none. clock: monotonic ns. wall_clock: seconds since 1970. own: what the workload makes the topic by
    (workloads.clients.kio.client.Client); sender, encode: how that appends. security: how its brokers are reached."""

    plan: Plan
    brokers: Sequence[Address]
    recorder: HistoryRecorder
    tally: Tally
    readers: int
    first_reader: int
    keys: int
    clock: Callable[[], int]
    wall_clock: Callable[[], float]
    own: Any
    sender: Any
    encode: Callable[..., bytes]
    security: Security = PLAINTEXT


class Producer(Protocol):
    async def run(self) -> None:
        """Append what falls due, until cancelled; settle() then."""

    async def settle(self) -> None:
        """Wait for what is in flight, for a bounded time."""


class Access(Protocol):
    """A client's access to the topic of one run."""

    def producers(self, pacer: Pacer) -> Sequence[Producer]:
        """plan.concurrency of them, processes 0 and up of the history, or more objects that share these."""
        ...

    def readers(self, random: Random) -> Sequence[Coroutine[Any, Any, None]]:
        """Each follows all logs, and looks at where they end now and then, until cancelled."""
        ...

    async def read_all(self) -> None:
        """Read every partition from its start to the end that it has now. Retries until cancelled."""

    async def close(self) -> None: ...

    def facts(self) -> Mapping[str, Any]:
        """What became of the client's processes, for run.json."""
        return {}


class Client(Protocol):
    """A kind of client, found by the entry points `chaos.clients`. Made without arguments, or, of --client
    NAME:ARGUMENT, with the argument."""

    name: str
    #: What its argument is, in a word, and one that is valid; "": it takes none.
    takes: ClassVar[str] = ""
    example: ClassVar[str] = ""
    summary: ClassVar[str]
    #: Where it works: "docker", "simulation", "ssh".
    runtimes: ClassVar[frozenset[str]]
    #: Does it go by Session.security, whatever that says?
    secures: ClassVar[bool] = False

    def prepare(self, tell: Callable[[str], object]) -> None:
        """Gets what it needs from elsewhere. tell: what is waited for, a line each. Blocks. Raises
        harness.errors.RuntimeUnavailable with what to do."""

    def check_setting(self, name: str, value: str) -> None:
        """Of --client-set NAME=VALUE. Raises harness.errors.BadArguments."""

    def problems(self, plan: Plan) -> Sequence[str]:
        """Why a plan is not possible with it, a sentence each."""
        return ()

    def is_idempotent(self, acks: str, settings: Mapping[str, str]) -> bool:
        """Is a record in the log once? Because it sends nothing twice, or because it promises idempotence."""
        ...

    def promises_idempotence(self, acks: str, settings: Mapping[str, str]) -> bool:
        """Is a record in the log once, however often it arrives?"""
        ...

    def access(self, session: Session) -> Access: ...


async def until(stop: asyncio.Event, loops: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run endless loops side by side until `stop` is set. One that fails ends them all."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            await stop.wait()
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
