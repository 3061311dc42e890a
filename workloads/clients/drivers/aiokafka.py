"""Drives aiokafka: all clients of the process in one event loop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from workloads.clients.drivers.driver import Deliveries, Output, Positions, decode, int64, key_of, typed
from workloads.clients.drivers.members import COMMIT_S, MemberWorker
from workloads.clients.drivers.threads import TURN_S, Worker, run_worker
from workloads.clients.drivers.transactors import END_S, Polled, TransactorWorker, split

_VERSION = f"aiokafka {aiokafka.__version__}"
_TURN_S = 0.1
_OF_A_MEMBER = 500  # most records that a member deals with before it polls again
_ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
_LONGEST_LINE = 64 << 20
Command = dict[str, Any]


def _defaults(kind: Any) -> Mapping[str, Any]:
    parameters = inspect.signature(kind.__init__).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}


def _typed(settings: Mapping[str, str], kind: Any) -> dict[str, Any]:
    """As it takes them; of TLS it takes an SSLContext, which is made of settings such as kafka-python has."""
    found = typed(settings, _defaults(kind))
    if settings.get("security_protocol", "").endswith("SSL"):
        context = ssl.create_default_context(cafile=settings.get("ssl_cafile"))
        context.check_hostname = settings["ssl_check_hostname"] == "true"
        if "ssl_certfile" in settings:
            password = settings.get("ssl_password", "")
            context.load_cert_chain(settings["ssl_certfile"], settings["ssl_keyfile"], password=lambda: password)
        found["ssl_context"] = context
    return found


def _describe(error: BaseException) -> tuple[str, str]:
    return type(error).__name__, str(error)[:500]


class Producer:
    """Batches of one partition are sent in order; one that cannot be sent holds up no other."""

    def __init__(self, output: Output, number: int) -> None:
        self._output = output
        self._number = number
        self._deliveries = Deliveries(output)
        self._queues: dict[tuple[str, int], asyncio.Queue[Command]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, settings: Mapping[str, str]) -> None:
        self._producer = AIOKafkaProducer(**_typed(settings, AIOKafkaProducer))
        await self._producer.start()
        self._spawn(self._tell())

    def do_produce(self, command: Command) -> None:
        place = command["topic"], command["partition"]
        if place not in self._queues:
            self._queues[place] = asyncio.Queue()
            self._spawn(self._send_all(*place))
        self._queues[place].put_nowait(command)

    async def do_flush(self, command: Command) -> None:
        try:
            async with asyncio.timeout(command["seconds"]):
                await self._producer.flush()
        except (TimeoutError, KafkaError):
            traceback.print_exc()
        self._deliveries.tell()
        self._output.say("flushed", client=self._number)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(_must_not_fail)

    async def _send_all(self, topic: str, partition: int) -> None:
        while True:
            command = await self._queues[topic, partition].get()
            keys = command["keys"]
            for value in range(command["first"], command["first"] + command["count"]):
                try:
                    sent = await self._producer.send(
                        topic, value.to_bytes(8, signed=True), key_of(value, keys), partition=partition
                    )
                except Exception as error:
                    name, says = _describe(error)
                    self._deliveries.add(value, -1, (name, "send", says))
                else:
                    sent.add_done_callback(lambda future, value=value: self._delivered(value, future))

    def _delivered(self, value: int, future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self._deliveries.add(value, future.result().offset)
        else:
            name, says = _describe(error)
            self._deliveries.add(value, -1, (name, "delivery", says))

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(0.005)
            self._deliveries.tell()


class Consumer:
    def __init__(self, output: Output, number: int) -> None:
        self._output = output
        self._positions = Positions(output, number)
        self._reading: asyncio.Task[None] | None = None

    async def open(self, settings: Mapping[str, str]) -> None:
        self._consumer = AIOKafkaConsumer(**_typed(settings, AIOKafkaConsumer))
        await self._consumer.start()

    async def do_assign(self, command: Command) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        positions = {int(partition): offset for partition, offset in command["positions"].items()}
        self._positions.assign(positions)
        self._consumer.assign([TopicPartition(command["topic"], p) for p in positions])
        for p, offset in positions.items():
            self._consumer.seek(TopicPartition(command["topic"], p), offset)
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(_must_not_fail)

    async def _read(self) -> None:
        while True:
            invoke = time.monotonic_ns()
            try:
                polled = await self._consumer.getmany(timeout_ms=round(_TURN_S * 1000))
            except OffsetOutOfRangeError as error:
                for place in error.args[0]:
                    self._positions.stuck(place.partition, *_describe(error))
                await asyncio.sleep(_TURN_S)
                continue
            except KafkaError as error:
                self._positions.stuck(None, *_describe(error))
                await asyncio.sleep(_TURN_S)
                continue
            records = {
                place.partition: [(each.offset, int64(each.value)) for each in found] for place, found in polled.items()
            }
            if records:
                self._positions.told(records, invoke)

    async def do_offsets(self, command: Command) -> None:
        places = [TopicPartition(command["topic"], p) for p in command["partitions"]]
        ask = self._consumer.beginning_offsets if command["which"] == "earliest" else self._consumer.end_offsets
        invoke = time.monotonic_ns()
        try:
            async with asyncio.timeout(command["seconds"]):
                found = await ask(places)
        except (TimeoutError, KafkaError) as error:
            name, says = _describe(error)
            result: dict[str, Any] = {"error": name, "says": says}
        else:
            result = {"offsets": {place.partition: offset for place, offset in found.items()}}
        self._output.say("offsets", id=command["id"], invoke=invoke, complete=time.monotonic_ns(), **result)


class Member(MemberWorker, ConsumerRebalanceListener):  # type: ignore[misc]
    """In a thread and an event loop of its own, which runs while it polls and commits: so does one whose handlers
    block."""

    def open(self, settings: Mapping[str, str]) -> str:
        self._loop = asyncio.new_event_loop()
        given = _typed(settings, AIOKafkaConsumer)
        if isinstance(strategy := given.get("partition_assignment_strategy"), str):
            given["partition_assignment_strategy"] = [_ASSIGNORS[strategy]]
        self._loop.run_until_complete(self._start(given))
        return _VERSION

    async def _start(self, settings: Mapping[str, Any]) -> None:
        self._consumer = AIOKafkaConsumer(**settings)
        await self._consumer.start()

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic], listener=self)

    def gather(self) -> None:
        try:
            polled = self._wait(self._consumer.getmany(timeout_ms=round(TURN_S * 1000), max_records=_OF_A_MEMBER))
        except KafkaError as error:
            logging.warning("getmany: %s: %s", *_describe(error))
            self._wait(asyncio.sleep(TURN_S))
            return
        for place, found in polled.items():
            self.gathered[place.partition] = [(each.offset, int64(each.value)) for each in found]

    def commit_now(self, offsets: Mapping[int, int]) -> None:
        places = {TopicPartition(self.topic, p): offset for p, offset in offsets.items()}
        self._wait(asyncio.wait_for(self._consumer.commit(places), COMMIT_S))

    def commit_soon(self, offsets: Mapping[int, int], number: int) -> None:
        raise NotImplementedError("aiokafka has no commit that is not waited for")

    def committed(self, topic: str, partitions: Iterable[int], seconds: float) -> Mapping[int, int | None]:
        found: Mapping[int, int | None] = self._wait(self._committed(topic, partitions, seconds))
        return found

    async def _committed(self, topic: str, partitions: Iterable[int], seconds: float) -> dict[int, int | None]:
        async with asyncio.timeout(seconds):
            return {p: await self._consumer.committed(TopicPartition(topic, p)) for p in partitions}

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        invoke = time.monotonic_ns()
        partitions = [place.partition for place in assigned]
        found: Mapping[int, int | None] = {}
        try:
            found = await self._committed(self.topic, partitions, COMMIT_S)
        except (TimeoutError, KafkaError) as error:  # then nobody can say whether it begins at the start on purpose
            logging.warning("committed: %s: %s", *_describe(error))
        self.tell_given(partitions, invoke, found)

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Nothing is under way then: what was handed over is dealt with before the loop runs again."""
        self.revoked(place.partition for place in revoked)

    def close(self, seconds: float) -> None:
        self._wait(asyncio.wait_for(self._consumer.stop(), seconds))

    def _wait(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)


