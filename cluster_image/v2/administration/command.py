"""One administrator's command on a topic (001, "Admin commands"), by way of ZooKeeper alone, and the state changes that
leaders and this ask brokers for.

Where 001 waits until "state change requests are consumed" it waits for live brokers: what is asked of one that is away
waits in its queue, as is said to be the purpose of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from kio.schema.errors import ErrorCode

from cluster_image.placement.initial import place

from .. import rules
from ..metadata import paths, reading
from ..metadata.state_queue import Kind
from ..state_changes import StateChanges
from ..zookeeper import BadVersion, NodeExists, NoNode, NotEmpty, ZooKeeper

#: What a topic's node holds until all its partitions are there: another attempt goes on with those that are missing.
#: (By 001 it would fail, and the topic would stay without them.)
BEING_MADE: Final = b"being made"
#: Between looks whether something has been done.
LOOK_S: Final = 0.05


class AdminError(Exception):
    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error: Final = error


def _check_distinct(replicas: Sequence[int]) -> None:
    """Raises AdminError."""
    if not replicas or len(set(replicas)) != len(replicas):
        raise AdminError(ErrorCode.invalid_replica_assignment, f"replicas {list(replicas)} name one twice, or none")


class TopicCommand:
    """zookeeper, and whatever state_changes writes by: fenced, so that nothing is written once the command's lock is
    lost. All that is public is what may be asked for, as Admin says, and raises AdminError or Fenced."""

    def __init__(self, zookeeper: ZooKeeper, state_changes: StateChanges, topic: str) -> None:
        self._zookeeper = zookeeper
        self._state_changes = state_changes
        self._topic = topic

    # -- making, extending, deleting ---------------------------------------------------------------------------

    async def create_topic(
        self, partitions: int, replication_factor: int, assignment: Mapping[int, Sequence[int]] | None,
        timeout: float,
    ) -> None:  # fmt: skip
        if not await self._clean_failed_creation():
            raise AdminError(ErrorCode.topic_already_exists, f"topic {self._topic} exists with live partitions")
        found = await reading.read(self._zookeeper, paths.topic(self._topic))
        if found is not None and found[0] != BEING_MADE:
            raise AdminError(ErrorCode.topic_already_exists, f"topic {self._topic} exists")
        await self._check_assignment((assignment or {}).values())
        placed = assignment or await self._assign(partitions, replication_factor)
        if found is None:
            await self._zookeeper.create(paths.topic(self._topic), BEING_MADE)
        made = await self._made()
        missing = [index for index in sorted(placed) if index not in made]
        await self._together(self._add_partition(index, placed[index], timeout) for index in missing)
        await self._zookeeper.set(paths.topic(self._topic), b"")

    async def add_partitions(self, count: int, assignment: Sequence[Sequence[int]] | None, timeout: float) -> None:
        existing = await self._made()
        if not existing:
            raise AdminError(ErrorCode.unknown_topic_or_partition, f"there is no topic {self._topic}")
        await self._clean_failed_partitions()
        if count <= len(existing):
            raise AdminError(
                ErrorCode.invalid_partitions, f"topic {self._topic} has {len(existing)} partitions already"
            )
        first = existing[-1] + 1
        if assignment is None:
            factor = len(await reading.assigned_to(self._zookeeper, self._topic, existing[0]) or (0,))
            placed = await self._assign(count, factor)
            new = {index: placed[index] for index in range(first, count)}
        else:
            new = dict(enumerate(assignment, first))
            await self._check_assignment(assignment)
        await self._together(self._add_partition(index, replicas, timeout) for index, replicas in new.items())

    async def _add_partition(self, index: int, replicas: Sequence[int], timeout: float) -> None:
        """001, addPartition. The partition's own node, which leader and ISR lie under, comes second: an attempt that
        fails before is found by its reassignment."""
        await self._note_reassignment(index, paths.encode_ids(replicas))
        await self._make(paths.partition(self._topic, index))
        await self._together(self._ask("start-replica", index, replica) for replica in replicas)
        if not await self._consumed(index, "start-replica", replicas, timeout):
            raise AdminError(
                ErrorCode.request_timed_out,
                f"partition {self._topic}-{index} was not started everywhere in {timeout:g} s",
            )
        await self._make(paths.replicas(self._topic, index), paths.encode_ids(replicas))
        await self._forget_reassignment(index)

    async def delete_topic(self, timeout: float) -> None:
        if await self._zookeeper.exists(paths.topic(self._topic)) is None:
            raise AdminError(ErrorCode.unknown_topic_or_partition, f"there is no topic {self._topic}")
        indexes = paths.numbers(await reading.children(self._zookeeper, paths.topic(self._topic)))
        await self._together(self._delete_partition(index, timeout) for index in indexes)
        await self._remove(paths.topic(self._topic))

    async def _delete_partition(self, index: int, timeout: float) -> None:
        """001, deletePartition. Nobody leads it any more when its leader has closed its replica. Then all are asked
        once more, also those that it was being moved to: the leader may have died before it has asked them, and by 001
        nobody else would."""
        # Without any, an attempt to make it or to clean up after that has failed: nobody knows who has begun. And an
        # earlier attempt to delete it has written over where it was being moved to.
        begun = await reading.reassigned_to(self._zookeeper, self._topic, index) == ()
        known = () if begun else await reading.replicas_of(self._zookeeper, self._topic, index)
        replicas = known or tuple(await self._members())
        await self._note_reassignment(index, b"")
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while (leader := await reading.leader_of(self._zookeeper, self._topic, index)) is not None:
            if loop.time() >= until:
                raise AdminError(
                    ErrorCode.request_timed_out,
                    f"broker {leader.broker} leads {self._topic}-{index} after {timeout:g} s",
                )
            await asyncio.sleep(LOOK_S)
        for replica in replicas:
            await self._ask("close-replica", index, replica)
        if not await self._consumed(index, "close-replica", replicas, until - loop.time()):
            raise AdminError(ErrorCode.request_timed_out, f"{self._topic}-{index} was not closed everywhere in time")
        await self._remove_partition(index)
        await self._forget_reassignment(index)

    async def _clean_failed_creation(self) -> bool:
        """001, cleanFailedTopicCreationAttempts, of this topic: 001's goes through all that are being reassigned, and
        deletes what others are about. False: it has a live partition."""
        made = await self._made()
        under_way = paths.numbers(await reading.children(self._zookeeper, paths.reassigned_topic(self._topic)))
        alive = [index for index in under_way if index in made]
        found = await reading.read(self._zookeeper, paths.topic(self._topic))
        if alive and (found is None or found[0] != BEING_MADE):
            return False
        for index in alive:  # it has got as far as that
            await self._forget_reassignment(index)
        await self._clean_failed_partitions()
        if not await reading.children(self._zookeeper, paths.topic(self._topic)):
            await self._remove(paths.topic(self._topic))
        return True

    async def _clean_failed_partitions(self) -> None:
        """Those that were begun, and have not come to be."""
        made = await self._made()
        for index in paths.numbers(await reading.children(self._zookeeper, paths.reassigned_topic(self._topic))):
            if index not in made:
                await self._clean_failed_partition(index)

    async def _clean_failed_partition(self, index: int) -> None:
        """That it is to be deleted is said first, or its leader may complete it while its replicas are being closed."""
        path = paths.reassigned(self._topic, index)
        found = await reading.read(self._zookeeper, path)
        if found is None:  # it is complete by now
            return
        try:
            await self._zookeeper.set(path, b"", found[1].version)
        except (NoNode, BadVersion):  # complete, or its own repetition
            if await reading.reassigned_to(self._zookeeper, self._topic, index) != ():
                return
        for replica in paths.decode_ids(found[0]) or await self._members():
            await self._ask("close-replica", index, replica)
        await self._remove_partition(index)
        await self._forget_reassignment(index)

    async def _made(self) -> list[int]:
        """The topic's partitions whose making has come to its end: those with an assignment."""
        indexes = paths.numbers(await reading.children(self._zookeeper, paths.topic(self._topic)))
        assigned = await asyncio.gather(
            *(reading.assigned_to(self._zookeeper, self._topic, index) for index in indexes)
        )
        return [index for index, replicas in zip(indexes, assigned, strict=True) if replicas is not None]

    # -- reassignment -----------------------------------------------------------------------------------------

    async def reassign(self, index: int, replicas: Sequence[int]) -> None:
        """Begin to move a partition to these, wherever it was being moved to before. Raises AdminError."""
        if await reading.assigned_to(self._zookeeper, self._topic, index) is None:
            raise AdminError(ErrorCode.unknown_topic_or_partition, f"there is no partition {self._topic}-{index}")
        _check_distinct(replicas)
        live = await reading.live_brokers(self._zookeeper)
        if missing := sorted(set(replicas) - set(live)):
            raise AdminError(ErrorCode.invalid_replica_assignment, f"broker {missing[0]} is not alive")
        before = await reading.reassigned_to(self._zookeeper, self._topic, index)
        if before == ():
            raise AdminError(ErrorCode.unknown_topic_or_partition, f"{self._topic}-{index} is being deleted")
        if before == tuple(replicas):
            return
        await self._note_reassignment(index, paths.encode_ids(replicas))
        await self._close_those_not_wanted(index, set(before or ()) - set(replicas))
        if before:
            await self._start_those_that_stay(index, set(replicas) - set(before))

    async def cancel_reassignment(self, index: int) -> None:
        """Raises AdminError: there is none, or it is complete."""
        none = AdminError(ErrorCode.no_reassignment_in_progress, f"{self._topic}-{index} is not being moved")
        found = await reading.read(self._zookeeper, paths.reassigned(self._topic, index))
        made = await reading.assigned_to(self._zookeeper, self._topic, index) is not None
        if found is None or not found[0] or not made:
            raise none
        try:
            await self._zookeeper.delete(paths.reassigned(self._topic, index), found[1].version)
        except (NoNode, BadVersion):
            raise none from None
        await self._remove(paths.reassigned_topic(self._topic))
        coming = set(paths.decode_ids(found[0]))
        await self._close_those_not_wanted(index, coming)
        assigned = await reading.assigned_to(self._zookeeper, self._topic, index) or ()
        await self._start_those_that_stay(index, set(assigned) - coming)

    async def _start_those_that_stay(self, index: int, replicas: Collection[int]) -> None:
        """Who was to go may have closed its replica by now."""
        assigned = await reading.assigned_to(self._zookeeper, self._topic, index) or ()
        for replica in sorted(set(replicas) & set(assigned)):
            await self._ask("start-replica", index, replica)

    async def _close_those_not_wanted(self, index: int, replicas: Collection[int]) -> None:
        """Of replicas that were started for a reassignment, those that it did not become. By 001 they would stay."""
        assigned = await reading.assigned_to(self._zookeeper, self._topic, index) or ()
        for replica in sorted(set(replicas) - set(assigned)):
            await self._ask("close-replica", index, replica)

    async def _check_assignment(self, assignment: Iterable[Sequence[int]]) -> None:
        """Raises AdminError: there can be no such replicas. A broker that is away has its queue."""
        members = await self._members()
        for replicas in assignment:
            _check_distinct(replicas)
            if missing := sorted(set(replicas).difference(members)):
                raise AdminError(ErrorCode.invalid_replica_assignment, f"there is no broker {missing[0]}")

    # -- the parts --------------------------------------------------------------------------------------------

    async def _assign(self, partitions: int, replication_factor: int) -> Mapping[int, Sequence[int]]:
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

    async def _ask(self, kind: Kind, index: int, broker: int) -> None:
        await self._state_changes.send(kind, self._topic, index, broker, rules.NO_EPOCH, -1)

    async def _consumed(self, index: int, kind: Kind, replicas: Collection[int], timeout: float) -> bool:
        """001, waitTillStateChangeRequestConsumed, by all of these that are alive."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while True:
            live = set(await reading.live_brokers(self._zookeeper))
            waiting = [r for r in replicas if r in live and await self._is_asked(r, kind, index)]
            if not waiting:
                return True
            if loop.time() >= until:
                return False
            await asyncio.sleep(LOOK_S)

    async def _is_asked(self, broker: int, kind: Kind, index: int) -> bool:
        queue = self._state_changes.queue(broker)
        try:
            names = await queue.names()
        except NoNode:
            return False
        for name in names:
            change = await queue.read(name)
            if change is not None and (change.kind, change.topic, change.partition) == (kind, self._topic, index):
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

    async def _remove_partition(self, index: int) -> None:
        for path in (paths.leader, paths.isr, paths.replicas, paths.partition):
            await self._remove(path(self._topic, index))

    async def _note_reassignment(self, index: int, data: bytes) -> None:
        """That of another partition may end meanwhile, and take the topic's node with it."""
        while True:
            await self._make(paths.reassigned_topic(self._topic))
            with suppress(NoNode):
                await self._put(paths.reassigned(self._topic, index), data)
                return

    async def _forget_reassignment(self, index: int) -> None:
        await self._remove(paths.reassigned(self._topic, index))
        await self._remove(paths.reassigned_topic(self._topic))
