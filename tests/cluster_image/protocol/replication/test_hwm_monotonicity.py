"""A local high watermark lags; what needs a monotonic one waits (description 6.4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.partition import Refused
from tests.cluster_image.protocol.replication.group import Group
from tests.cluster_image.replication.fetches import fetch_as_consumer


def test_a_lagging_local_watermark_as_the_text_tells_it(tmp_path: Path) -> None:
    """6.4.1, then 6.4.2: how the new leader gets to know the true watermark."""
    group = Group(tmp_path)
    # 1.
    group.tell(1, (1, 2, 3), leader_epoch=1)
    assert [group.ends(r) for r in (1, 2, 3)] == [(0, 0)] * 3
    # 2.
    group.write(1, "w")
    assert group.ends(1) == (1, 0)
    # 3. The first of two phases: they fetch it.
    group.fetch(1, 2, 3)
    assert [group.ends(r) for r in (1, 2, 3)] == [(1, 0)] * 3
    # 4. The second: they ask for more, and so the leader knows that they have it. Its answers are on their way.
    group.ask(1, 2)
    assert group.ends(1) == (1, 0), "not before both have asked"
    group.ask(1, 3)
    assert [group.ends(r) for r in (1, 2, 3)] == [(1, 1), (1, 0), (1, 0)]
    # 5. A consumer reads offset 0.
    assert fetch_as_consumer(group.partitions[1], 0, -1, 1 << 20).records
    # 6. Replica 1 is fenced, and 2 elected, whose watermark is less than the true one.
    group.tell(2, (2, 3), leader_epoch=2, to=(2, 3))
    assert [group.ends(r) for r in (1, 2, 3)] == [(1, 1), (1, 0), (1, 0)]

    assert group.leadership(2).epoch_start == 1, "LESO = LEO"
    group.ask(2, 3)
    assert group.ends(2) == (1, 1), "all in-sync followers have come into its epoch: nothing lags"


def test_list_offsets_answers_once_the_watermark_has_reached_the_epoch_start(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.put(1, 1, 1)
    group.put(2, 1, 1)
    group.tell(1, (1, 2), leader_epoch=2)
    group.write(1, "new", acks=1)
    for watermark in (0, 1):
        group.partitions[1].restore_high_watermark(watermark)  # as of its last time as a follower
        with pytest.raises(Refused) as refused:
            group.partitions[1].end_of_committed_log(-1, lease_held=True)
        assert refused.value.error is ErrorCode.offset_not_available
    group.ask(1, 2)
    assert group.ends(1) == (3, 2)
    assert group.partitions[1].end_of_committed_log(-1, lease_held=True) == 2


def test_a_watermark_from_the_checkpoint_counts_as_far_as_the_log_goes(tmp_path: Path) -> None:
    """A power cut may have taken the end of the log, and not the checkpoint."""
    group = Group(tmp_path, (1, 2))
    group.put(1, 1, 1)
    partition = group.partitions[1]
    for checkpointed, restored in ((1, 1), (5, 2)):
        partition.restore_high_watermark(checkpointed)
        assert group.ends(1) == (2, restored)
    partition.log.advance_start_to(1)
    partition.restore_high_watermark(0)
    assert group.ends(1) == (2, 1), "nor is it below the start of the log"
