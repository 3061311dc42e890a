"""Who leads, or may be elected, has every committed record (000, 2.4 and 2.4.1): controller and replicas together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster_image.kraft.broker.test_partition import LAG
from tests.cluster_image.kraft.controller.test_controller import SESSION
from tests.cluster_image.protocol.controller.test_unclean_cases import Cluster


@pytest.mark.parametrize("fenced", [(1, 2), (2, 1)])
def test_whoever_is_elected_has_every_committed_record(tmp_path: Path, fenced: tuple[int, ...]) -> None:
    """Replica 3 is there all the time, and has nothing."""
    cluster = Cluster(tmp_path)
    cluster.quorum.fence(3, SESSION)
    cluster.quorum.comes_back(3, SESSION)
    cluster.inform()
    cluster.commit(1, "a", 2)
    assert not cluster.group.log(3) and not cluster.quorum.image.brokers[3].fenced
    for step, broker in enumerate(fenced, 2):
        cluster.quorum.fence(broker, step * SESSION)
        leader = cluster.state[0]
        assert leader == -1 or cluster.group.log(leader) == [(0, "a")]


def test_whoever_may_be_elected_has_every_committed_record(tmp_path: Path) -> None:
    """Replica 3 joins the ISR and falls silent, and the leader has yet to hear that the controller has agreed. What it
    commits until then, it commits with 3; that 3 keeps up no longer makes no difference."""
    cluster = Cluster(tmp_path)
    quorum, group = cluster.quorum, cluster.group
    quorum.alter(1, {r: quorum.epochs[r] for r in (1, 2)})
    cluster.inform()
    group.fetch(1, 3)
    assert group.proposed(1) == [1, 2, 3]
    cluster.propose(1)
    assert quorum.partition().isr == (1, 2, 3)

    group.write(1, "a")
    for now in (0.5, LAG + 0.5):
        group.fetch(1, 2, now=now)
    group.partitions[1].consider_shrinking(LAG + 1, group.eligible)
    committed = group.log(1)[: group.ends(1)[1]]
    for candidate in quorum.partition().isr:
        assert group.log(candidate)[: len(committed)] == committed, candidate
