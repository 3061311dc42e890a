"""create-topic, delete-topic, alter-topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kio.schema.create_partitions.v2 import request as create_partitions
from kio.schema.create_topics.v5 import request as create_topics
from kio.schema.delete_topics.v4.request import DeleteTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from ..kraft.metadata.records import TOPIC_RESOURCE
from ..placement.spread import Spread, warnings
from ..telemetry.printable import say
from ..wire.integers import i16, i32
from ..wire.messages import milliseconds
from .cluster import Cluster, ConfigChange, request_of, state_once
from .output import ToolError, plural, print_json


async def create(
    cluster: Cluster, topic: str, partitions: int, replication: int, settings: Mapping[str, str], *, as_json: bool
) -> int:
    """-1: as the cluster has it by default."""
    answer = await cluster.ask(create_topics.CreateTopicsRequest(
        topics=(
            create_topics.CreatableTopic(
                name=TopicName(topic), num_partitions=i32(partitions), replication_factor=i16(replication),
                assignments=(),
                configs=tuple(
                    create_topics.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()
                ),
            ),
        ),
        timeout=milliseconds(30_000),
    ), once=True)  # fmt: skip
    _check(answer.topics[0])
    state = await state_once(cluster, lambda state: (topic, 0) in state.replicas, cluster.patience)
    placed = [replicas for (name, _), replicas in state.replicas.items() if name == topic]
    found = warnings(Spread(placed), state.racks())
    if as_json:
        print_json({"topic": topic, "partitions": len(placed) or None, "replicas": placed, "warnings": found})
        return 0
    say(f"topic {topic} is created with {plural(int(answer.topics[0].num_partitions), 'partition')}")
    for warning in found:
        say(f"note: {warning}")
    return 0


async def delete(cluster: Cluster, topics: Sequence[str], *, as_json: bool) -> int:
    answer = await cluster.ask(
        DeleteTopicsRequest(topic_names=tuple(map(TopicName, topics)), timeout=milliseconds(30_000)), once=True
    )
    refused = {
        str(each.name): each.error_code.name for each in answer.responses if each.error_code is not ErrorCode.none
    }
    deleted = [topic for topic in topics if topic not in refused]
    if as_json:
        print_json({"deleted": deleted, "refused": refused})
    elif deleted:
        say(f"deleted: {', '.join(deleted)}")
    if refused:
        raise ToolError("; ".join(f"topic {topic} is not deleted ({reason})" for topic, reason in refused.items()))
    return 0


async def alter(
    cluster: Cluster,
    topic: str,
    partitions: int | None,
    settings: Mapping[str, str],
    unset: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Settings are checked first, and changed last: what is refused leaves all as it is."""
    changes = [ConfigChange(TOPIC_RESOURCE, topic, name, value) for name, value in settings.items()]
    changes += [ConfigChange(TOPIC_RESOURCE, topic, name, None) for name in unset]
    if not changes and partitions is None:
        raise ToolError("nothing to change: --partitions, --config or --delete-config is missing")
    if changes:
        _check((await cluster.ask(request_of(changes, validate_only=True))).responses[0])
    if partitions is not None:
        answer = await cluster.ask(create_partitions.CreatePartitionsRequest(
            topics=(
                create_partitions.CreatePartitionsTopic(name=TopicName(topic), count=i32(partitions), assignments=None),
            ),
            timeout=milliseconds(30_000), validate_only=False,
        ), once=True)  # fmt: skip
        _check(answer.results[0])
    if changes:
        try:
            _check((await cluster.ask(request_of(changes))).responses[0])
        except ToolError as error:
            done = f"; it has {partitions} partitions now" if partitions is not None else ""
            raise ToolError(f"{error}{done}") from None
    if as_json:
        print_json({"topic": topic, "partitions": partitions, "set": dict(settings), "unset": list(unset)})
    else:
        say(f"topic {topic} is changed")
    return 0


def _check(result: Any) -> None:
    """Raises ToolError with the answer's reason."""
    if result.error_code is not ErrorCode.none:
        raise ToolError(str(result.error_message or result.error_code.name))
