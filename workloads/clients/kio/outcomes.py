"""What an error says about an append: `fail`, it was not and will not be appended; `info`, it may have been or
may still be.

Calling an append `fail` that a broker did carry out would make a correct cluster look as if it invented records.
So only errors that a broker decides on before it appends are listed, and every other one is `info`. Even a listed
one is `info` if it comes with a base offset: a leader that appended a batch and is deposed while it waits for its
followers answers NOT_LEADER_OR_FOLLOWER with the offset that the batch got (Kafka's DelayedProduce).
"""

from __future__ import annotations

from typing import Final, Literal

from kio.schema.errors import ErrorCode

Outcome = Literal["ok", "fail", "info"]

#: Errors of a Produce partition that a leader raises before the batch reaches its log.
NOT_APPENDED: Final = frozenset(
    {
        ErrorCode.corrupt_message,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.message_too_large,
        ErrorCode.invalid_topic_exception,
        ErrorCode.record_list_too_large,
        ErrorCode.not_enough_replicas,
        ErrorCode.invalid_required_acks,
        ErrorCode.topic_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.unsupported_version,
        ErrorCode.unsupported_for_message_format,
        ErrorCode.policy_violation,
        ErrorCode.invalid_timestamp,
        ErrorCode.invalid_record,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unsupported_compression_type,
    }
)

#: Errors of a DeleteRecords partition that a leader raises before it deletes anything. (NOT_LEADER_OR_FOLLOWER is also
#: what those are answered that wait as it is deposed.)
NOT_DELETED: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.offset_out_of_range,
        ErrorCode.policy_violation,
        ErrorCode.topic_authorization_failed,
        ErrorCode.invalid_topic_exception,
    }
)

# The client's own, beside Kafka's names.
CONNECTION_FAILED: Final = "CONNECTION_FAILED"  # nothing was sent
CONNECTION_LOST: Final = "CONNECTION_LOST"  # after something was sent
CLIENT_TIMEOUT: Final = "CLIENT_TIMEOUT"  # no response in time
NO_LEADER: Final = "NO_LEADER"  # none known: nothing was sent
NO_PRODUCER_ID: Final = "NO_PRODUCER_ID"  # of an idempotent producer: nothing was sent
NOT_SENT: Final = "NOT_SENT"  # of an idempotent producer: given up with the batch before it
MALFORMED_RESPONSE: Final = "MALFORMED_RESPONSE"  # it says nothing of the partition that was asked for
CORRUPT_RECORDS: Final = "CORRUPT_RECORDS"  # a read returned damaged batches


def of_append(error: ErrorCode, base_offset: int) -> Outcome:
    """The outcome of an append that was answered with these two."""
    if error is ErrorCode.none:
        return "ok"
    return "fail" if error in NOT_APPENDED and base_offset < 0 else "info"


def of_deletion(error: ErrorCode) -> Outcome:
    """The outcome of a DeleteRecords that was answered with this."""
    if error is ErrorCode.none:
        return "ok"
    return "fail" if error in NOT_DELETED else "info"


def name(error: ErrorCode) -> str | None:
    """Kafka's name of an error; None for none."""
    return None if error is ErrorCode.none else error.name.upper()
