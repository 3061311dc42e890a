"""Drives kafka-python."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError

from workloads.clients.drivers.driver import int64, key_of, typed
from workloads.clients.drivers.members import COMMIT_S, MemberWorker
from workloads.clients.drivers.threads import TURN_S, Command, ConsumerWorker, ProducerWorker, describe, serve
from workloads.clients.drivers.transactors import END_S, Polled, TransactorWorker, split

_ASSIGNORS = {
    "range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}  # fmt: skip
_VERSION = f"kafka-python {kafka.__version__}"


class KafkaPythonProducer(ProducerWorker):
    def open(self, settings: Mapping[str, str]) -> str:
        # What it tells of deliveries, it tells in a thread of its own.
        self._telling = threading.Lock()
        self._producer = KafkaProducer(**typed(settings, KafkaProducer.DEFAULT_CONFIG))
        return _VERSION

    def do_produce(self, command: Command) -> None:
        topic, partition, first, keys = command["topic"], command["partition"], command["first"], command["keys"]
        for value in range(first, first + command["count"]):
            try:
                sent = self._producer.send(
                    topic, value.to_bytes(8, signed=True), key_of(value, keys), partition=partition
                )
            except Exception as error:
                self._tell(value, -1, (*describe(error), "send"))
                continue
            sent.add_callback(self._delivered, value)
            sent.add_errback(self._failed, value)

    def _delivered(self, value: int, metadata: Any) -> None:
        self._tell(value, metadata.offset)

    def _failed(self, value: int, error: Exception) -> None:
        self._tell(value, -1, (*describe(error), "delivery"))

    def _tell(self, value: int, offset: int, error: tuple[str, str, str] | None = None) -> None:
        with self._telling:
            self.deliveries.add(value, offset, error and (error[0], error[2], error[1]))

    def turn(self) -> None:
        if self.commands.empty():
            time.sleep(TURN_S / 4)
        with self._telling:
            self.deliveries.tell()

    def flush(self, seconds: float) -> None:
        try:
            self._producer.flush(seconds)
        except KafkaError as error:  # it took too long: each record tells of itself
            logging.warning("flush: %s", error)

    def close(self, seconds: float) -> None:
        self._producer.close(seconds)


class KafkaPythonConsumer(ConsumerWorker):
    def open(self, settings: Mapping[str, str]) -> str:
        self._consumer = KafkaConsumer(**typed(settings, KafkaConsumer.DEFAULT_CONFIG))
        return _VERSION

    def assign(self, positions: Mapping[int, int]) -> None:
        self._consumer.assign([TopicPartition(self.topic, p) for p in positions])
        for p, offset in positions.items():
            self._consumer.seek(TopicPartition(self.topic, p), offset)

    def poll(self) -> None:
        invoke = time.monotonic_ns()
        try:
            polled = self._consumer.poll(timeout_ms=round(TURN_S * 1000))
        except KafkaError as error:
            name, says = describe(error)
            for place in _places(error):
                self.positions.stuck(place, name, says)
            time.sleep(TURN_S)
            return
        records = {
            place.partition: [(each.offset, int64(each.value)) for each in found] for place, found in polled.items()
        }
        if records:
            self.positions.told(records, invoke)

    def offsets(self, topic: str, partitions: list[int], which: str, seconds: float) -> dict[int, int]:
        ask = self._consumer.beginning_offsets if which == "earliest" else self._consumer.end_offsets
        found = ask([TopicPartition(topic, p) for p in partitions], timeout_ms=round(seconds * 1000))
        return {place.partition: offset for place, offset in found.items()}

    def close(self, seconds: float) -> None:
        self._consumer.close()


class KafkaPythonMember(MemberWorker, ConsumerRebalanceListener):  # type: ignore[misc]
    def open(self, settings: Mapping[str, str]) -> str:
        given = typed(settings, KafkaConsumer.DEFAULT_CONFIG)
        if isinstance(strategy := given.get("partition_assignment_strategy"), str):
            given["partition_assignment_strategy"] = [_ASSIGNORS[strategy]]
        self._consumer = KafkaConsumer(**given)
        return _VERSION

    def generation(self) -> int | None:
        if not hasattr(self, "_consumer"):
            return None
        generation: int = self._consumer.group_metadata().generation_id
        return generation

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic], listener=self)

    def gather(self) -> None:
        try:
            polled = self._consumer.poll(timeout_ms=round(TURN_S * 1000))
        except KafkaError as error:
            logging.warning("poll: %s: %s", *describe(error))
            time.sleep(TURN_S)
            return
        for place, found in polled.items():
            self.gathered[place.partition] = [(each.offset, int64(each.value)) for each in found]

    def commit_now(self, offsets: Mapping[int, int]) -> None:
        self._consumer.commit(self._places(offsets), timeout_ms=round(COMMIT_S * 1000))

    def commit_soon(self, offsets: Mapping[int, int], number: int) -> None:
        def ended(_: Any, answer: Any) -> None:
            failed = isinstance(answer, Exception)
            self.commit_ended(number, *(describe(answer) if failed else ()))

        self._consumer.commit_async(self._places(offsets), callback=ended)

    def committed(self, topic: str, partitions: Iterable[int], seconds: float) -> Mapping[int, int | None]:
        patience = round(seconds * 1000)
        return {p: self._consumer.committed(TopicPartition(topic, p), timeout_ms=patience) for p in partitions}

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.given(place.partition for place in assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.revoked(place.partition for place in revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self.lost(place.partition for place in lost)

    def close(self, seconds: float) -> None:
        self._consumer.close()

    def _places(self, offsets: Mapping[int, int]) -> dict[Any, Any]:
        return {TopicPartition(self.topic, p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}


class KafkaPythonTransactor(TransactorWorker):
    def open(self, settings: Mapping[str, str]) -> str:
        of_producer, of_consumer = split(settings)
        self._producer = KafkaProducer(**typed(of_producer, KafkaProducer.DEFAULT_CONFIG))
        self._consumer = KafkaConsumer(**typed(of_consumer, KafkaConsumer.DEFAULT_CONFIG))
        self._failed: list[Exception] = []
        return _VERSION

    def init(self) -> None:
        self._producer.init_transactions()

    def begin(self) -> None:
        self._failed.clear()
        self._producer.begin_transaction()

    def send(self, partition: int, value: int, sent: dict[int, int]) -> None:
        future = self._producer.send(self.topic, value.to_bytes(8, signed=True), partition=partition)
        future.add_callback(lambda metadata: sent.__setitem__(value, metadata.offset))
        future.add_errback(self._failed.append)

    def flush(self) -> None:
        self._producer.flush(END_S)
        if self._failed:
            raise self._failed[0]

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        places = {TopicPartition(self.topic, p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}
        self._producer.send_offsets_to_transaction(places, self._consumer.group_metadata())

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def assign(self, positions: Mapping[int, int]) -> None:
        self._consumer.assign([TopicPartition(self.topic, p) for p in positions])
        for p, offset in positions.items():
            self._consumer.seek(TopicPartition(self.topic, p), offset)

    def poll(self, seconds: float) -> Polled:
        polled = self._consumer.poll(timeout_ms=round(seconds * 1000))
        return [
            (place.partition, each.offset, int64(each.value)) for place, found in polled.items() for each in found
        ]  # fmt: skip

    def committed(self, partitions: Sequence[int], seconds: float) -> Mapping[int, int]:
        patience = round(seconds * 1000)
        return {
            p: self._consumer.committed(TopicPartition(self.topic, p), timeout_ms=patience) or 0 for p in partitions
        }  # fmt: skip

    def close(self, seconds: float) -> None:
        self._producer.close(seconds)
        self._consumer.close()


def _places(error: Exception) -> list[int | None]:
    """The partitions that an OffsetOutOfRangeError names; another error is of all."""
    named = error.args[0] if error.args else None
    if isinstance(named, Mapping):
        return [place.partition for place in named if isinstance(place, TopicPartition)] or [None]
    return [None]


def _check(settings: Mapping[str, str]) -> str | None:
    known = {**KafkaConsumer.DEFAULT_CONFIG, **KafkaProducer.DEFAULT_CONFIG}
    for name in settings:
        if name not in known:
            return f"{name}: kafka-python has no such setting"
    try:
        typed(settings, known)
    except ValueError as error:
        return str(error)
    return None


if __name__ == "__main__":
    serve(
        {
            "producer": KafkaPythonProducer, "consumer": KafkaPythonConsumer, "member": KafkaPythonMember,
            "transactor": KafkaPythonTransactor,
        },
        _check,
    )  # fmt: skip
