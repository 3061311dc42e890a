"""Log start offsets that move: all replicas come to start alike, and nobody misses what was not to be deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker.partition import Refused
from tests.cluster_image.kraft.broker.test_partition import batch, future
from tests.cluster_image.protocol.replication.group import Group


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """Replica 1 leads; all three hold "a" to "d", in batches of one, all committed."""
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1)
    for value in "abcd":
        group.write(1, value)
    for _ in range(2):
        group.fetch(1, 2, 3)
    assert group.ends(1) == group.ends(3) == (4, 4)
    return group


def test_a_follower_takes_over_its_leaders_log_start(group: Group) -> None:
    group.partitions[1].delete_records(3, future)
    group.fetch(1, 2)
    assert group.starts() == [3, 3, 0]
    assert group.log(2) == [(1, "d")]


def test_a_follower_deletes_nothing_that_it_does_not_know_to_be_committed(group: Group) -> None:
    follower = group.partitions[2]
    for value in "ef":
        group.write(1, value)
    group.fetch(1, 2, 3)
    assert group.ends(2) == (6, 4)
    assert follower.apply_fetch(1, 6, b"", 5, None, 6)
    assert (follower.log.start_offset, follower.high_watermark) == (5, 5)


def test_a_log_start_never_goes_back(group: Group) -> None:
    assert group.partitions[2].apply_fetch(1, 4, b"", 4, None, 3)
    assert group.partitions[2].apply_fetch(1, 4, b"", 4, None, 1)
    assert group.starts()[1] == 3


def test_a_leader_takes_over_what_a_follower_has_deleted(group: Group) -> None:
    """Its own start is that of an older checkpoint."""
    group.partitions[1].delete_records(3, future)
    group.fetch(1, 2)
    group.tell(3, (1, 2, 3), leader_epoch=2)
    assert group.starts() == [3, 3, 0]
    group.fetch(3, 2, 1)
    assert group.starts() == [3, 3, 3]


def test_a_leader_deletes_for_a_follower_only_what_is_committed(group: Group) -> None:
    leader = group.partitions[1]
    group.write(1, "e")
    assert leader.record_fetch(2, 12, 1, 5, 1, 0.0, group.eligible, 5) is None
    assert (leader.log.start_offset, leader.high_watermark) == (4, 4)


def test_it_deletes_it_once_it_is(group: Group) -> None:
    """Though the follower, which has all that there is, says nothing more."""
    leader = group.partitions[1]
    group.write(1, "e")
    assert leader.record_fetch(2, 12, 1, 5, 1, 0.0, group.eligible, 5) is None
    group.fetch(1, 3)
    group.ask(1, 3)
    assert (leader.log.start_offset, leader.high_watermark) == (5, 5)


def test_what_an_empty_log_lacks_was_not_deleted(group: Group) -> None:
    """Its start is followed neither at its fetch nor later: it knows of no record before that."""
    leader = group.partitions[1]
    group.write(1, "e")
    group.leadership(1).followers[2].fetched(12, 5, 5, 0.0, 5, -1)
    group.fetch(1, 3)
    group.ask(1, 3)
    assert (leader.log.start_offset, leader.high_watermark) == (0, 5)


def test_a_consumer_below_the_start_is_refused(group: Group) -> None:
    leader = group.partitions[1]
    leader.delete_records(2, future)
    with pytest.raises(Refused) as refused:
        leader.read_as_consumer(1, 1, 100)
    assert refused.value.error is ErrorCode.offset_out_of_range
    assert b"c" in leader.read_as_consumer(1, 2, 1000)


def test_where_a_log_starts_is_told(group: Group) -> None:
    group.partitions[1].delete_records(2, future)
    assert group.partitions[1].start_of_log(1) == 2


def test_a_follower_that_ends_below_begins_anew_at_the_start(group: Group) -> None:
    group.partitions[3].log.truncate_to(1)
    group.partitions[3].restore_high_watermark(1)
    group.partitions[1].delete_records(3, future)
    with pytest.raises(Refused):
        group.ask(1, 3)
    group.begin_anew(1, 3)
    assert group.ends(3) == (3, 3) and group.starts()[2] == 3
    group.fetch(1, 3)
    assert group.log(3) == [(1, "d")] and group.ends(3) == (4, 4)


def test_an_empty_log_that_begins_elsewhere_begins_anew(group: Group) -> None:
    """Replica 3 lost all that it held, and its checkpoint says that its log starts at 3. Nothing shows that what the
    leader has below is the same as what was deleted."""
    log = group.partitions[3].log
    log.truncate_fully_and_start_at(3)
    group.tell(1, (1, 2), leader_epoch=2)
    with pytest.raises(Refused) as refused:
        group.ask(1, 3)
    assert refused.value.error is ErrorCode.offset_out_of_range
    group.begin_anew(1, 3)
    assert group.ends(3) == (0, 0)
    group.fetch(1, 3)
    assert group.log(3) == group.log(1)


def test_who_begins_at_the_start_knows_the_epoch_of_the_record_before(group: Group) -> None:
    """Replica 2 takes nothing over, as all is deleted, and joins the ISR; replica 3 has not deleted yet, and leads
    then: replica 2 must not begin anew, as what was committed would be taken back."""
    group.tell(1, (1, 3), leader_epoch=2)
    group.partitions[2].log.truncate_fully_and_start_at(0)
    group.fetch(1, 3)
    group.partitions[1].delete_records(4, future)
    with pytest.raises(Refused):
        group.ask(1, 2)
    group.begin_anew(1, 2)
    assert group.ends(2) == (4, 4) and group.starts() == [4, 4, 0]
    group.fetch(1, 2)
    group.accept(1)
    group.tell(3, (2, 3), leader_epoch=3, to=(2, 3))
    group.fetch(3, 2)
    assert group.ends(2) == group.ends(3) == (4, 4) and group.starts() == [4, 4, 4]


def test_one_that_does_not_know_it_is_told(group: Group) -> None:
    """As one that was cut where the logs part, and is empty where its leader begins."""
    group.partitions[1].delete_records(4, future)
    group.tell(1, (1, 3), leader_epoch=2)
    group.partitions[2].log.truncate_fully_and_start_at(4)
    with pytest.raises(Refused):
        group.ask(1, 2)
    group.begin_anew(1, 2)
    assert group.partitions[2].position == (4, 4, 1)
    group.fetch(1, 2)


def test_a_log_that_lacks_its_begin_begins_anew_and_nobody_follows_its_start(group: Group) -> None:
    """Its first file is lost. What it has stays until its leader has answered."""
    log = group.partitions[2].log
    log.raise_start_to(2)
    log.lacks_from = 0
    group.tell(1, (1, 3), leader_epoch=2)
    assert group.partitions[2].position == (0, 0, -1) and log.start_offset == 2
    for _ in range(2):
        group.fetch(1, 2)
    assert group.starts() == [0, 0, 0]
    assert group.log(2) == group.log(1) and log.lacks_from is None


def test_a_leader_whose_log_lacks_its_begin_leads_from_there(group: Group) -> None:
    log = group.partitions[2].log
    log.raise_start_to(2)
    log.lacks_from = 0
    group.tell(2, (2,), leader_epoch=2)
    assert log.lacks_from is None and group.log(2) == [(1, "c"), (1, "d")]


def test_a_start_that_moves_on_leaves_no_begin_to_lack(group: Group) -> None:
    log = group.partitions[2].log
    log.raise_start_to(2)
    log.lacks_from = 0
    log.raise_start_to(3)
    assert log.lacks_from is None


def test_an_empty_log_past_the_leaders_end_begins_anew(group: Group) -> None:
    group.partitions[3].log.truncate_fully_and_start_at(9)
    group.tell(1, (1, 2), leader_epoch=2)
    with pytest.raises(Refused):
        group.ask(1, 3)
    group.begin_anew(1, 3)
    assert group.ends(3) == (0, 0)


def test_a_log_that_parted_below_its_start_begins_anew_at_the_leaders(tmp_path: Path) -> None:
    """Cut to where the logs part it would be empty there, and lack what its leader has below."""
    group = Group(tmp_path)
    group.put(1, 1, 1, 4, 4)  # led in epoch 4, after an unclean election
    group.put(2, 1, 1, 2, 2, 2)
    group.tell(1, (1,), leader_epoch=5)
    group.partitions[2].restore_high_watermark(5)
    group.partitions[2].log.raise_start_to(4)
    read = group.ask(1, 2)
    assert read.diverging == (1, 2)
    group.partitions[2].apply_fetch(5, 5, b"", read.high_watermark, read.diverging, read.log_start_offset)
    assert group.ends(2) == (0, 0) and group.starts()[1] == 0
    group.fetch(1, 2)
    assert group.log(2) == group.log(1)


def test_a_follower_begins_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    """Batches are kept whole, and deletions end anywhere."""
    group = Group(tmp_path, (1, 2))
    group.tell(1, (1,), leader_epoch=1)
    group.tell(1, (1,), leader_epoch=2)
    leader = group.partitions[1]
    leader.log.append_as_leader(batch(b"a", b"b", b"c"), 2)
    leader.restore_high_watermark(3)
    leader.log.raise_start_to(2)
    with pytest.raises(Refused):
        group.ask(1, 2)
    group.begin_anew(1, 2)
    assert group.ends(2) == (2, 2)
    group.fetch(1, 2)
    assert group.ends(2) == (3, 3) and group.starts() == [2, 2]
    assert group.log(2) == group.log(1)
