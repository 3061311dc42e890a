"""The maximal ISR (description 6.5.2; 000, 2.7 and 2.9.2), by the examples of the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.broker import rules
from tests.cluster_image.kraft.broker.test_partition import LAG
from tests.cluster_image.kraft.controller.test_controller import SESSION, three_brokers
from tests.cluster_image.protocol.replication.group import Group


def test_expanding_and_shrinking_as_the_text_shows_them(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    group.fetch(1, 2, 3)
    assert (sorted(group.partitions[1].isr), group.proposed(1)) == ([1, 2], [1, 2, 3])
    assert sorted(group.leadership(1).maximal_isr) == [1, 2, 3]
    group.accept(1)
    assert sorted(group.partitions[1].isr) == sorted(group.leadership(1).maximal_isr) == [1, 2, 3]

    group.write(1, "a")
    for now in (0.5, LAG + 0.5):
        group.fetch(1, 2, now=now)
    group.partitions[1].consider_shrinking(LAG + 1, group.eligible)
    assert (sorted(group.partitions[1].isr), group.proposed(1)) == ([1, 2, 3], [1, 2])
    assert sorted(group.leadership(1).maximal_isr) == [1, 2, 3]
    group.accept(1)
    assert sorted(group.partitions[1].isr) == sorted(group.leadership(1).maximal_isr) == [1, 2]


def test_a_proposed_member_counts_though_it_keeps_up_no_longer(tmp_path: Path) -> None:
    """The watermark waits for nobody outside the ISR who lags; for who has been proposed it does, until the controller
    has decided."""
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=1)
    group.fetch(1, 3)
    assert group.proposed(1) == [1, 2, 3]
    group.write(1, "a")
    for now in (0.5, LAG + 0.5):
        group.fetch(1, 2, now=now)
    group.partitions[1].consider_shrinking(LAG + 1, group.eligible)
    assert not group.leadership(1).joining and group.leadership(1).followers[2].end_offset == 1
    assert group.ends(1) == (1, 0)
    group.refuse(1, ErrorCode.ineligible_replica)
    assert group.ends(1) == (1, 1)


@pytest.mark.parametrize("change", ["growing", "shrinking"])
def test_what_is_committed_while_a_proposal_is_undecided_is_with_all_who_may_be_elected(
    tmp_path: Path, change: str
) -> None:
    """Replication Quorum Superset. The controller may hold either ISR, and elect 3 by it; 3 fetches no more."""
    group = Group(tmp_path)
    if change == "growing":
        group.tell(1, (1, 2), leader_epoch=1)
        group.fetch(1, 2, 3)
        group.write(1, "a")
    else:
        group.tell(1, (1, 2, 3), leader_epoch=1)
        group.write(1, "a")
    for now in (0.5, LAG + 0.5):
        group.fetch(1, 2, now=now)
    group.partitions[1].consider_shrinking(LAG + 1, group.eligible)  # nor is 3 waited for as one that keeps up
    assert group.proposed(1) == ([1, 2, 3] if change == "growing" else [1, 2])
    group.write(1, "b")
    for now in (LAG + 1.5, LAG + 2):
        group.fetch(1, 2, now=now)
    assert group.ends(2)[0] == 2
    assert group.ends(1)[1] <= group.ends(3)[0] == 0


@pytest.mark.parametrize("second", ["another joins", "one leaves"])
def test_a_second_proposal_waits_until_the_first_is_decided(tmp_path: Path, second: str) -> None:
    """It would start from an ISR that the controller may have changed already, and its maximal ISR forget 3, whom the
    controller may elect."""
    group = Group(tmp_path, (1, 2, 3, 4))
    group.tell(1, (1, 2), leader_epoch=1)
    group.fetch(1, 2, 3)
    assert group.proposed(1) == [1, 2, 3]

    def again() -> None:
        if second == "another joins":
            group.fetch(1, 4)
        else:
            group.partitions[1].consider_shrinking(LAG + 2, group.eligible)

    if second == "one leaves":
        group.write(1, "a", acks=1)
        for now in (LAG + 1, LAG + 2):
            group.fetch(1, 3, now=now)  # and 2 does not
    again()
    assert group.proposed(1) == sorted(group.leadership(1).maximal_isr) == [1, 2, 3]
    group.accept(1)
    again()
    assert group.proposed(1) == ([1, 2, 3, 4] if second == "another joins" else [1, 3])


def test_below_min_isr_the_maximal_isr_commits_nothing(tmp_path: Path) -> None:
    """ISR [1] and ELR [2] with the controller; ISR [1] and maximal ISR [1, 3] with the leader. Replica 2 can be
    elected: what 1 and 3 have must not be committed."""
    quorum = three_brokers()
    quorum.fence(3, SESSION)
    group = Group(tmp_path)
    group.tell(1, (1, 2), leader_epoch=0)
    quorum.fence(2, 2 * SESSION)
    assert quorum.state() == (1, (1,), (2,), ())
    group.tell(1, (1,))
    group.fetch(1, 3)
    assert sorted(group.leadership(1).maximal_isr) == [1, 3]
    group.write(1, "a", acks=1)
    group.fetch(1, 3)
    group.ask(1, 3)
    assert group.leadership(1).followers[3].end_offset == 1
    assert group.ends(1) == (1, 0)
    group.accept(1)
    assert group.ends(1) == (1, 1), "the ISR has MinISR members, and the controller has emptied the ELR"


@pytest.mark.parametrize(
    ("isr", "ends", "committed"),
    [((1, 2), {2: 2}, 2), ((1, 2), {2: 1}, 1), ((1, 2, 3), {2: 2, 3: 0}, 0), ((1,), {}, 0)],
    ids=["both hold", "one end is lower", "one end has not moved", "too few in the ISR"],
)
def test_both_conditions_of_an_advance(
    tmp_path: Path, isr: tuple[int, ...], ends: dict[int, int], committed: int
) -> None:
    group = Group(tmp_path)
    group.tell(1, isr, leader_epoch=1)
    for follower, end in ends.items():
        group.put(follower, *[1] * end)
    group.write(1, "a", acks=1)
    group.write(1, "b", acks=1)
    for follower in ends:
        group.ask(1, follower)
    assert group.ends(1) == (2, committed)


@pytest.mark.parametrize("eager", [True, False], ids=["as it is", "without a maximal ISR"])
def test_what_would_happen_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eager: bool) -> None:
    """The text's story. Without it, records are committed that an electable replica lacks."""
    monkeypatch.setattr(rules, "waits_to_join_isr", lambda lags, eligible: False)  # which does the same for a while
    if not eager:
        monkeypatch.setattr(rules, "maximal_isr", lambda isr, proposed: frozenset(isr))
    quorum = three_brokers()
    quorum.alter(1, {r: quorum.epochs[r] for r in (1, 2)})
    # 1.
    group = Group(tmp_path)
    group.partition_epoch = quorum.partition().partition_epoch - 1
    group.tell(1, (1, 2), leader_epoch=0)
    # 2. and 3.
    group.fetch(1, 2, 3)
    assert group.proposed(1) == [1, 2, 3]
    # 4. to 6.
    for i in range(10):
        group.write(1, str(i))
    while group.ends(2)[0] < 10:
        group.fetch(1, 2)
    group.ask(1, 2)
    assert group.ends(1) == (10, 0 if eager else 10)
    # 7.
    quorum.alter(1, quorum.epochs)
    assert quorum.partition().isr == (1, 2, 3) and group.ends(3)[0] == 0
    # 8. The controller may elect 3, and does when the others are gone.
    quorum.fence(1, SESSION)
    quorum.fence(2, 2 * SESSION)
    assert quorum.partition().leader == 3
    lost = group.ends(1)[1] - group.ends(3)[0]
    assert lost == (0 if eager else 10), "committed records that the new leader does not have"
