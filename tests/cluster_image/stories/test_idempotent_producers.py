"""Idempotent producers (KIP-98): five batches under way, each stored once and in order, whatever befalls the leader.

Followers know a producer's last batches from the log that they copy, and a restarted broker from its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.network import Address
from cluster_image.storage.records import build_batch
from tests.cluster_image.stories.script import PATIENCE_S, TOPIC, Script, tell
from workloads.clients.kio import requests

PRODUCER = 4711
IN_FLIGHT = 5


def numbered(sequence: int, epoch: int = 0) -> bytes:
    return build_batch(
        [b"m%d" % sequence], timestamp_ms=0, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence
    )


async def produce(
    s: Script, sequences: Sequence[int], acks: str = "all", leader: int | None = None, epoch: int = 0
) -> list[tuple[str, int]]:
    """All in flight on one connection. Error and base offset of each; "lost" if the connection is."""
    address = Address(*s._node(leader or s.leader).address)
    connection = await s._clients.connect(address, client_id="producer", timeout=PATIENCE_S)

    async def one(sequence: int) -> tuple[str, int]:
        request = requests.produce_request(TOPIC, {0: numbered(sequence, epoch)}, requests.ACKS[acks], 1.0)
        try:
            answer: Any = requests.produce_answers(await connection.request(request, timeout=3.0))[0]
        except (ConnectionError, TimeoutError):
            return "lost", -1
        return answer.error.name, answer.base_offset

    try:
        return await asyncio.gather(*map(one, sequences))
    finally:
        connection.close()


FIVE = range(IN_FLIGHT)
STORED = [("none", offset) for offset in FIVE]
VALUES = [f"m{sequence}" for sequence in FIVE]


async def read_everywhere(s: Script) -> list[list[str]]:
    await s.settled()
    return [s.log_of(1), s.log_of(2), s.log_of(3)]


def test_retries_to_a_new_leader_are_answered_with_their_offsets() -> None:
    async def story(s: Script) -> None:
        assert await produce(s, FIVE) == STORED
        await s.kill(1)
        await s.until(lambda: s.leader == 2 and s.follows(2, 2))
        assert await produce(s, FIVE) == STORED
        assert await produce(s, [IN_FLIGHT]) == [("none", IN_FLIGHT)]
        await s.start(1)
        assert await read_everywhere(s) == [[*VALUES, "m5"]] * 3

    assert tell(story, (1, 2, 3), 2).violation is None


def test_a_new_leader_that_has_some_of_them_takes_the_rest() -> None:
    async def story(s: Script) -> None:
        assert await produce(s, [0, 1, 2]) == STORED[:3]
        s.cut((1, 2), (2, 1), (1, 3), (3, 1))
        assert await produce(s, [3, 4], acks="1") == STORED[3:], "written, and nobody else has it"
        await s.kill(1)
        await s.until(lambda: s.leader == 2 and s.follows(2, 2))
        s.mend()
        assert await produce(s, FIVE) == STORED
        await s.start(1)
        assert await read_everywhere(s) == [VALUES] * 3

    assert tell(story, (1, 2, 3), 2).violation is None


def test_a_new_leader_takes_nothing_out_of_turn() -> None:
    async def story(s: Script) -> None:
        assert await produce(s, [0, 1]) == STORED[:2]
        await s.kill(1)
        await s.until(lambda: s.leader == 2 and s.follows(2, 2))
        assert await produce(s, [3, 4]) == [("out_of_order_sequence_number", -1)] * 2
        assert await produce(s, [2, 3, 4]) == STORED[2:]

    assert tell(story, (1, 2, 3), 2).violation is None


@pytest.mark.parametrize("how", ["shut down", "killed", "without power"])
def test_retries_after_all_have_restarted_are_answered_with_their_offsets(how: str) -> None:
    async def story(s: Script) -> None:
        assert await produce(s, FIVE) == STORED
        for broker in (1, 2, 3):
            if how == "shut down":
                await s.shut_down(broker)
            elif how == "killed":
                await s.kill(broker)
            else:
                await s.cut_power(broker)
        for broker in (1, 2, 3):
            if how == "without power":
                await s.restore_power(broker)
            else:
                await s.start(broker)
        await s.until(lambda: s.leader > 0 and s.follows(s.leader, s.leader))
        await s.settled()
        assert await produce(s, FIVE) == STORED
        assert await produce(s, [IN_FLIGHT]) == [("none", IN_FLIGHT)]
        assert await read_everywhere(s) == [[*VALUES, "m5"]] * 3

    assert tell(story, (1, 2, 3), 2, settings={"log.flush.interval.messages": "1"}).violation is None


def test_a_leader_that_lost_its_tail_forgets_what_was_in_it() -> None:
    """It must not take for a duplicate what is no longer in its log."""

    async def story(s: Script) -> None:
        assert await produce(s, [0, 1]) == STORED[:2]
        s.cut((1, 2), (2, 1), (1, 3), (3, 1))
        assert await produce(s, [2, 3], acks="1") == STORED[2:4]
        await s.kill(1)
        await s.until(lambda: s.leader == 2 and s.follows(2, 2))
        s.mend()
        await s.produce("another's")
        await s.start(1)
        await s.settled()
        await s.kill(2)
        await s.until(lambda: s.leader == 1 and s.follows(1, 1))
        assert await produce(s, [2, 3]) == [("none", 3), ("none", 4)]
        assert s.log_of(1) == ["m0", "m1", "another's", "m2", "m3"]

    assert tell(story, (1, 2, 3), 2).violation is None


def test_a_retry_is_acknowledged_once_it_is_committed_and_not_before() -> None:
    async def story(s: Script) -> None:
        await s.settled()
        s.cut((1, 2), (2, 1), (1, 3), (3, 1))
        assert await produce(s, [0]) == [("request_timed_out", 0)]
        assert await produce(s, [0]) == [("request_timed_out", 0)]
        s.mend()  # and followers ask again when they have waited long enough for their answers
        assert [("none", 0)] in [await produce(s, [0]) for _ in range(3)]
        assert await s.read() == ["m0"]

    assert tell(story, (1, 2, 3), 2).violation is None


def test_more_than_five_back_is_not_remembered() -> None:
    async def story(s: Script) -> None:
        assert await produce(s, range(6)) == [("none", offset) for offset in range(6)]
        assert await produce(s, [0]) == [("out_of_order_sequence_number", -1)]
        assert await produce(s, range(1, 6)) == [("none", offset) for offset in range(1, 6)]

    assert tell(story, (1, 2, 3), 2).violation is None


def test_an_earlier_epoch_of_the_producer_is_refused_by_a_new_leader() -> None:
    async def story(s: Script) -> None:
        assert await produce(s, [0], epoch=1) == [("none", 0)]
        await s.kill(1)
        await s.until(lambda: s.leader == 2 and s.follows(2, 2))
        assert await produce(s, [1], epoch=0) == [(ErrorCode.invalid_producer_epoch.name, -1)]
        assert await produce(s, [0], epoch=2) == [("none", 1)]

    assert tell(story, (1, 2, 3), 2).violation is None
