"""What leads to the bugs of placement and of reassignments, one function each, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller import placement
from cluster_image.placement.spread import Spread
from tests.cluster_image.kraft.controller.test_reassignment import error_of, quorum_of, reassign
from tests.cluster_image.placement.test_by_controller import image_of


def cancelled_while_the_added_replica_is_one_of_two_in_sync(directory: Path) -> Any:
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (1, 2, 4, 5))
    quorum.join(4)
    assert quorum.alter(1, {r: quorum.epochs[r] for r in (1, 4)}) is ErrorCode.none
    return error_of(reassign(quorum, None)), quorum.partition().isr


def moved_from_three_to_four(directory: Path) -> Any:
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (1, 2, 4))
    quorum.join(4)
    return quorum.partition().leader_epoch


def removed_while_in_sync(directory: Path) -> Any:
    quorum = quorum_of(1, 2, 3)
    reassign(quorum, (1, 2))
    return quorum.partition().replicas, quorum.partition().isr


def three_replicas_on_four_brokers(directory: Path) -> Any:
    return placement.place(image_of("a", "b", "c", "d"), "t", 1, 3, Spread())[0]


def two_replicas_in_two_racks(directory: Path) -> Any:
    return placement.place(image_of("a", "a", "b"), "t", 1, 2, Spread())[0]
