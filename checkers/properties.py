"""What checkers judge, by the names that verdicts and docs/properties.md give it."""

from __future__ import annotations

from typing import Final

LOG_LINEARIZABILITY: Final = "log linearizability"
LOG_MATCHING: Final = "log matching"
WATERMARK_FRESHNESS: Final = "watermark freshness"
#: Of faults that resize or rebalance a cluster.
BALANCE: Final = "balance"
#: Where retention or clients delete the begin of logs.
DELETION: Final = "deletion"
#: Of the consumer groups of a run (checkers/groups/).
AT_LEAST_ONCE: Final = "at-least-once processing"
AT_MOST_ONCE: Final = "at-most-once processing"
COMMITTED_OFFSETS: Final = "committed offsets"
CONSUMER_POSITIONS: Final = "consumer positions"
COMMIT_ORDER: Final = "commit order"
PARTITION_OWNERSHIP: Final = "partition ownership"
GROUP_SETTLES: Final = "group settles"
GROUPS_ALLOWED: Final = "consumer groups, allowed"
GROUP_PROPERTIES: Final = (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    COMMITTED_OFFSETS,
    CONSUMER_POSITIONS,
    COMMIT_ORDER,
    PARTITION_OWNERSHIP,
    GROUP_SETTLES,
    GROUPS_ALLOWED,
)
TRANSACTIONS: Final = "transactions"
#: Of the transactions of a run (checkers/transactions/runs.py).
EXACTLY_ONCE_PROCESSING: Final = "exactly-once processing"
TRANSACTIONS_SETTLE: Final = "transactions settle"
ALLOWED_TRANSACTIONS: Final = "transactions, allowed"  # by the consistency model that was asked for
#: Only of producers that retry without idempotence: these may write a record more than once.
EXACTLY_ONCE: Final = "exactly-once append"
HISTORY_PROPERTIES: Final = (LOG_LINEARIZABILITY, LOG_MATCHING, WATERMARK_FRESHNESS)
#: Checked inside a simulated cluster after every step, or after healing (the last two).
WATERMARK_ADVANCES: Final = "WatermarkAdvances"
ISR_EXPANDS: Final = "IsrExpands"
ISR_SHRINKS: Final = "IsrShrinks"
REASSIGNMENT_COMPLETES: Final = "ReassignmentCompletes"
BROKER_UNFENCED: Final = "BrokerUnfenced"
LEADER_ELECTED: Final = "LeaderElected"
LEADER_RESIGNS: Final = "LeaderResigns"
REQUESTS_ANSWERED: Final = "RequestsAnswered"
RECORDS_DELETED: Final = "RecordsDeleted"
#: Whatever else must come true once all faults are healed.
LIVENESS: Final = "Liveness"
#: Asked of a cluster that is whole again, some at every step besides.
OF_LIVENESS: Final = (
    WATERMARK_ADVANCES, ISR_EXPANDS, REASSIGNMENT_COMPLETES, BROKER_UNFENCED, LEADER_ELECTED, LEADER_RESIGNS,
    REQUESTS_ANSWERED, RECORDS_DELETED, LIVENESS,
)  # fmt: skip
HANG: Final = "Hang"
#: Of a simulated node, whatever its protocol.
UNEXPECTED_ERROR: Final = "UnexpectedError"
INVARIANTS: Final = (
    "ValidControllerIsrAndElr",
    "ValidControllerState",
    "ReplicationQuorumSuperset",
    "LeaderCandidateCompleteness",
    "LeaderCompleteness",
    "LeaderAppendOnly",
    "StrongIsr",
    "HighWatermarkMonotonicity",
    "LogMatching",
    "MetadataLogMatching",
    "NoCommittedRecordLostGlobally",
    "ConsistentRead",
    "ValidLogStart",
    "MinIsrRecoveryQuorum",
    "ValidReplicas",
    "UncleanRecovery",
    "ElectionSafety",
    "CommittedPrefix",
    "FlushedOffset",
    ISR_SHRINKS,
    "OpenedLog",
    "LogFiles",
    "VoterEndOffset",
    "QuorumState",
    "LeaderEpochCheckpoint",
    "RecoveryPointCheckpoint",
    "CleanShutdown",
    "ProducerSequence",
    "ProducerEpoch",
    "NoFalseDuplicate",
    "ProducerState",
    "DecidedIsr",
    "ProposedIsr",
    "FollowerSession",
    "FetchedFromLeader",
    "FetchAnswered",
    "AdministratorAnswered",
    "BrokerAnswered",
    "QuorumAnswered",
    "ElectionTimeouts",
    "AcknowledgedOnceCommitted",
    "OffsetLookup",
    *OF_LIVENESS,
    HANG,
    UNEXPECTED_ERROR,
)
PROPERTIES: Final = (*HISTORY_PROPERTIES, *INVARIANTS)
#: Checked from the nodes' traces and metadata logs, where these were collected (checkers/inside/kraft/nodes.py).
ROLES_MATCH_METADATA: Final = "RolesMatchMetadata"
NODE_PROPERTIES: Final = (
    "ValidControllerIsrAndElr",
    "ValidControllerState",
    "MinIsrRecoveryQuorum",
    "LeaderCompleteness",
    "LeaderCandidateCompleteness",
    "ReplicationQuorumSuperset",
    "StrongIsr",
    "UncleanExclusion",
    "LeaderAppendOnly",
    "HighWatermarkMonotonicity",
    "ValidLogStart",
    "MetadataLogMatching",
    "ElectionSafety",
    "CommittedPrefix",
    "ProposedIsr",
    ROLES_MATCH_METADATA,
)
#: Of the generation on ZooKeeper, from the nodes' traces (checkers/inside/v2/nodes.py).
ONE_LEADER: Final = "OneLeader"
ISR_OF_LEADER: Final = "IsrOfLatestLeader"
CLOSED_BY_LEADER: Final = "ClosedByLatestLeader"
V2_PROPERTIES: Final = (ONE_LEADER, ISR_OF_LEADER, CLOSED_BY_LEADER)
#: Of that generation, checked inside a simulated cluster after every step.
ELECTED_ISR: Final = "ElectedIsr"
ISR_OF_REPLICAS: Final = "IsrOfReplicas"
FOLLOWERS_AWAITED: Final = "FollowersAwaited"
LEADER_STAYS: Final = "LeaderStays"
V2_INVARIANTS: Final = (ELECTED_ISR, FOLLOWERS_AWAITED, LEADER_STAYS, ISR_OF_REPLICAS)
VIOLATION: Final = "violation"  # the anomaly of an invariant
LOST_APPEND: Final = "lost append"
#: Reported, never a reason to fail: Kafka, the consistency model asked for, or the invariant does not promise it.
WEAK: Final = frozenset({
    EXACTLY_ONCE, WATERMARK_FRESHNESS, ALLOWED_TRANSACTIONS, GROUPS_ALLOWED,
    "set-full, allowed", "total-queue, allowed",
})  # fmt: skip
