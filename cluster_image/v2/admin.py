"""Administrators' commands (001, "Admin commands"; 003 for those of brokers): by way of ZooKeeper alone, and the state
changes that leaders and this ask brokers for. Whoever is asked carries them out.

Where 001 waits until "state change requests are consumed" it waits for live brokers: what is asked of one that is away
waits in its queue, as is said to be the purpose of that.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.placement.initial import place

from . import rules
from .metadata import paths, reading
from .metadata.state_queue import Kind
from .state_changes import StateChanges
from .zookeeper import BadVersion, NodeExists, NoNode, NotEmpty, ZooKeeper

log = logging.getLogger(__name__)

#: What a topic's node holds until all its partitions are there: another attempt goes on with those that are missing.
#: (By 001 it would fail, and the topic would stay without them.)
BEING_MADE: Final = b"being made"
#: Between looks whether something has been done.
_LOOK_S: Final = 0.05


class AdminError(Exception):
    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error: Final = error


def _check_distinct(replicas: Sequence[int]) -> None:
    """Raises AdminError."""
    if not replicas or len(set(replicas)) != len(replicas):
        raise AdminError(ErrorCode.invalid_replica_assignment, f"replicas {list(replicas)} name one twice, or none")


class Admin:
    def __init__(self, zookeeper: ZooKeeper, state_changes: StateChanges, config: Config) -> None:
        self._zookeeper = zookeeper
        self._state_changes = state_changes
        self._config = config
        self._me: int = config["node.id"]
        self._commands = itertools.count()

    # -- topics -----------------------------------------------------------------------------------------------

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, assignment: Mapping[int, Sequence[int]] | None,
        timeout: float,
    ) -> None:  # fmt: skip
        """001, createTopic. assignment: replicas by partition, in place of the two numbers. Raises AdminError."""
        async with self._alone(topic, timeout):
            await self._create_topic(topic, partitions, replication_factor, assignment, timeout)

    async def _create_topic(
        self, topic: str, partitions: int, replication_factor: int, assignment: Mapping[int, Sequence[int]] | None,
        timeout: float,
    ) -> None:  # fmt: skip
        if not await self._clean_failed_creation(topic):
            raise AdminError(ErrorCode.topic_already_exists, f"topic {topic} exists with live partitions")
        found = await reading.read(self._zookeeper, paths.topic(topic))
        if found is not None and found[0] != BEING_MADE:
            raise AdminError(ErrorCode.topic_already_exists, f"topic {topic} exists")
        await self._check_assignment((assignment or {}).values())
        placed = assignment or await self._assign(topic, partitions, replication_factor)
        if found is None:
            await self._zookeeper.create(paths.topic(topic), BEING_MADE)
        made = await self._made(topic)
        missing = [index for index in sorted(placed) if index not in made]
        await self._together(self._add_partition(topic, index, placed[index], timeout) for index in missing)
        await self._zookeeper.set(paths.topic(topic), b"")

    async def add_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None, timeout: float
    ) -> None:
        """001, addPartition, up to so many. Raises AdminError."""
        async with self._alone(topic, timeout):
            await self._add_partitions(topic, count, assignment, timeout)

    async def _add_partitions(
        self, topic: str, count: int, assignment: Sequence[Sequence[int]] | None, timeout: float
    ) -> None:
        existing = await self._made(topic)
        if not existing:
            raise AdminError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic}")
        await self._clean_failed_partitions(topic)
        if count <= len(existing):
            raise AdminError(ErrorCode.invalid_partitions, f"topic {topic} has {len(existing)} partitions already")
        first = existing[-1] + 1
        if assignment is None:
            factor = len(await reading.assigned_to(self._zookeeper, topic, existing[0]) or (0,))
            placed = await self._assign(topic, count, factor)
            new = {index: placed[index] for index in range(first, count)}
        else:
            new = dict(enumerate(assignment, first))
            await self._check_assignment(assignment)
        await self._together(self._add_partition(topic, index, replicas, timeout) for index, replicas in new.items())

    async def _add_partition(self, topic: str, index: int, replicas: Sequence[int], timeout: float) -> None:
        """001, addPartition. The partition's own node, which leader and ISR lie under, comes second: an attempt that
        fails before is found by its reassignment."""
        await self._note_reassignment(topic, index, paths.encode_ids(replicas))
        await self._make(paths.partition(topic, index))
        await self._together(self._ask("start-replica", topic, index, replica) for replica in replicas)
        if not await self._consumed(topic, index, "start-replica", replicas, timeout):
            raise AdminError(
                ErrorCode.request_timed_out, f"partition {topic}-{index} was not started everywhere in {timeout:g} s"
            )
        await self._make(paths.replicas(topic, index), paths.encode_ids(replicas))
        await self._forget_reassignment(topic, index)

    async def delete_topic(self, topic: str, timeout: float) -> None:
        """001, deleteTopic. Raises AdminError."""
        async with self._alone(topic, timeout):
            await self._delete_topic(topic, timeout)

    async def _delete_topic(self, topic: str, timeout: float) -> None:
        if await self._zookeeper.exists(paths.topic(topic)) is None:
            raise AdminError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic}")
        indexes = paths.numbers(await reading.children(self._zookeeper, paths.topic(topic)))
        await self._together(self._delete_partition(topic, index, timeout) for index in indexes)
        await self._remove(paths.topic(topic))

    async def _delete_partition(self, topic: str, index: int, timeout: float) -> None:
        """001, deletePartition. Nobody leads it any more when its leader has closed its replica. Then all are asked
        once more, also those that it was being moved to: the leader may have died before it has asked them, and by 001
        nobody else would."""
        # Without any, an attempt to make it or to clean up after that has failed: nobody knows who has begun.
        replicas = await reading.replicas_of(self._zookeeper, topic, index) or tuple(await self._members())
        await self._note_reassignment(topic, index, b"")
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while (leader := await reading.leader_of(self._zookeeper, topic, index)) is not None:
            if loop.time() >= until:
                raise AdminError(
                    ErrorCode.request_timed_out, f"broker {leader.broker} leads {topic}-{index} after {timeout:g} s"
                )
            await asyncio.sleep(_LOOK_S)
        for replica in replicas:
            await self._ask("close-replica", topic, index, replica)
        if not await self._consumed(topic, index, "close-replica", replicas, until - loop.time()):
            raise AdminError(ErrorCode.request_timed_out, f"{topic}-{index} was not closed everywhere in time")
        await self._remove_partition(topic, index)
        await self._forget_reassignment(topic, index)

    async def _clean_failed_creation(self, topic: str) -> bool:
        """001, cleanFailedTopicCreationAttempts, of this topic: 001's goes through all that are being reassigned, and
        deletes what others are about. False: it has a live partition."""
        made = await self._made(topic)
        under_way = paths.numbers(await reading.children(self._zookeeper, paths.reassigned_topic(topic)))
        alive = [index for index in under_way if index in made]
        found = await reading.read(self._zookeeper, paths.topic(topic))
        if alive and (found is None or found[0] != BEING_MADE):
            return False
        for index in alive:  # it has got as far as that
            await self._forget_reassignment(topic, index)
        await self._clean_failed_partitions(topic)
        if not await reading.children(self._zookeeper, paths.topic(topic)):
            await self._remove(paths.topic(topic))
        return True

    async def _clean_failed_partitions(self, topic: str) -> None:
        """Those that were begun, and have not come to be."""
        made = await self._made(topic)
        for index in paths.numbers(await reading.children(self._zookeeper, paths.reassigned_topic(topic))):
            if index not in made:
                await self._clean_failed_partition(topic, index)

    async def _clean_failed_partition(self, topic: str, index: int) -> None:
        """That it is to be deleted is said first, or its leader may complete it while its replicas are being closed."""
        path = paths.reassigned(topic, index)
        found = await reading.read(self._zookeeper, path)
        if found is None:  # it is complete by now
            return
        try:
            await self._zookeeper.set(path, b"", found[1].version)
        except (NoNode, BadVersion):  # complete, or its own repetition
            if await reading.reassigned_to(self._zookeeper, topic, index) != ():
                return
        for replica in paths.decode_ids(found[0]) or await self._members():
            await self._ask("close-replica", topic, index, replica)
        await self._remove_partition(topic, index)
        await self._forget_reassignment(topic, index)

    async def _made(self, topic: str) -> list[int]:
        """The topic's partitions whose making has come to its end: those with an assignment."""
        indexes = paths.numbers(await reading.children(self._zookeeper, paths.topic(topic)))
        assigned = await asyncio.gather(*(reading.assigned_to(self._zookeeper, topic, index) for index in indexes))
        return [index for index, replicas in zip(indexes, assigned, strict=True) if replicas is not None]

    # -- reassignment -----------------------------------------------------------------------------------------

    async def reassign(self, topic: str, index: int, replicas: Sequence[int], timeout: float) -> None:
        """Begin to move a partition to these, wherever it was being moved to before. Raises AdminError."""
        async with self._alone(topic, timeout):
            if await reading.assigned_to(self._zookeeper, topic, index) is None:
                raise AdminError(ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{index}")
            _check_distinct(replicas)
            live = await reading.live_brokers(self._zookeeper)
            if missing := sorted(set(replicas) - set(live)):
                raise AdminError(ErrorCode.invalid_replica_assignment, f"broker {missing[0]} is not alive")
            before = await reading.reassigned_to(self._zookeeper, topic, index)
            if before == ():
                raise AdminError(ErrorCode.unknown_topic_or_partition, f"{topic}-{index} is being deleted")
            if before == tuple(replicas):
                return
            await self._note_reassignment(topic, index, paths.encode_ids(replicas))
            await self._close_those_not_wanted(topic, index, set(before or ()) - set(replicas))
            if before:
                await self._start_those_that_stay(topic, index, set(replicas) - set(before))

    async def cancel_reassignment(self, topic: str, index: int, timeout: float) -> None:
        """Raises AdminError: there is none, or it is complete."""
        none = AdminError(ErrorCode.no_reassignment_in_progress, f"{topic}-{index} is not being moved")
        async with self._alone(topic, timeout):
            found = await reading.read(self._zookeeper, paths.reassigned(topic, index))
            made = await reading.assigned_to(self._zookeeper, topic, index) is not None
            if found is None or not found[0] or not made:
                raise none
            try:
                await self._zookeeper.delete(paths.reassigned(topic, index), found[1].version)
            except (NoNode, BadVersion):
                raise none from None
            await self._remove(paths.reassigned_topic(topic))
            coming = set(paths.decode_ids(found[0]))
            await self._close_those_not_wanted(topic, index, coming)
            assigned = await reading.assigned_to(self._zookeeper, topic, index) or ()
            await self._start_those_that_stay(topic, index, set(assigned) - coming)

    async def _start_those_that_stay(self, topic: str, index: int, replicas: Collection[int]) -> None:
        """Who was to go may have closed its replica by now."""
        assigned = await reading.assigned_to(self._zookeeper, topic, index) or ()
        for replica in sorted(set(replicas) & set(assigned)):
            await self._ask("start-replica", topic, index, replica)

    async def _close_those_not_wanted(self, topic: str, index: int, replicas: Collection[int]) -> None:
        """Of replicas that were started for a reassignment, those that it did not become. By 001 they would stay."""
        assigned = await reading.assigned_to(self._zookeeper, topic, index) or ()
        for replica in sorted(set(replicas) - set(assigned)):
            await self._ask("close-replica", topic, index, replica)

    async def _check_assignment(self, assignment: Iterable[Sequence[int]]) -> None:
        """Raises AdminError: there can be no such replicas. A broker that is away has its queue."""
        members = await self._members()
        for replicas in assignment:
            _check_distinct(replicas)
            if missing := sorted(set(replicas).difference(members)):
                raise AdminError(ErrorCode.invalid_replica_assignment, f"there is no broker {missing[0]}")

    async def reassignments(self) -> Mapping[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...]]]:
        """Those under way: where each partition is, and where it goes."""
        found = {}
        for topic in await reading.children(self._zookeeper, paths.REASSIGNED):
            for index in paths.numbers(await reading.children(self._zookeeper, paths.reassigned_topic(topic))):
                coming = await reading.reassigned_to(self._zookeeper, topic, index)
                assigned = await reading.assigned_to(self._zookeeper, topic, index)
                if coming and assigned:
                    found[topic, index] = (assigned, coming)
        return found

    # -- brokers ----------------------------------------------------------------------------------------------

    async def remove_broker(self, broker: int) -> None:
        """003: its queue goes with it. Raises AdminError: it is alive, or there is none."""
        if await reading.registered(self._zookeeper, broker) is not None:
            raise AdminError(ErrorCode.invalid_request, f"broker {broker} is alive")
        path = paths.state(broker)
        if await self._zookeeper.exists(path) is None:
            raise AdminError(ErrorCode.broker_id_not_registered, f"there is no broker {broker}")
        for name in await reading.children(self._zookeeper, path):
            await self._remove(f"{path}/{name}")
        await self._remove(path)

    @asynccontextmanager
    async def _alone(self, topic: str, timeout: float) -> AsyncIterator[None]:
        """One command on a topic at a time: 001 has one administrator. Here whoever has no answer asks another broker,
        which would take what the first is doing for an attempt that has failed. Raises AdminError."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        path = paths.command(topic)
        mine = f"{self._me}:{self._zookeeper.session}:{next(self._commands)}".encode()
        while True:
            with suppress(NodeExists):
                await self._zookeeper.create(path, mine, ephemeral=True)
            if await self._holds(path, mine):
                break
            if loop.time() >= until:
                raise AdminError(ErrorCode.request_timed_out, f"another command on topic {topic} is still under way")
            await asyncio.sleep(_LOOK_S)
        try:
            yield
        finally:
            if await self._holds(path, mine):  # its session may be over, and another command under way
                await self._remove(path)

    async def _holds(self, path: str, mine: bytes) -> bool:
        found = await reading.read(self._zookeeper, path)
        return found is not None and found[0] == mine

    # -- the parts --------------------------------------------------------------------------------------------

    async def _assign(self, topic: str, partitions: int, replication_factor: int) -> Mapping[int, Sequence[int]]:
        """001, assignReplicas: only to brokers that are alive. Raises AdminError."""
        live = await reading.live_brokers(self._zookeeper)
        racks: dict[int, str | None] = {}
        for broker in live:
            there = await reading.registered(self._zookeeper, broker)
            if there is not None:
                racks[broker] = there.rack or None
        if not 0 < replication_factor <= len(racks):
            raise AdminError(
                ErrorCode.invalid_replication_factor, f"{replication_factor} replicas on {len(racks)} live brokers"
            )
        if partitions < 1:
            raise AdminError(ErrorCode.invalid_partitions, f"{partitions} partitions")
        return dict(enumerate(place(racks, partitions, replication_factor)))

    async def _members(self) -> Sequence[int]:
        """Brokers, alive or away."""
        return paths.numbers(await reading.children(self._zookeeper, paths.STATE))

    async def _ask(self, kind: Kind, topic: str, index: int, broker: int) -> None:
        await self._state_changes.send(kind, topic, index, broker, rules.NO_EPOCH, -1)

    async def _consumed(self, topic: str, index: int, kind: Kind, replicas: Collection[int], timeout: float) -> bool:
        """001, waitTillStateChangeRequestConsumed, by all of these that are alive."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while True:
            live = set(await reading.live_brokers(self._zookeeper))
            waiting = [r for r in replicas if r in live and await self._is_asked(r, kind, topic, index)]
            if not waiting:
                return True
            if loop.time() >= until:
                return False
            await asyncio.sleep(_LOOK_S)

    async def _is_asked(self, broker: int, kind: Kind, topic: str, index: int) -> bool:
        queue = self._state_changes.queue(broker)
        try:
            names = await queue.names()
        except NoNode:
            return False
        for name in names:
            change = await queue.read(name)
            if change is not None and (change.kind, change.topic, change.partition) == (kind, topic, index):
                return True
        return False

    @staticmethod
    async def _together(commands: Iterable[Awaitable[None]]) -> None:
        """Raises what the first of them raises that fails, once all have ended."""
        results = await asyncio.gather(*commands, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _make(self, path: str, data: bytes = b"") -> None:
        with suppress(NodeExists):
            await self._zookeeper.create(path, data)

    async def _put(self, path: str, data: bytes) -> None:
        try:
            await self._zookeeper.create(path, data)
        except NodeExists:
            await self._zookeeper.set(path, data)

    async def _remove(self, path: str) -> None:
        with suppress(NoNode, NotEmpty):
            await self._zookeeper.delete(path)

    async def _remove_partition(self, topic: str, index: int) -> None:
        for path in (paths.leader, paths.isr, paths.replicas, paths.partition):
            await self._remove(path(topic, index))

    async def _note_reassignment(self, topic: str, index: int, data: bytes) -> None:
        """That of another partition may end meanwhile, and take the topic's node with it."""
        while True:
            await self._make(paths.reassigned_topic(topic))
            with suppress(NoNode):
                await self._put(paths.reassigned(topic, index), data)
                return

    async def _forget_reassignment(self, topic: str, index: int) -> None:
        await self._remove(paths.reassigned(topic, index))
        await self._remove(paths.reassigned_topic(topic))
