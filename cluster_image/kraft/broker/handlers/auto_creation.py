"""Topics that are made because a client asks for them (`auto.create.topics.enable`; Apache Kafka:
AutoTopicCreationManager). The client that asks is told that there is no such topic, and asks again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from cluster_image.telemetry.complaints import Complaints
from cluster_image.wire.integers import i16, i32
from cluster_image.wire.messages import milliseconds

from ..forwarding import Forwarding

log = logging.getLogger(__name__)

#: Topics that are being made for clients at a time: more are not begun until some of them are there.
MOST_AT_ONCE: Final = 100
_PATIENCE_MS: Final = 30_000
#: Another broker has been asked for the same topic.
_THERE: Final = (ErrorCode.none, ErrorCode.topic_already_exists)


class AutoCreation:
    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding
        self._being_made: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._complaints = Complaints(log)

    def begin(self, names: Iterable[str]) -> None:
        """With the nodes' number of partitions and replication factor."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._being_made]
        wanted = wanted[: MOST_AT_ONCE - len(self._being_made)]
        if wanted:
            self._being_made.update(wanted)
            task = asyncio.get_running_loop().create_task(self._make(wanted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _make(self, names: list[str]) -> None:
        try:
            answer: Any = await self._forwarding.pass_on(
                CreateTopicsRequest(
                    topics=tuple(
                        CreatableTopic(
                            name=TopicName(name), num_partitions=i32(-1), replication_factor=i16(-1), assignments=(),
                            configs=(),
                        )
                        for name in names
                    ),
                    timeout=milliseconds(_PATIENCE_MS),
                )
            )  # fmt: skip
        finally:
            self._being_made.difference_update(names)
        for topic in answer.topics:
            if topic.error_code not in _THERE:
                reason = topic.error_message or topic.error_code.name
                self._complaints.warn("topic %s, which a client has asked for, was not made: %s", topic.name, reason)
