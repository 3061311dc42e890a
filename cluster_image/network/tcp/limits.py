"""What the peers of one listener may take of its node: memory, and turns on the event loop.

Of memory, by back-pressure where that is enough, and by closing connections where it is not:

- **Requests** (Kafka's queued.max.request.bytes). A large request is read on only once there is room for all of it.
  While others wait for room, whoever takes longest over a request that it has begun loses its connection, and so does
  who keeps room while all that is done for it is to wait. Who has requests waiting or being answered is not read from
  while there is no room. What was received and cannot be forgotten yet counts, whether or not its connection lives.
- **What compressed records become**, for a few at a time.
- **Answers** that are being made, and those that peers do not read: of all peers, and a quarter of it of one address.
  While there is no room for another, what would be a large one waits, and who has read nothing for the longest of
  those that take the room loses its connection.

Of turns: addresses share the time evenly, and in each cycle of the event loop requests are begun for so long only.
Between cycles the node does what nobody asked it for: heartbeats, fetches, the quorum. What comes in no turn is to
receive a request, so those larger than clients send unless they are told to are read at a rate, of each address.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

from cluster_image.network import Aside, Room
from cluster_image.network.shares import Shares
from cluster_image.telemetry.complaints import Complaints

T = TypeVar("T")

#: Requests of this size are read at once, as they come in a piece or two: nobody waits for room for them.
SMALL_BYTES: Final = 64 << 10
#: Beyond so much of a request, an address sends so many bytes a second (of all its requests that are so large). Clients
#: send a megabyte at a time, by default.
LARGE_BYTES: Final = 2 << 20
LARGE_BYTES_PER_S: Final = 64 << 20
#: What is read at once of them, if nothing was for a while.
LARGE_BURST_S: Final = 0.01
#: Whoever takes longer over a request, and the longest, may lose its connection to others that wait.
PATIENCE_S: Final = 0.25
#: Whose request does nothing but wait, and for longer, may lose its connection to others; who keeps most, first.
WAITING_S: Final = 5.0
#: How often it is looked who that is. Of answers less often: in place of one that is given up, another is made.
LOOK_S: Final = 0.05
ANSWER_LOOK_S: Final = 0.2
#: So many can each have their share of the memory for answers.
ADDRESSES: Final = 4
#: Of each cycle of the event loop, for beginning requests. Each takes what it takes: a millisecond, as a rule.
TURN_S: Final = 0.0005
#: What compressed records have become, at a time: compression.MOST_BYTES each, at most.
MOST_EXPANSIONS: Final = 3


class Peer(Protocol):
    """A connection, as seen from here."""

    @property
    def host(self) -> str:
        """Its address, without the port."""

    def read_on(self) -> None:
        """There is room now."""

    def give_up(self, reason: str) -> None:
        """Close the connection."""

    def unread_bytes(self) -> int:
        """Of what was written to it."""

    def kept_bytes(self) -> int:
        """For that: an answer is kept whole until the last of it is read."""

    def slowness(self, now: float) -> float:
        """Seconds for each byte of the request that has begun to come; 0.0: none has, or not for PATIENCE_S."""

    def waits_since(self) -> float:
        """When its request began to wait for something to happen (loop time); inf: it does not."""


class RequestMemory:
    """limit: bytes of requests that are large and begun, that wait, and that are being answered."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._held: dict[Peer, int] = {}
        self._total = 0
        self._waiting: dict[Peer, int] = {}  # what each wants to hold
        self._timer: asyncio.TimerHandle | None = None

    @property
    def total(self) -> int:
        return self._total

    def hold(self, peer: Peer, size: int) -> bool:
        """From now on this peer's requests take so many bytes. False: there is no room yet, and nothing has changed;
        it is told to read on once there is."""
        if self._admit(peer, size):
            self._waiting.pop(peer, None)
            self._let_in()
            return True
        self._waiting[peer] = size
        self._watch()
        return False

    def forget(self, peer: Peer) -> None:
        self._waiting.pop(peer, None)
        self._total -= self._held.pop(peer, 0)
        self._let_in()

    def _admit(self, peer: Peer, size: int) -> bool:
        held = self._held.get(peer, 0)
        if size > max(held, SMALL_BYTES) and self._total + size - held > self.limit:
            return False
        self._total += size - held
        self._held[peer] = size
        return True

    def _let_in(self) -> None:
        while self._waiting:
            peer, size = next(iter(self._waiting.items()))
            if not self._admit(peer, size):
                return
            del self._waiting[peer]
            peer.read_on()

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        now = asyncio.get_running_loop().time()
        slowest = max(self._held, key=lambda peer: peer.slowness(now), default=None)
        idle = (peer for peer, size in self._held.items() if size and now - peer.waits_since() > WAITING_S)
        largest = max(idle, key=self._held.__getitem__, default=None)
        if slowest is not None and slowest.slowness(now) > 0:
            slowest.give_up("others wait for the memory that its unfinished request takes")
        elif largest is not None:
            largest.give_up("others wait for the memory that its requests take, of which the first only waits")
        self._watch()


