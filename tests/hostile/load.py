"""librdkafka, in a process of its own: it produces with acks=all, and tells when each record was acknowledged."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any, Final

#: Records a second, all partitions together.
RATE: Final = 300
PARTITIONS: Final = 3


def produce(bootstrap: str, topic: str, pipe: Connection) -> None:
    """Until something comes by the pipe. Then it goes back by it: (time sent, seconds it took) of each record, as
    time.monotonic() has it; errors; and by partition the next offset after the last record that was acknowledged."""
    from confluent_kafka import Producer

    acknowledged: list[tuple[float, float]] = []
    errors: list[str] = []
    ends: dict[int, int] = {}

    def delivered(sent: float) -> Any:
        def note(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error.str())
                return
            acknowledged.append((sent, time.monotonic() - sent))
            ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)

        return note

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
    )
    due, number = time.monotonic(), 0
    while not pipe.poll():
        number += 1
        note = delivered(time.monotonic())
        producer.produce(topic, value=b"%d" % number, partition=number % PARTITIONS, on_delivery=note)
        due = max(due + 1 / RATE, time.monotonic() - 1)
        while True:
            producer.poll(max(due - time.monotonic(), 0))
            if time.monotonic() >= due:
                break
    left = producer.flush(60)
    pipe.send((acknowledged, errors + ["never answered"] * left, ends))
