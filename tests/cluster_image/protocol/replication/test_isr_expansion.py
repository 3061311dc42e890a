"""Who joins the ISR and who leaves it (000, 2.9; description 6.5.3 and 6.5.4)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker import rules
from cluster_image.kraft.broker.partition import Refused
from tests.cluster_image.kraft.broker.test_partition import LAG
from tests.cluster_image.protocol.replication.group import Group
from tests.cluster_image.replication.fetches import fetch_as_follower


def consider(group: Group, follower: int, now: float = 0.0) -> list[int] | None:
    """What the leader proposes after a fetch of this follower."""
    group.fetch(1, follower, now=now)
    return group.proposed(1)


def test_who_has_all_of_it_joins(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    group.write(1, "a")
    group.fetch(1, 2)
    group.ask(1, 2)
    assert consider(group, 3) is None, "it has yet to get there"
    assert consider(group, 3) == [1, 2, 3]


def test_not_below_the_high_watermark(tmp_path: Path) -> None:
    """All of it is of this epoch, so that the epoch's start is no obstacle."""
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    for value in "ab":
        group.write(1, value)
    group.fetch(1, 2)
    group.ask(1, 2)
    group.put(3, 1)  # one record of the two
    assert group.ends(1)[1] == 2
    group.ask(1, 3)
    assert group.proposed(1) is None
    group.put(3, 1)
    group.ask(1, 3)
    assert group.proposed(1) == [1, 2, 3]


def test_not_below_the_epoch_start(tmp_path: Path) -> None:
    """The new leader's watermark lags at 0, so that reaching it proves nothing: offset 1 was committed."""
    group = Group(tmp_path)
    for replica, records in ((1, 2), (2, 2), (3, 1)):
        group.put(replica, *[1] * records)
    group.tell(1, (1, 2), leader_epoch=2)
    assert group.ends(1) == (2, 0) and group.leadership(1).epoch_start == 2
    group.ask(1, 3)
    assert group.proposed(1) is None
    group.fetch(1, 3)
    assert consider(group, 3) == [1, 2, 3]


def test_not_without_a_fetch_in_this_epoch(tmp_path: Path) -> None:
    """Epochs follow each other and nothing is written: LESO and watermark stand still, and a state from before would
    satisfy both. The new term has not got it: what is known of the followers begins anew with each."""
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    group.write(1, "a")
    group.fetch(1, 2)
    group.ask(1, 2)
    group.fetch(1, 3)
    starts = []
    for epoch in (2, 3, 4):
        group.tell(1, (1, 2), leader_epoch=epoch)
        starts.append(group.leadership(1).epoch_start)
        state = group.leadership(1).followers[3]
        assert (state.end_offset, state.broker_epoch) == (-1, -1), "before its first fetch in this epoch"
        assert not rules.may_join_isr(state.end_offset, 0, 0, True), "which no log's end is at or below"
        group.partitions[1].consider_shrinking(0.0, group.eligible)
        group.fetch(1, 2)
        assert group.proposed(1) is None, "a fetch of another follower is no reason either"
    assert starts == [1, 1, 1]
    assert consider(group, 3) == [1, 2, 3]


def test_a_fetch_of_an_earlier_epoch_adds_nobody(tmp_path: Path) -> None:
    """1 leads on in a new epoch and nothing is written: LESO and watermark are where they were. A fetch on its way
    since the epoch before tells how far 3 had come then; it may have lost its log meanwhile."""
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    group.write(1, "a")
    group.fetch(1, 2)
    group.ask(1, 2)
    group.fetch(1, 3)
    group.tell(1, (1, 2), leader_epoch=2, to=(1, 2))
    assert (group.ends(3)[0], group.ends(1)[1], group.leadership(1).epoch_start) == (1, 1, 1)
    with pytest.raises(Refused) as refused:
        group.ask(1, 3)
    assert refused.value.error is ErrorCode.fenced_leader_epoch and group.proposed(1) is None
    group.tell(1, (1, 2))
    assert consider(group, 3) == [1, 2, 3]


def test_a_replica_removed_and_added_again_between_two_looks_proves_itself_anew(tmp_path: Path) -> None:
    """Its log was deleted meanwhile. All that the leader sees, in one update, is a new leader epoch, as a replica has
    been removed, and that 3 is no longer in the ISR."""
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1)
    group.write(1, "a")
    group.fetch(1, 2, 3)
    group.fetch(1, 2, 3)
    assert group.ends(1) == (1, 1)

    shutil.rmtree(tmp_path / "3")
    group.open(3)
    group.tell(1, (1, 2), leader_epoch=2)
    assert group.leadership(1).followers[3].end_offset < 1, "what was known of it is forgotten"
    group.fetch(1, 2)
    assert group.proposed(1) is None
    group.ask(1, 3)
    assert group.proposed(1) is None, "it is empty"
    group.fetch(1, 3)
    assert consider(group, 3) == [1, 2, 3]


@pytest.mark.parametrize(
    ("silent_for", "behind", "leaves"),
    [
        (LAG + 1, True, True),
        (LAG - 1, True, False),  # not for long enough
        (LAG + 1, False, False),  # it has everything: there was nothing to fetch
    ],
)
def test_who_leaves_and_who_stays(tmp_path: Path, silent_for: float, behind: bool, leaves: bool) -> None:
    """Latency alone decides; that it has all that is committed does not help a member that lags."""
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1, now=0.0)
    group.fetch(1, 2, 3, now=0.0)
    if behind:
        group.write(1, "a", acks=1)
        group.fetch(1, 2, now=0.5)
    group.fetch(1, 2, now=silent_for)
    group.partitions[1].consider_shrinking(silent_for, group.eligible)
    assert group.proposed(1) == ([1, 2] if leaves else None)


