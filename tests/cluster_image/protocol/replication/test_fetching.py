"""What replicas keep, and one cycle of fetch and answer (000, 2.2.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic

from cluster_image.kraft.broker.partition import Refused
from cluster_image.wire.messages import milliseconds
from tests.cluster_image.kraft.broker.test_partition import TOPIC, batch
from tests.cluster_image.protocol.replication.group import Group


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path, (1, 2), min_isr=1)


def test_a_fetch_cycle_as_figure_5_shows_it(group: Group) -> None:
    """Leader: five records, LEO 5, HWM 4. Follower: four of them, LEO 4, HWM 2. Before, nothing was sent unasked."""
    group.put(1, 1, 1, 1, 1)
    group.put(2, 1, 1, 1, 1)
    group.tell(1, (1, 2), leader_epoch=2)
    group.partitions[2].restore_high_watermark(2)
    group.write(1, "four", acks=1)
    assert (group.ends(1), group.ends(2)) == ((5, 0), (4, 2))
    state = group.leadership(1).followers[2]
    assert (state.end_offset, state.broker_epoch) == (-1, -1)

    read = group.ask(1, 2)
    assert (state.end_offset, state.broker_epoch) == (4, 12)
    assert (group.ends(1), group.ends(2)) == ((5, 4), (4, 2)), "the leader's watermark; the follower's lags"
    assert read.high_watermark == 4 and read.diverging is None
    log = group.partitions[1].log
    assert read.records == log.read(4, 1 << 20), "from the fetch offset on"
    group.partitions[2].apply_fetch(2, 4, read.records, read.high_watermark, None)
    assert group.ends(2) == (5, 4)
    assert group.ask(1, 2).records == b"", "there is no more"


def test_offsets_and_watermarks_start_at_0_and_are_exclusive(group: Group) -> None:
    group.tell(1, (1, 2), leader_epoch=1)
    assert group.ends(1) == group.ends(2) == (0, 0)
    for offset in range(3):
        assert group.partitions[1].append(batch(), 1, _unused).base_offset == offset
        assert group.ends(1) == (offset + 1, offset)
        group.fetch(1, 2)
        assert group.ends(2) == (offset + 1, offset)
        group.fetch(1, 2)
        assert group.ends(1) == group.ends(2) == (offset + 1, offset + 1)


def _unused() -> Any:
    raise AssertionError("acks=1 waits for nothing")


def test_a_follower_that_ends_below_the_leaders_start_begins_anew_there(group: Group) -> None:
    group.put(2, 1)
    group.partitions[1].log.truncate_fully_and_start_at(7)
    group.put(1, 1, 1)
    group.tell(1, (1,), leader_epoch=2)
    with pytest.raises(Refused) as refused:
        group.ask(1, 2)
    assert refused.value.error is ErrorCode.offset_out_of_range
    group.begin_anew(1, 2)
    assert group.ends(2) == (7, 7)
    group.fetch(1, 2)
    assert group.log(2) == [(1, "1"), (1, "1")] and group.partitions[2].log.start_offset == 7


def test_a_fetch_answer_tells_one_offset_as_watermark_and_as_last_stable_offset(group: Group) -> None:
    group.tell(1, (1,), leader_epoch=1)
    group.write(1, "a", acks=1)
    partition = FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=0, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        cluster_id=None, max_wait=milliseconds(0), min_bytes=0, forgotten_topics_data=(),
        topics=(FetchTopic(topic_id=TOPIC, partitions=(partition,)),),
    )  # fmt: skip
    handler = group.handler(1)

    async def ask() -> Any:
        return await handler.handle(request)

    (data,) = asyncio.run(ask()).responses[0].partitions
    assert data.high_watermark == data.last_stable_offset == 1 and data.log_start_offset == 0


def test_records_keep_the_epoch_at_which_their_leader_wrote_them(group: Group) -> None:
    for epoch, leader in ((1, 1), (2, 2), (5, 1)):
        group.tell(leader, (1, 2), leader_epoch=epoch)
        group.write(leader, f"of {epoch}", acks=1)
        group.fetch(leader, 3 - leader)
    assert group.log(1) == group.log(2) == [(1, "of 1"), (2, "of 2"), (5, "of 5")]


def test_a_leader_learns_a_followers_broker_epoch_from_its_fetches(tmp_path: Path) -> None:
    """Metadata of any kind does not change what it knows; a proposal carries what it knows."""
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    group.fetch(1, 3)
    state = group.leadership(1).followers[3]
    assert state.broker_epoch == 13
    group.accept(1)
    group.tell(1, (1, 2))
    assert group.leadership(1).followers[3].broker_epoch == 13
    group.broker_epochs[3] = 21
    group.fetch(1, 3)
    assert group.leadership(1).followers[3].broker_epoch == 21
    proposal = group.leadership(1).proposal
    assert proposal is not None and dict(proposal.isr)[3] == 21
