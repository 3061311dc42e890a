"""The quorum's asyncio edge: timers, connections, waiting requests, and the listener that gets what is committed.

Everything enters `Quorum` synchronously. Whatever entered, one `_step` follows soon after, on the same turn of the
event loop for all that came together, so that one sync of the log serves them all.

A failed write, a broken invariant or a listener that raises is final: the client stops taking part, and the future
`failed` holds the error. The process should then exit; it must not go on from a state that its disk does not hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, Protocol

from cluster_image.config import Config
from cluster_image.network import Address, Connection, Entity, Network, Peer
from cluster_image.storage.disk import Disk
from cluster_image.storage.log import LogConfig
from cluster_image.storage.records import decode_values, iter_batches
from cluster_image.telemetry.trace import Trace, no_trace

from . import rpc
from .config import QuorumConfig
from .leader import Leadership, WaitingFetch
from .outbox import Send
from .quorum import NotLeader, Quorum
from .snapshots import open_log
from .state import QuorumStateStore

logger = logging.getLogger(__name__)

DELIVERY_BYTES = 64 << 10
#: Records that are delivered in one step, and what is left of the last one's batch.
DELIVERED_AT_ONCE = 64


class RaftListener(Protocol):
    """Called synchronously, in the order of the log. A listener that raises stops the client for good."""

    def on_commit(self, base_offset: int, epoch: int, records: list[bytes]) -> None:
        """A batch of records is committed: on every voter and observer, each batch at most once in a process's life,
        and once unless `on_snapshot` stands for it."""

    def on_snapshot(self, end_offset: int, epoch: int, records: list[bytes]) -> None:
        """Forget everything: these records rebuild the state after all that is committed below `end_offset`, whose
        last record is of `epoch`. `on_commit` goes on from there. At start, or when this node had fallen behind."""

    def snapshot(self) -> Sequence[bytes]:
        """Records that rebuild the state as it is now, after all that `on_commit` and `on_snapshot` have brought."""

    def on_leader(self, epoch: int) -> None:
        """This node leads, and everything written in earlier epochs has been through `on_commit`."""

    def on_resign(self, epoch: int) -> None:
        """The leadership that `on_leader` announced is over."""


class QuorumWatch(Protocol):
    """Who judges what a quorum makes of what it is told: `enters` comes first, and one of the others at once after it.
    Whatever they find, they do not raise it: it would be an error of the node."""

    def enters(self, quorum: Quorum, now: float) -> None: ...

    def received(self, request: Entity, answer: Entity | WaitingFetch) -> None: ...

    def responded(self, receiver: int, request: Entity, response: Entity) -> None: ...

    def expired(self) -> None: ...


class _Unwatched:
    """A QuorumWatch that looks at nothing."""

    def enters(self, quorum: Quorum, now: float) -> None: ...

    def received(self, request: Entity, answer: Entity | WaitingFetch) -> None: ...

    def responded(self, receiver: int, request: Entity, response: Entity) -> None: ...

    def expired(self) -> None: ...


class RaftClient:
    """One node's part in the metadata quorum: a voter if `node_id` is among `voters`, else an observer.

    `directory`: of the log and the quorum-state file, relative to the disk's root. Set `listener` before `start`.
    """

    def __init__(
        self,
        node_id: int,
        voters: Mapping[int, Address],
        cluster_id: str,
        disk: Disk,
        directory: str,
        network: Network,
        random: Random,
        config: Config | QuorumConfig,
        listener: RaftListener | None = None,
        *,
        wall_clock: Callable[[], float],
        trace: Trace = no_trace,
    ) -> None:
        self.node_id = node_id
        self.voters = dict(sorted(voters.items()))
        self.listener = listener
        self.watch: QuorumWatch = _Unwatched()
        self._cluster_id = cluster_id
        self._disk = disk
        self._directory = directory
        self._network = network
        self._random = random
        self._wall_clock = wall_clock
        self._trace = trace
        self._config = config if isinstance(config, QuorumConfig) else QuorumConfig.of(config)
        self._delivered = 0  # everything below has been through on_commit or on_snapshot
        self._bytes_delivered = 0  # since the last snapshot
        self._snapshot_due = float("inf")  # by its interval
        self._last_timestamp_ms = 0  # of what was delivered
        self._announced: int | None = None  # the epoch of which on_leader was told
        self._connections: dict[tuple[int, type], Connection] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}  # a dict, for its order
        self._waiting: dict[WaitingFetch, asyncio.Future[Entity]] = {}
        self._commits: list[tuple[int, int, asyncio.Future[None]]] = []  # (epoch, offset, awaited)
        self._step_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = True  # until start() has succeeded

    async def start(self) -> None:
        """Recover the log and take part. Raises OSError, QuorumStateError, InvariantViolation."""
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._log, snapshots = open_log(
            self._disk, self._directory, LogConfig(segment_bytes=self._config.segment_bytes)
        )
        store = QuorumStateStore(self._disk, self._directory)
        self._quorum = Quorum(
            self.node_id,
            self.voters,
            self._cluster_id,
            self._log,
            store,
            self._random,
            self._config,
            self._loop.time(),
            wall_clock=self._wall_clock,
            snapshots=snapshots,
            trace=self._trace,
        )
        self._closed = False
        self._wake()

    async def close(self) -> None:
        """Stop. A leader first hands over, for which it waits half a request timeout at most."""
        if self._closed:
            return
        if not self.failed.done():
            with self._entering():
                self._quorum.resign(self._loop.time())
            deadline = self._loop.time() + self._config.request_timeout / 2
            while not self._quorum.resignation_is_known and self._loop.time() < deadline:
                await asyncio.sleep(0.01)
        self._stop()
        if not self.failed.done():
            self.failed.cancel()
            self._log.close()

    # -- what is known ----------------------------------------------------------------------------------------

    @property
    def quorum(self) -> Quorum | None:
        """To look at, not to act on: the core; None while this node takes no part."""
        return None if self._closed else self._quorum

    @property
    def leader_id(self) -> int | None:
        """The leader that this node follows or is; None if it knows of none now."""
        return None if self._closed else self._quorum.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._quorum.epoch

    @property
    def is_leader(self) -> bool:
        return self._leadership is not None

    @property
    def high_watermark(self) -> int:
        """Everything below is committed; `on_commit` may have some of it still to see."""
        return self._quorum.replica.high_watermark

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.end_offset

    @property
    def _leadership(self) -> Leadership | None:
        return None if self._closed else self._quorum.leadership

    def expire(self) -> None:
        """Let the quorum's timer act now, if it is due: a leader that stood still may have been deposed meanwhile."""
        with self._entering():
            self._enters()
            self._quorum.expire(self._loop.time())
            self.watch.expired()
            self._deliver()

    # -- writing ----------------------------------------------------------------------------------------------

    def append(self, records: Sequence[bytes]) -> int:
        """As leader, write records as one batch; returns the offset of the last. Raises NotLeader, OSError."""
        if self._closed:
            raise NotLeader("this node has left the quorum")
        with self._entering():
            return self._quorum.append(records, self._loop.time())

    async def committed(self, offset: int, timeout: float) -> None:
        """Wait until what this leader appended at `offset` is committed and has been through `on_commit`.

        Raises NotLeader if the leadership that appended it is over: it may or may not get committed; TimeoutError.
        """
        leadership = self._leadership
        if leadership is None or offset < leadership.epoch_start_offset:
            raise NotLeader(f"node {self.node_id} no longer leads the epoch in which offset {offset} was written")
        if offset < self._delivered:
            return
        awaited: asyncio.Future[None] = self._loop.create_future()
        self._commits.append((leadership.epoch, offset, awaited))
        async with asyncio.timeout(timeout):
            await awaited

    # -- requests that come -----------------------------------------------------------------------------------

    async def handle(self, request: Entity, peer: Peer) -> Entity:
        """Answer a request of the quorum. Raises ValueError for a version that is not served, ConnectionError when
        this node no longer takes part; either should close the peer's connection."""
        if not isinstance(request, rpc.REQUESTS):
            raise ValueError(f"{type(request).__name__} version {request.__version__} is not served")
        if self._closed:
            raise ConnectionError("this node has left the quorum")
        with self._entering():
            self._enters()
            answer = self._quorum.receive(request, self._loop.time())
            self.watch.received(request, answer)
        if not isinstance(answer, WaitingFetch):
            return answer
        future: asyncio.Future[Entity] = self._loop.create_future()
        self._waiting[answer] = future
        try:
            return await future
        finally:
            self._waiting.pop(answer, None)
            self._quorum.forget(answer)

    # -- steps ------------------------------------------------------------------------------------------------

    def _enters(self) -> None:
        self.watch.enters(self._quorum, self._loop.time())

    @contextmanager
    def _entering(self) -> Iterator[None]:
        """Around every entry to the core but `poll`."""
        try:
            yield
        except NotLeader:
            raise
        except Exception as error:
            self._fail(error)
            raise
        finally:
            self._wake()

    def _wake(self) -> None:
        if not self._step_due and not self._closed:
            self._step_due = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._step_due = False
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._enters()
            output = self._quorum.poll(self._loop.time())
            self.watch.expired()
            self._deliver()
        except Exception as error:
            self._fail(error)
            return
        for waiting, answer in output.answers:
            future = self._waiting.get(waiting)
            if future is not None and not future.done():
                future.set_result(answer)
        for send in output.requests:
            task = self._loop.create_task(self._send(send))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        wake_at = min(output.wake_at, self._snapshot_due)
        if wake_at != float("inf"):
            self._timer = self._loop.call_at(wake_at, self._wake)

    def _deliver(self) -> None:
        """Tell the listener what has happened, in this order: a leadership lost, records committed, one won. Then
        write a snapshot if one is due. Of many records some are left for the next step, and what comes after them."""
        leadership = self._quorum.leadership
        epoch = None if leadership is None else leadership.epoch
        if self._announced not in (None, epoch):
            lost, self._announced = self._announced, None
            if self.listener is not None:
                self.listener.on_resign(lost)
        high_watermark = self._quorum.replica.high_watermark
        news = self._delivered < high_watermark
        self._deliver_snapshot()
        enough = self._delivered + DELIVERED_AT_ONCE
        while self._delivered < high_watermark:
            data = self._log.read(self._delivered, DELIVERY_BYTES, high_watermark)
            assert data, f"the high watermark {high_watermark} does not lie between batches"
            for start, end, header in iter_batches(data):
                if self._delivered >= enough:
                    self._wake()
                    return
                self._delivered = header.next_offset
                self._count(end - start, header.max_timestamp)
                if self.listener is not None and not header.is_control:
                    records = [value for _, _, value in decode_values(data[start:end])]
                    self.listener.on_commit(header.base_offset, header.leader_epoch, records)
        if news:
            self._trace("metadata", offset=self._delivered)
        self._settle_commits(epoch)
        if leadership is not None and self._announced is None and high_watermark > leadership.epoch_start_offset:
            self._announced = leadership.epoch
            if self.listener is not None:
                self.listener.on_leader(leadership.epoch)
        self._write_snapshot_if_due()

    def _deliver_snapshot(self) -> None:
        """If there is one that reaches further than what the listener has seen."""
        replica = self._quorum.replica
        snapshot = replica.snapshots.latest
        if snapshot is not None and snapshot.end_offset > self._delivered:
            self._delivered = snapshot.end_offset
            self._snapshot_written()
            if self.listener is not None:
                self.listener.on_snapshot(*snapshot, replica.snapshots.read(snapshot))

    def _count(self, size: int, timestamp_ms: int) -> None:
        if not self._bytes_delivered and self.listener is not None:
            self._snapshot_due = self._loop.time() + self._config.snapshot_interval
        self._bytes_delivered += size
        self._last_timestamp_ms = timestamp_ms

    def _write_snapshot_if_due(self) -> None:
        due = self._bytes_delivered >= self._config.snapshot_bytes or self._loop.time() >= self._snapshot_due
        if due and self._bytes_delivered and self.listener is not None:
            self._quorum.replica.make_snapshot(self._delivered, self.listener.snapshot(), self._last_timestamp_ms)
            self._snapshot_written()

    def _snapshot_written(self) -> None:
        self._bytes_delivered, self._snapshot_due = 0, float("inf")

    def _settle_commits(self, epoch: int | None) -> None:
        unsettled = []
        for written_in, offset, awaited in self._commits:
            if awaited.done():
                continue
            if written_in != epoch:
                awaited.set_exception(NotLeader(f"leadership of epoch {written_in} is over"))
            elif offset < self._delivered:
                awaited.set_result(None)
            else:
                unsettled.append((written_in, offset, awaited))
        self._commits = unsettled

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            logger.critical("this node leaves the metadata quorum: %s", error, exc_info=error)
            self.failed.set_exception(error)
        self._stop()

    def _stop(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        self._settle_commits(None)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("this node has left the quorum"))

    # -- requests that go -------------------------------------------------------------------------------------

    async def _send(self, send: Send) -> None:
        """Send one request, and tell the quorum what became of it."""
        response: Any = None
        try:
            connection = await self._connect(send)
            response = await connection.request(send.request, timeout=self._config.request_timeout)
        except Exception as error:  # whatever it was, there is no answer
            logger.debug("%s to node %d: %s", type(send.request).__name__, send.receiver, error)
        if self._closed:
            return
        now = self._loop.time()
        with suppress(Exception), self._entering():  # _entering keeps the error
            if response is None:
                self._quorum.fail(send.receiver, send.request, now)
            else:
                self._enters()
                self._quorum.respond(send.receiver, send.request, response, now)
                self.watch.responded(send.receiver, send.request, response)

    async def _connect(self, send: Send) -> Connection:
        """A connection for each kind of request: a fetch that waits must not hold up a vote."""
        key = (send.receiver, type(send.request))
        connection = self._connections.get(key)
        if connection is None or connection.closed:
            connection = self._connections[key] = await self._network.connect(
                self.voters[send.receiver], client_id=f"raft-{self.node_id}", timeout=self._config.request_timeout
            )
        return connection
