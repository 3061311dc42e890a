"""ValidReplicas: where the replicas of partitions are."""

from __future__ import annotations

import pytest

from checkers.inside.kraft.simulated import assignments
from checkers.inside.violation import Violated
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration
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