class Transactor(TransactorWorker):
    """As Member is."""

    def open(self, settings: Mapping[str, str]) -> str:
        self._loop = asyncio.new_event_loop()
        of_producer, of_consumer = split(settings)
        self._wait(self._start(of_producer, of_consumer))
        self._sent: list[asyncio.Future[Any]] = []
        return _VERSION

    async def _start(self, of_producer: Mapping[str, str], of_consumer: Mapping[str, str]) -> None:
        self._producer = AIOKafkaProducer(**_typed(of_producer, AIOKafkaProducer))
        self._consumer = AIOKafkaConsumer(**_typed(of_consumer, AIOKafkaConsumer))
        await self._consumer.start()

    def init(self) -> None:
        self._wait(self._producer.start())  # which asks for the producer id

    def begin(self) -> None:
        self._sent.clear()
        self._wait(self._producer.begin_transaction())

    def send(self, partition: int, value: int, sent: dict[int, int]) -> None:
        def delivered(future: asyncio.Future[Any]) -> None:
            if future.exception() is None:
                sent[value] = future.result().offset

        future = self._wait(self._producer.send(self.topic, value.to_bytes(8, signed=True), partition=partition))
        future.add_done_callback(delivered)
        self._sent.append(future)

    def flush(self) -> None:
        async def all_sent() -> None:
            async with asyncio.timeout(END_S):
                await asyncio.gather(*self._sent)

        self._wait(all_sent())

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        places = {TopicPartition(self.topic, p): offset for p, offset in offsets.items()}
        group = self._consumer._group_id
        self._wait(self._producer.send_offsets_to_transaction(places, group))

    def commit(self) -> None:
        self._wait(self._producer.commit_transaction())

    def abort(self) -> None:
        self._wait(self._producer.abort_transaction())

    def assign(self, positions: Mapping[int, int]) -> None:
        async def seek() -> None:
            self._consumer.assign([TopicPartition(self.topic, p) for p in positions])
            for p, offset in positions.items():
                self._consumer.seek(TopicPartition(self.topic, p), offset)

        self._wait(seek())

    def poll(self, seconds: float) -> Polled:
        polled = self._wait(self._consumer.getmany(timeout_ms=round(seconds * 1000), max_records=_OF_A_MEMBER))
        return [
            (place.partition, each.offset, int64(each.value)) for place, found in polled.items() for each in found
        ]  # fmt: skip

    def committed(self, partitions: Sequence[int], seconds: float) -> Mapping[int, int]:
        async def ask() -> dict[int, int]:
            self._consumer.assign([TopicPartition(self.topic, p) for p in partitions])
            async with asyncio.timeout(seconds):
                return {p: await self._consumer.committed(TopicPartition(self.topic, p)) or 0 for p in partitions}

        found: Mapping[int, int] = self._wait(ask())
        return found

    def turn(self) -> None:
        self._wait(asyncio.sleep(TURN_S / 4))

    def close(self, seconds: float) -> None:
        self._wait(asyncio.wait_for(self._producer.stop(), seconds))
        self._wait(asyncio.wait_for(self._consumer.stop(), seconds))

    def _wait(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)