class AnswerMemory:
    """limit: bytes of large answers that are being made, and of answers that were written and that peers have not
    read. One address has a quarter of it."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self._unread: dict[Peer, tuple[int, int, float]] = {}  # kept; unread, and since when it has been no less
        self._made: dict[Peer, int] = {}  # so far, of what each will be answered
        self._total = 0
        self._taken: Counter[str] = Counter()  # by address, where it is any
        self._room: dict[str, asyncio.Future[None]] = {}  # by address, awaited by all there who wait
        self._looks = False

    @property
    def total(self) -> int:
        return self._total

    def note(self, peer: Peer) -> None:
        """Something was written to this peer, or it has read something, or is gone."""
        now, kept, unread = asyncio.get_running_loop().time(), peer.kept_bytes(), peer.unread_bytes()
        kept_before, before, since = self._unread.pop(peer, (0, 0, now))
        if unread:
            self._unread[peer] = kept, unread, since if unread >= before > 0 else now
        self._count(peer.host, kept - kept_before)

    def hold(self, peer: Peer, size: int) -> None:
        """What this peer will be answered has so many bytes by now. Whoever calls this says 0 when it is written, and
        when there is no answer after all."""
        before = self._made.pop(peer, 0)
        if size:
            self._made[peer] = size
        self._count(peer.host, size - before)

    def _count(self, host: str, more: int) -> None:
        if not more:
            return
        self._total += more
        self._taken[host] += more
        if not self._taken[host]:
            del self._taken[host]
        if self._room and more < 0:
            for waiting in [each for each in self._room if not self._is_full(each)]:
                self._room.pop(waiting).set_result(None)

    def _is_full(self, host: str) -> bool:
        return self._total >= self.limit or self._taken[host] >= self.limit // ADDRESSES

    async def room(self, host: str) -> None:
        """Until there is room for another answer to this address. Of all who wait for it, each looks again when it is
        its turn: the answers of hundreds, made one after the other, would take a tenth of a second."""
        while self._is_full(host):
            loop = asyncio.get_running_loop()
            if host not in self._room:
                self._room[host] = loop.create_future()
            if not self._looks:
                self._looks = True
                loop.call_soon(self._look)
            await asyncio.shield(self._room[host])
            await asyncio.sleep(0)

    def _look(self) -> None:
        self._looks = False
        for peer in list(self._unread):
            self.note(peer)
        if not self._room:
            return
        loop = asyncio.get_running_loop()
        in_the_way = [peer for peer in self._unread if self._total >= self.limit or peer.host in self._room]
        slowest = min(in_the_way, key=lambda peer: self._unread[peer][-1], default=None)
        if slowest is not None and loop.time() - self._unread[slowest][-1] > PATIENCE_S:
            slowest.give_up("it does not read its answers, and others wait for the memory that they take")
        self._looks = True
        loop.call_later(ANSWER_LOOK_S, self._look)


class AnswerRoom(Room):
    """One peer's."""

    def __init__(self, memory: AnswerMemory, peer: Peer) -> None:
        self._memory = memory
        self._peer = peer

    async def wait(self) -> None:
        await self._memory.room(self._peer.host)

    def hold(self, size: int) -> None:
        self._memory.hold(self._peer, size)


class Pace:
    """Of large requests, an address sends so much a second and no more: to receive them takes time that no turn counts,
    and of the machine's processors what others need."""

    def __init__(self, bytes_per_s: float = LARGE_BYTES_PER_S) -> None:
        self._bytes_per_s = bytes_per_s
        self._until: dict[str, float] = {}  # loop time, by address: what has come would have taken so long

    def received(self, host: str, size: int, now: float) -> float:
        """So much of one has come. Returns for how many seconds no more should be read."""
        until = max(self._until.get(host, 0.0), now) + size / self._bytes_per_s
        self._until = {each: time for each, time in self._until.items() if time > now}
        self._until[host] = until
        return max(until - now - LARGE_BURST_S, 0.0)


