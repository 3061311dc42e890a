"""A leader that is paused past its session: another leads meanwhile, and what the first had begun to write comes
through (001, "write p.ISR to ZK")."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.v2.metadata import paths
from cluster_image.v2.metadata.paths import Isr

from .cluster import TOPIC, V2Cluster, tell


async def written_last(c: V2Cluster) -> Isr:
    """The ISR's node after broker 1, which led, was paused in the middle of waiting for a follower."""
    assert await c.create((1, 2, 3)) is ErrorCode.none
    await c.until(lambda: c.serves(1) and c.isr() == {1, 2, 3})
    c.cut((1, 2))
    waiting = asyncio.create_task(c.ask_to_produce("m1", 1))
    await c.until(lambda: c.log_of(3) == ["m1"])
    await c.node(1).pause()
    await c.until(lambda: (leader := c.leader()) is not None and leader.broker != 1 and c.serves(leader.broker))
    c.mend()
    await c.node(1).resume()
    await c.until(lambda: (replica := c.replica(1)) is not None and replica.leader not in (1, -1))
    await asyncio.sleep(1.0)
    waiting.cancel()
    return Isr.decode(c.znode(paths.isr(TOPIC, 0)) or b"")


@pytest.mark.parametrize(
    ("settings", "epoch"), [({}, 0), ({"v2.isr.versioned": "true"}, 1)], ids=["as 001 has it", "versioned"]
)
def test_a_deposed_leader_writes_the_isr_unless_it_has_to_know_what_it_writes_over(
    settings: Mapping[str, str], epoch: int
) -> None:
    async def story(c: V2Cluster) -> None:
        isr = await written_last(c)
        assert isr.epoch == epoch
        assert (1 in isr.brokers and 2 not in isr.brokers) is (epoch == 0)

    tell(story, settings={"replica.lag.time.max.ms": "1000", **settings})
