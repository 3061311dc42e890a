"""Leader epochs in a replica's log (004)."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.partition import Refused
from cluster_image.storage.checkpoints import LEADER_EPOCH_FILE, LeaderEpochCheckpoint
from cluster_image.storage.log import Log
from tests.cluster_image.kraft.broker.test_partition import batch
from tests.cluster_image.protocol.replication.group import Group
from tests.cluster_image.storage.simulated_disk import simulated_disk


def test_the_vector_of_epochs_is_kept_in_a_file() -> None:
    disk = simulated_disk()
    log = Log.open(disk, "t-0")
    for epoch in (1, 1, 4, 6, 6):
        log.append_as_leader(batch(), epoch)
    log.close()
    entries = LeaderEpochCheckpoint(disk, f"t-0/{LEADER_EPOCH_FILE}").read()
    assert entries == [(1, 0), (4, 2), (6, 3)]
    log = Log.open(disk, "t-0")
    log.truncate_to(3)
    assert LeaderEpochCheckpoint(disk, f"t-0/{LEADER_EPOCH_FILE}").read() == [(1, 0), (4, 2)]
    assert [log.end_offset_for_epoch(e) for e in (1, 4, 9)] == [(1, 2), (4, 3), (4, 3)]


def test_where_an_epoch_ends_is_told_on_request(tmp_path: Path) -> None:
    """The present epoch at the LEO; an earlier one at the first offset of the next that there is."""
    group = Group(tmp_path, (1, 2), min_isr=1)
    group.put(1, 1, 1, 3)
    group.tell(1, (1, 2), leader_epoch=5)
    group.write(1, "a", acks=1)
    leader = group.partitions[1]
    assert [leader.end_offset_for_epoch(e, 5) for e in (5, 3, 2, 1)] == [(5, 4), (3, 3), (1, 2), (1, 2)]
    for known, error in ((4, ErrorCode.fenced_leader_epoch), (6, ErrorCode.unknown_leader_epoch)):
        with pytest.raises(Refused) as refused:
            leader.end_offset_for_epoch(3, known)
        assert refused.value.error is error
    with pytest.raises(Refused):
        group.partitions[2].end_offset_for_epoch(3, 5)


def test_a_cut_within_a_batch_drops_the_whole_batch_and_replication_goes_on(tmp_path: Path) -> None:
    """The follower has a batch of three records where the leader's epoch ends after one."""
    group = Group(tmp_path, (1, 2), min_isr=1)
    group.put(1, 1, 3)
    group.put(2, 1)
    group.partitions[2].log.truncate_to(0)
    group.partitions[2].log.append_as_leader(batch(b"x", b"y", b"z"), 1)
    group.tell(1, (1,), leader_epoch=4)
    assert group.ask(1, 2).diverging == (1, 1)
    group.fetch(1, 2)
    assert group.ends(2)[0] == 0, "a batch is kept whole or not at all"
    group.fetch(1, 2)
    group.fetch(1, 2)
    assert group.log(2) == group.log(1) == [(1, "1"), (3, "3")]
