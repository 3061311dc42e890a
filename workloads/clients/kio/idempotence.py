"""What all idempotent producers have in common, however many batches they have in flight (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from cluster_image.network import Connection
from workloads.clients.kio import outcomes
from workloads.clients.kio.client import CannotSend
from workloads.clients.kio.outcomes import Outcome
from workloads.clients.kio.producing import Answered
from workloads.clients.kio.requests import init_producer_id_request

#: As delivery.timeout.ms, but in request time-outs: so often a broker may stay silent.
DELIVERY_REQUESTS: Final = 4
#: What a broker says to an older epoch of a producer id than one that it knows.
FENCED: Final = frozenset(
    outcomes.name(error) for error in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)
)
#: Brokers answer these of a batch whose number is not the next one.
OUT_OF_STEP: Final = FENCED | {
    outcomes.name(error) for error in (
        ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id, ErrorCode.invalid_producer_id_mapping,
    )
}  # fmt: skip
_DUPLICATE: Final = outcomes.name(ErrorCode.duplicate_sequence_number)


def taken(answered: Answered) -> Answered:
    """A duplicate is in the log, wherever."""
    return Answered("ok") if answered.error == _DUPLICATE else answered


def together(before: Outcome, now: Outcome) -> Outcome:
    """Of all attempts: acknowledged if one was; not appended only if none can have been."""
    if now == "ok":
        return "ok"
    return "info" if "info" in (before, now) else "fail"


async def new_producer_id(connection: Connection, timeout: float) -> int:
    """timeout: seconds. Raises CannotSend."""
    try:
        answer = await connection.request(init_producer_id_request(), timeout=timeout)
    except (ConnectionError, TimeoutError):
        raise CannotSend(outcomes.NO_PRODUCER_ID) from None
    if answer.error_code is not ErrorCode.none:
        raise CannotSend(outcomes.NO_PRODUCER_ID)
    return int(answer.producer_id)
