"""What only a node of the cluster may ask of another (Apache Kafka: the operation ClusterAction on the cluster).

Whoever could vote, fetch as a follower, register, or alter an ISR, could depose the controller, or have records
acknowledged that no replica has. The cluster's id, which all these requests carry, is told to anybody who asks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ..telemetry.complaints import Complaints
from ..wire.messages import NO_THROTTLE, make, response_module
from ..wire.unanswered import error_answer
from . import Entity, Handler, Peer

log = logging.getLogger(__name__)

_OF_NODES: Final = frozenset(
    {
        *("VoteRequest", "BeginQuorumEpochRequest", "EndQuorumEpochRequest", "FetchSnapshotRequest"),
        *("AlterPartitionRequest", "BrokerRegistrationRequest", "BrokerHeartbeatRequest"),
        *("AllocateProducerIdsRequest", "GetReplicaLogInfoRequest"),
    }
)


def is_for_nodes(request: Any) -> bool:
    """Does nobody but a node ask this? Of fetches, those of a replica: they tell how far it has come."""
    name = type(request).__name__
    if name != "FetchRequest":
        return name in _OF_NODES
    state = getattr(request, "replica_state", None)
    return int(state.replica_id if state is not None else request.replica_id) >= 0


#: An answer with an error, to requests that only a generation knows; None: it does not know this one.
OwnRefusal = Callable[[Entity, ErrorCode], Entity | None]


def authorized(handler: Handler, own: OwnRefusal = lambda request, error: None) -> Handler:
    """The same handler, for nodes; and for others, what is not for nodes alone."""

    complaints = Complaints(log)

    async def refuse(request: Entity, peer: Peer) -> Entity:
        complaints.warn("%s of %s refused: it has not proved to be a node", type(request).__name__, peer.host)
        refusal = own(request, ErrorCode.cluster_authorization_failed)
        return _refusal(request) if refusal is None else refusal

    def handle(request: Entity, peer: Peer) -> Awaitable[Entity | None]:
        return handler(request, peer) if peer.is_node or not is_for_nodes(request) else refuse(request, peer)

    return handle


def _refusal(request: Any) -> Entity:
    """Raises ConnectionError where an answer has no place for an error."""
    error = ErrorCode.cluster_authorization_failed
    if type(request).__name__ == "GetReplicaLogInfoRequest":
        raise ConnectionError("only nodes ask for logs")
    if type(request).__name__ == "FetchRequest":
        if request.__version__ < 7:
            raise ConnectionError("only replicas fetch as replicas")
        answer = response_module(request).FetchResponse
        return make(answer, throttle_time=NO_THROTTLE, error_code=error, session_id=0, responses=())
    return error_answer(request, error)
