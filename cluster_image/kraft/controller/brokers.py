"""Brokers' life cycle as the controller decides it: registration, sessions, fencing, controlled shutdown
(description 8).

| state               | a heartbeat says        | next state                                                         |
| ------------------- | ----------------------- | ------------------------------------------------------------------ |
| FENCED              | wantShutDown            | SHUTDOWN_NOW                                                       |
| FENCED              | not wantFence           | UNFENCED, once it has replayed its own registration                |
| UNFENCED            | wantFence               | FENCED; with wantShutDown SHUTDOWN_NOW                             |
| UNFENCED            | wantShutDown            | CONTROLLED_SHUTDOWN if it leads a partition, else SHUTDOWN_NOW     |
| CONTROLLED_SHUTDOWN | wantShutDown            | SHUTDOWN_NOW, once it leads nothing and every other active broker  |
|                     |                         | has seen who leads in its place                                    |

FENCED and CONTROLLED_SHUTDOWN are in the metadata log, so that they outlive this controller; SHUTDOWN_NOW is FENCED and
an answer. A session that runs out leads from any state to FENCED. A broker that is FENCED, is not heard of, and is no
replica of anything may be unregistered: the cluster then knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kio.schema.broker_heartbeat.v1 import request as heartbeat_request
from kio.schema.broker_heartbeat.v1 import response as heartbeat_response
from kio.schema.broker_registration.v4 import request as registration_request
from kio.schema.broker_registration.v4 import response as registration_response
from kio.schema.errors import ErrorCode
from kio.schema.unregister_broker.v0 import request as unregister_request
from kio.schema.unregister_broker.v0 import response as unregister_response

from cluster_image.network import Entity
from cluster_image.wire.integers import BrokerId, i8, i64
from cluster_image.wire.messages import NO_THROTTLE

from ..metadata.image import BrokerRegistration
from ..metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from . import partition_change, rules
from .term import Step, Term


class Brokers:
    """Times are those of the loop's clock, in seconds. None of this object's own state is in the metadata log: a new
    controller starts without it."""

    def __init__(self, term: Term, now: float) -> None:
        self._term = term
        # When each broker was last heard of. A new controller has heard of nobody: everyone gets a whole session.
        # It counts from when the controller before, deposed and not knowing it, can last have answered a heartbeat.
        heard = now + term.config.seconds("controller.quorum.fetch.timeout.ms")
        self._heard = dict.fromkeys(term.image.brokers, heard)
        self._metadata_offsets: dict[int, int] = {}
        self._shutdown_offsets: dict[int, int] = {}
        # Leaderships that a controller before has moved, it has moved below here.
        self._inherited_end = term.image.end_offset

    def session_alive(self, broker: int, now: float) -> bool:
        heard = self._heard.get(broker)
        return heard is not None and now - heard < self._term.config.seconds("broker.session.timeout.ms")

    # -- registration (8.1) -----------------------------------------------------------------------------------

    def register(self, request: registration_request.BrokerRegistrationRequest, now: float) -> Step:
        image = self._term.image
        broker_id = int(request.broker_id)
        known = image.brokers.get(broker_id)
        same_incarnation = known is not None and known.incarnation_id == request.incarnation_id
        if request.cluster_id != self._term.cluster_id:
            return Step((), _registration_answer(ErrorCode.inconsistent_cluster_id))
        if not rules.may_register(known, self.session_alive(broker_id, now), same_incarnation):
            return Step((), _registration_answer(ErrorCode.duplicate_broker_registration))
        if not request.listeners:
            return Step((), _registration_answer(ErrorCode.invalid_request))
        self._heard[broker_id] = now
        if known is not None and rules.is_registered(known, same_incarnation):
            return Step((), _registration_answer(ErrorCode.none, known.epoch))
        epoch = image.end_offset
        self._metadata_offsets.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)
        registration = RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=i64(epoch),
            end_points=tuple(
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in request.listeners
            ),
            rack=request.rack,
        )
        # The session before may have run out a moment ago and not be fenced yet: it must leave every ISR first.
        unclean = rules.is_unclean(known, int(request.previous_broker_epoch))
        leaving = list(self._leave(known, unclean)) if known is not None else []
        return Step([registration, *leaving], _registration_answer(ErrorCode.none, epoch))

    def unregister(self, request: unregister_request.UnregisterBrokerRequest, now: float) -> Step:
        """UnregisterBroker (003, take brokers offline)."""
        image = self._term.image
        known = image.brokers.get(int(request.broker_id))
        if known is None:
            message = f"broker {request.broker_id} is not registered"
            return Step((), _unregistration_answer(ErrorCode.broker_id_not_registered, message))
        holds = sum(known.id in partition.replicas for partition in image.partitions())
        if (reason := rules.may_unregister(known, self.session_alive(known.id, now), holds)) is not None:
            return Step((), _unregistration_answer(ErrorCode.invalid_request, reason))
        for heard in (self._heard, self._metadata_offsets, self._shutdown_offsets):
            heard.pop(known.id, None)
        record = UnregisterBrokerRecord(broker_id=BrokerId(known.id), broker_epoch=i64(known.epoch))
        return Step([record], _unregistration_answer(ErrorCode.none))

    # -- heartbeats (8.2, 8.3) --------------------------------------------------------------------------------

    def heartbeat(self, request: heartbeat_request.BrokerHeartbeatRequest, now: float) -> Step:
        broker = self._term.image.brokers.get(int(request.broker_id))
        if broker is None or broker.epoch != request.broker_epoch:
            return Step((), _heartbeat_answer(ErrorCode.stale_broker_epoch))
        offset = int(request.current_metadata_offset)
        self._heard[broker.id] = now
        self._metadata_offsets[broker.id] = offset
        caught_up = offset >= broker.epoch
        if request.want_shut_down:
            return self._shut_down(broker, caught_up, at_once=request.want_fence)
        if request.want_fence and not broker.fenced:
            return Step(self._fence(broker), _heartbeat_answer(ErrorCode.none, caught_up))
        if not request.want_fence and rules.may_unfence(broker, offset):
            return Step(self._unfence(broker), _heartbeat_answer(ErrorCode.none, caught_up, fenced=False))
        return Step((), _heartbeat_answer(ErrorCode.none, caught_up, fenced=broker.fenced))

    def _unfence(self, broker: BrokerRegistration) -> list[MetadataRecord]:
        electorate = self._term.electorate(replace(broker, fenced=False))
        elections = partition_change.broker_available(self._term.image, electorate, broker.id)
        return [_change(broker, fenced=-1), *elections]

    def _shut_down(self, broker: BrokerRegistration, caught_up: bool, at_once: bool) -> Step:
        """Move leaderships away, then let the broker go once every other active broker has seen it (8.3)."""
        leads = any(p.leader == broker.id for p in self._term.image.partitions())
        if broker.active and leads and not at_once:
            records = [_change(broker, in_controlled_shutdown=1), *self._leave(broker)]
            self._shutdown_offsets[broker.id] = self._term.image.end_offset + len(records)
            return Step(records, _heartbeat_answer(ErrorCode.none, caught_up, fenced=False))
        if broker.in_controlled_shutdown and not broker.fenced:
            offset = self._shutdown_offsets.get(broker.id, self._inherited_end)
            others = [b.id for b in self._term.image.brokers.values() if b.active and b.id != broker.id]
            seen = min((self._metadata_offsets.get(b, -1) for b in others), default=None)
            if not rules.may_shut_down(leads, offset, seen):
                return Step((), _heartbeat_answer(ErrorCode.none, caught_up, fenced=False))
        # It says no more from here on: its session ends now, so that it can register again at once.
        del self._heard[broker.id]
        records = [] if broker.fenced else self._fence(broker)
        return Step(records, _heartbeat_answer(ErrorCode.none, caught_up, should_shut_down=True))

    # -- fencing ----------------------------------------------------------------------------------------------

    def fence_one_expired(self, now: float) -> Step:
        """Fence one broker whose session has run out (000, 1.2.2), the longest silent first. One at a time: each
        fencing is decided on the state that the one before has left."""
        brokers = self._term.image.brokers.values()
        expired = [b for b in brokers if not b.fenced and not self.session_alive(b.id, now)]
        if not expired:
            return Step(())
        return Step(self._fence(min(expired, key=lambda b: (self._heard.get(b.id, float("-inf")), b.id))))

    def _fence(self, broker: BrokerRegistration) -> list[MetadataRecord]:
        return [_change(broker, fenced=1), *self._leave(broker)]

    def _leave(self, broker: BrokerRegistration, unclean: bool = False) -> Iterable[MetadataRecord]:
        """The partitions' changes when a broker is no longer available."""
        electorate = self._term.electorate(replace(broker, fenced=True), unclean)
        return partition_change.broker_gone(self._term.image, electorate, broker.id)


def _change(broker: BrokerRegistration, fenced: int = 0, in_controlled_shutdown: int = 0) -> MetadataRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=BrokerId(broker.id),
        broker_epoch=i64(broker.epoch),
        fenced=i8(fenced),
        in_controlled_shutdown=i8(in_controlled_shutdown),
    )


def _registration_answer(error: ErrorCode, epoch: int = -1) -> Entity:
    return registration_response.BrokerRegistrationResponse(
        throttle_time=NO_THROTTLE, error_code=error, broker_epoch=i64(epoch)
    )


def _unregistration_answer(error: ErrorCode, message: str | None = None) -> Entity:
    return unregister_response.UnregisterBrokerResponse(
        throttle_time=NO_THROTTLE, error_code=error, error_message=message
    )


def _heartbeat_answer(
    error: ErrorCode, caught_up: bool = False, fenced: bool = True, should_shut_down: bool = False
) -> Entity:
    return heartbeat_response.BrokerHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        is_caught_up=caught_up,
        is_fenced=fenced,
        should_shut_down=should_shut_down,
    )
