"""Topics that live for a few seconds beside the one that a run is about: made, changed, written, read, and deleted.

One at a time, as one process of the history. What is appended to it is recorded, and judged, as everywhere: so before
it is deleted it is read to its end. That of its logs is found by a last record, a *mark*, which is acknowledged by its
whole ISR: who has that in its log has all that was acknowledged before, whatever became of leaders meanwhile. A topic
that cannot be read so in time is left there, and read after the run as the others are.

A name is used once: clients that go by names would take the records of one topic for those of another, as a broker may
serve for a while what the controller has deleted.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from cluster_image.network import Entity
from harness.plan.plan import Plan
from harness.record.history import HistoryRecorder
from workloads.clients.kio.administration import older, refused, requests
from workloads.clients.kio.client import Client, Refused
from workloads.clients.kio.one_by_one import LogClient
from workloads.clients.kio.reading import Reader
from workloads.clients.kio.requests import MAX_TIMESTAMP, list_offsets_request
from workloads.tally import Tally

#: Partitions that a topic begins with, and is given more, at most.
MOST_PARTITIONS: Final = 3
#: Records for each partition, before and after each change of the topic.
RECORDS: Final = (1, 4)
#: Changes of the topic, at most, and seconds between them.
MOST_CHANGES: Final = 3
BETWEEN_CHANGES_S: Final = (0.1, 1.5)
#: Until an append is acknowledged, and until all is read: then the topic is left as it is.
PATIENCE_S: Final = 10.0
RETRY_S: Final = 0.2
#: Bytes a second to which replicas out of sync are held back: they catch up with what is appended all the same.
THROTTLES: Final = (20_000, 200_000)

_TOPIC_SETTINGS: Final[Sequence[Mapping[str, str]]] = (
    {"segment.bytes": "1024"}, {"flush.messages": "1"}, {"segment.bytes": "4096", "flush.messages": "5"},
    {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"},
)  # fmt: skip


class ShortLivedTopics:
    """connect: access to the topic of a name, begun. process: of the history. settings: that each is made with.
    clock: monotonic ns. wall_clock: seconds since 1970. Needs acks=all."""

    def __init__(
        self, plan: Plan, connect: Callable[[str], Client], recorder: HistoryRecorder, process: int,
        settings: Mapping[str, str], *, clock: Callable[[], int], wall_clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._plan = plan
        self._connect = connect
        self._recorder = recorder
        self._process = process
        self._settings = settings
        self._clock = clock
        self._wall_clock = wall_clock
        self._random = Random(f"{plan.seed}/short-lived topics")
        self._counts: Counter[str] = Counter()
        self._kept: list[_Topic] = []  # that are there still, as far as anybody knows

    async def run(self) -> None:
        """Until cancelled."""
        assert self._plan.short_lived_topics is not None
        for number in itertools.count():
            await asyncio.sleep(self._plan.short_lived_topics * self._random.uniform(0.5, 1.5))
            await self._live(f"{self._plan.topic}-short-{number}", Random(self._random.random()))

    async def read_all(self) -> None:
        """Of those that were not deleted every partition that was appended to, and nobody is held back any more.
        Retries until cancelled."""
        await asyncio.gather(*(topic.settle() for topic in self._kept))

    async def close(self) -> None:
        for topic in self._kept:
            await topic.close()

    def facts(self) -> Mapping[str, int]:
        """How many were made and deleted, by what they were; and refused, by the error."""
        return dict(self._counts)

    async def _live(self, name: str, random: Random) -> None:
        topic = _Topic(
            self._connect(name), self._plan, self._recorder, self._process, self._settings, random, self._counts,
            self._clock, self._wall_clock,
        )  # fmt: skip
        self._kept.append(topic)
        try:
            await topic.create()
            await topic.append()
            for _ in range(random.randint(0, MOST_CHANGES)):
                await asyncio.sleep(random.uniform(*BETWEEN_CHANGES_S))
                await topic.change()
                await topic.append()
            if await topic.read_to_mark():
                await topic.delete()
                self._kept.remove(topic)
                await topic.close()
        except Refused as refused:
            self._counts[f"refused {refused.error.name}"] += 1


class _Topic:
    """One of them. counts: what of all is counted."""

    def __init__(
        self, client: Client, plan: Plan, recorder: HistoryRecorder, process: int, settings: Mapping[str, str],
        random: Random, counts: Counter[str], clock: Callable[[], int], wall_clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._client = client
        self._plan = plan
        self._settings = settings
        self._random = random
        self._counts = counts
        self._partitions = 0  # that there are, as far as it knows
        self._unread: dict[int, None] = {}  # partitions that were appended to
        self._id: UUID | None = None
        # Requests, and the errors that say that each is done: what is being carried out, and what will set all settings
        # back.
        self._begun: tuple[Entity, ErrorCode] | None = None
        self._undo: tuple[Entity, ErrorCode] | None = None
        self._wall_clock = wall_clock
        self._began = round(wall_clock() * 1000)
        tally = Tally()
        tally.begin(2 * MOST_PARTITIONS, clock())
        self._log = LogClient(client, recorder, tally, process, "all", clock=clock, wall_clock=wall_clock)
        self._reader = Reader(client, recorder, tally, process, clock=clock, start_moves=plan.log_start != 0)

    async def create(self) -> None:
        """Raises Refused."""
        self._client.start()
        await self._client.metadata.updated(timeout=RETRY_S)  # who is there, for an assignment by hand
        count = self._random.randint(1, MOST_PARTITIONS)
        assignment = self._assignment(0, count)
        if self._random.random() < 0.3:
            await self._create(count, assignment, only_validate=True)
        answer = await self._create(count, assignment)
        self._partitions = count
        self._id = requests.topic_id(answer)
        self._counts["assigned" if assignment else "made"] += 1

    async def _create(self, count: int, assignment: requests.Assignment, *, only_validate: bool = False) -> Entity:
        request = requests.create_topic_request(
            self._client.topic, count, self._plan.replication_factor, self._settings, self._client.request_timeout,
            assignment=assignment, only_validate=only_validate,
        )  # fmt: skip
        return await self._have(request, ErrorCode.topic_already_exists)

    def _assignment(self, first: int, count: int) -> requests.Assignment:
        """Of new partitions: half of the time as a person would deal them out, one broker after the other. (): the
        controller is to."""
        brokers = sorted(self._client.metadata.brokers)
        replicas = self._plan.replication_factor
        by_hand = self._random.random() < 0.5
        if not by_hand or len(brokers) < replicas or self._plan.racks is not None:  # nobody tells it who shares a rack
            return ()
        return [
            [brokers[(index + place) % len(brokers)] for place in range(replicas)]
            for index in range(first, first + count)
        ]

    async def append(self) -> None:
        """Some records to every partition, once they have leaders; none if that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._client.wait_ready(self._partitions, 1)
                for partition in range(self._partitions):
                    for _ in range(self._random.randint(*RECORDS)):
                        self._unread[partition] = None
                        await self._log.append(partition)

    async def change(self) -> None:
        """One of what can be changed of a topic. Raises Refused."""
        changes = [self._add_partitions, self._look_up]
        if self._plan.topics_have_settings:
            changes += [self._set, self._throttle, self._ask_in_vain]
        await self._random.choice(changes)()

    async def _add_partitions(self) -> None:
        more = self._random.randint(1, MOST_PARTITIONS)
        if self._partitions + more > 2 * MOST_PARTITIONS:
            return
        assignment = self._assignment(self._partitions, more)
        request = requests.create_partitions_request(
            self._client.topic, self._partitions + more, self._client.request_timeout, assignment=assignment
        )
        await self._have(request, ErrorCode.invalid_partitions)  # it has so many already
        self._partitions += more
        self._counts["more partitions"] += 1

    async def _look_up(self) -> None:
        """Offsets by times and by leader epochs, as a client that knows the present epoch, or none, and as an older
        one. What is answered is for a simulation's invariants to judge."""
        for partition in list(self._unread):
            known = self._client.metadata.partitions.get(partition)
            brokers = self._client.metadata.brokers
            if known is None or known.leader is None or known.leader not in brokers:
                continue
            topic = self._client.topic
            now = max(round(self._wall_clock() * 1000), self._began)  # a machine's clock may be set back
            leader_epoch = self._random.choice((known.leader_epoch, -1))
            with suppress(ConnectionError, TimeoutError):
                connection = await self._client.connect(brokers[known.leader])
                try:
                    for timestamp in (MAX_TIMESTAMP, self._random.randint(self._began, now), now + 1):
                        asked = list_offsets_request(topic, {partition: leader_epoch}, timestamp)
                        await connection.request(asked, timeout=self._client.request_timeout)
                    for epoch in (self._random.randint(0, max(known.leader_epoch, 0)), known.leader_epoch):
                        asked = requests.epoch_end_request(topic, partition, epoch, leader_epoch)
                        await connection.request(asked, timeout=self._client.request_timeout)
                    await connection.request(older.nothing_to_produce(), timeout=self._client.request_timeout)
                    for timestamp in older.TIMES:
                        asked = older.list_offsets_request(self._random, topic, partition, leader_epoch, timestamp)
                        await connection.request(asked, timeout=self._client.request_timeout)
                    self._counts["looked up"] += 1
                finally:
                    connection.close()

    async def _ask_in_vain(self) -> None:
        """What changes nothing, but for who leads, of one broker after the other."""
        for address in list(self._client.metadata.brokers.values()):
            request = refused.ask_in_vain(
                self._random, self._client.topic, self._partitions, self._plan.replication_factor,
                self._client.request_timeout,
            )  # fmt: skip
            with suppress(ConnectionError, TimeoutError):
                connection = await self._client.connect(address)
                try:
                    await connection.request(request, timeout=self._client.request_timeout)
                    self._counts["asked in vain"] += 1
                finally:
                    connection.close()

    async def _set(self) -> None:
        """Something that others know by its default, and back."""
        settings = self._random.choice(_TOPIC_SETTINGS)
        of = (requests.TOPIC, self._client.topic)
        await self._while_set({of: settings}, self.append)
        self._counts["settings"] += 1

    async def _throttle(self) -> None:
        """Replicas of all topics that are out of sync, for a while (KIP-73)."""
        rate = str(self._random.randint(*THROTTLES))
        sides = ("leader", "follower")
        throttled = {(requests.TOPIC, topic): {f"{side}.replication.throttled.replicas": "*" for side in sides}
                     for topic in (self._plan.topic, self._client.topic)}  # fmt: skip
        limited = {(requests.BROKER, ""): {f"{side}.replication.throttled.rate": rate for side in sides}}
        await self._while_set({**throttled, **limited}, partial(asyncio.sleep, self._random.uniform(1.0, 3.0)))
        self._counts["throttled"] += 1

    async def _while_set(
        self, settings: Mapping[tuple[int, str], Mapping[str, str]], doing: Callable[[], Awaitable[None]]
    ) -> None:
        unset = {of: dict.fromkeys(values) for of, values in settings.items()}
        self._undo = requests.alter_settings_request(unset), ErrorCode.none
        await self._have(requests.alter_settings_request(settings))
        await doing()
        await self._have(*self._undo)
        self._undo = None

    async def _have(self, request: Entity, done: ErrorCode = ErrorCode.none) -> Entity:
        """It carried out. See Client.administer."""
        self._begun = request, done
        answer = await self._client.administer(request, done)
        self._begun = None
        return answer

    async def read_to_mark(self) -> bool:
        """All that was acknowledged; False: not in time."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                for partition in list(self._unread):
                    mark = await self._mark(partition)
                    await self._reader.read_all(partition, "final_read", mark + 1)
                    del self._unread[partition]
        except TimeoutError:
            return False
        return True

    async def _mark(self, partition: int) -> int:
        """The offset of a record that is acknowledged, appended now."""
        while True:
            answered = await self._log.append(partition)
            if answered.outcome == "ok" and answered.offset is not None:
                return answered.offset
            await asyncio.sleep(RETRY_S)

    async def settle(self) -> None:
        """What was begun with it comes to its end, and what was not read to its mark is read. Retries until
        cancelled."""
        for request, done in filter(None, (self._begun, self._undo)):
            with suppress(Refused):
                await self._client.administer(request, done)
        for partition in self._unread:
            await self._reader.read_all(partition, "final_read")

    async def delete(self) -> None:
        """By its name, or its id; both at once is refused. Raises Refused."""
        by_id = self._id if self._random.random() < 0.5 else None
        if self._id is not None and self._random.random() < 0.3:
            both = requests.delete_topic_request(self._client.topic, self._client.request_timeout, also=self._id)
            await self._have(both, ErrorCode.invalid_request)
        gone = ErrorCode.unknown_topic_or_partition if by_id is None else ErrorCode.unknown_topic_id
        request = requests.delete_topic_request(by_id or self._client.topic, self._client.request_timeout)
        await self._have(request, gone)
        self._counts["deleted"] += 1

    async def close(self) -> None:
        self._log.close()
        await self._client.close()
