"""librdkafka, in a process of its own: it produces with acks=all, and tells when each record was acknowledged."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any, Final

#: Records a second, all partitions together. A connection has one produce request answered at a time (as in Kafka), in
#: some 5 ms when all is quiet: its requests are under way half of the time, and what doubles that makes a queue.
RATE: Final = 300
PARTITIONS: Final = 3


def produce(bootstrap: str, topic: str, pipe: Connection) -> None:
    """By the pipe come pairs of times, as time.monotonic() has them: how many seconds each record took that was sent
    between them goes back; of those that have no answer yet, so far. Until None comes: then the number of records that
    were acknowledged, errors, and by partition the next offset after the last of them."""
    from confluent_kafka import Producer

    took: dict[float, float | None] = {}  # by the time sent
    errors: list[str] = []
    ends: dict[int, int] = {}

    def delivered(sent: float) -> Any:
        def note(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error.str())
                return
            took[sent] = time.monotonic() - sent
            ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)

        return note

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
    )
    due, number = time.monotonic(), 0
    while True:
        if pipe.poll():
            asked = pipe.recv()
            if asked is None:
                break
            now = time.monotonic()
            pipe.send([now - at if s is None else s for at, s in took.items() if asked[0] <= at <= asked[1]])
        number += 1
        sent = time.monotonic()
        took[sent] = None
        note = delivered(sent)
        producer.produce(topic, value=b"%d" % number, partition=number % PARTITIONS, on_delivery=note)
        due = max(due + 1 / RATE, time.monotonic() - 1)
        while True:
            producer.poll(max(due - time.monotonic(), 0))
            if time.monotonic() >= due:
                break
    left = producer.flush(60)
    pipe.send((sum(seconds is not None for seconds in took.values()), errors + ["never answered"] * left, ends))
