"""The quorum's messages as kio entities, each about the one partition of the one topic that there is.

Builders take plain values; `partition` opens what was received.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kio.schema.begin_quorum_epoch.v1 import request as begin_request
from kio.schema.begin_quorum_epoch.v1 import response as begin_response
from kio.schema.describe_quorum.v2 import request as describe_request
from kio.schema.describe_quorum.v2 import response as describe_response
from kio.schema.end_quorum_epoch.v1 import request as end_request
from kio.schema.end_quorum_epoch.v1 import response as end_response
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v18 import request as fetch_request
from kio.schema.fetch.v18 import response as fetch_response
from kio.schema.fetch_snapshot.v1 import request as snapshot_request
from kio.schema.fetch_snapshot.v1 import response as snapshot_response
from kio.schema.types import TopicName
from kio.schema.vote.v2 import request as vote_request
from kio.schema.vote.v2 import response as vote_response
from kio.static.primitive import Records

from cluster_image.network import Address, Entity
from cluster_image.wire.integers import BrokerId, i32, i64, u16
from cluster_image.wire.messages import NO_THROTTLE, milliseconds

TOPIC: Final = TopicName("__cluster_metadata")
TOPIC_ID: Final = uuid.UUID(int=1)  # Kafka's fixed id of that topic
PARTITION: Final = i32(0)
LISTENER: Final = "CONTROLLER"

VoteRequest = vote_request.VoteRequest
BeginQuorumEpochRequest = begin_request.BeginQuorumEpochRequest
EndQuorumEpochRequest = end_request.EndQuorumEpochRequest
FetchRequest = fetch_request.FetchRequest
FetchSnapshotRequest = snapshot_request.FetchSnapshotRequest
DescribeQuorumRequest = describe_request.DescribeQuorumRequest

#: The requests that a quorum member answers, each in the newest version only: all members are of one release.
REQUESTS: Final = (
    VoteRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    DescribeQuorumRequest,
)


def partition(entity: Entity) -> Any | None:
    """The metadata partition's part of a request or response; None if the entity is about anything else."""
    topics: Any = entity.responses if isinstance(entity, fetch_response.FetchResponse) else entity.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic, data = topics[0], topics[0].partitions[0]
    if isinstance(entity, FetchSnapshotRequest):
        of_topic, index = topic.name == TOPIC, data.partition
    elif isinstance(entity, snapshot_response.FetchSnapshotResponse):
        of_topic, index = topic.name == TOPIC, data.index
    else:
        of_topic = topic.topic_id == TOPIC_ID if hasattr(topic, "topic_id") else topic.topic_name == TOPIC
        index = data.partition if isinstance(entity, FetchRequest) else data.partition_index
    return data if of_topic and index == PARTITION else None


def node(node_id: int | None) -> BrokerId:
    return BrokerId(-1 if node_id is None else node_id)


# -- requests -------------------------------------------------------------------------------------------------


def vote(
    cluster_id: str, receiver: int, candidate: int, epoch: int, last_epoch: int, end_offset: int, pre_vote: bool
) -> Entity:
    data = vote_request.PartitionData(
        partition_index=PARTITION,
        replica_epoch=i32(epoch),
        replica_id=BrokerId(candidate),
        replica_directory_id=None,
        voter_directory_id=None,
        last_offset_epoch=i32(last_epoch),
        last_offset=i64(end_offset),
        pre_vote=pre_vote,
    )
    topic = vote_request.TopicData(topic_name=TOPIC, partitions=(data,))
    return VoteRequest(cluster_id=cluster_id, voter_id=BrokerId(receiver), topics=(topic,))


def begin_quorum_epoch(cluster_id: str, receiver: int, leader: int, epoch: int, address: Address) -> Entity:
    data = begin_request.PartitionData(
        partition_index=PARTITION, voter_directory_id=None, leader_id=BrokerId(leader), leader_epoch=i32(epoch)
    )
    return BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=BrokerId(receiver),
        topics=(begin_request.TopicData(topic_name=TOPIC, partitions=(data,)),),
        leader_endpoints=(begin_request.LeaderEndpoint(name=LISTENER, host=address.host, port=u16(address.port)),),
    )


