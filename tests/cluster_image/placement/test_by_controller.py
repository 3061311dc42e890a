"""Where the controller places new partitions, on what the metadata log tells."""

from __future__ import annotations

import logging

import pytest
from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller import placement
from cluster_image.kraft.metadata.image import BrokerRegistration, MetadataImage
from cluster_image.network import Address
from cluster_image.placement.spread import Spread
from tests.cluster_image.kraft.controller_quorum import Quorum, unfenced


def image_of(*racks: str, fenced: tuple[int, ...] = ()) -> MetadataImage:
    """Brokers 1, 2, … in these racks."""
    brokers = {
        id_: BrokerRegistration(id_, 0, None, Address("h", 1), rack, id_ in fenced, False)
        for id_, rack in enumerate(racks, 1)
    }
    return MetadataImage(brokers=brokers)


def test_the_first_replica_leads() -> None:
    quorum: Quorum = unfenced(1, 2, 3, 4)
    assert quorum.create(partitions=6) is ErrorCode.none
    partitions = quorum.image.topics["t"].partitions.values()
    assert all(partition.leader == partition.replicas[0] for partition in partitions)
    assert {partition.leader for partition in partitions} == {1, 2, 3, 4}


def test_a_broker_that_is_fenced_comes_last() -> None:
    placed = placement.place(image_of("a", "b", "c", fenced=(2,)), "t", 6, 3, Spread())
    assert all(replicas[-1] == 2 for replicas in placed)
    assert not any(
        2 in replicas for replicas in placement.place(image_of("a", "b", "c", fenced=(2,)), "t", 6, 2, Spread())
    )
    with pytest.raises(ValueError, match="all brokers are fenced"):
        placement.place(image_of("a", fenced=(1,)), "t", 1, 1, Spread())
    with pytest.raises(ValueError, match="replication factor 4 is larger than the 3 registered brokers"):
        placement.place(image_of("a", "b", "c"), "t", 1, 4, Spread())


def test_the_controller_warns_of_lopsided_racks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        placement.place(image_of("a", "b", "b", "c", "c"), "t", 20, 3, Spread())
    assert [record.message for record in caplog.records] == ["placement is not balanced"] * 2
    assert "racks of unequal size" in caplog.records[0].__dict__["reason"]
    caplog.clear()
    placement.place(image_of("a", "b", "c"), "t", 20, 3, Spread())
    assert not caplog.records
