"""librdkafka with members that do one thing wrong: python -m tests.workloads.clients.faulty_members FAULT.

| fault | its members |
| --- | --- |
| commits-early | commit before they process, in a group that says after |
| skips | begin 20 records beyond what is committed |
| commits-back | commit an offset 30 below where they are, every tenth time |
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import TopicPartition

from workloads.clients.drivers.librdkafka import LibrdkafkaConsumer, LibrdkafkaMember, LibrdkafkaProducer
from workloads.clients.drivers.threads import serve

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""


class CommitsEarly(LibrdkafkaMember):
    def deal_with_gathered(self) -> None:
        records, self.gathered = self.gathered, {}
        if records:
            self._tell_polled(records)
            self._commit_sync({partition: found[-1][0] + 1 for partition, found in records.items()})
            self.process(records)


class Skips(LibrdkafkaMember):
    def given(self, partitions: Iterable[int]) -> None:
        partitions = list(partitions)
        super().given(partitions)
        found = self.committed(self.topic, partitions, 5.0)
        consumer: Any = self._consumer
        consumer.assign([TopicPartition(self.topic, p, (found[p] or 0) + 20) for p in partitions])


class CommitsBack(LibrdkafkaMember):
    _count = 0

    def _commit_sync(self, offsets: Mapping[int, int]) -> bool:
        self._count += 1
        if self._count % 10 == 0:
            offsets = {partition: max(end - 30, 0) for partition, end in offsets.items()}
        return super()._commit_sync(offsets)


MEMBERS = {"commits-early": CommitsEarly, "skips": Skips, "commits-back": CommitsBack}

if __name__ == "__main__":
    serve(
        {"producer": LibrdkafkaProducer, "consumer": LibrdkafkaConsumer, "member": MEMBERS[FAULT]},
        lambda settings: None,
    )
