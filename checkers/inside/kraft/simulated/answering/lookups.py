"""OffsetLookup: whether a leader answers of its log, by a time or a leader epoch, what the log says.

| request              | asked for      | answer
| -------------------- | -------------- | ---------------------------------------------------------------------------
| ListOffsets          | a time         | the first committed record of that time or later, and none before it is one
|                      | the last time  | a committed record, and no committed one is later
|                      | the first      | no time, and the leader epoch of the record there, if there is one
|                      | the last       | no time, and a leader epoch that this leader has had
| OffsetForLeaderEpoch | a leader epoch | where that epoch, or the last before it, ends: all of it lies below, and all
|                      |                | of later epochs above

With a record goes the leader epoch of its batch; with none, and with an error, -1 for all that there is not. And
whoever names no leader epoch of their own is not refused for it. Where all records of a batch have one time, as
those of this project's clients do, a batch is as good as its first record.

Sources: Apache Kafka's UnifiedLog.fetchOffsetByTimestamp and endOffsetForEpoch; KIP-101, KIP-320, KIP-734.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from checkers.inside.violation import Violated
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.node import Node
from cluster_image.storage.records import BatchHeader

from ..logs import headers

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_NO_EPOCH: Final = -1
_NONE: Final = -1
_FOR_ITS_EPOCH: Final = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)


def check_offsets(name: str, node: Node, request: Any, response: Any, before: Callable[[str, Partition], int]) -> None:
    """Of ListOffsets. before: the high watermark that a node had a moment ago as the leader of a partition, in this
    leader epoch. Raises Violated."""
    for where, asked, told, partition in _answers(node, request, response, "partition_index"):
        _check_epoch(name, where, asked, told)
        timestamp, offset = int(asked.timestamp), int(told.offset)
        if told.error_code is ErrorCode.unsupported_for_message_format and timestamp >= 0:
            raise _violated(name, where, f"does not look for records of {timestamp} ms or later, which is a time")
        if offset == _NONE or told.error_code is not ErrorCode.none:
            _check_nothing(name, where, told, offset, int(told.timestamp))
        if told.error_code is not ErrorCode.none or partition is None:
            continue
        if timestamp in (_EARLIEST, _LATEST):
            _check_end(name, where, timestamp, told, partition)
        if not (timestamp >= 0 or timestamp == _MAX_TIMESTAMP):
            continue
        committed = [each for each in headers(partition.log) if each.next_offset <= partition.high_watermark]
        if any(each.base_timestamp != each.max_timestamp for each in committed):
            continue
        start = partition.log.start_offset
        if timestamp == _MAX_TIMESTAMP:
            wrong = False
            known = before(name, partition)  # what was committed since it looked may be later
            later = [e for e in committed if start < e.next_offset <= known and e.max_timestamp > told.timestamp]
            meant = "the record of the last time"
        else:
            wrong = offset >= 0 and told.timestamp < timestamp
            later = [e for e in committed if e.max_timestamp >= timestamp and start <= e.base_offset < offset]
            meant = f"the first record of {timestamp} ms or later"
        at = next((each for each in committed if each.base_offset <= offset < each.next_offset), None)
        if wrong or later or (at is not None and at.max_timestamp != told.timestamp):
            raise _violated(
                name, where, f"takes {offset}, of {told.timestamp} ms, for {meant}, and has {_told(later or [at])}"
            )
        if at is not None and _leader_epoch(told) not in (None, at.leader_epoch):
            epoch = _leader_epoch(told)
            raise _violated(name, where, f"takes {offset} for one of epoch {epoch}, and has {_told([at])}")


def _check_end(name: str, where: str, timestamp: int, told: Any, partition: Partition) -> None:
    """Of where a log begins or ends."""
    epoch, offset = _leader_epoch(told), int(told.offset)
    if told.timestamp != _NONE:
        raise _violated(name, where, f"has a time, {told.timestamp} ms, for {offset}, and was asked for none")
    if epoch is None:
        return
    if timestamp == _LATEST:
        if not 0 <= epoch <= partition.leader_epoch:
            raise _violated(name, where, f"ends at {offset} of epoch {epoch}, and it leads in {partition.leader_epoch}")
        return
    first = next((each for each in headers(partition.log) if each.base_offset <= offset < each.next_offset), None)
    if first is not None and epoch != first.leader_epoch:
        raise _violated(name, where, f"begins at {offset} of epoch {epoch}, and has {_told([first])}")


def _check_nothing(name: str, where: str, told: Any, *offset_and_time: int) -> None:
    """Of what there is not, and of what was not looked for."""
    values = (*offset_and_time, _leader_epoch(told))
    if any(value not in (_NONE, None) for value in values):
        raise _violated(name, where, f"has no answer ({told.error_code.name}), and tells {values}")


def _leader_epoch(told: Any) -> int | None:
    """None: no such field in this version."""
    epoch = getattr(told, "leader_epoch", None)
    return None if epoch is None else int(epoch)


def check_ends(name: str, node: Node, request: Any, response: Any) -> None:
    """Of OffsetForLeaderEpoch. Raises Violated."""
    for where, asked, told, partition in _answers(node, request, response, "partition"):
        _check_epoch(name, where, asked, told)
        if told.error_code is not ErrorCode.none:
            _check_nothing(name, where, told, int(told.end_offset))
        if told.error_code is not ErrorCode.none or partition is None:
            continue
        epoch, answered, end = int(asked.leader_epoch), int(told.leader_epoch), int(told.end_offset)
        batches = headers(partition.log)
        if end < 0:
            wrong = [each for each in batches if each.leader_epoch <= epoch < partition.leader_epoch]
        else:
            wrong = [
                each for each in batches
                if (each.leader_epoch > answered) != (each.base_offset >= end) or answered < each.leader_epoch <= epoch
            ]  # fmt: skip
        if wrong or answered > epoch:
            raise _violated(
                name, where, f"answers that epoch {answered} ends at {end}, asked for {epoch}, and has {_told(wrong)}"
            )


def _check_epoch(name: str, where: str, asked: Any, told: Any) -> None:
    if int(getattr(asked, "current_leader_epoch", _NO_EPOCH)) == _NO_EPOCH and told.error_code in _FOR_ITS_EPOCH:
        raise _violated(name, where, f"answers {told.error_code.name} to who has named no leader epoch")


def _answers(
    node: Node, request: Any, response: Any, index: str
) -> Iterator[tuple[str, Any, Any, Partition | None]]:
    """Of each partition what was asked and is told; and the partition, if this node leads it."""
    broker = node.broker
    if broker is None:
        return
    for topic, answers in zip(request.topics, response.topics, strict=True):
        name = getattr(topic, "name", None) or topic.topic
        known = broker.image.topics.get(name)
        for asked, told in zip(topic.partitions, answers.partitions, strict=True):
            number = int(getattr(asked, index))
            partition = None if known is None else broker.partitions.get((known.id, number))
            yield f"{name}-{number}", asked, told, partition if partition is not None and partition.is_leader else None


def _told(batches: list[Any]) -> str:
    def of(batch: BatchHeader) -> str:
        return f"{batch.base_offset}..{batch.last_offset} of epoch {batch.leader_epoch}, {batch.max_timestamp} ms"

    return ", ".join(of(batch) for batch in batches[:3] if batch is not None) or "nothing"


def _violated(name: str, where: str, message: str) -> Violated:
    return Violated("OffsetLookup", f"{name} {message}", where, (name,))
