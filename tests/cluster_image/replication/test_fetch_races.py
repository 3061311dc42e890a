"""What happens to a fetch between the slices in which it is served: others come, and room must be kept for it."""

from __future__ import annotations

import asyncio
import importlib
from unittest.mock import patch

from kio.schema.errors import ErrorCode

from cluster_image.network import Entity, Peer, Room
from cluster_image.network.authorization import authorized
from cluster_image.network.slices import SLICE
from cluster_image.replication import fetch as fetch_module
from cluster_image.wire.messages import make, milliseconds
from tests.cluster_image.replication.test_fetch_session import Leader, reported, run

MIB = 1 << 20
#: Partitions that nobody has: who names these first lets others go on before a record is read.
UNKNOWN = range(1000, 1000 + 2 * SLICE)


class OneAtATime(Room):
    """Of all that are served, how much is held at most; whoever comes waits until nothing is."""

    def __init__(self, held: dict[OneAtATime, int], most: list[int]) -> None:
        self._held, self._most = held, most

    async def wait(self) -> None:
        while any(self._held.values()):
            await asyncio.sleep(0)

    def hold(self, size: int) -> None:
        self._held[self] = size
        self._most.append(sum(self._held.values()))


def test_room_is_taken_before_anything_is_read() -> None:
    async def story() -> None:
        leader = Leader(1, alone=True)
        for _ in range(4):
            leader.write(0, bytes(100_000))
        held: dict[OneAtATime, int] = {}
        most: list[int] = []
        asked = dict.fromkeys([*UNKNOWN, 0], 0)
        fetches = [
            leader.fetch(asked, (0, -1), replica=-1, max_bytes=200_000, room=OneAtATime(held, most)) for _ in range(5)
        ]
        for answering in asyncio.as_completed(fetches):
            answer = await answering
            assert len(reported(answer)[0].records) > 100_000
            for room in held:  # as when the answer is written
                room.hold(0)
        assert max(most) == 200_000

    run(story())


def test_a_request_that_is_superseded_while_it_reads_watches_nothing() -> None:
    """The session is ended by another request before the last of its partitions is looked up."""

    async def story() -> None:
        for ending in (-1, 0):
            leader = Leader(1, alone=True)
            session = (await leader.fetch({9: 0}, replica=-1)).session_id
            reads = asyncio.create_task(leader.fetch(dict.fromkeys([*UNKNOWN, 0], 0), (session, 1), replica=-1))
            await asyncio.sleep(0)
            await leader.fetch({9: 0}, (session, ending), replica=-1)
            assert (await reads).error_code is ErrorCode.invalid_fetch_session_epoch
            assert not leader.partitions[0].watchers

    run(story())


def test_a_partition_that_is_forgotten_while_an_earlier_request_reads_stays_forgotten() -> None:
    async def story() -> None:
        leader = Leader(2, alone=True)
        session = (await leader.fetch({9: 0}, replica=-1)).session_id
        named = dict.fromkeys([*UNKNOWN, 0, 1], 0)
        reads = asyncio.create_task(leader.fetch(named, (session, 1), replica=-1))
        await asyncio.sleep(0)
        await leader.fetch({}, (session, 2), forget=(1, *UNKNOWN), replica=-1)
        assert (await reads).error_code is ErrorCode.invalid_fetch_session_epoch
        leader.write(0)
        leader.write(1)
        assert set(reported(await leader.fetch({}, (session, 3), replica=-1))) == {9, 0}

    run(story())


def test_a_fetch_waits_a_minute_and_no_longer() -> None:
    """However long it would: what it keeps meanwhile is others' too."""

    async def story() -> None:
        leader = Leader(1, alone=True)
        with patch.object(fetch_module, "LONGEST_WAIT_S", 0.05):
            async with asyncio.timeout(2):
                assert reported(await leader.fetch({0: 0}, (0, -1), replica=-1, max_wait=2**31 - 1))[0].records == b""

    run(story())


def test_who_fetches_as_a_replica_in_a_version_without_an_error_of_the_whole_loses_its_connection() -> None:
    """An answer without one would say that there is nothing new."""

    async def serve(request: Entity, peer: Peer) -> Entity:
        raise AssertionError("not for strangers")

    async def refused(version: int) -> bool:
        module = importlib.import_module(f"kio.schema.fetch.v{version}.request")
        request = make(
            module.FetchRequest, replica_id=2, max_wait=milliseconds(0), min_bytes=1, max_bytes=1, isolation_level=0,
            session_id=0, session_epoch=-1, topics=(), forgotten_topics_data=(), rack_id="",
        )  # fmt: skip
        try:
            answer = await authorized(serve)(request, Peer("me", "somewhere", is_node=False))
        except ConnectionError:
            return True
        assert answer is not None and answer.error_code is ErrorCode.cluster_authorization_failed
        return False

    assert asyncio.run(refused(6)) and not asyncio.run(refused(7))
