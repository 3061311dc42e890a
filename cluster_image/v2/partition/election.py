"""Who leads a partition (001, "Leader election", "Leader change"), for one replica of this broker.

Every partition is followed by a task of its own, which looks at its leader's node and hears of every change of it: so a
leader change waits for no other notification.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.network import Address
from cluster_image.network.tasks import Failed, start_task

from .. import rules
from ..metadata import paths, reading
from ..metadata.paths import Isr, Leader
from ..state_changes import StateChanges
from ..zookeeper import BadVersion, Event, NodeExists, NoNode, Stat, ZooKeeper
from .commit import Committing
from .replica import Partition

log = logging.getLogger(__name__)

#: Between looks for the address of a leader that has not registered itself yet.
_LOOK_S: Final = 0.05


class Fetching(Protocol):
    """Of this broker, from others."""

    def fetch(self, partition: Partition, leader: int, address: Address) -> None: ...

    def stop(self, partition: Partition) -> None: ...


class Replicating:
    """One replica's life, from startReplica to closeReplica. led: called when it begins to lead, or no longer leads."""

    def __init__(
        self,
        partition: Partition,
        zookeeper: ZooKeeper,
        state_changes: StateChanges,
        fetching: Fetching,
        broker: int,
        config: Config,
        led: Callable[[Partition], None],
        failed: Failed,
    ) -> None:
        self.partition = partition
        self._zookeeper = zookeeper
        self._state_changes = state_changes
        self._fetching = fetching
        self._me = broker
        self._config = config
        self._led = led
        self._failed = failed
        self._changed = asyncio.Event()
        self._followed: Leader | None = None
        self._term: tuple[int, int] | None = None  # the session and the epoch that this replica leads in
        self._progress = asyncio.Event()
        partition.progressed = self._progress.set
        self._committing: asyncio.Task[None] | None = None
        self._task = start_task(self._run(), failed)

    def look_again(self) -> None:
        """There is another session, in which nothing is watched; or it is asked to start, and may have to lead."""
        self._changed.set()
        self._progress.set()

    async def close(self, error: ErrorCode) -> None:
        """001, closeReplica, but for the log. If it leads, nobody does from now on."""
        self._task.cancel()
        self._stop_leading(error)
        self._fetching.stop(self.partition)
        self.partition.remove(error)
        await self.give_up_leadership()

    async def end_term(self) -> None:
        """Nothing more is decided in it from now on."""
        self._stop_leading(ErrorCode.not_leader_or_follower)
        await self.give_up_leadership()

    def stop(self) -> None:
        """This broker stops."""
        self._task.cancel()
        self._stop_leading(ErrorCode.not_leader_or_follower)
        self._fetching.stop(self.partition)

    # -- the leader's node ------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        self._changed.set()
        self._progress.set()  # whoever waits for followers looks too

    async def _run(self) -> None:
        """001, onLeaderChange: each time that the leader's node has changed, and at first."""
        topic, index = self.partition.topic, self.partition.index
        while True:
            self._changed.clear()
            found = await reading.read(self._zookeeper, paths.leader(topic, index), self._hear)
            if found is None:
                self._lead_no_longer()
                await self._stand_for_election()
            else:
                leader, owner = Leader.decode(found[0]), found[1].owner
                if leader.broker != self._me:
                    self._lead_no_longer()
                    await self._follow(leader)
                elif self._term != (owner, leader.epoch):
                    # Of an earlier session of this broker: it goes when ZooKeeper notices that that is over.
                    self._lead_no_longer()
            await self._changed.wait()

    def _lead_no_longer(self) -> None:
        self._stop_leading(ErrorCode.not_leader_or_follower)
        self._term = None

    def _stop_leading(self, error: ErrorCode) -> None:
        if self._committing is not None:
            self._committing.cancel()
            self._committing = None
        if self.partition.is_leader:
            self.partition.resign(error)
            self._led(self.partition)

    async def give_up_leadership(self) -> None:
        """Lead no longer, and delete the leader's node, if it is this replica's own: an election follows."""
        if self.partition.is_leader:
            self.partition.resign(ErrorCode.not_leader_or_follower)
            self._led(self.partition)
        path = paths.leader(self.partition.topic, self.partition.index)
        found = await reading.read(self._zookeeper, path)
        if found is not None and found[1].owner == self._zookeeper.session:
            with suppress(NoNode):  # it was about to give up when it was closed, and has
                await self._zookeeper.delete(path)

    # -- follower ---------------------------------------------------------------------------------------------

    async def _follow(self, leader: Leader) -> None:
        """001, becomeFollower, if it does not follow that leader already."""
        if self._followed == leader:
            return
        self._fetching.stop(self.partition)
        self._followed = None
        if (self.partition.leader, self.partition.leader_epoch) != leader:
            self.partition.follow(*leader)
        while not self._changed.is_set():
            there = await reading.registered(self._zookeeper, leader.broker)
            if there is not None:
                self._fetching.fetch(self.partition, leader.broker, there.address)
                self._followed = leader
                return
            await asyncio.sleep(_LOOK_S)  # a broker registers itself last, and may lead before that

    # -- leader -----------------------------------------------------------------------------------------------

    async def _stand_for_election(self) -> None:
        """001, leaderElection. A replica that may not lead waits until another does."""
        topic, index = self.partition.topic, self.partition.index
        isr = await reading.isr_of(self._zookeeper, topic, index)
        # In this order: a partition's assignment is written before the reassignment that it comes from is deleted.
        coming = await reading.reassigned_to(self._zookeeper, topic, index)
        assigned = await reading.assigned_to(self._zookeeper, topic, index)
        replicas = assigned if assigned is not None else coming or ()
        if not rules.may_lead(self._me, isr.brokers if isr else (), replicas, is_deleted=coming == ()):
            return
        if self._me != replicas[0]:
            await asyncio.sleep(self._config.seconds("v2.preferred.replica.time.ms"))
        leader = Leader(self._me, rules.next_epoch(isr.epoch if isr else rules.NO_EPOCH))
        try:
            await self._zookeeper.create(paths.leader(topic, index), leader.encode(), ephemeral=True)
        except (NodeExists, NoNode):
            return  # another was faster, or the partition is gone: whatever it is, its watch fires
        await self._become_leader(isr, leader, replicas)

    async def _become_leader(self, isr: Isr | None, elected: Leader, assigned: tuple[int, ...]) -> None:
        """001, becomeLeader. isr: as it was read before the election, whose epoch the new one follows."""
        zookeeper, partition = self._zookeeper, self.partition
        topic, index = partition.topic, partition.index
        self._fetching.stop(partition)
        self._followed = None
        self._changed.clear()  # of its own node it has heard as well
        found = await reading.read(zookeeper, paths.leader(topic, index), self._hear)
        if found is None or found[1].owner != zookeeper.session:
            self._changed.set()  # its session is over
            return
        latest = await reading.read(zookeeper, paths.isr(topic, index))
        if (None if latest is None else Isr.decode(latest[0])) != isr:
            # Another led and failed since it was read, or one that was deposed has written it: it stands again.
            await self.give_up_leadership()
            return
        epoch = elected.epoch
        members = isr.brokers if isr and isr.brokers else (self._me,)
        try:
            version = await self._write_first_isr(Isr(tuple(sorted(members)), epoch), latest)
        except (BadVersion, NoNode):
            await self.give_up_leadership()
            return
        self._term = (found[1].owner, epoch)
        partition.begin_leading(epoch, members, version, assigned)
        log.info("leads", extra={"partition": str(partition), "epoch": epoch, "end": partition.log.end_offset})
        if not await self._wait_for_followers(assigned):
            return
        committing = Committing(
            partition, zookeeper, self._state_changes, self._me, self._config, self._progress, self.give_up_leadership
        )
        try:
            caught_up = {self._me, *filter(self._has_caught_up, assigned)}
            await committing.write_isr(rules.isr_of_new_leader(partition.isr, assigned, caught_up))
        except (BadVersion, NoNode):
            await self.give_up_leadership()
            return
        catching_up = set(assigned) - partition.isr
        partition.serve(sorted(catching_up))
        self._committing = start_task(committing.run(), self._failed)
        self._led(partition)
        if self._config["v2.close.isr"]:
            await self._ask_to_start(catching_up)

    async def _ask_to_start(self, replicas: Iterable[int]) -> None:
        """An earlier leader may have asked them to close, and its term have ended as they were to stay after all."""
        topic, index, epoch = self.partition.topic, self.partition.index, self.partition.leader_epoch
        for replica in sorted(replicas):
            await self._state_changes.send("start-replica", topic, index, replica, epoch, self._me)

    async def _write_first_isr(self, isr: Isr, latest: tuple[bytes, Stat] | None) -> int:
        """The version that its node has then. latest: as it was read last; None: there was none."""
        path = paths.isr(self.partition.topic, self.partition.index)
        if latest is None:
            with suppress(NodeExists):
                await self._zookeeper.create(path, isr.encode())
                return 0
        known = 0 if latest is None else latest[1].version
        version = rules.expected_isr_version(known, self._config["v2.isr.versioned"])
        return (await self._zookeeper.set(path, isr.encode(), version)).version

    async def _wait_for_followers(self, assigned: tuple[int, ...]) -> bool:
        """Until every live replica has all that this one has, or they have had their time. False: the leader's node has
        changed meanwhile, and is looked at again."""
        try:
            async with asyncio.timeout(self._config.seconds("replica.lag.time.max.ms")):
                while await self._is_still_elected():
                    self._progress.clear()
                    live = set(await reading.live_brokers(self._zookeeper))
                    if all(self._has_caught_up(r) for r in assigned if r in live and r != self._me):
                        return True
                    await self._progress.wait()
                return False
        except TimeoutError:
            return await self._is_still_elected()

    async def _is_still_elected(self) -> bool:
        """Is the leader's node its own, if there is reason to look?"""
        if not self._changed.is_set():
            return True
        self._changed.clear()
        path = paths.leader(self.partition.topic, self.partition.index)
        is_own = False
        try:
            found = await reading.read(self._zookeeper, path, self._hear)
            is_own = found is not None and (found[1].owner, Leader.decode(found[0]).epoch) == self._term
        finally:
            if not is_own:  # or it took too long to find out
                self._changed.set()
        return is_own

    def _has_caught_up(self, replica: int) -> bool:
        leadership = self.partition.leadership
        return leadership is not None and leadership.end_of(replica) >= self.partition.high_watermark
