"""Who joins the ISR and who leaves it (000, 2.9; description 6.5.3 and 6.5.4)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cluster_image.broker import rules
from tests.fetches import fetch_as_follower
from tests.protocol.group import Group
from tests.test_partition import LAG


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
    satisfy both. It counts for nothing: not for the rule, and the new term has not got it."""
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
        assert not state.fetched_in_epoch and state.end_offset < group.leadership(1).epoch_start
        group.partitions[1].consider_shrinking(0.0)
        group.fetch(1, 2)
        assert group.proposed(1) is None, "a fetch of another follower is no reason either"
    assert starts == [1, 1, 1]
    assert not rules.may_join_isr(1, False, 1, 1, True) and rules.may_join_isr(1, True, 1, 1, True)
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
    group.partitions[1].consider_shrinking(silent_for)
    assert group.proposed(1) == ([1, 2] if leaves else None)


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
    group.partitions[1].consider_shrinking(now)
    assert group.proposed(1) == [1, 2]
