"""The simulation's invariants of the metadata quorum, and what must hold once everything is healed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.types import TopicName

from checkers.inside.kraft.simulated import Invariants, unmet
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.kraft.metadata.records import ProducerIdsRecord, TopicRecord
from tests.checkers.inside.invariants_world import TOPIC, Violates, Voter, World


@pytest.fixture
def world() -> World:
    return World()


# -- quorum -----------------------------------------------------------------------------------------------------


class Quorum:
    def __init__(self) -> None:
        self.invariants = Invariants(2)
        self.voters = {f"controller-{n}": Voter(100 + n, (101, 102, 103)) for n in (1, 2, 3)}
        for name, voter in self.voters.items():
            self.invariants.node_started(name, voter)  # type: ignore[arg-type]
        self.record = TopicRecord(name=TopicName("t"), topic_id=TOPIC)

    def see(self, number: int, commit: int | None = None) -> None:
        voter = self.voters[f"controller-{number}"]
        if commit is not None:
            voter.quorum.replica.high_watermark = commit
        self.invariants.changed(f"controller-{number}", "metadata append", "", {})
        self.invariants.check()

    def __getitem__(self, number: int) -> Voter:
        return self.voters[f"controller-{number}"]


def test_a_healthy_quorum(world: World) -> None:
    quorum = Quorum()
    quorum[1].lead(1)
    for number in (1, 2):
        quorum[number].append(quorum.record)
        quorum.see(number, 1)
    quorum[1].append(quorum.record)  # never committed
    quorum.see(1)
    quorum[2].lead(2)
    quorum[2].append(quorum.record, epoch=2)
    quorum.see(2)
    quorum.invariants.node_gone("controller-1", lossy=True)
    quorum.invariants.check_all()


def test_a_life_of_a_brokers_process_has_one_epoch(world: World) -> None:
    world.commit(world.fencing(3), world.change(isr=(1, 2)))
    world.commit(world.register(3))
    again = replace(world.register(3), incarnation_id=world.image.brokers[3].incarnation_id)
    with Violates("ValidControllerState", ["broker 3 registers", "in the same life of its process"]):
        world.commit(again)


def test_metadata_log_matching() -> None:
    quorum = Quorum()
    quorum[1].append(quorum.record)
    quorum.see(1)
    quorum[2].append(quorum.record, quorum.record)
    with Violates("MetadataLogMatching", ("controller-2", "controller-1")):
        quorum.see(2)


def test_election_safety() -> None:
    quorum = Quorum()
    quorum[1].lead(3)
    quorum.see(1)
    quorum[2].lead(3)
    with Violates("ElectionSafety", ("controller-1 and controller-2 both lead epoch 3",)):
        quorum.see(2)


def test_committed_prefix() -> None:
    quorum = Quorum()
    quorum[1].append(quorum.record)
    quorum.see(1, 1)
    quorum[2].append(quorum.record, epoch=2)
    with Violates("CommittedPrefix", ("controller-2 takes offsets 0 to 0 of leader epoch 2",)):
        quorum.see(2, 1)


def test_a_quorum_leader_without_what_is_committed() -> None:
    quorum = Quorum()
    quorum[1].append(quorum.record)
    quorum.see(1, 1)
    quorum[3].lead(2)
    with Violates("CommittedPrefix", ("controller-3 was elected for epoch 2",)):
        quorum.see(3)


def test_committed_metadata_is_on_a_majority_of_disks() -> None:
    quorum = Quorum()
    for number in (1, 2):
        quorum[number].append(quorum.record)
        quorum.see(number, 1)
    quorum.invariants.check_all()
    quorum.invariants.node_gone("controller-2", lossy=True)
    quorum.invariants.check_all()
    quorum.voters["controller-2"] = Voter(102, (101, 102, 103))
    quorum.invariants.node_started("controller-2", quorum[2])  # type: ignore[arg-type]
    with Violates("CommittedPrefix", ("1 of 3 voters",)):
        quorum.invariants.check_all()


def test_a_leader_of_an_earlier_epoch_need_not_have_what_a_later_one_committed() -> None:
    """Its votes came late. But it must have what was committed before its epoch."""
    quorum = Quorum()
    for number in (1, 2):
        quorum[number].append(quorum.record)
        quorum.see(number, 1)
    for number in (1, 2):
        quorum[number].quorum.epoch = 3
        quorum[number].append(ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=5), epoch=3)
        quorum.see(number, 2)
    quorum[3].append(quorum.record)
    quorum[3].lead(2)
    quorum.see(3)
    quorum = Quorum()
    for number in (1, 2):
        quorum[number].quorum.epoch = 1
        quorum[number].append(quorum.record)
        quorum.see(number, 1)
    quorum[3].lead(2)
    with Violates("CommittedPrefix", ("without what is committed",)):
        quorum.see(3)


def test_the_quorums_high_watermark_never_falls() -> None:
    quorum = Quorum()
    quorum[1].append(quorum.record)
    quorum.see(1, 1)
    with Violates("HighWatermarkMonotonicity", ("it was 1 before",)):
        quorum.see(1, 0)


# -- liveness ---------------------------------------------------------------------------------------------------


def test_a_new_leader_commits_nothing_before_a_record_of_its_own() -> None:
    quorum = Quorum()
    for number in (1, 2):
        quorum[number].append(quorum.record)
        quorum.see(number)
    quorum[2].lead(2)
    quorum[2].quorum.leadership = SimpleNamespace(epoch_start_offset=1, heard=lambda: ([], 0.0))
    quorum.see(2)
    quorum[2].append(quorum.record, epoch=2)
    quorum.see(2, 0)
    with Violates("CommittedPrefix", ["nothing of its own epoch is committed"]):
        quorum.see(2, 1)


def test_a_balanced_recovery_elects_the_log_of_the_latest_epoch(world: World) -> None:
    told = {"strategy": "balanced", "leader_epoch": 3, "candidates": (1, 2), "epochs": (2, 1), "ends": (10, 40)}
    world.invariants.changed("controller-1", "unclean recovery", "t-0", {**told, "leader": 1})
    with Violates("UncleanRecovery", ["broker 2, whose log ends at 40 in epoch 1, and that of broker 1 ends at 10"]):
        world.invariants.changed("controller-1", "unclean recovery", "t-0", {**told, "leader": 2})


def test_unmet_names_the_first_thing_that_does_not_hold(world: World) -> None:
    for broker in world.brokers.values():
        follower = Voter(broker.id)
        follower.quorum.replica = world.controller.quorum.replica
        broker.raft.quorum = follower.quorum
    world.controller.controller = SimpleNamespace(active=SimpleNamespace(image=world.image), image=world.image)
    nodes: dict[str, Any] = {broker.name: broker for broker in world.brokers.values()}
    nodes["controller-1"] = world.controller
    assert unmet(nodes) is None
    assert unmet(nodes | {"broker-2": None}) == "broker-2 does not run"
    world.invariants.check = lambda: None  # type: ignore[method-assign]
    world.produce(1, b"a")
    world.ask(2, 1), world.ask(3, 1)
    assert unmet(nodes) == "the high watermark of t-0 is 0, its leader's log ends at 1"
    world.fetch(1, 2, times=1)
    world.partition(1)._set_high_watermark(1)
    assert unmet(nodes) == "the log of broker-3 ends at 0, the high watermark of t-0 is 1"
    world.fetch(1, 3, times=1)
    assert unmet(nodes) is None
    world.commit(world.change(isr=(1, 2)))
    assert unmet(nodes) == "the ISR of t-0 is [1, 2] of [1, 2, 3]"
    assert unmet({name: node for name, node in nodes.items() if name != "broker-3"}) is None, "nobody has that id"
    world.commit(world.fencing(3))
    assert unmet(nodes) == "broker-3 is fenced"
    world.brokers[2].broker.image = MetadataImage()
    assert unmet(nodes) == "the metadata of broker-2 is not that of the active controller"
    world.brokers[2].raft.quorum.epoch = 0
    assert unmet(nodes) == "broker-2 follows 101 in quorum epoch 0, not 101 in 1"
    world.controller.controller.active = None
    assert unmet(nodes) == "no controller is active"
