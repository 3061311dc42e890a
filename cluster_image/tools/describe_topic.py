"""describe-topic: the partitions' state as a broker's metadata has it, ELR and LastKnownELR included (KIP-966)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.describe_topic_partitions.v0 import request as module
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.types import TopicName

from ..network import Address
from ..telemetry.printable import say
from .client import Client
from .output import ToolError, print_json, table

_COLUMNS: Final = (
    ("PARTITION", "partition"),
    ("LEADER", "leader"),
    ("EPOCH", "leader_epoch"),
    ("REPLICAS", "replicas"),
    ("ISR", "isr"),
    ("ELR", "elr"),
    ("LAST KNOWN ELR", "last_known_elr"),
    ("OFFLINE", "offline_replicas"),
)
_REASSIGNMENT: Final = (("ADDING", "adding_replicas"), ("REMOVING", "removing_replicas"))


async def run(bootstrap: Sequence[Address], names: Sequence[str], timeout: float, *, as_json: bool) -> int:
    """1 if a topic that was named does not exist."""
    client = await Client.connect(bootstrap, asyncio.get_running_loop().time() + timeout)
    try:
        topics = await describe(client, names)
    finally:
        await client.close()
    found = [topic for topic in topics if topic["error"] is None]
    if as_json:
        print_json(topics)
    else:
        say("\n\n".join(map(_shown, found)) if found or names else "no topics")
    for topic in topics:
        if topic["error"] is not None:
            say(f"describe-topic: there is no topic {topic['topic']} ({topic['error']})", file=sys.stderr)
    return 0 if len(found) == len(topics) else 1


async def describe(client: Client, names: Sequence[str]) -> list[dict[str, Any]]:
    """All topics if none is named; `leader` is None where there is none. Raises ToolError."""
    topics: dict[str, dict[str, Any]] = {}
    cursor = None
    while True:
        answer = await client.ask(
            module.DescribeTopicPartitionsRequest(
                topics=tuple(module.TopicRequest(name=TopicName(name)) for name in names), cursor=cursor
            )
        )
        for topic in answer.topics:
            known = topics.setdefault(
                str(topic.name),
                {
                    "topic": str(topic.name),
                    "topic_id": None if topic.topic_id is None else str(topic.topic_id),
                    "error": None if topic.error_code is ErrorCode.none else topic.error_code.name,
                    "partitions": [],
                },
            )
            known["partitions"] += map(_partition, topic.partitions)
        if answer.next_cursor is None:
            break
        following = module.Cursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
        if following == cursor:
            raise ToolError(f"{client.address} repeats itself")
        cursor = following
    await _add_reassignments(client, topics)
    return list(topics.values())


def _partition(data: Any) -> dict[str, Any]:
    def ids(replicas: Any) -> list[int]:
        return [int(replica) for replica in replicas or ()]

    return {
        "partition": int(data.partition_index),
        "leader": int(data.leader_id) if data.leader_id >= 0 else None,
        "leader_epoch": int(data.leader_epoch),
        "replicas": ids(data.replica_nodes),
        "isr": ids(data.isr_nodes),
        "elr": ids(data.eligible_leader_replicas),
        "last_known_elr": ids(data.last_known_elr),
        "offline_replicas": ids(data.offline_replicas),
        "adding_replicas": [],
        "removing_replicas": [],
    }


async def _add_reassignments(client: Client, topics: dict[str, dict[str, Any]]) -> None:
    """Those under way. What DescribeTopicPartitions does not tell, ListPartitionReassignments does."""
    if not client.serves(ListPartitionReassignmentsRequest.__api_key__):
        return
    answer = await client.ask(ListPartitionReassignmentsRequest(topics=None))
    moving = {
        (str(topic.name), int(data.partition_index)): data for topic in answer.topics for data in topic.partitions
    }
    for topic in topics.values():
        for partition in topic["partitions"]:
            data = moving.get((topic["topic"], partition["partition"]))
            if data is not None:
                partition["adding_replicas"] = [int(r) for r in data.adding_replicas]
                partition["removing_replicas"] = [int(r) for r in data.removing_replicas]


def _shown(topic: dict[str, Any]) -> str:
    partitions = topic["partitions"]
    moving = any(p["adding_replicas"] or p["removing_replicas"] for p in partitions)
    columns = (*_COLUMNS, *_REASSIGNMENT) if moving else _COLUMNS
    rows = [[partition[name] for _, name in columns] for partition in partitions]
    return f"{topic['topic']}, id {topic['topic_id']}\n" + table([head for head, _ in columns], rows, indent="  ")
