"""What leads to the bugs of controllers, one function each, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller.server import ControllerServer
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.kraft.metadata.records import BrokerRegistrationChangeRecord, encode
from cluster_image.wire.integers import BrokerId, i8, i64
from tests.cluster_image.kraft.controller.test_controller import three_brokers
from tests.cluster_image.kraft.controller.test_reassignment import quorum_of, reassign


def leader_is_ahead(directory: Path) -> Any:
    """Of a controller that was deposed and does not know."""
    quorum = three_brokers()
    known, isr = quorum.partition(), {1: quorum.epochs[1], 2: quorum.epochs[2]}
    return (
        quorum.alter(1, isr, leader_epoch=known.leader_epoch + 1),
        quorum.alter(1, isr, partition_epoch=known.partition_epoch + 1),
    )


def isr_falls_below_the_minimum(directory: Path) -> Any:
    quorum = three_brokers()
    everyone = dict(quorum.epochs)
    for isr in ((1, 2), (1,)):
        assert quorum.alter(1, {r: everyone[r] for r in isr}) is ErrorCode.none
    return quorum.partition().elr


def registration_that_comes_twice(directory: Path) -> Any:
    """The second one when the broker is in the ISR: is it now?"""
    quorum = three_brokers()
    before = quorum.epochs[3]
    assert quorum.register(3) is ErrorCode.none
    return quorum.epochs[3] == before, quorum.image.brokers[3].fenced, quorum.partition().isr


def added_replica_is_in_sync_and_the_rest_of_the_target_is_not(directory: Path) -> Any:
    quorum = quorum_of(1, 2, 3, isr=(1, 2))
    reassign(quorum, (4, 3))
    quorum.join(4)
    return quorum.partition().replicas, quorum.partition().isr


def record_that_contradicts_the_state(directory: Path) -> Any:
    server = ControllerServer.__new__(ControllerServer)
    server._committed = MetadataImage()
    change = BrokerRegistrationChangeRecord(
        broker_id=BrokerId(1), broker_epoch=i64(7), fenced=i8(1), in_controlled_shutdown=i8(0)
    )
    try:
        server.on_commit(0, 1, [encode(change)])
    except KeyError:
        return "stops"
    return "goes on"