def end_quorum_epoch(cluster_id: str, leader: int, epoch: int, successors: Iterable[int], address: Address) -> Entity:
    """`successors`: the voters that should stand for election, best first."""
    data = end_request.PartitionData(
        partition_index=PARTITION,
        leader_id=BrokerId(leader),
        leader_epoch=i32(epoch),
        preferred_candidates=tuple(
            end_request.ReplicaInfo(candidate_id=BrokerId(voter), candidate_directory_id=None) for voter in successors
        ),
    )
    return EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=(end_request.TopicData(topic_name=TOPIC, partitions=(data,)),),
        leader_endpoints=(end_request.LeaderEndpoint(name=LISTENER, host=address.host, port=u16(address.port)),),
    )


def fetch(
    cluster_id: str,
    replica: int,
    epoch: int,
    offset: int,
    last_epoch: int,
    high_watermark: int,
    max_wait_ms: int,
    max_bytes: int,
) -> Entity:
    data = fetch_request.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=i32(epoch),
        fetch_offset=i64(offset),
        last_fetched_epoch=i32(last_epoch),
        partition_max_bytes=i32(max_bytes),
        high_watermark=i64(high_watermark),
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch_request.ReplicaState(replica_id=BrokerId(replica)),
        max_wait=milliseconds(max_wait_ms),
        min_bytes=i32(1),
        max_bytes=i32(max_bytes),
        topics=(fetch_request.FetchTopic(topic_id=TOPIC_ID, partitions=(data,)),),
        forgotten_topics_data=(),
    )


def fetch_snapshot(
    cluster_id: str, replica: int, epoch: int, snapshot: tuple[int, int], position: int, max_bytes: int
) -> Entity:
    """`snapshot`: (end offset, epoch). `position`: of the first byte wanted."""
    data = snapshot_request.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=i32(epoch),
        snapshot_id=snapshot_request.SnapshotId(end_offset=i64(snapshot[0]), epoch=i32(snapshot[1])),
        position=i64(position),
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=BrokerId(replica),
        max_bytes=i32(max_bytes),
        topics=(snapshot_request.TopicSnapshot(name=TOPIC, partitions=(data,)),),
    )


# -- responses ------------------------------------------------------------------------------------------------


def refusal(request: Entity, error: ErrorCode) -> Entity:
    """An answer that is about the request as a whole."""
    if isinstance(request, VoteRequest):
        return vote_response.VoteResponse(error_code=error, topics=())
    if isinstance(request, BeginQuorumEpochRequest):
        return begin_response.BeginQuorumEpochResponse(error_code=error, topics=())
    if isinstance(request, EndQuorumEpochRequest):
        return end_response.EndQuorumEpochResponse(error_code=error, topics=())
    if isinstance(request, FetchRequest):
        return fetch_response.FetchResponse(throttle_time=NO_THROTTLE, error_code=error, responses=())
    if isinstance(request, FetchSnapshotRequest):
        return snapshot_response.FetchSnapshotResponse(throttle_time=NO_THROTTLE, error_code=error, topics=())
    return describe_response.DescribeQuorumResponse(error_code=error, error_message=None, topics=(), nodes=())


def vote_answer(error: ErrorCode, leader: int | None, epoch: int, granted: bool) -> Entity:
    data = vote_response.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        leader_id=node(leader),
        leader_epoch=i32(epoch),
        vote_granted=granted,
    )
    topic = vote_response.TopicData(topic_name=TOPIC, partitions=(data,))
    return vote_response.VoteResponse(error_code=ErrorCode.none, topics=(topic,))


def begin_answer(error: ErrorCode, leader: int | None, epoch: int) -> Entity:
    data = begin_response.PartitionData(
        partition_index=PARTITION, error_code=error, leader_id=node(leader), leader_epoch=i32(epoch)
    )
    topic = begin_response.TopicData(topic_name=TOPIC, partitions=(data,))
    return begin_response.BeginQuorumEpochResponse(error_code=ErrorCode.none, topics=(topic,))


