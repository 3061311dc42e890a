"""Workload `transactions`: transactions of sends and polls over several partitions, by clients of others, after
jepsen.tests.kafka and Jepsen's analysis of Bufstream (2024); and loops that read, process and write exactly once.

*Transactors* send to and poll the inputs: all partitions but the last few. Some of their transactions are aborted on
purpose. A *loop* polls its share of the inputs, and in one transaction writes a record of each to its own output, one
of the last partitions, and commits where it got to. Each has a transactional.id of its own. Now and then the process
that has one stands still for longer than transaction.timeout.ms, while another takes the id, and goes on then as a
zombie; or it is killed. All of them poll read_committed; readers that are not look on.

Processes of the history: one for each process that has an id, or had it; from READERS_FROM on those of the readers, the
final reads, the committed read, and what closes the logs. A value of an output is VALUE_OF_LOOPS times a number of its
own plus the value that it is of. Judged by checkers/transactions (workload `kafka`, and runs.py); sends are appends of
their logs, and judged as these too.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from harness.plan.plan import Plan
from workloads import settings
from workloads.append import READERS, AppendWorkload
from workloads.clients.client import until
from workloads.clients.driven.access import DrivenAccess
from workloads.clients.driven.process import Driver
from workloads.clients.driven.runs import spread
from workloads.clients.drivers.transactors import END_S
from workloads.clients.kio.access import KioAccess
from workloads.settings import Setting, number
from workloads.transactions.closing import Closing
from workloads.transactions.identity import Identity, Incarnation
from workloads.transactions.recording import Micro, Record, TransactionRecorder

READERS_FROM: Final = 100_000
#: Of a run there are fewer values than this, and fewer copies of records than int64 has room for.
VALUE_OF_LOOPS: Final = 1 << 32
STANDS_STILL_S: Final = 3.0  # beyond the transaction time-out
#: After its time a transaction is aborted at the next look of its coordinator, which comes every ten seconds.
_ENDED_WITHIN_S: Final = 20.0
#: Settings of its clients that make it what it is.
_OWN: Final = (
    "transactional_id", "transaction_timeout_ms", "enable_idempotence", "group_id", "isolation_level",
    "enable_auto_commit", "auto_offset_reset",
)  # fmt: skip
KILLED: Final = 0.4  # of what strikes an id; the others become zombies
#: What is under way as all is to end is given up after so long: some clients hang (librdkafka, if its transaction
#: coordinator is killed).
_END_WITHIN_S: Final = 20.0
_SHARE_OF_POLLS: Final = 0.4
_POLL_S: Final = 0.5
#: Ids change hands for seconds, in which nobody writes for them. So a partition counts as not served only after ten of
#: these without an acknowledgement,
_TURN_S: Final = 0.5
#: and as silent only beyond this.
_OWN_SILENCE_S: Final = 3.0
_QUIET_S: Final = 20.0


class TransactionsWorkload(AppendWorkload):
    """Transactions send, poll, commit and abort, loops copy exactly once, and zombies come back."""

    can_delete_records: ClassVar[bool] = False
    can_have_short_lived_topics: ClassVar[bool] = False
    takes_producers: ClassVar[bool] = False
    takes_records_per_batch: ClassVar[bool] = False
    idempotent: ClassVar[bool] = True
    log: ClassVar[Mapping[str, Any]] = {"markers": True}
    settings: ClassVar[Mapping[str, Setting]] = {
        "length": number(6, 1, 100, "operations of a transaction, at most"),
        "aborts": number(0.3, 0, 1, "share of transactions that are aborted on purpose"),
        "loops": number(2, 0, 20, "loops that read, process and write; each has an output, of the last partitions"),
        "timeout": number(10, 6, 900, "seconds: transaction.timeout.ms"),
        "zombies": number(8, 0, 3600, "seconds from one process that is killed or stands still to the next; 0: none"),
        "settle": number(40, 1, 3600, "seconds after all faults were healed in which no transaction is open any more"),
    }  # fmt: skip

    def __init__(self, plan: Plan, *given: Any, **named: Any) -> None:
        super().__init__(plan, *given, **named)
        self._wishes = settings.read(self.settings, plan.workload_settings, plan.workload)
        self._transactions = TransactionRecorder(self._recorder, plan.topic)
        self._values = itertools.count()
        self._processes = itertools.count()
        self._copies = itertools.count(1)
        loops = round(self._wishes["loops"])
        self._inputs = list(range(plan.partitions - loops))
        self._outputs = list(range(plan.partitions - loops, plan.partitions))
        self._transactors = [self._transactor(number) for number in range(plan.concurrency)]
        self._loops = [self._loop(number) for number in range(loops)]
        self._identities: dict[int, str] = {}  # transactional.id by process
        self._started: set[int] = set()  # processes of transactors
        self._copied: set[int] = set()  # values of inputs, as the loops have told
        self._looping: asyncio.Task[None] | None = None
        # Reads the logs as they are, markers of transactions included, which others' clients do not tell of.
        self._own = KioAccess(replace(self._session, first_reader=READERS_FROM))

    @classmethod
    def impossible(cls, plan: Plan) -> str | None:
        """Why a plan cannot be carried out with it, as a clause."""
        if not getattr(plan.client_kind, "transactions", False):
            others = "librdkafka, java, kafka-python or aiokafka"
            return f"client {plan.client} has no transactions here; give --client {others}"
        if plan.acks != "all":
            return f"transactions need --acks all, and not {plan.acks}"
        own = [plan.client_kind.own_name(name) for name in _OWN]
        if (given := next((name for name in own if name in plan.client_settings), None)) is not None:
            return f"it has the setting {given} of its clients itself; --client-set leaves it alone"
        wishes = settings.read(cls.settings, plan.workload_settings, plan.workload)
        loops = round(wishes["loops"])
        if plan.partitions < max(2 * loops, 1):
            return f"{loops} loops have an input and an output each at least, and --partitions is {plan.partitions}"
        if wishes["settle"] < wishes["timeout"] + _ENDED_WITHIN_S:
            return (
                f"its setting settle is {wishes['settle']:g} s, and a transaction may rightly be open for its timeout, "
                f"{wishes['timeout']:g} s, and {_ENDED_WITHIN_S:g} s until a coordinator looks"
            )
        return None

    @property
    def final_read_s(self) -> float:
        """What final_read() may take beside reading."""
        return 3 * self._wishes["settle"] + _patience_s(self._wishes) + _END_WITHIN_S + _QUIET_S

    @classmethod
    def transactions(cls, plan: Plan) -> Mapping[str, Any]:
        """As checkers.transactions.runs has it."""
        wishes = settings.read(cls.settings, plan.workload_settings, plan.workload)
        loops = round(wishes["loops"])
        outputs = list(range(plan.partitions - loops, plan.partitions))
        settle_s = wishes["settle"]
        return {
            "outputs": outputs, "value_of_loops": VALUE_OF_LOOPS, "settle_s": settle_s,
            "loops_s": settle_s + _patience_s(wishes),
        }  # fmt: skip

    async def run(self, stop: asyncio.Event) -> None:
        """Loops go on afterwards, until final_read()."""
        self._tally.begin(self._plan.partitions, self._clock(), _TURN_S)
        self._looping = asyncio.create_task(_all(self._loops))
        working = asyncio.create_task(_all(self._transactors))
        beside = [
            *self._own.readers(self._random), self._flush(), self._disturb(Random(f"{self._plan.seed}/zombies")),
            _unless_it_fails(working), _unless_it_fails(self._looping),
        ]  # fmt: skip
        try:
            await until(stop, beside)
            for identity in self._transactors:
                identity.end()
            await _within(_END_WITHIN_S, working)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            self._transactions.flush()

    async def final_read(self) -> None:
        closing = Closing(
            self._client, self._transactions, READERS_FROM + READERS + 2, values=lambda: next(self._values),
            clock=self._clock, wall_clock=self._wall_clock,
        )  # fmt: skip
        # Nothing may come after what closes a log, and the marker of a transaction that nobody ended comes late.
        await self._settle(closing, self._inputs)
        closed = await closing.append(self._inputs)
        with suppress(TimeoutError):  # what loops owe is the checker's to say
            patience = self._wishes["settle"] + _patience_s(self._wishes)
            async with asyncio.timeout(patience if self._loops else 0):
                while not self._copied.issuperset(closed.values()):
                    await asyncio.sleep(_POLL_S)
        await self._end_loops()
        await self._settle(closing, self._outputs)
        closed |= await closing.append(self._outputs)
        await closing.look(sorted(closed))
        await self._read_committed(closed)
        self._transactions.flush()
        await self._own.read_all()

    def facts(self) -> Mapping[str, Any]:
        identities = {str(process): identity for process, identity in self._identities.items()}
        return {**super().facts(), "transactional_ids": identities}

    def served(self) -> Mapping[str, tuple[float, float]]:
        """Of inputs, for an output waits for its one loop; from when the transactors had started."""
        served = super().served()
        names = [f"{self._plan.topic}-{key}" for key in self._inputs]
        return {name: (max(served[name][0] - _OWN_SILENCE_S, 0.0), served[name][1]) for name in names}

    async def _settle(self, closing: Closing, partitions: Sequence[int]) -> None:
        """Until no transaction is open there, or its time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._wishes["settle"]):
                while not await closing.look(partitions):
                    await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        try:
            await self._end_loops()
        finally:
            await self._own.close()
            await super().close()

    async def _end_loops(self) -> None:
        looping, self._looping = self._looping, None
        if looping is None:
            return
        for identity in self._loops:
            identity.end()
        try:
            await _within(_END_WITHIN_S, looping)
        finally:
            self._transactions.flush()

    def _transactor(self, number: int) -> Identity:
        random = Random(f"{self._plan.seed}/transactions/{number}")
        positions = dict.fromkeys(self._inputs, 0)
        make = partial(self._incarnation, f"transactor-{number}", self._inputs, positions)
        return Identity(make, lambda incarnation: self._transact(incarnation, random))

    def _loop(self, number: int) -> Identity:
        mine = [partition for partition in self._inputs if partition % len(self._outputs) == number]
        make = partial(self._incarnation, f"loop-{number}", mine, None)
        return Identity(make, partial(self._copy, self._outputs[number]))

    async def _transact(self, incarnation: Incarnation, random: Random) -> None:
        self._count_from_now(incarnation)
        operations: list[Micro] = []
        for _ in range(random.randint(1, round(self._wishes["length"]))):
            if random.random() < _SHARE_OF_POLLS:
                operations.append(("poll",))
            else:
                operations.append(("send", random.choice(self._inputs), next(self._values)))
        end = "abort" if random.random() < self._wishes["aborts"] else "commit"
        began = self._clock()
        said = await incarnation.transaction(operations, end)
        sends = [operation for operation in operations if operation[0] == "send"]
        self._note(sends, said)
        due = began / 1e9 + len(sends) * self._plan.concurrency / self._plan.rate
        await asyncio.sleep(max(0.0, due - self._clock() / 1e9))

    def _count_from_now(self, incarnation: Incarnation) -> None:
        """What is served is counted from when the last of the first transactors is there: a JVM takes seconds."""
        if len(self._started) < len(self._transactors):
            self._started.add(incarnation.process)
            self._tally.begin(self._plan.partitions, self._clock(), _TURN_S)

    async def _copy(self, output: int, incarnation: Incarnation) -> None:
        sends: list[Micro] = []

        def copied(record: Record) -> Micro:
            sends.append(("send", output, next(self._copies) * VALUE_OF_LOOPS + record[2]))
            return sends[-1]

        said = await incarnation.copy(copied)
        self._note(sends, said)
        if said is not None and said["outcome"] == "ok":
            self._copied |= {value % VALUE_OF_LOOPS for _, _, value in sends}

    def _note(self, sends: Sequence[Micro], said: Mapping[str, Any] | None) -> None:
        if said is None:
            self._tally.appended("info", len(sends), None)
            return
        self._tally.appended(said["outcome"], len(sends), said.get("error"))
        if said["outcome"] == "ok":
            for _, key, _ in sends:
                self._tally.acknowledged(key, self._clock())

    def _incarnation(self, name: str, partitions: Sequence[int], positions: Mapping[int, int] | None) -> Incarnation:
        process = next(self._processes)
        identity = self._identities[process] = f"{self._plan.topic}-{name}"
        access = self._driven
        kind, wishes = self._plan.client_kind, self._wishes
        of_producer = {
            **access.settings("producer"), **kind.transactional(identity, wishes["timeout"]),
            **self._plan.client_settings,
        }  # fmt: skip
        reading = self._reading() | {kind.own_name("group_id"): identity}
        of_consumer = {f"consumer.{name}": value for name, value in reading.items()}
        together = {**of_producer, **of_consumer}
        opening = [{"do": "open", "client": 0, "role": "transactor", "settings": together}]
        driver = access.driver(f"{name}-{process}", lambda: opening)

        def heard(said: Mapping[str, Any]) -> None:
            if said["is"] == "failed":
                is_first = process < len(self._transactors) + len(self._loops)
                driver.cannot_start(kind.unusable(said["error"], said["says"]), is_first=is_first)

        driver.heard = heard
        return Incarnation(
            process, driver, self._transactions, self._plan.topic, positions=positions, partitions=partitions,
            patience_s=_patience_s(wishes), clock=self._clock,
        )  # fmt: skip

    @property
    def _driven(self) -> DrivenAccess:
        assert isinstance(self._access, DrivenAccess), "as impossible() has it"
        return self._access

    def _reading(self) -> dict[str, str]:
        isolation = self._plan.client_kind.own_name("isolation_level")
        return {**self._driven.settings("consumer"), isolation: "read_committed"}

    async def _disturb(self, random: Random) -> None:
        """Until cancelled."""
        every = self._wishes["zombies"]
        identities = [*self._transactors, *self._loops]
        frozen: list[tuple[float, Driver]] = []  # until when
        loop = asyncio.get_running_loop()
        try:
            while every:
                until_next = loop.time() + every * random.uniform(0.5, 1.5)
                while loop.time() < until_next:
                    await asyncio.sleep(min(max(until_next - loop.time(), 0), _POLL_S))
                    for _, driver in [each for each in frozen if each[0] <= loop.time()]:
                        driver.thaw()
                    frozen = [each for each in frozen if each[0] > loop.time()]
                identity, kills = random.choice(identities), random.random() < KILLED
                if kills:
                    if identity.now is not None:
                        identity.now.driver.kill("was killed, as the plan has it")
                    continue
                if identity.now is None or not identity.now.driver.freeze():
                    continue
                # It stands still in the midst of its work; another has its id by the time that it goes on.
                zombie = identity.take_over()
                assert zombie is not None
                frozen.append((loop.time() + self._wishes["timeout"] + STANDS_STILL_S, zombie.driver))
            await asyncio.Event().wait()
        finally:
            for _, driver in frozen:
                driver.thaw()

    async def _flush(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_POLL_S)
            self._transactions.flush()

    async def _read_committed(self, closed: Mapping[int, int]) -> None:
        """By the client, from the start of each log until what closes it; or as long as anything comes."""
        invoke = self._clock()
        left = dict(closed)
        polled: list[Record] = []
        heard_at = self._clock()
        process = READERS_FROM + READERS + 1
        opening: list[Mapping[str, Any]] = [
            {"do": "open", "client": 0, "role": "consumer", "settings": dict(self._reading())},
            {
                "do": "assign", "client": 0, "topic": self._plan.topic,
                "positions": {str(partition): 0 for partition in closed},
            },
        ]  # fmt: skip
        driver = self._driven.driver("committed-read", lambda: opening)

        def heard(said: Mapping[str, Any]) -> None:
            nonlocal heard_at
            if said["is"] != "read":
                return
            heard_at = self._clock()
            offsets, values = spread(said["runs"])
            polled.extend((said["partition"], int(o), int(v)) for o, v in zip(offsets, values, strict=True))
            if left.get(said["partition"]) in values.tolist():
                del left[said["partition"]]

        def lost(how: str) -> None:  # the next one begins anew
            polled.clear()
            left.update(closed)

        driver.heard, driver.lost = heard, lost
        op = self._transactions.begin(process, [("poll",)], invoke)
        running = asyncio.create_task(driver.run())
        try:
            while left and self._clock() - heard_at < _QUIET_S * 1e9:
                await asyncio.sleep(0.1)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            self._transactions.end(op, self._clock(), "ok", polled={0: polled})


def _patience_s(wishes: Mapping[str, Any]) -> float:
    """What one answer of a process may take: it may stand still, and what its client cannot do within the transaction's
    time-out, or two of its own, is of no use any more."""
    return float(wishes["timeout"]) + STANDS_STILL_S + 2 * END_S


async def _all(identities: Sequence[Identity]) -> None:
    async with asyncio.TaskGroup() as group:
        for identity in identities:
            group.create_task(identity.run())


async def _within(seconds: float, task: asyncio.Task[None]) -> None:
    """Or cancelled: each of its transactions is on record as indeterminate then. Raises what the task does."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await task


async def _unless_it_fails(task: asyncio.Future[Any]) -> None:
    """Until cancelled; raises what the task does."""
    await asyncio.shield(task)
    await asyncio.Event().wait()
