"""Drives kafka-python."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from workloads.clients.drivers.driver import int64, key_of, typed
from workloads.clients.drivers.threads import TURN_S, Command, ConsumerWorker, ProducerWorker, describe, serve

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
    serve({"producer": KafkaPythonProducer, "consumer": KafkaPythonConsumer}, _check)
