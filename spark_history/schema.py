"""The history of a run as tables: one pyarrow schema a table, the same in the journal, in Parquet and in Spark.

Times are monotonic nanoseconds (CLOCK_MONOTONIC of the machine the run was on: every container and the
harness share it); a missing completion is null. `run` names the run, so that one dataset holds many.

`outcome` is Jepsen's: `ok` (done), `fail` (definitely not done), `info` (may or may not have happened,
now or later). An operation that was invoked and never completed has outcome `info` and no completion.

Kinds of operation:

| kind         | offset                          | high_watermark        | value             |
| ------------ | ------------------------------- | --------------------- | ----------------- |
| append       | the offset the record was given | null                  | the value written |
| read         | the fetch offset                | the fetch's watermark | null (see reads)  |
| list_offsets | the end of the log answered     | null                  | null              |
| final_read   | as read, after healing          | as read               | null (see reads)  |

A `delete_records` asks for everything below `offset` to be deleted, of -1 below the high watermark; `high_watermark` is
then the low watermark that was answered: what the log starts at on all live replicas.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

OPERATIONS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("process", pa.int32()),
        ("op", pa.int64()),  # unique within the run, in order of invocation
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("value", pa.int64()),
        ("invoke", pa.int64()),
        ("complete", pa.int64()),
        ("outcome", pa.string()),
        ("offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("error", pa.string()),  # Kafka's name of the error, or the client's own, e.g. CONNECTION_LOST
    ]
)

READS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("op", pa.int64()),  # the read operation that returned this record
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.int64()),
    ]
)

FAULTS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("fault", pa.int32()),  # position in the schedule
        ("nemesis", pa.string()),
        ("targets", pa.list_(pa.string())),  # node names
        ("start", pa.int64()),
        ("end", pa.int64()),  # when the node or network was whole again; null: never healed
        ("effective", pa.bool_()),  # was there evidence that it took effect
        ("evidence", pa.string()),  # JSON, what was observed of it
    ]
)

REPLICA_LOGS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("node", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("value", pa.int64()),
    ]
)

#: What nodes told of themselves: cluster_image/telemetry/trace.py says which events there are and what their fields
#: mean. Rows of one node are in the order of `number`; of `append` and `high watermark` only now and then one, with
#: the latest value.
TRACE: Final = pa.schema(
    [
        ("run", pa.string()),
        ("node", pa.string()),
        ("number", pa.int64()),  # position in the node's trace, over all its processes
        ("time", pa.int64()),  # when it happened
        ("event", pa.string()),
        ("topic", pa.string()),  # null: of no partition
        ("partition", pa.int32()),
        ("fields", pa.string()),  # JSON object
    ]
)

#: The metadata log as it lay on the disks of controllers and brokers, collected after the run.
METADATA_LOG: Final = pa.schema(
    [
        ("run", pa.string()),
        ("node", pa.string()),
        ("offset", pa.int64()),  # within a snapshot: the record's position in it
        ("epoch", pa.int32()),  # of the quorum's leader that wrote it
        ("batch", pa.int64()),  # offset of the first record of its batch: a batch is committed as a whole
        ("snapshot", pa.int64()),  # null: a record of the log; else of the snapshot of everything below this offset
        ("type", pa.string()),  # e.g. PartitionChangeRecord; LeaderChange and others that the quorum writes for itself
        ("fields", pa.string()),  # JSON object
    ]
)

#: What lay on the nodes' disks beside records, as files say it: what a target's own checks judge
#: (harness/targets/kafka/disks.py says which rows there are).
DISK_STATE: Final = pa.schema(
    [
        ("run", pa.string()),
        ("node", pa.string()),
        ("file", pa.string()),  # on the node's disk
        ("cut", pa.int32()),  # null: after the run; else after which of the node's power cuts, from 1
        ("what", pa.string()),
        ("topic", pa.string()),  # null: of no partition
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("epoch", pa.int32()),
        ("fields", pa.string()),  # JSON object: what else there is
        ("problem", pa.string()),  # a clause: why it cannot be read, or not to its end; null: it can
    ]
)

#: What the harness collected of the nodes after the run, a row a piece of evidence: also of what could not be
#: collected, so that what is missing is known to be.
COLLECTED: Final = pa.schema(
    [
        ("run", pa.string()),
        ("node", pa.string()),
        ("what", pa.string()),  # "replica log", "trace", "metadata log", "disk" (of a broker), or "file": see `file`
        ("topic", pa.string()),  # of a replica log
        ("partition", pa.int32()),
        ("records", pa.int64()),  # rows of it in the table of that name
        ("problem", pa.string()),  # a sentence: why it is not there, or not whole; null: it is
        ("file", pa.string()),  # of "file": in the run's directory, e.g. trace/broker-1.jsonl
        ("size", pa.int64()),  # bytes of the file, and their CRC-32
        ("crc", pa.int64()),
    ]
)

#: Operations on registers that hold one value each: Jepsen's register and cas-register workloads. Values are int64;
#: where a history holds others, they are numbered, and `names` of the plan says what each number stands for.
REGISTERS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("process", pa.int32()),
        ("op", pa.int64()),  # unique within the run, in order of invocation
        ("kind", pa.string()),  # read, write or cas
        ("key", pa.int64()),  # which register
        ("value", pa.int64()),  # what a read returned, a write wrote, a cas would set; null: nil, a value like others
        ("expected", pa.int64()),  # of a cas: the value that it asks for
        ("invoke", pa.int64()),
        ("complete", pa.int64()),
        ("outcome", pa.string()),
        ("error", pa.string()),
    ]
)

#: Operations on any other object (mutex, queue, set, …), with their values as JSON; and what a workload of the user's
#: own did beside appending and reading (a journal has a row when such an operation is invoked and another once it
#: completes: the last one counts).
CALLS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("process", pa.int32()),
        ("op", pa.int64()),
        ("kind", pa.string()),  # Jepsen's :f, e.g. acquire, enqueue, add
        ("key", pa.string()),  # JSON: which object; null: there is one
        ("argument", pa.string()),  # JSON: the value of the invocation
        ("result", pa.string()),  # JSON: the value of an ok completion
        ("invoke", pa.int64()),
        ("complete", pa.int64()),
        ("outcome", pa.string()),
        ("error", pa.string()),
    ]
)

#: A transaction; what it did is in MICRO_OPERATIONS. In a journal one is on record as it begins, as `info`, with what
#: it is to send, and once more, with all that it did, as it ends (checkers/transactions/runs.py).
TRANSACTIONS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("process", pa.int32()),
        ("op", pa.int64()),
        ("invoke", pa.int64()),
        ("complete", pa.int64()),
        ("outcome", pa.string()),  # info: may have been committed; fail: was not
        ("error", pa.string()),
    ]
)

#: What transactions did, in order. A list that `append`s grow is a log whose offsets are the positions in the list.
MICRO_OPERATIONS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("op", pa.int64()),  # the transaction
        ("position", pa.int32()),  # in the transaction; the records of one read share it
        ("kind", pa.string()),  # append or read (list-append), write or read (rw-register), send or poll (kafka)
        ("key", pa.int64()),  # the list, the register or the partition
        # append, write, or read of a register: null. read: position in the list. send: as acknowledged. poll: of the
        # record
        ("offset", pa.int64()),
        # appended, written or sent, or a record read; null with a null offset: a read that found nothing
        ("value", pa.int64()),
    ]
)

#: What a client of the kafka workload did to its consumer, beside its transactions. Processes and times are those of
#: TRANSACTIONS, `op` is not: these are numbered by themselves, from 0, in the order of invocation.
ASSIGNMENTS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("process", pa.int32()),
        ("op", pa.int64()),
        ("kind", pa.string()),  # assign, subscribe, unsubscribe, crash or close
        ("keys", pa.list_(pa.int64())),  # the partitions that the consumer has from now on, or asks for; null: none
        ("from_start", pa.bool_()),  # and goes to the beginning of each
        ("invoke", pa.int64()),
        ("complete", pa.int64()),
        ("outcome", pa.string()),  # info: may have taken effect; fail: has not
        ("error", pa.string()),
    ]
)

#: The history of one log, as `ingest` lays it out: operations in the order of `position`, positionless ones first, and
#: readings of the end before the append at that offset.
LAID_OUT_OPERATIONS: Final = pa.schema(
    [
        *OPERATIONS,
        # Where in the log the operation stands. Append: its offset, of an append without one the offset at which a
        # read found its value (a final read, if any did). list_offsets: the end it answered. Read: the end of the log
        # it is evidence of: its watermark, or one past its last record. Null: nowhere (not ok and never observed).
        ("position", pa.int64()),
        ("observed", pa.int64()),  # append without an offset: earliest completion of a read that returned it
        ("first", pa.int64()),  # read: offset of the first and last record it returned, and how many these were
        ("last", pa.int64()),
        ("records", pa.int64()),
        ("repeats", pa.int64()),  # how many of these did not stand above the one before
    ]
)

#: What reads of one log returned, in the order of offsets. Only records of reads that are ok; where all that returned
#: an offset agree on its value, that is one row, with the operation of a final read if there was one; but of a read
#: that left something out, all records are kept.
LAID_OUT_READS: Final = pa.schema(
    [
        ("op", pa.int64()),
        ("offset", pa.int64()),
        ("value", pa.int64()),
        ("final", pa.bool_()),  # returned by a final_read
    ]
)

#: What the members of consumer groups did and were told: a row an event a partition. `process` is one incarnation of a
#: member: after a crash or a leave it has another number. `op` is unique in this table, in order of invocation. What a
#: member asks for is put on record before it is sent, since it may be killed; what its client does by itself (resets,
#: callbacks) no later than the poll that shows it.
#:
#: | kind | start | end | what it says |
#: | --- | --- | --- | --- |
#: | join | | | the member began to subscribe (of no partition) |
#: | assign | where it begins; null: not known | | the partition was given to this member: the callback of a rebalance |
#: | revoke | | | it was taken away in order: until `complete` the member may process and commit |
#: | lose | | | it was taken away without order: the session is over (on_partitions_lost) |
#: | poll | of the first record | one past the last | it was handed these records, without a gap |
#: | process | of the first record | one past the last | it has processed these records |
#: | commit | | what is to be committed | ok: it is; fail: it is not and will not be; info: it may be, also later |
#: | committed | | the answer; null: nothing is | what is committed was asked for, by process -1 after the end |
#: | reset | | where it goes on | back or forward on purpose: a seek, or auto.offset.reset; never later than its poll |
#: | pause, resume | | | the member stopped polling on purpose, or goes on (of no partition) |
#: | leave | | | it was closed (of no partition) |
#: | crash | | | its process was killed; `complete`: when it was known to be dead (of no partition) |
GROUP_EVENTS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("process", pa.int32()),
        ("op", pa.int64()),
        ("group", pa.string()),
        ("kind", pa.string()),
        ("topic", pa.string()),  # null: of no partition
        ("partition", pa.int32()),
        ("start", pa.int64()),  # offsets
        ("end", pa.int64()),
        ("generation", pa.int32()),  # or the member's epoch (KIP-848), as the client told it then; null: it did not
        ("invoke", pa.int64()),
        ("complete", pa.int64()),
        ("outcome", pa.string()),
        ("error", pa.string()),  # or another clause: of a reset NOTHING_COMMITTED, if that is why
    ]
)
NOTHING_COMMITTED: Final = "nothing committed"

#: How far what read_committed returns goes, as leaders told it: a row a partition a look.
STABLE_OFFSETS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("last_stable", pa.int64()),  # the last stable offset
        ("end", pa.int64()),  # the high watermark, told after that
        ("invoke", pa.int64()),
        ("complete", pa.int64()),
    ]
)

TABLES: Final[dict[str, pa.Schema]] = {
    "operations": OPERATIONS,
    "reads": READS,
    "faults": FAULTS,
    "replica_logs": REPLICA_LOGS,
    "trace": TRACE,
    "metadata_log": METADATA_LOG,
    "disk_state": DISK_STATE,
    "collected": COLLECTED,
    "group_events": GROUP_EVENTS,
    "transactions": TRANSACTIONS,
    "micro_operations": MICRO_OPERATIONS,
    "stable_offsets": STABLE_OFFSETS,
    "calls": CALLS,
}