class Turns:
    """Who may begin a request or the next slice of one now: one at a time, and no more in a cycle of the event loop
    once they took TURN_S. Addresses share the time evenly, whatever the number of their connections: start-time fair
    queuing (Goyal, Vin, Cheng 1996). One that has not asked for a while has no claim on what it left to others
    meanwhile: whoever goes on asking for little is held up by one turn of each other address, and no more."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by address
        self._taken: dict[str, float] = {}  # seconds by address, those included to which it has no claim any more
        self._virtual = 0.0  # seconds that had been taken by the address whose turn it was last
        self._forgotten_at = 0.0
        self._spent = 0.0  # seconds, since the last cycle that began a turn
        self._cycle_due = False

    async def take(self, host: str) -> None:
        """Returns when it is the caller's turn."""
        if host not in self._waiting:
            self._taken[host] = max(self._taken.get(host, 0.0), self._virtual)
        if self._waiting or self._spent >= TURN_S:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(host, deque()).append(turn)
            if not self._cycle_due:
                self._next_cycle()
            await turn
        else:
            self._virtual = max(self._virtual, self._taken[host])

    def timed(self, host: str, work: Coroutine[Any, Any, T]) -> Timed[T]:
        """The same work, and what it takes counts for its address. Where it lets others go on (asyncio.sleep(0), as
        loops in slices do), it goes on itself when it is its turn."""
        return Timed(work, self, host)

    def count(self, host: str, seconds: float) -> None:
        """So much was taken by this address."""
        self._taken[host] = self._taken.get(host, self._virtual) + seconds
        self._spent += seconds

    def _next_cycle(self) -> None:
        self._cycle_due = True
        asyncio.get_running_loop().call_soon(self._begin_cycle)

    def _begin_cycle(self) -> None:
        self._cycle_due = False
        self._spent = 0.0
        now = perf_counter()
        if now - self._forgotten_at >= 1.0:
            self._forgotten_at = now
            self._forget()
        while self._waiting:
            host = min(self._waiting, key=self._taken.__getitem__)
            turn = self._waiting[host].popleft()
            if not self._waiting[host]:
                del self._waiting[host]
            if not turn.done():
                self._virtual = max(self._virtual, self._taken[host])
                turn.set_result(None)
                if self._waiting:
                    self._next_cycle()  # whoever is next has to wait for it
                return

    def _forget(self) -> None:
        """Who has taken no more than others is as one that never asked."""
        self._taken = {
            host: taken for host, taken in self._taken.items() if taken > self._virtual or host in self._waiting
        }


class Timed(Awaitable[T]):
    """Awaits a coroutine, and counts how long each of its steps takes. It takes its turn in the place of
    asyncio.sleep(0)."""

    __slots__ = ("_host", "_turns", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], turns: Turns, host: str) -> None:
        self._work = work
        self._turns = turns
        self._host = host

    def __await__(self) -> Generator[Any, Any, T]:
        work, turns, host = self._work, self._turns, self._host
        failed: BaseException | None = None
        while True:
            began = perf_counter()
            try:
                awaited = work.send(None) if failed is None else work.throw(failed)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                turns.count(host, perf_counter() - began)
            failed = None
            try:
                if awaited is None:
                    yield from turns.take(host).__await__()
                else:
                    yield awaited
            except BaseException as error:  # a cancellation, above all
                failed = error


class Connections:
    """limit: of all addresses; per_ip: of each (Kafka's max.connections and max.connections.per.ip)."""

    def __init__(self, limit: int, per_ip: int) -> None:
        self._limit = limit
        self._per_ip = per_ip
        self._open: Counter[str] = Counter()
        self._total = 0

    def take(self, host: str) -> bool:
        """One more is open. False: it is one too many. Whoever calls this says by leave() when it is closed."""
        self._open[host] += 1
        self._total += 1
        return self._total <= self._limit and self._open[host] <= self._per_ip

    def leave(self, host: str) -> None:
        self._total -= 1
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]


class Limits:
    """Of one listener. client_elements: that one request may have (wire/guard.py). worker: one thread for what takes
    long, so that it takes half of the interpreter at most."""

    def __init__(
        self,
        request_bytes: int,
        answer_bytes: int,
        client_elements: int,
        connections: int,
        connections_per_ip: int,
        log: logging.Logger,
    ) -> None:
        self.requests: Final = RequestMemory(request_bytes)
        self.answers: Final = AnswerMemory(answer_bytes)
        self.turns: Final = Turns()
        self.pace: Final = Pace()
        self.client_elements: Final = client_elements
        self.connections: Final = Connections(connections, connections_per_ip)
        self.complaints: Final = Complaints(log)
        self.expansions: Final = Shares(MOST_EXPANSIONS, 1)
        self.worker: Final = ThreadPoolExecutor(1, "worker")

    def close(self) -> None:
        self.worker.shutdown(wait=False, cancel_futures=True)


class AsideOf(Aside):
    """For the requests of one address."""

    def __init__(self, limits: Limits, host: str) -> None:
        self._limits = limits
        self._host = host

    async def __call__(self, work: Callable[[], T], /) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._limits.worker, work)

    def large(self) -> AbstractAsyncContextManager[None]:
        return self._limits.expansions.turn(self._host)
