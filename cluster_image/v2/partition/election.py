"""Who leads a partition (001, "Leader election", "Leader change"), for one replica of this broker.

Every partition is followed by a task of its own, which looks at its leader's node and hears of every change of it: so a
leader change waits for no other notification.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.network import Address
from cluster_image.network.tasks import Failed, start_task

from .. import rules
from ..metadata import paths, reading
from ..metadata.paths import Isr, Leader
from ..state_changes import StateChanges
from ..zookeeper import BadVersion, Event, NodeExists, NoNode, ZooKeeper
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
        """There is another session: what was watched is watched no more."""
        self._changed.set()

    async def close(self, error: ErrorCode) -> None:
        """001, closeReplica, but for the log. If it leads, nobody does from now on."""
        self._task.cancel()
        self._stop_leading(error)
        self._fetching.stop(self.partition)
        self.partition.remove(error)
        await self.give_up_leadership()

    def stop(self) -> None:
        """This broker stops."""
        self._task.cancel()
        self._stop_leading(ErrorCode.not_leader_or_follower)
        self._fetching.stop(self.partition)

    # -- the leader's node ------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        self._changed.set()

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
        await self._become_leader(isr, replicas)

    async def _become_leader(self, isr: Isr | None, assigned: tuple[int, ...]) -> None:
        """001, becomeLeader. isr: as it was read before the election."""
        zookeeper, partition = self._zookeeper, self.partition
        topic, index = partition.topic, partition.index
        session = zookeeper.session
        self._fetching.stop(partition)
        self._followed = None
        latest = await reading.isr_of(zookeeper, topic, index)
        epoch = rules.next_epoch(latest.epoch if latest else rules.NO_EPOCH)
        members = isr.brokers if isr and isr.brokers else (self._me,)
        try:
            await zookeeper.set(paths.leader(topic, index), Leader(self._me, epoch).encode())
            version = await self._write_first_isr(Isr(tuple(sorted(members)), epoch))
        except NoNode:
            return  # the session has expired meanwhile, or the partition is gone
        self._term = (session, epoch)
        leadership = partition.begin_leading(epoch, members, version, assigned)
        self._led(partition)
        log.info("leads", extra={"partition": str(partition), "epoch": epoch, "end": partition.log.end_offset})
        await self._wait_for_followers(assigned)
        if partition.leadership is not leadership:
            return
        committing = Committing(
            partition, zookeeper, self._state_changes, self._me, self._config, self._progress, self.give_up_leadership
        )
        try:
            await committing.write_isr(r for r in assigned if r == self._me or self._has_caught_up(r))
        except (BadVersion, NoNode):
            return
        catching_up = set(assigned) - partition.isr
        partition.serve(sorted(catching_up), await reading.reassigned_to(zookeeper, topic, index))
        self._committing = start_task(committing.run(), self._failed)
        self._led(partition)

    async def _write_first_isr(self, isr: Isr) -> int:
        """The version that its node has then."""
        path = paths.isr(self.partition.topic, self.partition.index)
        while True:
            try:
                await self._zookeeper.create(path, isr.encode())
                return 0
            except NodeExists:
                return (await self._zookeeper.set(path, isr.encode())).version

    async def _wait_for_followers(self, assigned: tuple[int, ...]) -> None:
        """Until every live replica has all that this one has, or they have had their time."""
        try:
            async with asyncio.timeout(self._config.seconds("replica.lag.time.max.ms")):
                while True:
                    self._progress.clear()
                    live = set(await reading.live_brokers(self._zookeeper))
                    if all(self._has_caught_up(r) for r in assigned if r in live and r != self._me):
                        return
                    await self._progress.wait()
        except TimeoutError:
            pass

    def _has_caught_up(self, replica: int) -> bool:
        leadership = self.partition.leadership
        return leadership is not None and leadership.end_of(replica) >= self.partition.high_watermark