def test_who_has_been_away_for_long_joins_by_the_fetch_that_shows_it_complete(tmp_path: Path) -> None:
    """It has reached the watermark, and not the end of the log: it lags, which keeps nobody out."""
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    group.write(1, "a")
    group.fetch(1, 2)
    group.ask(1, 2)
    group.put(3, 1)
    group.write(1, "b")
    late = 100 * LAG
    group.ask(1, 3, now=late)
    assert group.ends(1) == (2, 1) and group.leadership(1).followers[3].lags(2, late, LAG)
    assert group.proposed(1) == [1, 2, 3]


def test_below_min_isr_who_lags_stays_out_until_it_has_caught_up(tmp_path: Path) -> None:
    """The leader alone is less than MinISR: the watermark stands at 0, which shows nothing of who has reached it."""
    group = Group(tmp_path)
    group.tell(1, (1,), leader_epoch=1)
    for value in "ab":
        group.write(1, value, acks=1)
    late = 100 * LAG
    group.put(2, 1)
    group.ask(1, 2, now=late)
    assert group.ends(1) == (2, 0) and group.proposed(1) is None
    group.fetch(1, 2, now=late)
    assert consider(group, 2, now=late) == [1, 2]


def test_a_member_that_keeps_fetching_but_never_catches_up_leaves(tmp_path: Path) -> None:
    """Fetching often is not enough (000, 2.9): it must once have had all that there was at its fetch before."""
    group = Group(tmp_path)
    group.tell(1, (1, 2, 3), leader_epoch=1, now=0.0)
    now = 0.0
    while now <= LAG + 1:
        now += 0.5
        for _ in range(2):
            group.write(1, "x", acks=1)
        group.fetch(1, 2, now=now)
        log = group.partitions[3].log  # 3 takes one record of two
        group.put(3, 1)
        fetch_as_follower(group.partitions[1], 3, 13, 1, log.end_offset, -1, 1, now, group.eligible)
    group.partitions[1].consider_shrinking(now, group.eligible)
    assert group.proposed(1) == [1, 2]


def test_a_follower_that_keeps_up_joins_however_steadily_the_leader_is_written_to(tmp_path: Path) -> None:
    """Whatever it fetches, there is one batch more by its next fetch. With the leader alone in the ISR each batch would
    be committed at once, and the follower stay one batch below the watermark for ever: the watermark waits for it."""
    group = Group(tmp_path, min_isr=1)
    group.tell(1, (1,), leader_epoch=1)
    now = 0.0
    for _ in range(3):
        group.write(1, "x")
        group.fetch(1, 2, now=now)
        now += 0.1
    assert group.proposed(1) == [1, 2]
    group.accept(1)
    assert group.partitions[1].isr == {1, 2}


def test_a_follower_that_is_farther_away_than_others_joins_too(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    now = 0.0
    for _ in range(3):
        for _ in range(4):  # these many round trips of 2 take as long as one of 3
            group.write(1, "x")
            group.fetch(1, 2, now=now)
        group.fetch(1, 3, now=now)
        now += 0.1
    assert group.proposed(1) == [1, 2, 3]


def one_batch_behind(directory: Path) -> Group:
    """1 leads alone; 2 keeps up, and is a batch below the watermark, which waits for it."""
    group = Group(directory, min_isr=1)
    group.tell(1, (1,), leader_epoch=1)
    group.write(1, "a")
    group.fetch(1, 2)
    group.write(1, "b")
    group.ask(1, 2)
    group.write(1, "c")
    assert group.proposed(1) is None and group.ends(1) == (3, 2)
    return group


def test_the_watermark_waits_for_nobody_who_lags(tmp_path: Path) -> None:
    group = one_batch_behind(tmp_path)
    group.partitions[1].consider_shrinking(LAG - 0.1, group.eligible)
    assert group.ends(1) == (3, 2)
    group.partitions[1].consider_shrinking(LAG + 0.1, group.eligible)
    assert group.ends(1) == (3, 3)


def test_the_watermark_waits_for_nobody_whose_broker_may_not_be_in_an_isr(tmp_path: Path) -> None:
    group = one_batch_behind(tmp_path)
    group.eligible = lambda replica, epoch: False
    group.partitions[1].consider_shrinking(0.1, group.eligible)
    assert group.ends(1) == (3, 3)
    group.fetch(1, 2)
    group.write(1, "d")
    assert group.ends(1) == (4, 4)


def test_the_watermark_waits_for_nobody_whom_the_controller_refuses(tmp_path: Path) -> None:
    """It may know for long what this leader's metadata does not tell yet: at most until the follower's next fetch."""
    group = one_batch_behind(tmp_path)
    group.fetch(1, 2)
    group.ask(1, 2)
    assert group.proposed(1) == [1, 2]
    group.write(1, "d")
    assert group.ends(1) == (4, 3)
    group.refuse(1, ErrorCode.ineligible_replica)
    assert group.ends(1) == (4, 4)


def test_the_watermark_waits_for_no_replica_that_is_removed(tmp_path: Path) -> None:
    group = one_batch_behind(tmp_path)
    group.replicas = (1, 3)
    group.tell(1, (1,), to=(1,))
    assert group.ends(1) == (3, 3)