def end_answer(error: ErrorCode, leader: int | None, epoch: int) -> Entity:
    data = end_response.PartitionData(
        partition_index=PARTITION, error_code=error, leader_id=node(leader), leader_epoch=i32(epoch)
    )
    topic = end_response.TopicData(topic_name=TOPIC, partitions=(data,))
    return end_response.EndQuorumEpochResponse(error_code=ErrorCode.none, topics=(topic,))


def fetch_answer(
    error: ErrorCode,
    leader: int | None,
    epoch: int,
    *,
    high_watermark: int = -1,
    log_start_offset: int = -1,
    diverging: tuple[int, int] | None = None,
    snapshot: tuple[int, int] | None = None,
    records: bytes = b"",
) -> Entity:
    """`diverging`: the largest epoch that the leader's log shares with the follower's, and its end offset.
    `snapshot`: end offset and epoch of the one that the follower must begin anew from."""
    divergence = fetch_response.EpochEndOffset()
    if diverging is not None:
        divergence = fetch_response.EpochEndOffset(epoch=i32(diverging[0]), end_offset=i64(diverging[1]))
    snapshot_id = fetch_response.SnapshotId()
    if snapshot is not None:
        snapshot_id = fetch_response.SnapshotId(end_offset=i64(snapshot[0]), epoch=i32(snapshot[1]))
    data = fetch_response.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=i64(high_watermark),
        log_start_offset=i64(log_start_offset),
        diverging_epoch=divergence,
        snapshot_id=snapshot_id,
        current_leader=fetch_response.LeaderIdAndEpoch(leader_id=node(leader), leader_epoch=i32(epoch)),
        aborted_transactions=None,
        records=Records(records),
    )
    topic = fetch_response.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(data,))
    return fetch_response.FetchResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, responses=(topic,))


def fetch_snapshot_answer(
    error: ErrorCode,
    leader: int | None,
    epoch: int,
    snapshot: tuple[int, int],
    *,
    size: int = -1,
    position: int = -1,
    content: bytes = b"",
) -> Entity:
    """`size`: of the whole snapshot in bytes; `content`: some of them, from `position`."""
    data = snapshot_response.PartitionSnapshot(
        index=PARTITION,
        error_code=error,
        snapshot_id=snapshot_response.SnapshotId(end_offset=i64(snapshot[0]), epoch=i32(snapshot[1])),
        current_leader=snapshot_response.LeaderIdAndEpoch(leader_id=node(leader), leader_epoch=i32(epoch)),
        size=i64(size),
        position=i64(position),
        unaligned_records=Records(content),
    )
    topic = snapshot_response.TopicSnapshot(name=TOPIC, partitions=(data,))
    return snapshot_response.FetchSnapshotResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, topics=(topic,)
    )


def replica_state(replica: int, end_offset: int, fetched_ms: int, caught_up_ms: int) -> Entity:
    return describe_response.ReplicaState(
        replica_id=BrokerId(replica),
        replica_directory_id=None,
        log_end_offset=i64(end_offset),
        last_fetch_timestamp=i64(fetched_ms),
        last_caught_up_timestamp=i64(caught_up_ms),
    )


def describe_answer(
    error: ErrorCode,
    leader: int | None,
    epoch: int,
    high_watermark: int,
    voter_states: Iterable[Entity],
    observer_states: Iterable[Entity],
    voters: Mapping[int, Address],
) -> Entity:
    data = describe_response.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        error_message=None,
        leader_id=node(leader),
        leader_epoch=i32(epoch),
        high_watermark=i64(high_watermark),
        current_voters=tuple(voter_states),
        observers=tuple(observer_states),
    )
    nodes = tuple(
        describe_response.Node(
            node_id=BrokerId(voter),
            listeners=(describe_response.Listener(name=LISTENER, host=address.host, port=u16(address.port)),),
        )
        for voter, address in voters.items()
    )
    return describe_response.DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=(describe_response.TopicData(topic_name=TOPIC, partitions=(data,)),),
        nodes=nodes,
    )
