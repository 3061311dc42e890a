"""librdkafka with transactors that do one thing wrong: python -m tests.workloads.clients.faulty_transactors FAULT.

| fault | its transactors |
| --- | --- |
| aborts | abort every fourth transaction that they are to commit, and say that they have committed it |
| commits | commit every fourth transaction that they are to abort, and say that they have aborted it |
| forgets | leave the offsets out of every fourth transaction, and lose the answer to its commit |
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from workloads.clients.drivers.librdkafka import LibrdkafkaConsumer, LibrdkafkaTransactor
from workloads.clients.drivers.threads import serve

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
EVERY = 4


class Aborts(LibrdkafkaTransactor):
    _count = 0

    def commit(self) -> None:
        self._count += 1
        if self._count % EVERY:
            super().commit()
        else:
            super().abort()


class Commits(LibrdkafkaTransactor):
    _count = 0

    def abort(self) -> None:
        self._count += 1
        if self._count % EVERY:
            super().abort()
        else:
            super().commit()


class Forgets(LibrdkafkaTransactor):
    _count = 0

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        self._count += 1
        if self._count % EVERY:
            super().send_offsets(offsets)

    def commit(self) -> None:
        super().commit()
        if self._count % EVERY == 0 and self._count:
            raise ValueError("the answer was lost")


TRANSACTORS = {"aborts": Aborts, "commits": Commits, "forgets": Forgets}

if __name__ == "__main__":
    serve({"consumer": LibrdkafkaConsumer, "transactor": TRANSACTORS[FAULT]}, lambda settings: None)
