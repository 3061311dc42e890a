"""ValidReplicas: where the replicas of partitions are."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.inside.kraft.simulated import assignments
from checkers.inside.violation import Violated
from cluster_image.kraft.controller import placement
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration, Topic
from tests.checkers.inside.invariants_world import TOPIC, World
from tests.cluster_image.placement.test_by_controller import image_of


@pytest.fixture
def world() -> World:
    """With a fourth broker."""
    world = World()
    world.commit(world.register(4))
    return world


def test_a_broker_that_has_two_replicas(world: World) -> None:
    with world.violates("ValidReplicas", "a broker has two of the replicas [1, 2, 3, 3]"):
        world.commit(world.change(replicas=(1, 2, 3, 3)))


def test_a_replica_that_is_no_broker(world: World) -> None:
    with world.violates("ValidReplicas", "[5] are no registered brokers"):
        world.commit(world.change(replicas=(1, 2, 3, 5)))


def test_a_move_and_its_end_are_valid(world: World) -> None:
    world.commit(world.change(replicas=(1, 2, 4, 3), adding_replicas=(4,), removing_replicas=(3,)))
    world.commit(world.change(replicas=(1, 2, 4), adding_replicas=(), removing_replicas=(), isr=(1, 2), leader=1))


def test_a_change_that_leaves_too_few_replicas(world: World) -> None:
    with world.violates("ValidReplicas", "it had 3 replicas, and [1] are fewer than min.insync.replicas=2"):
        world.commit(world.change(replicas=(1,), isr=(1,)))


def test_a_change_that_leaves_too_few_in_sync(world: World) -> None:
    with world.violates("ValidReplicas", "without [2, 3], which a reassignment has taken away, the ISR is [1], and 2"):
        world.commit(world.change(replicas=(1, 4), isr=(1,)))


def test_an_isr_that_shrinks_below_the_minimum_by_itself_is_valid(world: World) -> None:
    world.commit(world.change(isr=(1,), eligible_leader_replicas=(2, 3)))


def placed(image: MetadataImage, *replicas: int) -> None:
    """Raises Violated."""
    assignments.check_placed(PartitionRegistration(TOPIC, "t", 0, replicas, replicas, replicas[0], 0, 0), image)


@pytest.mark.parametrize(
    ("racks", "replicas", "uneven"),
    [
        (("a", "a", "b"), (1, 2), True),
        (("a", "a", "b"), (1, 3), False),
        (("a", "a", "a", "b"), (1, 2, 4), False),
        (("a", "a", "a", "b", "b"), (1, 2, 3), True),
        (("a", "a", "a", "b"), (1, 2, 3, 4), False),  # the other rack has no more brokers
        (("", "", ""), (1, 2, 3), False),
    ],
)
def test_new_partitions_are_in_as_many_racks_as_there_are(
    racks: tuple[str, ...], replicas: tuple[int, ...], uneven: bool
) -> None:
    if uneven:
        with pytest.raises(Violated, match="ValidReplicas"):
            placed(image_of(*racks), *replicas)
        placed(image_of(*racks, fenced=(len(racks),)), *replicas)
    else:
        placed(image_of(*racks), *replicas)


def topics_of(image: MetadataImage, **assignments: Sequence[Sequence[int]]) -> MetadataImage:
    """image with these topics: replicas of their partitions."""
    for number, (name, partitions) in enumerate(assignments.items()):
        id_ = UUID(int=number + 1)
        image.topics[name] = Topic(
            name, id_,
            {index: PartitionRegistration(id_, name, index, tuple(replicas), tuple(replicas), replicas[0], 0, 0)
             for index, replicas in enumerate(partitions)},
        )  # fmt: skip
    return image


def none_better(after: MetadataImage, topic: str, first: int = 0) -> None:
    """Of the topic's partitions from this one on. Raises Violated."""
    new = [partition for index, partition in after.topics[topic].partitions.items() if index >= first]
    assignments.check_none_better(new, after, after)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 12), st.integers(1, 6), st.data())
def test_what_the_controller_places_is_never_better_elsewhere(
    racks: int, in_rack: int, partitions: int, more: int, data: st.DataObject
) -> None:
    image = image_of(*[f"rack-{rack}" for rack in range(racks) for _ in range(in_rack)])
    brokers = sorted(image.brokers)
    replication = data.draw(st.integers(1, len(brokers)))
    others = data.draw(st.lists(st.permutations(brokers).map(lambda each: each[:replication]), max_size=8))
    topics_of(image, others=others)
    placed: list[tuple[int, ...]] = []
    for count in (partitions, more):
        image = topics_of(image, others=others, t=placed) if placed else image
        placed += placement.place(image, "t", count, replication, placement.spread_of(image))
        none_better(topics_of(image, others=others, t=placed), "t", len(placed) - count)


def test_a_follower_that_were_better_on_another_broker() -> None:
    with pytest.raises(Violated, match=r"t-1: .* that of broker 1 were better on broker 4, .* 2 fewer of the topic"):
        none_better(topics_of(image_of("", "", "", ""), t=[(1, 2, 3), (2, 1, 3)]), "t", 1)
    even = [(1, 2, 3), (2, 1, 4)]
    none_better(topics_of(image_of("", "", "", ""), t=even), "t")
    with pytest.raises(Violated, match="which holds 1 fewer of the topic, and 2 of all"):
        none_better(topics_of(image_of("", "", "", ""), t=[(1, 2, 3)], u=[(2, 1, 3)]), "t")


def test_a_follower_stays_for_its_rack_and_for_who_takes_over() -> None:
    lopsided = [(1, 2, 3), (2, 1, 3)]
    none_better(topics_of(image_of("a", "b", "c", "b", "a", "c", fenced=(6,)), t=lopsided), "t")  # not all are there
    none_better(topics_of(image_of("a", "a", "b", "b"), t=[(1, 3), (1, 4), (2, 3), (2, 4)]), "t")
    # Broker 2 holds two more than 4; but 4 has as many takeovers from 1, and 3 and 1 lead.
    none_better(topics_of(image_of("", "", "", ""), t=[(1, 2), (3, 2), (1, 4), (2, 3)]), "t", 3)
