"""The simulated network: what becomes of messages and connections on links and hosts that fail."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v9.response import ProduceResponse

from cluster_image import wire
from cluster_image.network import Address, Connection, Entity, Peer
from cluster_image.storage.disk import ProcessDied
from harness.runtimes.simulation.loop import Process, VirtualLoop
from harness.runtimes.simulation.network import connections, network
from harness.runtimes.simulation.network.network import JITTER, LINK, Endpoint, SimulatedNetwork
from workloads.clients.kio.requests import metadata_request, produce_request

LATENCY_S = 0.0005
#: Where "server" serves.
SERVER = Address("server", 9092)
THERE, BACK = ("client", "server"), ("server", "client")


class Echo:
    """Answers with the name it was asked by, as cluster id, after `takes` seconds."""

    def __init__(self, takes: float = 0.0) -> None:
        self.takes = takes
        self.handled: list[str] = []
        self.peers: list[Peer] = []

    async def __call__(self, request: Any, peer: Peer) -> Entity | None:
        self.peers.append(peer)
        if request.__api_key__ == wire.PRODUCE:
            self.handled.append(f"produce {request.acks}")
            return None if request.acks == 0 else ProduceResponse(responses=(), throttle_time=timedelta(0))  # type: ignore[arg-type]
        name = request.topics[0].name
        self.handled.append(f"{name} begins")
        if name == "refuse":
            raise ConnectionError("not for me")
        if name == "crash":
            raise ValueError("a bug in a handler")
        await asyncio.sleep(self.takes)
        self.handled.append(name)
        return MetadataResponse(throttle_time=timedelta(0), brokers=(), topics=(), cluster_id=name)  # type: ignore[arg-type]


class World:
    """Two hosts. `serve` and `client` put a process on each."""

    def __init__(self, *, encode: bool = False, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop, seed, latency=LATENCY_S, encode=encode)
        self.clients = self.network.endpoint(self.loop.new_process("client"), "client")

    async def serve(self, echo: Echo) -> Process:
        process = self.loop.new_process("server")
        await self.network.endpoint(process, "server").listen(SERVER, echo)
        return process

    async def connect(self, timeout: float = 1.0) -> Connection:
        return await self.clients.connect(SERVER, client_id="me", timeout=timeout)

    async def ask(self, connection: Connection, name: str, timeout: float = 60.0) -> str:
        response = await connection.request(metadata_request(name), timeout=timeout)
        return str(response.cluster_id)

    def asking(self, connection: Connection, *names: str, timeout: float = 60.0) -> list[asyncio.Task[str]]:
        return [asyncio.create_task(self.ask(connection, name, timeout)) for name in names]

    def kill(self, process: Process) -> None:
        self.loop.kill(process)
        self.network.process_ended(process)

    def cut_power(self, process: Process) -> None:
        self.loop.kill(process)
        self.network.power_off(process.name)


def simulated(*, encode: bool = False) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """A test in virtual time, its own code running in the process of the client. No packet is late by chance."""

    def wrap(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def wrapper() -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(network, "LATE", 0.0)
                world = World(encode=encode)
                try:
                    world.loop.run_until_complete(world.loop.spawn(world.clients.process, test(world)))
                finally:
                    world.loop.bury()
                assert world.loop.errors == []

        wrapper.__name__ = test.__name__
        return wrapper

    return wrap


async def outcome(task: asyncio.Future[Any]) -> str:
    try:
        return str(await task)
    except (ConnectionError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"


# -- what works -----------------------------------------------------------------------------------------------


@simulated()
async def test_a_message_takes_its_links_latency_each_way(world: World) -> None:
    await world.serve(Echo())
    times = [world.loop.time()]
    connection = await world.connect()
    times.append(world.loop.time())
    for _ in range(50):
        await world.ask(connection, "a")
        times.append(world.loop.time())
    trips = [after - before for before, after in pairwise(times)]
    (low, high), (least, most) = LINK, JITTER
    assert 2 * LATENCY_S * low * least < min(trips) < max(trips) < 2 * LATENCY_S * high * most
    assert max(trips) / min(trips) < most / least  # a link has a latency of its own
    assert len(set(trips)) == len(trips)


@simulated()
async def test_requests_of_one_connection_are_handled_one_at_a_time_and_answered_in_order(world: World) -> None:
    echo = Echo(takes=1.0)
    await world.serve(echo)
    connection, other = await world.connect(), await world.connect()
    names = [f"{number:02}" for number in range(20)]
    answers = world.asking(connection, *names)
    assert await world.ask(other, "elsewhere") == "elsewhere"
    assert world.loop.time() < 1.1  # one slow connection keeps no other waiting
    assert [await answer for answer in answers] == names
    assert [each for each in echo.handled if "elsewhere" not in each] == [
        each for name in names for each in (f"{name} begins", name)
    ]
    assert echo.peers[0] == Peer("me", "client")


@pytest.mark.parametrize("seed", range(5))
def test_messages_of_a_connection_never_overtake_each_other_though_some_are_late(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(network, "LATE", 0.3)
    world = World(seed=seed)
    names = [f"{number:03}" for number in range(100)]

    async def scenario() -> None:
        echo = Echo()
        await world.serve(echo)
        connection = await world.connect()
        answers = []
        for name in names:
            answers += world.asking(connection, name)
            await asyncio.sleep(0.001)
        assert [await answer for answer in answers] == names
        assert [each for each in echo.handled if "begins" not in each] == names
        assert world.loop.time() > 0.3

    world.loop.run_until_complete(world.loop.spawn(world.clients.process, scenario()))
    world.loop.bury()


def latencies(seed: int, *, others: int) -> tuple[list[float], list[float]]:
    there, back = [], []
    with closing(VirtualLoop()) as loop:
        network = SimulatedNetwork(loop, seed)
        for _ in range(20):
            there.append(network.latency("a", "b"))
            for _ in range(others):
                back.append(network.latency("b", "a"))
                network.latency("a", "c")
    return there, back


def test_a_links_latencies_are_the_seeds_and_do_not_depend_on_what_passes_elsewhere() -> None:
    there, back = latencies(1, others=1)
    assert latencies(1, others=0) == (there, [])
    assert latencies(2, others=1)[0] != there != back


@simulated()
async def test_with_acks_0_a_request_is_sent_and_not_answered(world: World) -> None:
    echo = Echo()
    await world.serve(echo)
    connection = await world.connect()
    before = world.loop.time()
    assert await connection.request(produce_request("t", {0: b""}, 0, 1.0), timeout=1) is None
    assert (world.loop.time(), echo.handled) == (before, [])
    assert await world.ask(connection, "a") == "a"  # the next answer is its own
    assert echo.handled == ["produce 0", "a begins", "a"]
    answer = await connection.request(produce_request("t", {0: b""}, 1, 1.0), timeout=1)
    assert type(answer).__name__ == "ProduceResponse"


@simulated(encode=True)
async def test_encoded_messages_arrive_as_what_they_were(world: World) -> None:
    seen: list[Entity] = []

    async def keep(request: Entity, peer: Peer) -> Entity | None:
        seen.append(request)
        if request.__api_key__ == wire.PRODUCE:
            return None
        return MetadataResponse(throttle_time=timedelta(0), brokers=(), topics=(), cluster_id="c")  # type: ignore[arg-type]

    await world.serve(keep)  # type: ignore[arg-type]
    connection = await world.connect()
    request = metadata_request("ä" * 200)
    answer = await connection.request(request, timeout=1)
    assert seen == [request] and seen[0] is not request
    assert answer == await keep(request, Peer("", ""))
    assert await connection.request(produce_request("t", {0: b"x"}, 0, 1.0), timeout=1) is None
    await asyncio.sleep(0.1)
    assert seen[-1] == produce_request("t", {0: b"x"}, 0, 1.0)


@simulated(encode=True)
async def test_a_listener_takes_only_what_its_role_serves(world: World) -> None:
    echo = Echo()
    await world.network.endpoint(world.loop.new_process("server"), "server", "controller").listen(SERVER, echo)
    connection = await world.connect()
    (answer,) = world.asking(connection, "a")
    assert "ConnectionError: connection lost" in await outcome(answer)
    assert echo.handled == [] and connection.closed


# -- links ----------------------------------------------------------------------------------------------------


@simulated()
async def test_what_a_cut_link_holds_arrives_in_order_once_it_is_mended(world: World) -> None:
    echo = Echo()
    await world.serve(echo)
    connection = await world.connect()
    world.network.cut("a", [THERE])
    answers = world.asking(connection, "a", "b")
    await asyncio.sleep(3.0)
    assert echo.handled == [] and not connection.closed  # whoever sent them learns nothing
    answers += world.asking(connection, "c")
    dropped = world.network.mend("a")
    answers += world.asking(connection, "d")
    assert [await answer for answer in answers] == ["a", "b", "c", "d"]
    assert 3.0 < world.loop.time() < 3.5
    assert [each for each in echo.handled if "begins" not in each] == ["a", "b", "c", "d"]
    assert dropped == {THERE: 2}


@simulated()
async def test_a_link_cut_again_before_anything_has_got_through_goes_on_holding(world: World) -> None:
    echo = Echo()
    await world.serve(echo)
    connection = await world.connect()
    world.network.cut("a", [THERE])
    (answer,) = world.asking(connection, "a")
    await asyncio.sleep(1.0)
    world.network.mend("a")
    world.network.cut("a", [THERE])
    await asyncio.sleep(1.0)
    assert echo.handled == []
    world.network.mend("a")
    assert await answer == "a"


@simulated()
async def test_what_arrives_on_a_mended_link_waits_for_what_was_dropped_before_it(world: World) -> None:
    echo = Echo()
    await world.serve(echo)
    connection = await world.connect()
    world.network.slow([THERE], 1.0)
    (first,) = world.asking(connection, "first")
    await asyncio.sleep(0.9)
    (second,) = world.asking(connection, "second")
    await asyncio.sleep(0.05)
    world.network.cut("a", [THERE])
    await asyncio.sleep(0.9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "RETRANSMIT_S", (2.0, 2.0))
        assert world.network.mend("a") == {THERE: 1}
    await asyncio.sleep(0.2)
    assert echo.handled == []
    assert (await first, await second) == ("first", "second")
    assert 3.8 < world.loop.time() < 4.0


@simulated()
async def test_what_is_to_be_sent_again_on_a_mended_link_is_not_once_the_power_is_gone(world: World) -> None:
    process = await world.serve(Echo())
    connection = await world.connect()
    world.network.cut("a", [BACK])
    (answer,) = world.asking(connection, "a")
    await asyncio.sleep(0.5)
    world.network.mend("a")
    world.cut_power(process)
    await asyncio.sleep(2.0)
    assert not answer.done()


@simulated()
async def test_a_link_cut_one_way_lets_pass_what_goes_the_other_way(world: World) -> None:
    echo = Echo()
    await world.serve(echo)
    connection = await world.connect()
    world.network.cut("a", [BACK])
    (answer,) = world.asking(connection, "a")
    await asyncio.sleep(1.0)
    assert echo.handled[-1] == "a" and not answer.done()
    with pytest.raises(TimeoutError):  # a connection needs both ways
        await world.connect(timeout=0.5)
    world.network.cut("a", [("client", "elsewhere")])  # exactly these links: the other is mended
    assert await answer == "a"


@simulated()
async def test_a_slow_link_takes_longer_until_it_does_not(world: World) -> None:
    await world.serve(Echo())
    connection = await world.connect()
    world.network.slow([THERE, ("server", "elsewhere")], 2.0)
    await world.ask(connection, "a")
    assert 2.0 < world.loop.time() < 2.01
    world.network.slow([THERE], 0)
    await world.ask(connection, "a")
    assert world.loop.time() < 2.02


@simulated()
async def test_cuts_overlap_and_each_key_counts_its_own(world: World) -> None:
    echo = Echo()
    await world.serve(echo)
    connection = await world.connect()
    world.network.cut("a", [THERE])
    world.network.cut("b", [THERE, BACK])
    (answer,) = world.asking(connection, "x")
    await asyncio.sleep(0.1)
    world.network.cut("b", [BACK])
    assert world.network.mend("a") == {THERE: 1}
    await asyncio.sleep(1.0)
    assert echo.handled and not answer.done(), "the other key holds the answer"
    assert world.network.mend("b") == {BACK: 1} and world.network.mend("b") == {}
    assert await answer == "x"


# -- connecting -----------------------------------------------------------------------------------------------


@simulated()
async def test_to_connect_over_a_cut_link_times_out_and_a_later_attempt_of_tcp_gets_through(world: World) -> None:
    await world.serve(Echo())
    world.network.cut("a", [THERE])
    with pytest.raises(TimeoutError):
        await world.connect(timeout=0.7)
    assert world.loop.time() == 0.7
    connecting = asyncio.create_task(world.connect(timeout=5))
    await asyncio.sleep(1.5)  # two attempts have failed
    assert world.network.mend("a") == {THERE: 3}
    await connecting
    assert 3.7 < world.loop.time() < 3.8


@simulated()
async def test_a_connection_that_does_not_come_about_leaves_no_cycle_for_garbage_collection(world: World) -> None:
    world.network.endpoint(world.loop.new_process("server"), "server")
    gc.collect()
    gc.disable()
    try:
        with suppress(ConnectionRefusedError):
            await world.connect()
        world.network.cut("a", [THERE])
        with suppress(TimeoutError):
            await world.connect(timeout=0.5)
        assert gc.collect() == 0
    finally:
        gc.enable()


@simulated()
async def test_nobody_listening_refuses_and_an_unknown_host_is_none(world: World) -> None:
    server = world.network.endpoint(world.loop.new_process("server"), "server")
    with pytest.raises(ConnectionRefusedError, match="server:9092: connection refused"):
        await world.connect(timeout=5)
    assert world.loop.time() < 0.01
    with pytest.raises(ConnectionRefusedError, match="unknown host"):
        await world.clients.connect(Address("nowhere", 1), client_id="me", timeout=1)
    await server.listen(SERVER, Echo())
    with pytest.raises(OSError, match="in use"):
        await server.listen(SERVER, Echo())
    assert await world.ask(await world.connect(), "a") == "a"


# -- connections that end ------------------------------------------------------------------------------------


@simulated()
async def test_a_request_that_times_out_ends_its_connection_and_its_late_answer_is_nobodys(world: World) -> None:
    echo = Echo(takes=1.0)
    await world.serve(echo)
    connection = await world.connect()
    (hasty,) = world.asking(connection, "hasty", timeout=0.5)
    (patient,) = world.asking(connection, "patient", timeout=5)
    assert await outcome(hasty) == "TimeoutError: no response in time"
    assert "another request on this connection timed out" in await outcome(patient)
    assert connection.closed
    with pytest.raises(ConnectionError):
        await world.ask(connection, "more")
    again = await world.connect()
    assert await world.ask(again, "again") == "again"
    # What had arrived is handled all the same.
    await asyncio.sleep(2.0)
    assert [each for each in echo.handled if "begins" not in each] == ["hasty", "again", "patient"]


@simulated()
async def test_the_answer_to_a_caller_that_was_cancelled_is_not_taken_for_the_next_ones(world: World) -> None:
    await world.serve(Echo(takes=0.5))
    connection = await world.connect()
    first, second = world.asking(connection, "first", "second")
    await asyncio.sleep(0.1)
    first.cancel()
    assert await second == "second"


@simulated()
async def test_a_killed_process_closes_its_connections_after_what_it_had_sent(world: World) -> None:
    echo = Echo(takes=0.5)
    process = await world.serve(echo)
    connection = await world.connect()
    world.network.slow([BACK], 1.0)
    first, second = world.asking(connection, "first", "second")
    await asyncio.sleep(0.6)  # the first answer is on its way, the second request is being handled
    world.kill(process)
    assert await first == "first"
    assert await outcome(second) == "ConnectionError: connection lost: closed by peer"
    assert connection.closed and echo.handled[-1] == "second begins"
    with pytest.raises(ConnectionRefusedError):
        await world.connect(timeout=5)
    await world.serve(Echo())
    assert await world.ask(await world.connect(timeout=5), "again") == "again"


@simulated()
async def test_what_a_killed_client_had_sent_is_handled_and_its_connection_is_gone(world: World) -> None:
    echo = Echo(takes=0.5)
    await world.serve(echo)
    process = world.loop.new_process("doomed")
    doomed = world.network.endpoint(process, "client")

    async def asks() -> None:
        connection = await doomed.connect(SERVER, client_id="doomed", timeout=1)
        await asyncio.gather(*(world.ask(connection, name) for name in ("first", "second")))

    world.loop.spawn(process, asks())
    await asyncio.sleep(0.1)
    world.kill(process)
    server = world.network.hosts["server"].listeners[SERVER.port].endpoint
    assert len(server.accepted) == 1
    await asyncio.sleep(2.0)
    assert echo.handled == ["first begins", "first", "second begins", "second"]
    assert len(server.accepted) == 0


@simulated()
async def test_a_host_without_power_says_nothing_and_back_again_resets_who_still_speaks_to_it(world: World) -> None:
    echo = Echo(takes=0.1)
    process = await world.serve(echo)
    connection, silent = await world.connect(), await world.connect()
    (answer,) = world.asking(connection, "a")
    await asyncio.sleep(0.05)
    world.cut_power(process)
    (later,) = world.asking(connection, "b")
    await asyncio.sleep(10.0)
    assert not (answer.done() or later.done() or connection.closed)
    with pytest.raises(TimeoutError):
        await world.connect(timeout=0.5)
    world.network.power_on("server")
    for task in (answer, later):
        assert "connection lost" in await outcome(task)
    assert world.loop.time() < 11.1
    await asyncio.sleep(10.0)
    assert connection.closed and not silent.closed  # it has not said a word
    await world.serve(Echo())
    assert "connection lost" in await outcome(world.asking(silent, "c")[0])
    assert await world.ask(await world.connect(), "again") == "again"
    assert world.network.mend("a") == {}  # no link was cut


@simulated()
async def test_what_a_host_had_sent_is_lost_with_its_power_if_it_has_not_got_through(world: World) -> None:
    echo = Echo()
    process = await world.serve(echo)
    connection, other = await world.connect(), await world.connect()
    world.network.slow([BACK], 1.0)
    (held,) = world.asking(connection, "held")
    await asyncio.sleep(0.8)
    (follows,) = world.asking(connection, "follows")
    (on_its_way,) = world.asking(other, "on its way")
    await asyncio.sleep(0.1)
    world.network.cut("a", [BACK])
    await asyncio.sleep(0.2)  # the first has been dropped, the others are on their way
    world.cut_power(process)
    world.network.mend("a")
    assert await on_its_way == "on its way"
    world.network.power_on("server")
    await asyncio.sleep(5.0)
    assert not (held.done() or follows.done() or connection.closed)  # nor can anything arrive behind a gap


@simulated()
async def test_what_a_cut_link_drops_after_the_power_went_is_lost_for_good(world: World) -> None:
    process = await world.serve(Echo())
    connection = await world.connect()
    world.network.slow([BACK], 1.0)
    (answer,) = world.asking(connection, "a")
    await asyncio.sleep(0.1)
    world.network.cut("a", [BACK])
    world.cut_power(process)
    world.network.power_on("server")
    await asyncio.sleep(2.0)
    world.network.mend("a")
    await asyncio.sleep(2.0)
    assert not (answer.done() or connection.closed)


@simulated()
async def test_a_reset_breaks_every_connection_of_a_host_for_both_ends(world: World) -> None:
    echo = Echo(takes=0.5)
    await world.serve(echo)
    bystander = world.network.endpoint(world.loop.new_process("other"), "other")
    await bystander.listen(Address("other", 1), Echo(takes=0.5))
    connection = await world.connect()
    elsewhere = await world.clients.connect(Address("other", 1), client_id="me", timeout=1)
    first, second, third = *world.asking(connection, "first", "second"), *world.asking(elsewhere, "third")
    await asyncio.sleep(0.1)
    world.network.reset("server")
    assert await outcome(first) == await outcome(second) == "ConnectionError: connection reset"
    assert connection.closed
    assert await third == "third"
    await asyncio.sleep(2.0)
    assert echo.handled == ["first begins", "first", "second begins", "second"]
    assert await world.ask(await world.connect(), "again") == "again"


@pytest.mark.parametrize("name", ["refuse", "crash"])
def test_a_handler_that_fails_closes_that_connection_alone(name: str) -> None:
    @simulated()
    async def scenario(world: World) -> None:
        await world.serve(Echo())
        connection, other = await world.connect(), await world.connect()
        failing, behind = world.asking(connection, name, "behind")
        assert "connection lost" in await outcome(failing) and "connection lost" in await outcome(behind)
        assert await world.ask(other, "fine") == "fine"

    scenario()


@simulated()
async def test_an_orderly_close_ends_the_handlers_and_the_connections(world: World) -> None:
    echo = Echo(takes=10.0)
    process = world.loop.new_process("server")
    server = world.network.endpoint(process, "server")
    await server.listen(SERVER, echo)
    connection = await world.connect()
    (answer,) = world.asking(connection, "a")
    await asyncio.sleep(0.1)
    await world.loop.spawn(process, server.close())
    assert "connection lost" in await outcome(answer)
    assert echo.handled == ["a begins"]
    with pytest.raises(ConnectionRefusedError):
        await world.connect()
    other = await _connected_to_a_new_server(world)
    other.close()
    assert other.closed
    with pytest.raises(ConnectionError):
        await world.ask(other, "b")


async def _connected_to_a_new_server(world: World) -> Connection:
    await world.serve(Echo())
    return await world.connect()


# -- processes ------------------------------------------------------------------------------------------------


@simulated()
async def test_a_paused_process_takes_in_what_arrives_and_answers_later(world: World) -> None:
    echo = Echo()
    process = await world.serve(echo)
    connection = await world.connect()
    world.loop.pause(process)
    answers = world.asking(connection, "a", "b")
    late = asyncio.create_task(world.connect(timeout=1))
    await asyncio.sleep(2.0)
    assert echo.handled == [] and not connection.closed
    assert not late.result().closed  # its host has taken it for the process
    world.loop.resume(process)
    assert [await answer for answer in answers] == ["a", "b"]


@simulated()
async def test_what_a_busy_process_sends_sets_out_when_it_has_done_its_work(world: World) -> None:
    process = await world.serve(echo := Echo())
    connection = await world.connect()

    async def works(request: Any, peer: Peer) -> Entity | None:
        world.loop.stall(process, 3.0)
        return await Echo.__call__(echo, request, peer)

    world.network.hosts["server"].listeners[SERVER.port].handler = works
    await world.ask(connection, "a")
    assert 3.0 < world.loop.time() < 3.01


def dying(world: World, end: Callable[[Process], None], doomed: Endpoint, connection: Connection) -> None:
    """A process that ends in the middle of a callback, with code on its way out that would still speak."""

    async def dies() -> None:
        try:
            end(doomed.process)
            raise ProcessDied
        finally:
            connection.close()

    world.loop.spawn(doomed.process, dies())


@simulated()
async def test_a_process_that_has_lost_its_power_says_no_goodbye_while_it_unwinds(world: World) -> None:
    await world.serve(echo := Echo(takes=0.5))
    doomed = world.network.endpoint(world.loop.new_process("doomed"), "doomed")
    connection = await world.loop.spawn(doomed.process, doomed.connect(SERVER, client_id="d", timeout=1))
    (served,) = world.network.hosts["server"].listeners[SERVER.port].endpoint.accepted
    dying(world, world.cut_power, doomed, connection)
    await asyncio.sleep(1.0)
    assert echo.handled == []
    assert not served._closed  # its server has not heard a word


@simulated()
async def test_a_process_that_has_ended_sends_nothing_more(world: World) -> None:
    await world.serve(echo := Echo())
    doomed = world.network.endpoint(world.loop.new_process("doomed"), "doomed")
    connection = await world.loop.spawn(doomed.process, doomed.connect(SERVER, client_id="d", timeout=1))
    reported: list[str] = []

    async def dies() -> None:
        world.cut_power(doomed.process)
        try:
            await world.ask(connection, "last words")
        finally:
            await doomed.connect(SERVER, client_id="d", timeout=1)
            reported.append("went on")

    world.loop.spawn(doomed.process, dies())
    await asyncio.sleep(1.0)
    assert (echo.handled, reported) == ([], [])
    assert len(world.network.hosts["server"].listeners[SERVER.port].endpoint.accepted) == 1
