"""Producer ids: each broker gets blocks of its own, so that no two producers get the same."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId

from cluster_image.wire.integers import i32
from cluster_image.wire.messages import NO_THROTTLE, make, response_module

from ..metadata.records import ProducerIdsRecord
from .term import Step, Term

PRODUCER_ID_BLOCK: Final = 1000


def allocate(term: Term, request: Any) -> Step:
    """AllocateProducerIds: a block that no other broker will hand out, nor this one after a restart."""
    module = response_module(request)
    broker = term.image.brokers.get(int(request.broker_id))
    if broker is None or broker.epoch != request.broker_epoch:
        return Step((), make(
            module.AllocateProducerIdsResponse, throttle_time=NO_THROTTLE,
            error_code=ErrorCode.stale_broker_epoch, producer_id_start=ProducerId(-1), producer_id_len=i32(0),
        ))  # fmt: skip
    start = term.image.next_producer_id
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=ProducerId(start + PRODUCER_ID_BLOCK),
    )
    return Step([record], make(
        module.AllocateProducerIdsResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.none,
        producer_id_start=ProducerId(start), producer_id_len=i32(PRODUCER_ID_BLOCK),
    ))  # fmt: skip
