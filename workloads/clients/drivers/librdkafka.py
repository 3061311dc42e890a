"""Drives librdkafka, by confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from workloads.clients.drivers.driver import int64, key_of
from workloads.clients.drivers.members import MemberWorker
from workloads.clients.drivers.threads import TURN_S, Command, ConsumerWorker, Failure, ProducerWorker, serve
from workloads.clients.drivers.transactors import END_S, Polled, TransactorWorker, split

_VERSION = f"librdkafka {confluent_kafka.libversion()[0]}, confluent-kafka {confluent_kafka.__version__}"
#: Most records that one poll hands over.
_AT_ONCE = 10_000
#: ... and that a member deals with before it polls again.
_OF_A_MEMBER = 500


def _name(error: Any) -> str:
    """Of a KafkaError, as librdkafka has it: of its own with an underscore before it."""
    return str(error.name())


class LibrdkafkaProducer(ProducerWorker):
    def open(self, settings: Mapping[str, str]) -> str:
        self._producer = Producer(dict(settings))
        return _VERSION

    def do_produce(self, command: Command) -> None:
        topic, partition, first, keys = command["topic"], command["partition"], command["first"], command["keys"]
        produce, delivered = self._producer.produce, self._delivered
        for value in range(first, first + command["count"]):
            try:
                produce(topic, value.to_bytes(8, signed=True), key_of(value, keys), partition, delivered)
            except BufferError as error:
                self.deliveries.add(value, -1, ("_QUEUE_FULL", "send", str(error)))
            except KafkaException as error:
                told = error.args[0]
                self.deliveries.add(value, -1, (_name(told), "send", told.str()))
        self._producer.poll(0)
        self.deliveries.tell()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.deliveries.add(int64(message.value()), message.offset())
        else:
            self.deliveries.add(int64(message.value()), -1, (_name(error), "delivery", error.str()))

    def turn(self) -> None:
        self._producer.poll(TURN_S if self.commands.empty() else 0)
        self.deliveries.tell()

    def flush(self, seconds: float) -> None:
        self._producer.flush(seconds)

    def close(self, seconds: float) -> None:
        self._producer.flush(seconds)
        self.deliveries.tell()


class LibrdkafkaConsumer(ConsumerWorker):
    def open(self, settings: Mapping[str, str]) -> str:
        self._consumer = Consumer(dict(settings))
        return _VERSION

    def assign(self, positions: Mapping[int, int]) -> None:
        self._consumer.assign([TopicPartition(self.topic, p, offset) for p, offset in positions.items()])

    def poll(self) -> None:
        invoke = time.monotonic_ns()
        records: dict[int, list[tuple[int, int]]] = defaultdict(list)
        message: Any  # its stubs have every field as perhaps None
        for message in self._consumer.consume(_AT_ONCE, TURN_S):
            error = message.error()
            if error is None:
                records[message.partition()].append((message.offset(), int64(message.value())))
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # it looks for a coordinator in any case
                partition = message.partition() if message.topic() == self.topic else None
                self.positions.stuck(partition, _name(error), error.str())
        if records:
            self.positions.told(records, invoke)

    def offsets(self, topic: str, partitions: list[int], which: str, seconds: float) -> dict[int, int]:
        found = {}
        for partition in partitions:
            try:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), seconds)
            except KafkaException as error:
                raise Failure(_name(error.args[0]), error.args[0].str()) from None
            found[partition] = low if which == "earliest" else high
        return found

    def close(self, seconds: float) -> None:
        self._consumer.close()


class LibrdkafkaMember(MemberWorker):
    def open(self, settings: Mapping[str, str]) -> str:
        self._consumer = Consumer({**settings, "on_commit": self._on_commit})
        self._under_way: list[int] = []  # commits without an answer, in the order in which they are answered
        return _VERSION

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe(
            [topic],
            on_assign=lambda _, places: self.given(place.partition for place in places),
            on_revoke=lambda _, places: self.revoked(place.partition for place in places),
            on_lost=lambda _, places: self.lost(place.partition for place in places),
        )

    def gather(self) -> None:
        """One by one: of a batch, those before a rebalance might come after it."""
        patience = TURN_S
        for _ in range(_OF_A_MEMBER):
            message: Any = self._consumer.poll(patience)
            if message is None:
                return
            patience = 0
            if message.error() is not None:
                logging.warning("%s", message.error())
                continue
            self.gathered.setdefault(message.partition(), []).append((message.offset(), int64(message.value())))

    def commit_now(self, offsets: Mapping[int, int]) -> None:
        try:
            answered: Any = self._consumer.commit(offsets=self._places(offsets), asynchronous=False)
        except KafkaException as error:
            raise Failure(_name(error.args[0]), error.args[0].str()) from None
        for place in answered or ():
            if place.error is not None:
                raise Failure(_name(place.error), place.error.str())

    def commit_soon(self, offsets: Mapping[int, int], number: int) -> None:
        try:
            self._consumer.commit(offsets=self._places(offsets), asynchronous=True)
        except KafkaException as error:
            self.commit_ended(number, _name(error.args[0]), error.args[0].str())
        else:
            self._under_way.append(number)

    def _on_commit(self, error: Any, places: Any) -> None:
        if not self._under_way:  # of a commit that was waited for, or of its own
            return
        failure = error or next((place.error for place in places or () if place.error is not None), None)
        number = self._under_way.pop(0)
        self.commit_ended(number, None if failure is None else _name(failure), "" if failure is None else failure.str())

    def committed(self, topic: str, partitions: Iterable[int], seconds: float) -> Mapping[int, int | None]:
        try:
            found: Any = self._consumer.committed([TopicPartition(topic, p) for p in partitions], seconds)
        except KafkaException as error:
            raise Failure(_name(error.args[0]), error.args[0].str()) from None
        for place in found:
            if place.error is not None:
                raise Failure(_name(place.error), place.error.str())
        return {place.partition: place.offset if place.offset >= 0 else None for place in found}

    def close(self, seconds: float) -> None:
        self._consumer.close()

    def _places(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]


class LibrdkafkaTransactor(TransactorWorker):
    def open(self, settings: Mapping[str, str]) -> str:
        of_producer, of_consumer = split(settings)
        self._producer = Producer(of_producer)
        self._consumer = Consumer(of_consumer)
        self._failed: list[Any] = []
        return _VERSION

    def init(self) -> None:
        self._producer.init_transactions(END_S)

    def begin(self) -> None:
        self._failed.clear()
        self._producer.begin_transaction()

    def send(self, partition: int, value: int, sent: dict[int, int]) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                sent[value] = message.offset()
            else:
                self._failed.append(error)

        self._producer.produce(self.topic, value.to_bytes(8, signed=True), None, partition, delivered)

    def flush(self) -> None:
        left = self._producer.flush(END_S)
        if self._failed or left:
            raise KafkaException(self._failed[0] if self._failed else KafkaError(KafkaError._TIMED_OUT))

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        places = [TopicPartition(self.topic, p, offset) for p, offset in offsets.items()]
        self._producer.send_offsets_to_transaction(places, self._consumer.consumer_group_metadata(), END_S)

    def commit(self) -> None:
        self._producer.commit_transaction(END_S)

    def abort(self) -> None:
        self._producer.abort_transaction(END_S)

    def assign(self, positions: Mapping[int, int]) -> None:
        self._consumer.assign([TopicPartition(self.topic, p, offset) for p, offset in positions.items()])

    def poll(self, seconds: float) -> Polled:
        records = []
        message: Any
        for message in self._consumer.consume(_OF_A_MEMBER, seconds):
            error = message.error()
            if error is None:
                records.append((message.partition(), message.offset(), int64(message.value())))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
            else:
                logging.warning("%s", error)
        return records

    def committed(self, partitions: Sequence[int], seconds: float) -> Mapping[int, int]:
        places = self._consumer.committed([TopicPartition(self.topic, p) for p in partitions], seconds)
        for place in places:
            if place.error is not None:
                raise KafkaException(place.error)
        return {place.partition: max(place.offset, 0) for place in places}  # negative: nothing is

    def close(self, seconds: float) -> None:
        self._producer.flush(seconds)
        self._consumer.close()


def _check(settings: Mapping[str, str]) -> str | None:
    for name, value in settings.items():
        for kind, others in ((Producer, {}), (Consumer, {"group.id": "check"})):
            try:
                kind({**others, name: value, "log_level": 0})
            except KafkaException as error:
                return f"{name}={value}: {error.args[0].str()}"
            except (TypeError, ValueError) as error:
                return f"{name}={value}: {error}"
    return None


if __name__ == "__main__":
    serve(
        {
            "producer": LibrdkafkaProducer, "consumer": LibrdkafkaConsumer, "member": LibrdkafkaMember,
            "transactor": LibrdkafkaTransactor,
        },
        _check,
    )  # fmt: skip
