"""Requests as clients of earlier versions send them: what does a broker make of fields that these do not have, and of
values that ours do not use?"""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Final

from cluster_image.network import Entity
from cluster_image.wire.messages import make
from workloads.clients.kio.requests import ACKS, EARLIEST, LATEST, MAX_TIMESTAMP, request_module

_LIST_OFFSETS: Final = 2
#: That Apache Kafka 4 serves still, up to that in which the last time came.
_LIST_OFFSETS_VERSIONS: Final = range(1, 7)
_PRODUCE: Final = request_module(0, 3)
TIMES: Final = (0, EARLIEST, LATEST)
_CONSUMER: Final = -1


def list_offsets_request(random: Random, topic: str, partition: int, leader_epoch: int, timestamp: int) -> Entity:
    """Of any version before that of the last time. leader_epoch: the client's idea of it, where the version has one."""
    assert timestamp != MAX_TIMESTAMP
    module = request_module(_LIST_OFFSETS, random.choice(_LIST_OFFSETS_VERSIONS))
    asked = make(
        module.ListOffsetsPartition, partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    topics = (module.ListOffsetsTopic(name=topic, partitions=(asked,)),)
    return make(module.ListOffsetsRequest, replica_id=_CONSUMER, isolation_level=0, topics=topics)


def nothing_to_produce() -> Entity:
    """Produce with acks=0, of no partition: it has no answer."""
    return _PRODUCE.ProduceRequest(acks=ACKS["0"], timeout=timedelta(seconds=1), topic_data=())
