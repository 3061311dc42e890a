"""Image to records to image changes nothing; and what servers make of a snapshot."""

from __future__ import annotations

import typing
import uuid
from dataclasses import fields, replace
from random import Random
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster_image.kraft.broker.server import BrokerServer
from cluster_image.kraft.controller.server import ControllerServer
from cluster_image.kraft.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, Topic
from cluster_image.kraft.metadata.snapshot import encoded, image_of
from cluster_image.network import Address
from tests.cluster_image.kraft.broker.test_partition import config

from ..storage.simulated_disk import simulated_disk

IDS = st.integers(0, 9)
OF_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-1, 100),
    bool: st.booleans(),
    str: st.text("abc", min_size=1, max_size=4),
    str | None: st.none() | st.text("abc", min_size=1, max_size=4),
    uuid.UUID: st.uuids(version=4),
    uuid.UUID | None: st.none() | st.uuids(version=4),
    Address: st.builds(Address, st.text("abc", min_size=1, max_size=4), st.integers(1, 65535)),
    tuple[int, ...]: st.lists(IDS, unique=True, max_size=4).map(tuple),
}


def anything(cls: Any) -> st.SearchStrategy[Any]:
    """An instance with a value of its type in every field: also in fields that are yet to be thought of."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{f.name: OF_TYPES[hints[f.name]] for f in fields(cls)})


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    image = MetadataImage(end_offset=draw(st.integers(1, 1000)), next_producer_id=draw(st.integers(0, 5000)))
    for broker in draw(st.lists(anything(BrokerRegistration), unique_by=lambda b: b.id, max_size=4)):
        image.brokers[broker.id] = broker
    for id_ in draw(st.lists(st.sampled_from(["", "1", "2"]), unique=True)):
        image.broker_settings[id_] = draw(st.dictionaries(st.text("s.", min_size=1), st.text("12"), min_size=1))
    for name in draw(st.lists(st.text("tuv", min_size=1, max_size=3), unique=True, max_size=3)):
        topic = Topic(name, draw(st.uuids(version=4)))
        topic.settings = draw(st.dictionaries(st.text("s.", min_size=1, max_size=4), st.text("12", max_size=3)))
        for partition in draw(st.lists(anything(PartitionRegistration), unique_by=lambda p: p.index, max_size=3)):
            topic.partitions[partition.index] = replace(partition, topic_id=topic.id, topic=name)
        image.topics[name] = image.topics_by_id[topic.id] = topic
    return image


@given(images())
def test_image_to_records_to_image_is_the_identity(image: MetadataImage) -> None:
    rebuilt = image_of(encoded(image), image.end_offset)
    assert rebuilt == image
    assert list(rebuilt.brokers) == list(image.brokers), "and in the same order, for whoever goes through it"
    assert [(t, list(topic.partitions)) for t, topic in rebuilt.topics.items()] == [
        (t, list(topic.partitions)) for t, topic in image.topics.items()
    ]


def test_no_part_of_an_image_is_unknown_here() -> None:
    """A new field must be in the snapshot's records, and in the test above."""
    assert {f.name for f in fields(MetadataImage)} == {
        *("end_offset", "brokers", "topics", "topics_by_id", "next_producer_id", "broker_settings"),
    }
    assert {f.name for f in fields(Topic)} == {"name", "id", "partitions", "settings"}


def image_with(*topics: str, end_offset: int) -> MetadataImage:
    image = MetadataImage(end_offset=end_offset)
    for number, name in enumerate(topics, 1):
        topic = Topic(name, uuid.UUID(int=number))
        topic.partitions[0] = PartitionRegistration(topic.id, name, 0, (1, 2), (1, 2), 1, 0, 0)
        image.topics[name] = image.topics_by_id[topic.id] = topic
    return image


def _fail(error: BaseException) -> None:
    raise error


def test_a_broker_compares_all_that_was_with_all_that_is() -> None:
    nothing: Any = SimpleNamespace(listener=None)
    server = BrokerServer(config(), simulated_disk(), nothing, nothing, Random(1), _fail, wall_clock=lambda: 0.0)
    held = server.image
    server.on_snapshot(7, 1, list(encoded(image_with("a", "b", end_offset=7))))
    assert server.image is held and list(held.topics) == ["a", "b"], "in place: others hold it"
    seen: list[list[tuple[str | None, int]]] = []

    def apply(keys: Any) -> None:
        partitions = [held.partition(*key) for key in keys]
        seen.append([(p.topic, p.index) if p else (None, 0) for p in partitions])

    replicas: Any = SimpleNamespace(apply=apply)
    server._replicas, server._ready = replicas, True
    after = image_with("a", "b", "c", end_offset=9)
    gone = after.topics.pop("a")
    del after.topics_by_id[gone.id]
    server.on_snapshot(9, 1, list(encoded(after)))
    assert seen == [[(None, 0), ("b", 0), ("c", 0)]], "the one that is gone, too"
    assert held.end_offset == 9 and image_of(server.snapshot(), 9) == held


def test_a_controller_forgets_what_it_had() -> None:
    nothing: Any = SimpleNamespace(listener=None)
    server = ControllerServer(config(), nothing, nothing, Random(1), _fail)
    server.on_snapshot(7, 1, list(encoded(image_with("a", "b", end_offset=7))))
    server.on_snapshot(9, 1, list(encoded(image_with("a", end_offset=9))))
    assert list(server.image.topics) == ["a"] and server.image.end_offset == 9
    assert image_of(server.snapshot(), 9) == server.image
