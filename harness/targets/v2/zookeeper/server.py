"""A server of the model: a simulated process, to which whatever befalls processes may happen.

Servers agree on one order of transactions by a log that they replicate as kraft's controllers do theirs
(cluster_image/kraft/raft): what is committed is on the disks of a majority. Each applies it to a tree of its own, and
answers reads from that; so what it answers may be older than what another has answered, and never older than what it
has answered before. A session's write is answered once the server that the session is connected to has applied it.

As with Apache ZooKeeper a server serves clients only while it leads or follows a leader, and hangs up on all of them
when it does not any more; servers tell the leader which sessions they have heard of, and the leader ends a session that
nobody has heard of for its time, by its own clock.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from cluster_image import wire
from cluster_image.kraft.raft import NotLeader, QuorumConfig, RaftClient, rpc
from cluster_image.network import Address, Connection, Entity, Foreign, Network, Peer
from cluster_image.network.tasks import Failed, start_task
from cluster_image.storage.disk import Disk
from cluster_image.telemetry.trace import Trace, no_trace
from cluster_image.v2.zookeeper import Event, EventType, SessionExpired, ZooKeeperError

from . import messages
from .messages import Answer, Call, Connect, Connected, Numbered, Propose, Status, Taken, Touch
from .tree import Applied, Change, End, Move, Open, Transaction, Tree, decode, encode

log = logging.getLogger("cluster_image.v2.zookeeper")

#: In seconds: heartbeats, and how many of them a server may miss (tickTime, syncLimit).
TICK_S: Final = 0.5
SYNC_LIMIT: Final = 4
#: Sessions last for 2 to 20 ticks, whatever a client asks for.
SHORTEST_SESSION_S: Final = 2 * TICK_S
LONGEST_SESSION_S: Final = 20 * TICK_S
_LOOK_S: Final = TICK_S / 10
_LOG: Final = "version-2"
#: Of a message, in bytes: about what Apache ZooKeeper's have.
_SIZE: Final = 100

QUORUM: Final = QuorumConfig(
    election_timeout=0.5,
    fetch_timeout=SYNC_LIMIT * TICK_S,
    election_backoff_max=0.5,
    request_timeout=SYNC_LIMIT * TICK_S,
)


def foreign(content: Any) -> Foreign:
    return Foreign(content, _SIZE + sum(len(each) for each in content if isinstance(each, bytes | str)))


class _Client:
    """A session, for as long as it is connected here."""

    def __init__(self, session: int, owner: int) -> None:
        self.session = session
        self.owner = owner
        self.data_watches: set[str] = set()
        self.child_watches: set[str] = set()
        self.events: deque[Numbered] = deque()
        self.answered = 0  # calls
        self.last_event = 0
        self.news = asyncio.Event()
        self.gone = False

    def watch(self, asked: messages.Get | messages.Exists | messages.Children) -> None:
        (self.child_watches if isinstance(asked, messages.Children) else self.data_watches).add(asked.path)

    def hear(self, event: Event) -> None:
        """Each watch fires once; of a node that is deleted both kinds do, as one event."""
        kinds = {EventType.CHILD: (self.child_watches,), EventType.DELETED: (self.data_watches, self.child_watches)}
        fired = [watches for watches in kinds.get(event.type, (self.data_watches,)) if event.path in watches]
        for watches in fired:
            watches.remove(event.path)
        if fired:
            self.last_event += 1
            self.events.append(Numbered(self.last_event, self.answered, event))
            self.news.set()

    def told(self, up_to: int) -> None:
        while self.events and self.events[0].number <= up_to:
            self.events.popleft()

    def leave(self) -> None:
        self.gone = True
        self.news.set()


class ZooKeeperServer:
    """Implements harness.targets.target.SimulatedProcess and cluster_image.kraft.raft.RaftListener. servers: all, by
    id."""

    def __init__(
        self,
        node_id: int,
        servers: Mapping[int, Address],
        disk: Disk,
        network: Network,
        random: Random,
        failed: Failed,
        trace: Trace = no_trace,
        *,
        wall_clock: Callable[[], float],
    ) -> None:
        self._id = node_id
        self._servers = servers
        self._network = network
        self._failed = failed
        self._trace = trace
        self._raft = RaftClient(
            node_id, servers, "zookeeper", disk, _LOG, network, random, QUORUM, self, wall_clock=wall_clock, trace=trace
        )
        self._tree = Tree()
        self._tag = f"{random.getrandbits(64):x}"
        self._numbers = itertools.count()
        self._asked: dict[str, asyncio.Future[Applied]] = {}  # by tag
        self._clients: dict[int, _Client] = {}  # by session
        self._heard: dict[int, None] = {}  # sessions, since the leader was told
        self._due: dict[int, float] = {}  # as leader: when sessions end that nobody hears of
        self._leads = False
        self._follows: tuple[int, int] | None = None  # leader and epoch
        self._to_leader: Connection | None = None
        self._connecting = asyncio.Lock()

    @property
    def raft(self) -> RaftClient:
        return self._raft

    @property
    def tree(self) -> Tree:
        return self._tree

    @property
    def leads(self) -> bool:
        return self._leads

    @property
    def loaded(self) -> bool:
        return self._raft.quorum is not None

    async def run(self, stop: Any) -> None:
        self._trace("start", node_id=self._id, voters=tuple(self._servers))
        self._loop = asyncio.get_running_loop()
        await self._raft.start()
        self._raft.failed.add_done_callback(self._quorum_failed)
        await self._network.listen(self._servers[self._id], self._handle, wire.SUPPORTED["controller"])
        tasks = [start_task(self._every(_LOOK_S, self._look), self._failed)]
        tasks.append(start_task(self._tell_leader(), self._failed))
        await stop.wait()
        for task in tasks:
            task.cancel()
        self._hang_up()
        await self._raft.close()
        await self._network.close()

    def _quorum_failed(self, failed: asyncio.Future[None]) -> None:
        error = None if failed.cancelled() else failed.exception()
        if error is not None:
            self._failed(error)

    @staticmethod
    async def _every(interval: float, action: Callable[[], None]) -> None:
        while True:
            action()
            await asyncio.sleep(interval)

    # -- what the quorum tells --------------------------------------------------------------------------------

    def on_commit(self, base_offset: int, epoch: int, records: list[bytes]) -> None:
        for offset, record in enumerate(records, base_offset):
            tag, transaction = decode(record)
            applied = self._tree.apply(offset + 1, transaction)
            if self._leads and not isinstance(applied.result, Exception):
                self._track(transaction, applied)
            for event in applied.events:
                for client in list(self._clients.values()):
                    client.hear(event)
            if isinstance(transaction, End) and transaction.session in self._clients:
                self._clients.pop(transaction.session).leave()
            asked = self._asked.pop(tag, None)
            if asked is not None and not asked.done():
                asked.set_result(applied)

    def _track(self, transaction: Transaction, applied: Applied) -> None:
        match transaction:
            case Open() | Move():
                session: int = applied.result[0]
                self._due[session] = self._loop.time() + self._tree.sessions[session].timeout_ms / 1000
            case End(session):
                self._due.pop(session, None)

    def on_snapshot(self, end_offset: int, epoch: int, records: list[bytes]) -> None:
        self._hang_up()  # nobody could tell these clients which of their watches would have fired
        self._tree = Tree.of(records)

    def snapshot(self) -> Sequence[bytes]:
        return list(self._tree.records())

    def on_leader(self, epoch: int) -> None:
        """Every session gets its whole time anew."""
        self._leads = True
        now = self._loop.time()
        self._due = {session: now + each.timeout_ms / 1000 for session, each in self._tree.sessions.items()}

    def on_resign(self, epoch: int) -> None:
        self._leads = False

    # -- by the clock -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._raft.expire()  # a leader that stood still may be none any more
        leader = self._raft.leader_id
        follows = None if leader is None else (leader, self._raft.leader_epoch)
        if follows != self._follows:
            self._follows = follows
            self._hang_up()
        if self._leads:
            self._end_sessions()

    def _hang_up(self) -> None:
        """On all clients: each will look for another server, or come back."""
        for client in self._clients.values():
            client.leave()
        self._clients.clear()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectionError("this server has lost its leader"))
        self._asked.clear()
        if self._to_leader is not None:
            self._to_leader.close()
            self._to_leader = None

    def _end_sessions(self) -> None:
        now = self._loop.time()
        for session in [session for session, due in self._due.items() if due < now]:
            del self._due[session]
            try:
                self._raft.append([encode(End(session))])
            except NotLeader:
                return

    async def _tell_leader(self) -> None:
        while True:
            await asyncio.sleep(TICK_S / 2)
            heard, self._heard = tuple(self._heard), {}
            if heard:
                # If this fails, whoever leads by then is told of those that are heard of again.
                with suppress(ConnectionError, TimeoutError):
                    await self._ask_leader(Touch(heard))

    async def _ask_leader(self, what: Propose | Touch) -> None:
        """Raises ConnectionError, TimeoutError: it may have been done all the same."""
        leader = self._raft.leader_id
        if leader is None:
            raise ConnectionError("no leader is known")
        if leader == self._id:
            taken = self._lead(what)
        else:
            async with self._connecting:
                if self._to_leader is None or self._to_leader.closed:
                    self._to_leader = await self._network.connect(
                        self._servers[leader], client_id=f"zookeeper-{self._id}", timeout=QUORUM.request_timeout
                    )
                connection = self._to_leader
            answer = await connection.request(foreign(what), timeout=QUORUM.request_timeout)
            taken = answer.content
        if not taken.taken:
            raise ConnectionError(f"server {leader} does not lead")

    def _lead(self, what: Propose | Touch) -> Taken:
        if not self._leads:
            return Taken(False)
        if isinstance(what, Touch):
            now = self._loop.time()
            for session in what.sessions:
                known = self._tree.sessions.get(session)
                if known is not None and session in self._due:
                    self._due[session] = now + known.timeout_ms / 1000
            return Taken(True)
        try:
            self._raft.append([what.record])
        except NotLeader:
            return Taken(False)
        return Taken(True)

    # -- requests ---------------------------------------------------------------------------------------------

    async def _handle(self, request: Entity, peer: Peer) -> Entity:
        """Raises ConnectionError, which closes the connection: for clients, that it is lost."""
        if isinstance(request, rpc.REQUESTS):
            return await self._raft.handle(request, peer)
        if not isinstance(request, Foreign):
            raise ConnectionError(f"{type(request).__name__} is not for ZooKeeper")
        match request.content:
            case Connect() as connect:
                return foreign(await self._connect(connect))
            case Call() as call:
                return foreign(await self._call(call))
            case Status():
                return foreign(Status(self._leads))
            case Propose() | Touch() as what:
                return foreign(self._lead(what))
            case other:
                raise ConnectionError(f"{type(other).__name__} is no request")

    async def _agree(self, transaction: Transaction) -> Applied:
        """Returns once it is committed, and applied here. Raises ConnectionError, TimeoutError: nobody knows."""
        tag = f"{self._tag}/{next(self._numbers)}"
        applied = self._asked[tag] = self._loop.create_future()
        try:
            await self._ask_leader(Propose(encode(transaction, tag)))
            return await applied
        except TimeoutError as error:
            raise ConnectionError("the leader does not answer") from error
        finally:
            self._asked.pop(tag, None)
            applied.cancel()

    async def _connect(self, connect: Connect) -> Connected | Answer:
        """Raises ConnectionError: another server may do. An Answer: the session has expired."""
        if connect.seen > self._tree.zxid:
            raise ConnectionError(f"this server has seen less ({self._tree.zxid}) than the client ({connect.seen})")
        if connect.session:
            applied = await self._agree(Move(connect.session))
        else:
            seconds = min(max(connect.timeout_ms / 1000, SHORTEST_SESSION_S), LONGEST_SESSION_S)
            applied = await self._agree(Open(round(seconds * 1000)))
        if isinstance(applied.result, SessionExpired):
            return Answer(None, applied.result, self._tree.zxid, ())
        session, owner = applied.result
        if session in self._clients:
            self._clients[session].leave()
        self._clients[session] = _Client(session, owner)
        return Connected(session, owner, self._tree.zxid)

    async def _call(self, call: Call) -> Answer:
        client = self._clients.get(call.session)
        if client is None or client.owner != call.owner:
            raise ConnectionError(f"session {call.session} is not connected here")
        self._heard[call.session] = None
        client.told(call.events)
        result: object = None
        error: Exception | None = None
        try:
            result = await self._do(client, call.asked)
        except ZooKeeperError as refused:
            error = refused
        if client.gone and not isinstance(call.asked, messages.Close):
            raise ConnectionError("this server has lost its leader, or the session")
        events = tuple(client.events)
        if not isinstance(call.asked, messages.Wait):
            client.answered += 1
        return Answer(result, error, self._tree.zxid, events)

    async def _do(self, client: _Client, asked: messages.Asked) -> object:
        match asked:
            case messages.Get(path):
                node = self._tree.get(path)
                if asked.watch:
                    client.watch(asked)
                return node.data, node.stat
            case messages.Exists(path):
                found = self._tree.node(path)
                if asked.watch:
                    client.watch(asked)
                return None if found is None else found.stat
            case messages.Children(path):
                names = sorted(self._tree.get(path).children)
                if asked.watch:
                    client.watch(asked)
                return names
            case messages.Write(operations):
                return self._outcome(await self._agree(Change(client.session, client.owner, operations)))
            case messages.Close():
                return self._outcome(await self._agree(End(client.session)))
            case messages.Wait():
                await self._wait(client)
                return None

    @staticmethod
    def _outcome(applied: Applied) -> object:
        if isinstance(applied.result, Exception):
            raise applied.result
        return applied.result

    async def _wait(self, client: _Client) -> None:
        """For an event, or a third of the session's time: then its client must be heard of again."""
        known = self._tree.sessions.get(client.session)
        timeout = SHORTEST_SESSION_S if known is None else known.timeout_ms / 1000
        client.news.clear()
        if client.events or client.gone:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout / 3):
                await client.news.wait()
