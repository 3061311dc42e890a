"""The proxy: a listener for each broker, and rules that say what becomes of requests.

A request that is held back holds up all that follow on its connection, as a slow network does. Its client may give up
meanwhile, hang up, and send it again on another connection: what is held back is delivered all the same, later than
what came after it. That is how a transaction's end came to end the next one (KAFKA-17754). A request that is repeated
is delivered once more, some time after, as a network does not but a client's retry may; its second answer goes to
nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from cluster_image.wire import WireError, decode_request_header, decode_request_message
from harness.runtimes.proxy.rules import Rule
from harness.runtimes.proxy.translation import Address, translated

#: By name, Kafka's API keys of what clients ask.
APIS: Final[Mapping[str, int]] = {
    "Produce": 0, "Fetch": 1, "ListOffsets": 2, "Metadata": 3, "OffsetCommit": 8, "OffsetFetch": 9,
    "FindCoordinator": 10, "JoinGroup": 11, "Heartbeat": 12, "LeaveGroup": 13, "SyncGroup": 14, "InitProducerId": 22,
    "AddPartitionsToTxn": 24, "AddOffsetsToTxn": 25, "EndTxn": 26, "TxnOffsetCommit": 28, "ConsumerGroupHeartbeat": 68,
}  # fmt: skip
_HOST: Final = "127.0.0.1"
_LARGEST_FRAME: Final = 128 << 20
#: Correlation ids of what is repeated: clients count from 0.
_REPEATED: Final = 0x4000_0000
#: That a broker is waited for, once a client has hung up, to answer what it had been sent.
_LAST_ANSWERS_S: Final = 5.0
_OF_TRANSACTIONS: Final[Mapping[int, str]] = {
    APIS[name]: name for name in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "Produce")
}
_MOST_LATE: Final = 1000


@dataclass
class _Connection:
    """From a client to a broker. asked: by correlation id, API key and version of what has no answer yet."""

    to_client: asyncio.StreamWriter
    to_broker: asyncio.StreamWriter
    asked: dict[int, tuple[int, int]] = field(default_factory=dict)
    repeated: int = 0
    later: set[asyncio.Task[None]] = field(default_factory=set)  # what is still to be repeated
    client_is_gone: bool = False


class Late(NamedTuple):
    """A request of a transaction that a broker got when its client had hung up, or once more: at, monotonic ns;
    held_ms, since the client had sent it; committed, of an EndTxn: what it asks for."""

    api: str
    at: int
    held_ms: int
    transactional_id: str
    committed: bool | None


class Proxy:
    """brokers: their addresses, as they tell them to clients. late: what was delivered so, as far as it is kept."""

    def __init__(self, brokers: Mapping[int, Address]) -> None:
        self._brokers = brokers
        self._rules: dict[str, Rule] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        #: By broker, where clients reach it.
        self.addresses: dict[int, Address] = {}
        self.late: list[Late] = []

    async def start(self) -> None:
        for broker, address in self._brokers.items():
            server = await asyncio.start_server(partial(self._accept, address), _HOST, 0)
            self._servers.append(server)
            self.addresses[broker] = (_HOST, server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def strike(self, key: str, rule: Rule) -> None:
        """From now on, beside what other keys do."""
        self._rules[key] = rule

    def end(self, key: str) -> Mapping[str, Any]:
        """What was held back before is still delivered in its time. Safe to repeat. Evidence: requests of the API that
        were met meanwhile, those held back or repeated, for how long, and how many were delivered when their client had
        hung up."""
        rule = self._rules.pop(key, None)
        if rule is None:
            return {}
        return rule.evidence()

    @property
    def _others(self) -> Mapping[Address, Address]:
        return {self._brokers[broker]: address for broker, address in self.addresses.items()}

    def _accept(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The task is ours: asyncio takes it for an error if one that it made is cancelled, as close() does."""
        task = asyncio.create_task(self._serve(address, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                from_broker, to_broker = await asyncio.open_connection(*address)
            except OSError:  # it is down: so is the connection
                return
            connection = _Connection(writer, to_broker)
            answering = asyncio.create_task(self._answers(from_broker, connection))
            try:
                with suppress(ConnectionError, asyncio.IncompleteReadError, WireError):
                    await self._requests(reader, connection)
                connection.client_is_gone = True
                await asyncio.gather(*connection.later, return_exceptions=True)
                await asyncio.wait([answering], timeout=_LAST_ANSWERS_S if connection.asked else 0)
            finally:
                answering.cancel()
                to_broker.close()
        finally:
            writer.close()

    async def _requests(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        """Read ahead, so that it is known when the client hangs up, and delivered in order."""
        frames: asyncio.Queue[tuple[bytes, int] | None] = asyncio.Queue()

        async def read() -> None:
            try:
                while True:
                    frame = await _frame(reader)
                    frames.put_nowait((frame, time.monotonic_ns()))
            except (ConnectionError, asyncio.IncompleteReadError):
                connection.client_is_gone = True
            finally:
                frames.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            while (known := await frames.get()) is not None:
                await self._deliver(*known, connection)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _deliver(self, frame: bytes, read_at: int, connection: _Connection) -> None:
        header, _ = decode_request_header(frame)
        for rule in [each for each in self._rules.values() if APIS[each.api] == header.api_key]:
            if (seconds := rule.draws()) is None:
                continue
            if rule.action == "repeat":
                connection.repeated += 1
                again = _renumbered(frame, _REPEATED + connection.repeated)
                self._later(seconds, again, read_at, connection)
                continue
            await asyncio.sleep(seconds)
            rule.after_hang_up += connection.client_is_gone
        connection.asked[header.correlation_id] = header.api_key, header.api_version
        connection.to_broker.write(len(frame).to_bytes(4) + frame)
        await connection.to_broker.drain()
        if connection.client_is_gone:  # also of what had to wait for the one before
            self._note_late(frame, read_at)

    def _later(self, seconds: float, frame: bytes, read_at: int, connection: _Connection) -> None:
        async def repeat() -> None:
            await asyncio.sleep(seconds)
            with suppress(ConnectionError):
                connection.to_broker.write(len(frame).to_bytes(4) + frame)
                await connection.to_broker.drain()
                self._note_late(frame, read_at)

        task = asyncio.create_task(repeat())
        for tasks in (self._tasks, connection.later):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def _note_late(self, frame: bytes, read_at: int) -> None:
        """Of requests of transactions, for they tell whose. read_at: monotonic ns."""
        header, position = decode_request_header(frame)
        if len(self.late) >= _MOST_LATE or header.api_key not in _OF_TRANSACTIONS:
            return
        now = time.monotonic_ns()
        try:
            request: Any = decode_request_message(header, frame, position, {header.api_key: (0, header.api_version)})
        except WireError:
            return
        if (identity := getattr(request, "transactional_id", None)) is not None:
            committed = getattr(request, "committed", None)
            api = _OF_TRANSACTIONS[header.api_key]
            self.late.append(Late(api, now, round((now - read_at) / 1e6), str(identity), committed))

    async def _answers(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        try:
            while True:
                frame = await _frame(reader)
                number = int.from_bytes(frame[:4])
                asked = connection.asked.pop(number, None)
                if asked is None and number > _REPEATED:
                    continue  # the second answer
                others = self._others
                connection.to_client.write(
                    len(frame).to_bytes(4) + frame if asked is None else translated(frame, *asked, others)
                )
                await connection.to_client.drain()
        except (ConnectionError, asyncio.IncompleteReadError, WireError):
            pass
        finally:
            connection.to_client.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """Without its length."""
    length = int.from_bytes(await reader.readexactly(4))
    if length > _LARGEST_FRAME:
        raise WireError(f"a frame of {length} bytes")
    return await reader.readexactly(length)


def _renumbered(frame: bytes, correlation_id: int) -> bytes:
    return frame[:4] + correlation_id.to_bytes(4) + frame[8:]
