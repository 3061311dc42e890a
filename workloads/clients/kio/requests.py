"""The requests that workloads send and what their responses say, in versions that any broker since Kafka 2.8 serves.

These versions name topics, not ids, and carry the client's idea of the leader epoch. Fetch sessions are not used:
each Fetch stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from cluster_image.network import Entity


def request_module(api_key: int, version: int) -> Any:
    """Its classes take plain ints: kio's types tell apart widths that these do not have."""
    return load_payload_module(api_key, version, EntityType.request)


_PRODUCE: Final = request_module(0, 9)
_FETCH: Final = request_module(1, 12)
_LIST_OFFSETS: Final = request_module(2, 7)
_METADATA: Final = request_module(3, 12)
_INIT_PRODUCER_ID: Final = request_module(22, 4)

ACKS: Final[Mapping[str, int]] = {"all": -1, "1": 1, "0": 0}
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
_CONSUMER: Final = -1  # the replica id of a client


class FetchFrom(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int  # the client's idea of it; a broker with another one refuses


class ProduceAnswer(NamedTuple):
    error: ErrorCode
    base_offset: int


class FetchAnswer(NamedTuple):
    error: ErrorCode
    high_watermark: int
    records: bytes  # whole record batches; the first may start below the offset asked for


class OffsetAnswer(NamedTuple):
    error: ErrorCode
    offset: int
    leader_epoch: int


def metadata_request(topic: str) -> Entity:
    return _METADATA.MetadataRequest(
        topics=(_METADATA.MetadataRequestTopic(topic_id=None, name=topic),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def init_producer_id_request() -> Entity:
    """A new one, without transactions."""
    return _INIT_PRODUCER_ID.InitProducerIdRequest(transactional_id=None, transaction_timeout=timedelta(seconds=60))


def produce_request(topic: str, batches: Mapping[int, bytes], acks: int, timeout: float) -> Entity:
    """batches: one record batch by partition. timeout: seconds that the leader may wait for its followers."""
    return _PRODUCE.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=timedelta(seconds=timeout),
        topic_data=(
            _PRODUCE.TopicProduceData(
                name=topic,
                partition_data=tuple(
                    _PRODUCE.PartitionProduceData(index=partition, records=records)
                    for partition, records in batches.items()
                ),
            ),
        ),
    )


def produce_answers(response: Entity) -> dict[int, ProduceAnswer]:
    """By partition."""
    return {
        partition.index: ProduceAnswer(partition.error_code, partition.base_offset)
        for topic in response.responses
        for partition in topic.partition_responses
    }


def fetch_request(
    topic: str,
    positions: Sequence[FetchFrom],
    *,
    max_wait: float,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
) -> Entity:
    """max_wait: seconds that the leader may wait for `min_bytes`."""
    return _FETCH.FetchRequest(
        replica_id=_CONSUMER,
        max_wait=timedelta(seconds=max_wait),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(
            _FETCH.FetchTopic(
                topic=topic,
                partitions=tuple(
                    _FETCH.FetchPartition(
                        partition=position.partition,
                        current_leader_epoch=position.leader_epoch,
                        fetch_offset=position.offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for position in positions
                ),
            ),
        ),
        forgotten_topics_data=(),
    )


def fetch_answers(response: Entity) -> dict[int, FetchAnswer]:
    """By partition. An error of the whole response stands for each of its partitions."""
    return {
        partition.partition_index: FetchAnswer(
            response.error_code or partition.error_code, partition.high_watermark, partition.records or b""
        )
        for topic in response.responses
        for partition in topic.partitions
    }


def list_offsets_request(
    topic: str, leader_epochs: Mapping[int, int], timestamp: int, *, committed: bool = False
) -> Entity:
    """leader_epochs: the client's idea of them by partition. timestamp: LATEST, EARLIEST, MAX_TIMESTAMP, or ms
    since 1970, of which the first record of that time or later is meant. committed: LATEST is the
    last stable offset, and not the high watermark."""
    return _LIST_OFFSETS.ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(committed),
        topics=(
            _LIST_OFFSETS.ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    _LIST_OFFSETS.ListOffsetsPartition(
                        partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp
                    )
                    for partition, leader_epoch in leader_epochs.items()
                ),
            ),
        ),
    )


def list_offsets_answers(response: Entity) -> dict[int, OffsetAnswer]:
    """By partition."""
    return {
        partition.partition_index: OffsetAnswer(partition.error_code, partition.offset, partition.leader_epoch)
        for topic in response.topics
        for partition in topic.partitions
    }
