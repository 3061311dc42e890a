"""ProducerEpoch and ProducerSequence: whether a leader refuses a batch of an idempotent producer for what is so.

| error                         | there must be in what the leader remembers of the producer
| ----------------------------- | -----------------------------------------------------------------------
| INVALID_PRODUCER_EPOCH        | a batch of a higher epoch
| OUT_OF_ORDER_SEQUENCE_NUMBER  | a batch after which this one is not the next

What it remembers is judged elsewhere (ProducerState), and so is what it takes (producers.py). A producer of whom
nothing is known is refused for neither (KIP-360). Asked of who has led for a while, and answers at once: nothing else
has come to its log since it looked.

Sources: KIP-98, KIP-360; Apache Kafka's ProducerAppendInfo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from checkers.inside.violation import Violated
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.node import Node
from cluster_image.storage.producer_state import Produced
from cluster_image.storage.records import BatchHeader, iter_batches

#: Seconds.
AT_ONCE_S: Final = 0.05
_LAST_SEQUENCE: Final = 0x7FFFFFFF
_REFUSALS: Final = {
    ErrorCode.invalid_producer_epoch: "ProducerEpoch",
    ErrorCode.out_of_order_sequence_number: "ProducerSequence",
}  # fmt: skip


def check_refused(
    name: str, node: Node, request: Any, response: Any, before: Callable[[str, Partition], int]
) -> None:  # fmt: skip
    """Of ProduceRequest, answered at once. before: the high watermark that a node had a moment ago as the leader of a
    partition, in this leader epoch; -1: it did not lead. Raises Violated."""
    broker = node.broker
    if broker is None:
        return
    for topic, answers in zip(request.topic_data, response.responses, strict=True):
        known = broker.image.topics.get(topic.name)
        for asked, told in zip(topic.partition_data, answers.partition_responses, strict=True):
            if known is None or told.error_code not in _REFUSALS:
                continue
            partition = broker.partitions.get((known.id, int(asked.index)))
            where = f"{topic.name}-{asked.index}"
            if partition is None or not partition.is_leader or before(name, partition) < 0:
                continue
            _, _, header = next(iter_batches(asked.records))
            last = next(reversed(partition.log.producers.remembered().get(header.producer_id, ())), None)
            if not _is_due(told.error_code, header, last):
                raise Violated(
                    _REFUSALS[told.error_code],
                    f"{name} refuses the batch of producer {header.producer_id}, epoch {header.producer_epoch}, from "
                    f"sequence number {header.base_sequence} on, as {told.error_code.name}; the last that it remembers "
                    f"{_told(last)}",
                    where,
                    (name,),
                )


def _is_due(error: ErrorCode, header: BatchHeader, last: Produced | None) -> bool:
    if last is None:
        return False
    if error is ErrorCode.invalid_producer_epoch:
        return last.epoch > header.producer_epoch
    is_same = last.epoch == header.producer_epoch
    return bool(header.base_sequence != ((last.last_sequence + 1) & _LAST_SEQUENCE if is_same else 0))


def _told(last: Produced | None) -> str:
    return "is none" if last is None else f"is of epoch {last.epoch}, up to {last.last_sequence}"
