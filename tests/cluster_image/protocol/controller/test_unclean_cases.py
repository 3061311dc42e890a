"""Unclean Exclusion: what keeps a replica that has lost data out (description 6.5.1, cases 1 to 3; 002, 5.1.2, 5.2)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.metadata import rules as session_rules
from tests.cluster_image.kraft.controller.test_controller import SESSION, Quorum, three_brokers
from tests.cluster_image.protocol.replication.group import Group


class Cluster:
    """A controller and the replicas that follow its decisions, each informed by hand."""

    def __init__(self, directory: Path) -> None:
        self.quorum = three_brokers()
        self.group = Group(directory)
        self.group.partition_epoch = -1
        self.group.leader_epoch = -1
        self.directory = directory
        self.inform()

    def inform(self, *replicas: int) -> None:
        """The replicas learn what the controller has made of the partition."""
        current = self.quorum.partition()
        self.group.broker_epochs |= self.quorum.epochs
        self.group.leader_epoch, self.group.partition_epoch = current.leader_epoch, current.partition_epoch
        for replica in replicas or (1, 2, 3):
            self.group.partitions[replica].apply(current, 0.0)

    def commit(self, leader: int, value: str, *followers: int) -> None:
        self.group.write(leader, value)
        for _ in range(2):
            self.group.fetch(leader, *followers)
        assert self.group.ends(leader)[1] == self.group.ends(leader)[0]

    def loses_everything(self, replica: int) -> None:
        shutil.rmtree(self.directory / str(replica))
        self.group.open(replica)

    def propose(self, leader: int) -> ErrorCode:
        """What the leader has proposed, with the broker epochs that it knows, reaches the controller."""
        proposal = self.group.leadership(leader).proposal
        assert proposal is not None
        isr = {r: self.quorum.epochs[r] if r == leader else epoch for r, epoch in proposal.isr}
        return self.quorum.alter(
            leader, isr, leader_epoch=proposal.leader_epoch, partition_epoch=proposal.partition_epoch
        )

    @property
    def state(self) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return self.quorum.state()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_case_1_the_leader_restarts_uncleanly(cluster: Cluster) -> None:
    """MinISR is 2, and 3 is gone, so that 1 leaves an ISR below MinISR: into the ELR, and with its unclean
    registration out of it."""
    cluster.quorum.fence(3, SESSION)
    cluster.inform()
    cluster.commit(1, "a", 2)
    cluster.loses_everything(1)
    cluster.quorum.fence(1, 2 * SESSION)
    assert cluster.state == (2, (2,), (1,), ()), "out of leadership and ISR"
    assert cluster.quorum.register(1, 2 * SESSION, incarnation=91) is ErrorCode.none
    assert cluster.state == (2, (2,), (), (1,)), "out of the ELR"
    cluster.quorum.heartbeat(1, 2 * SESSION)
    cluster.quorum.fence(2, 3 * SESSION)
    assert cluster.state[0] == -1, "though it is there, and nobody else is"
    cluster.quorum.heartbeat(2, 3 * SESSION)
    assert cluster.state == (2, (2,), (), (1,))

    # With 3 in the ISR records are committed again: it is not the lag that keeps 1 out.
    cluster.quorum.comes_back(3, 3 * SESSION)
    cluster.inform()
    cluster.group.fetch(2, 3)
    cluster.group.fetch(2, 3)
    assert cluster.propose(2) is ErrorCode.none
    cluster.inform()
    assert cluster.group.ends(1) == (0, 0)
    cluster.group.ask(2, 1)
    assert cluster.group.proposed(2) is None, "an out-of-sync follower: it has yet to catch up"
    cluster.group.fetch(2, 1)
    cluster.group.fetch(2, 1)
    assert cluster.group.proposed(2) == [1, 2, 3]
    assert cluster.propose(2) is ErrorCode.none
    assert sorted(cluster.state[1]) == [1, 2, 3] and cluster.group.log(1) == [(0, "a")]


def test_case_2_a_replica_just_added_restarts_uncleanly(cluster: Cluster) -> None:
    quorum, group = cluster.quorum, cluster.group
    quorum.fence(3, SESSION)
    quorum.fence(2, 2 * SESSION)
    quorum.comes_back(2, 2 * SESSION)
    cluster.inform()
    group.fetch(1, 2)
    assert cluster.propose(1) is ErrorCode.none
    assert cluster.state == (1, (1, 2), (), ())
    cluster.inform()
    cluster.commit(1, "a", 2)

    cluster.loses_everything(2)
    quorum.fence(2, 3 * SESSION)
    assert cluster.state == (1, (1,), (2,), ())
    quorum.register(2, 3 * SESSION, incarnation=92)
    assert cluster.state == (1, (1,), (), (2,))
    quorum.heartbeat(2, 3 * SESSION)
    quorum.fence(1, 4 * SESSION)
    assert cluster.state[0] == -1 and 2 not in cluster.state[1] + cluster.state[2]


def delayed(cluster: Cluster) -> ErrorCode:
    """Case 3: a fetch of the out-of-sync replica 3 reaches its leader, and 3 loses everything before the proposal that
    this leads to reaches the controller. The partition's metadata does not change meanwhile."""
    quorum, group = cluster.quorum, cluster.group
    quorum.fence(3, SESSION)
    quorum.comes_back(3, SESSION)
    cluster.inform()
    cluster.commit(1, "a", 2)
    group.fetch(1, 3)
    group.ask(1, 3)
    assert group.proposed(1) == [1, 2, 3]

    before = quorum.partition()
    cluster.loses_everything(3)
    quorum.fence(3, 2 * SESSION)
    quorum.comes_back(3, 2 * SESSION)
    assert quorum.partition() == before, "not a member of anything: no new partition epoch"
    return cluster.propose(1)


def test_case_3_a_fetch_from_before_an_unclean_restart(cluster: Cluster) -> None:
    assert delayed(cluster) is ErrorCode.ineligible_replica
    assert cluster.state[1] == (1, 2)


def test_case_3_without_broker_epochs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker epoch, and nothing else, is what keeps it out."""
    monkeypatch.setattr(session_rules, "is_earlier_session", lambda broker_epoch, known: False)
    assert delayed(cluster) is ErrorCode.none
    cluster.quorum.fence(1, 3 * SESSION)
    cluster.quorum.fence(2, 4 * SESSION)
    assert cluster.state[0] == 3 and cluster.group.log(3) == [], "committed records are lost"


def test_an_earlier_session_of_a_follower_counts_no_more(cluster: Cluster) -> None:
    """Nor does the leader take a fetch of an earlier session for the present one's."""
    quorum: Quorum = cluster.quorum
    quorum.fence(3, SESSION)
    quorum.comes_back(3, SESSION)
    cluster.inform()
    cluster.group.eligible = lambda replica, epoch: session_rules.may_be_in_isr(
        epoch, quorum.image.brokers.get(replica)
    )
    quorum.fence(3, 2 * SESSION)
    quorum.comes_back(3, 2 * SESSION)
    cluster.group.fetch(1, 3)
    assert cluster.group.proposed(1) is None, "its metadata shows a later session"
    cluster.group.broker_epochs |= quorum.epochs
    cluster.group.fetch(1, 3)
    assert cluster.group.proposed(1) == [1, 2, 3]
