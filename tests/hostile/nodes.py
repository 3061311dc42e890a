"""What only nodes may ask, from a stranger who knows all that anybody may know: the cluster's id, the nodes' ids."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest, Listener
from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from cluster_image.kraft.raft import rpc
from cluster_image.network.sasl import MECHANISM
from cluster_image.wire.messages import milliseconds

from .stranger import Kind, Target, asked, reported, stranger

_LAST_EPOCH: Final = 2**31 - 1


def _of_all(make: Callable[[Target], Any], brokers: bool = False) -> Kind:
    async def ask(target: Target) -> str:
        nodes = target.brokers if brokers else target.controllers
        return " or ".join(sorted({await asked(node, make(target)) for node in nodes}))

    return ask


def _vote(pre_vote: bool) -> Callable[[Target], Any]:
    return lambda t: rpc.vote(t.cluster_id, 101, 102, _LAST_EPOCH, _LAST_EPOCH, 10**12, pre_vote)


def _begin(target: Target) -> Any:
    return rpc.begin_quorum_epoch(target.cluster_id, 101, 102, _LAST_EPOCH, target.controllers[1])


def _end(target: Target) -> Any:
    return rpc.end_quorum_epoch(target.cluster_id, 101, 1, [103], target.controllers[0])


def _fetch(target: Target) -> FetchRequest:
    """As replica 2, which has all that there will ever be."""
    partitions = tuple(FetchPartition(partition=p, fetch_offset=10**9, partition_max_bytes=1) for p in range(3))
    return FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=-1), max_wait=milliseconds(0), min_bytes=0,
        max_bytes=1, isolation_level=0, session_id=0, session_epoch=-1,
        topics=(FetchTopic(topic_id=target.topic_id, partitions=partitions),), forgotten_topics_data=(), rack_id="",
    )  # fmt: skip


def _alter_partition(target: Target) -> AlterPartitionRequest:
    partitions = tuple(
        PartitionData(
            partition_index=p, leader_epoch=0, partition_epoch=0, leader_recovery_state=0,
            new_isr_with_epochs=(BrokerState(broker_id=1, broker_epoch=-1),),
        )
        for p in range(3)
    )  # fmt: skip
    return AlterPartitionRequest(
        broker_id=1, broker_epoch=-1, topics=(TopicData(topic_id=target.topic_id, partitions=partitions),)
    )


def _register(target: Target) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=random.randint(1, 2000), cluster_id=target.cluster_id, incarnation_id=uuid.uuid4(),
        listeners=(Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0),), features=(), rack=None,
        previous_broker_epoch=-1,
    )  # fmt: skip


def _heartbeat(target: Target) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=0, current_metadata_offset=0, want_fence=True, want_shut_down=True
    )


async def guessed_passwords(target: Target) -> str:
    async with stranger(random.choice(target.controllers)) as one:

        async def guess() -> str:
            for number in range(100):
                await one.ask(SaslHandshakeRequest(mechanism=MECHANISM))
                first = f"n,,n=node,r=nonce{number}".encode()
                await one.ask(SaslAuthenticateRequest(auth_bytes=first))
                last = await one.ask(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=guess,p=AAAA"))
            return str(last.error_code.name)

        return await reported(guess())


KINDS: Final[Mapping[str, Kind]] = {
    "Vote, epoch 2^31 - 1": _of_all(_vote(False)),
    "pre-vote, epoch 2^31 - 1": _of_all(_vote(True)),
    "BeginQuorumEpoch, epoch 2^31 - 1": _of_all(_begin),
    "EndQuorumEpoch": _of_all(_end),
    "Fetch as replica 2": _of_all(_fetch, brokers=True),
    "AlterPartition": _of_all(_alter_partition),
    "BrokerRegistration": _of_all(_register),
    "BrokerHeartbeat for broker 1": _of_all(_heartbeat),
    "AllocateProducerIds": _of_all(lambda t: AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)),
    "guessed passwords": guessed_passwords,
}