#: Those that have a thread, and an event loop, of their own.
_IN_THREADS = {"member": Member, "transactor": Transactor}


def _must_not_fail(task: asyncio.Task[None]) -> None:
    """A client whose task fails is a client that crashed: the process ends with it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        traceback.print_exception(error)
        os._exit(1)


def _check(settings: Mapping[str, str]) -> str | None:
    known = {**_defaults(AIOKafkaConsumer), **_defaults(AIOKafkaProducer)}
    for name in settings:
        if name not in known:
            return f"{name}: aiokafka has no such setting"
    try:
        typed(settings, known)
    except ValueError as error:
        return str(error)
    return None


def _serve_worker(output: Output, opening: Command) -> Worker:
    worker: Worker = _IN_THREADS[opening["role"]](output, opening["client"])
    threading.Thread(target=run_worker, args=(worker, opening["settings"]), daemon=True).start()
    return worker


async def _serve_client(output: Output, opening: Command, commands: asyncio.Queue[Command]) -> None:
    number = opening["client"]
    client = (Producer if opening["role"] == "producer" else Consumer)(output, number)
    try:
        await client.open(opening["settings"])
    except Exception as error:
        traceback.print_exc()
        name, says = _describe(error)
        output.say("failed", client=number, error=name, says=says)
        return
    output.say("opened", client=number, says=_VERSION)
    while True:
        command = await commands.get()
        result = getattr(client, f"do_{command['do']}")(command)
        if inspect.isawaitable(result):
            await result


async def _main() -> None:
    output = Output()
    reader = asyncio.StreamReader(_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    queues: dict[int, Any] = {}  # some are of threads
    tasks = []
    async for line in reader:
        command = decode(line)
        if command["do"] == "check":
            output.say("checked", problem=_check(command["settings"]))
        elif command["do"] == "open" and command["role"] in _IN_THREADS:
            queues[command["client"]] = _serve_worker(output, command).commands
        elif command["do"] == "open":
            queue = queues[command["client"]] = asyncio.Queue()
            tasks.append(asyncio.create_task(_serve_client(output, command, queue)))
            tasks[-1].add_done_callback(_must_not_fail)
        else:
            queue = queues[command["client"]]
            queue.put(command) if isinstance(queue, SimpleQueue) else queue.put_nowait(command)
    os._exit(0)  # whatever clients still wait for


if __name__ == "__main__":
    asyncio.run(_main())
