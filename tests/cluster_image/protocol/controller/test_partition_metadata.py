"""What a partition's metadata holds, and its two epochs (000, 2.3 and 2.3.1)."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration, changed_partition
from cluster_image.kraft.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord, decode, encode

TOPIC = uuid.UUID(int=7)
WHOLE = PartitionRegistration(
    topic_id=TOPIC, topic="t", index=4, replicas=(3, 1, 2, 5), isr=(1, 3), leader=3, leader_epoch=6,
    partition_epoch=9, elr=(2,), last_known_elr=(5,), adding=(5,), removing=(1,),
)  # fmt: skip


def test_a_partitions_metadata_goes_through_the_log_whole() -> None:
    image = MetadataImage()
    record = PartitionRecord(
        partition_id=4, topic_id=TOPIC, replicas=(3, 1, 2, 5), isr=(1, 3), leader=3, leader_epoch=6, partition_epoch=9,
        eligible_leader_replicas=(2,), last_known_elr=(5,), adding_replicas=(5,), removing_replicas=(1,),
    )  # fmt: skip
    for each in (TopicRecord(name="t", topic_id=TOPIC), record):
        image.replay(image.end_offset, decode(encode(each)))
    assert image.partition(TOPIC, 4) == WHOLE

    changes: dict[str, Any] = {
        "isr": (1,), "leader": -1, "replicas": (1, 2), "removing_replicas": (), "adding_replicas": (),
        "eligible_leader_replicas": (3,), "last_known_elr": (),
    }  # fmt: skip
    change = PartitionChangeRecord(partition_id=4, topic_id=TOPIC, **changes)
    image.replay(image.end_offset, decode(encode(change)))
    assert image.partition(TOPIC, 4) == dataclasses.replace(
        WHOLE, isr=(1,), leader=-1, replicas=(1, 2), removing=(), adding=(), elr=(3,), last_known_elr=(),
        leader_epoch=7, partition_epoch=10,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "new_leader_epoch"),
    [
        ({"isr": (3,)}, False),
        ({"eligible_leader_replicas": ()}, False),
        ({"adding_replicas": (5, 6), "replicas": (3, 1, 2, 5, 6)}, False),
        ({"leader": 1}, True),
        ({"leader": -1, "isr": ()}, True),
        # A completed reassignment names the present leader.
        ({"leader": 3, "replicas": (3, 2, 5), "adding_replicas": (), "removing_replicas": ()}, True),
    ],
)
def test_epochs_of_a_partition(change: dict[str, Any], new_leader_epoch: bool) -> None:
    after = changed_partition(WHOLE, PartitionChangeRecord(partition_id=4, topic_id=TOPIC, **change))
    assert after.partition_epoch == WHOLE.partition_epoch + 1
    assert after.leader_epoch == WHOLE.leader_epoch + new_leader_epoch


def test_the_metadata_of_a_partition_has_no_offsets() -> None:
    """Neither the records nor the state know anything of logs."""
    for kind in (PartitionRecord, PartitionChangeRecord, PartitionRegistration):
        names = {f.name for f in dataclasses.fields(kind)}
        assert not [n for n in names if "offset" in n or "watermark" in n or n in ("leo", "hwm")], kind


ids = st.integers(1, 5)


@given(leaders=st.lists(st.one_of(st.none(), st.just(-1), ids), max_size=12))
def test_one_leader_epoch_has_one_leader_and_one_assignment(leaders: list[int | None]) -> None:
    """None: a change of the ISR. A leader elected anew, or named again as its assignment has changed: a new epoch."""
    partition = WHOLE
    terms: dict[int, tuple[int, tuple[int, ...]]] = {}
    for i, leader in enumerate(leaders):
        named = {} if leader is None else {"leader": leader, "replicas": (1, 2, 3, 4, 5, 6 + i)}
        record = PartitionChangeRecord(partition_id=4, topic_id=TOPIC, isr=(1,), **named)  # type: ignore[arg-type]
        partition = changed_partition(partition, record)
        term = (partition.leader, partition.replicas)
        assert terms.setdefault(partition.leader_epoch, term) == term
    elections = sum(leader is not None for leader in leaders)
    assert partition.leader_epoch == WHOLE.leader_epoch + elections
