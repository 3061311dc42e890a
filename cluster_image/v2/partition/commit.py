"""The commit thread of a partition's leader (001, "Commit thread on the leader"): takes one request after another from
the commit queue, waits for the ISR to have it, drops who is too slow, and lets in who has caught up.

All that a leader decides it decides here, and so only while something is produced: by 001 an idle partition's ISR never
grows, its reassignment never ends, and its preferred replica never leads again. (v2.idle.checks: also now and then.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from cluster_image.config import Config

from .. import rules
from ..metadata import paths, reading
from ..metadata.paths import Isr
from ..state_changes import StateChanges
from ..zookeeper import (
    BadVersion,
    ConnectionLoss,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SetData,
    Stat,
    ZooKeeper,
)
from .leadership import Leadership, Produced
from .replica import Partition

log = logging.getLogger(__name__)

#: Requests that are committed before all else has its turn.
_AT_ONCE: Final = 64


class Committing:
    """progress: is set when a follower has fetched, or something was produced. give_up: ends the leadership, and
    deletes the leader's node."""

    def __init__(
        self,
        partition: Partition,
        zookeeper: ZooKeeper,
        state_changes: StateChanges,
        broker: int,
        config: Config,
        progress: asyncio.Event,
        give_up: Callable[[], Awaitable[None]],
    ) -> None:
        assert partition.leadership is not None
        self._partition = partition
        self._leadership: Leadership = partition.leadership
        self._zookeeper = zookeeper
        self._state_changes = state_changes
        self._me = broker
        self._config = config
        self._keep_in_sync = config.seconds("replica.lag.time.max.ms")
        self._progress = progress
        self._give_up = give_up
        self._look_at: float | None = None  # when an idle partition is to be looked at next

    async def run(self) -> None:
        """Until it leads no longer, by its own decision or by whoever cancels this."""
        done = 0
        while True:
            produced = await self._next()
            try:
                goes_on = await self._commit(produced)
            except (BadVersion, NoNode):
                # Another has led since (v2.isr.versioned), or the partition is gone.
                log.warning("ISR not written: not the leader any more", extra={"partition": str(self._partition)})
                goes_on = False
            if not goes_on:
                await self._give_up()
                await asyncio.get_running_loop().create_future()
            done += 1
            if done % _AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _next(self) -> Produced:
        """From the commit queue; where idle partitions are looked at too, an empty request now and then: also between
        others that come one by one, as whoever is a moment behind the ISR at each of them would never be let in."""
        queue, loop = self._leadership.queue, asyncio.get_running_loop()
        interval = self._keep_in_sync / 2 if self._config["v2.idle.checks"] else None
        if interval is not None and self._look_at is None:
            self._look_at = loop.time() + interval
        try:
            async with asyncio.timeout_at(self._look_at):
                while not queue:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            self._look_at = None
            return Produced(self._partition.log.end_offset, None)
        return queue[0]

    async def _commit(self, produced: Produced) -> bool:
        """False: it is to lead no longer, which comes last: by 001 the leader's node is deleted first, and another may
        lead while this request is acknowledged.

        The request is left in the queue until it is committed: if this ends first, its producer is told so."""
        partition, leadership = self._partition, self._leadership
        while (slow := await self._too_slow(produced.end)) is not None:
            leadership.catching_up.add(slow)
            await self.write_isr(partition.isr - {slow})
        joining = {
            replica
            for replica in leadership.catching_up
            if rules.may_join_isr(leadership.end_of(replica), produced.end) and not self._has_stopped(replica)
        }
        if joining:
            leadership.catching_up -= joining
            await self.write_isr(partition.isr | joining)
        goes_on = await self._check_reassigned(produced.end) and not self._gives_way()
        if leadership.queue and leadership.queue[0] is produced:
            leadership.queue.popleft()
        partition.commit(produced)
        return goes_on

    async def _too_slow(self, offset: int) -> int | None:
        """A member of the ISR that does not have it after replica.lag.time.max.ms. They are waited for in turn, each
        for as long: by 001 several slow ones take several times that."""
        for replica in sorted(self._partition.isr - {self._me}):
            if not await self._offset_reached(replica, offset) or self._has_stopped(replica):
                return replica
        return None

    def _has_stopped(self, replica: int) -> bool:
        return rules.has_stopped_fetching(
            self._leadership.last_caught_up(replica), asyncio.get_running_loop().time(), self._keep_in_sync,
            self._config["v2.idle.checks"],
        )  # fmt: skip

    async def _offset_reached(self, replica: int, offset: int) -> bool:
        leadership = self._leadership
        if rules.is_committed([leadership.end_of(replica)], offset):
            return True
        try:
            async with asyncio.timeout(self._keep_in_sync):
                while not rules.is_committed([leadership.end_of(replica)], offset):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    async def write_isr(self, members: Iterable[int]) -> None:
        """In ZooKeeper, and then here. Raises BadVersion: another has written it since; NoNode.

        What has set out is written whatever becomes of this leader meanwhile, and is told of in any case."""
        isr = Isr(tuple(sorted(members)), self._leadership.epoch)
        version = rules.expected_isr_version(self._leadership.isr_version, self._config["v2.isr.versioned"])
        writing = asyncio.create_task(self._write(isr, version))
        writing.add_done_callback(partial(self._written, isr))
        await asyncio.shield(writing)

    async def _write(self, isr: Isr, version: int) -> Stat:
        path = paths.isr(self._partition.topic, self._partition.index)
        try:
            return await self._zookeeper.set(path, isr.encode(), version)
        except BadVersion:
            found = await reading.read(self._zookeeper, path)
            latest = None if found is None else Isr.decode(found[0])
            if found is None or not rules.is_own_isr(latest, isr):
                self._partition.isr_refused(self._leadership, latest)
                raise
            return found[1]

    def _written(self, isr: Isr, writing: asyncio.Task[Stat]) -> None:
        if not writing.cancelled() and writing.exception() is None:
            self._partition.isr_written(self._leadership, isr.brokers, writing.result().version)

    # -- reassignment -----------------------------------------------------------------------------------------

    async def _check_reassigned(self, offset: int) -> bool:
        """001, checkReassignedReplicas. False: it is to lead no longer."""
        leadership, partition = self._leadership, self._partition
        coming = leadership.reassigned
        if not coming:
            return True
        ends = leadership.ends_of(coming, self._me, partition.log.end_offset)
        if not rules.has_reassignment_caught_up(ends, offset):
            return True
        old = set(leadership.assigned) - set(coming)
        sent, now = leadership.close_sent, asyncio.get_running_loop().time()
        if sent is not None and rules.may_complete_reassignment(old, set(partition.isr), self._me):
            return await self._complete_reassignment(coming)
        if sent is None or now - sent > 2 * self._keep_in_sync:
            # Once more to who has started since: it is still a replica, begins anew, and leaves no ISR by itself.
            going = old - {self._me}
            await self._leave_isr(going, set(coming))
            for replica in sorted(going):
                await self._close(replica)
            leadership.close_sent = now
        return True

    async def _leave_isr(self, going: set[int], coming: set[int]) -> None:
        before, leaves_isr = set(self._partition.isr), self._config["v2.close.isr"]
        isr = rules.isr_before_closing(before, going, coming, leaves_isr)
        if isr != before:
            await self.write_isr(isr)
        if leaves_isr:
            self._leadership.catching_up -= going | coming

    async def _complete_reassignment(self, coming: tuple[int, ...]) -> bool:
        """001, completePartitionReassignment; where its braces are not closed, the reassignment ends in any case."""
        partition = self._partition
        old = set(self._leadership.assigned) - set(coming)
        await self.write_isr(partition.isr | set(coming))
        if not await self._write_replicas(coming):
            return True  # its listener tells what is to be done instead
        with suppress(NoNode, NotEmpty):
            await self._zookeeper.delete(paths.reassigned_topic(partition.topic))
        partition.assign(coming)
        log.info("reassigned", extra={"partition": str(partition), "replicas": coming})
        # Others were asked before; but who has started since began anew. Itself last.
        for replica in sorted(old, key=lambda replica: replica == self._me):
            await self._close(replica)
        return self._me == coming[0]

    async def _write_replicas(self, replicas: tuple[int, ...]) -> bool:
        """In one step with the end of the reassignment: whoever gives that up meanwhile would close the new replicas,
        and this leader the old ones. False: it was given up, or the partition is to be moved elsewhere by now."""
        topic, index = self._partition.topic, self._partition.index
        found = await reading.read(self._zookeeper, paths.reassigned(topic, index))
        if found is None or found[0] != paths.encode_ids(replicas):
            return False
        path, data = paths.replicas(topic, index), paths.encode_ids(replicas)
        is_made = await self._zookeeper.exists(path) is not None  # not so while the partition is being made
        try:
            await self._zookeeper.multi([
                Delete(paths.reassigned(topic, index), found[1].version),
                SetData(path, data) if is_made else Create(path, data),
            ])  # fmt: skip
        except (NoNode, NodeExists, BadVersion):
            return False
        except (ConnectionLoss, SessionExpired):  # it may have been done
            is_over = await reading.reassigned_to(self._zookeeper, topic, index) is None
            return is_over and await reading.assigned_to(self._zookeeper, topic, index) == replicas
        return True

    async def _close(self, replica: int) -> None:
        partition = self._partition
        await self._state_changes.send(
            "close-replica", partition.topic, partition.index, replica, self._leadership.epoch, self._me
        )

    def _gives_way(self) -> bool:
        """001, checkLoadBalancing."""
        assigned = self._leadership.assigned
        return bool(assigned) and rules.gives_way_to_preferred(self._me, assigned[0], self._partition.isr)
