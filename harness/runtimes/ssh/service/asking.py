"""What is asked of a cluster that is already there, over Kafka's protocol: who its nodes are, and that the run's topic
goes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kio.schema.delete_topics.v6 import request as deleting
from kio.schema.describe_cluster.v1.request import DescribeClusterRequest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import request as metadata
from kio.schema.types import TopicName

from cluster_image.network import Network
from cluster_image.wire.integers import i8
from cluster_image.wire.messages import milliseconds
from harness.cluster import Node
from harness.errors import RuntimeUnavailable
from harness.targets.kafka_api.observer import ask

_CONTROLLERS: Final = i8(2)  # of endpoint_type
_AGAIN_S: Final = 0.3
_GONE: Final = (ErrorCode.none, ErrorCode.unknown_topic_or_partition)


async def ids(nodes: Sequence[Node], given: Sequence[int | None], network: Network, where: str) -> list[int]:
    """node.id of each. given: what hosts.toml says, in the same order. where: that file, as a sentence begins with it.
    Raises RuntimeUnavailable: the cluster does not say, or says otherwise, or has brokers that are not among them."""
    brokers = [node for node in nodes if node.role == "broker"]
    told = await _first_answer(brokers, network, metadata.MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    ))  # fmt: skip
    if told is None:
        named = ", ".join("{}:{}".format(*node.address) for node in brokers)
        raise RuntimeUnavailable(f"{where}: no broker answers at {named}; is the cluster up, and are --clients right?")
    found = await _by_address(told.brokers)
    if any(node.role == "controller" for node in nodes):
        for node in nodes:
            answer = None
            if node.role == "controller":
                answer = await ask(network, node.address, DescribeClusterRequest(
                    include_cluster_authorized_operations=False, endpoint_type=_CONTROLLERS
                ))  # fmt: skip
            found |= await _by_address(answer.brokers) if answer is not None else {}
    known = [_id_of(node, id_, found, where) for node, id_ in zip(nodes, given, strict=True)]
    if more := [each for each in told.brokers if int(each.node_id) not in known]:
        others = ", ".join(f"{int(each.node_id)} at {each.host}:{int(each.port)}" for each in more)
        raise RuntimeUnavailable(f"{where}: the cluster has more brokers than that file: {others}; add their hosts")
    return known


def _id_of(node: Node, given: int | None, found: dict[tuple[str, int], int], where: str) -> int:
    told = found.get(node.address)
    address = "{}:{}".format(*node.address)
    if told is None and given is None:
        raise RuntimeUnavailable(
            f"{where}: the cluster does not say which node is at {address}, only of "
            f"{', '.join(f'{host}:{port}' for host, port in sorted(found)) or 'none'}; give node_address as it is "
            "advertised, or node_id"
        )
    if told is not None and given is not None and told != given:
        raise RuntimeUnavailable(f"{where}: node_id {given} is not who is at {address}: {told} is, says the cluster")
    return told if told is not None else given if given is not None else -1


async def exists(topic: str, nodes: Sequence[Node], network: Network) -> bool:
    """Raises RuntimeUnavailable."""
    named = metadata.MetadataRequestTopic(topic_id=None, name=TopicName(topic))
    told = await _first_answer(nodes, network, metadata.MetadataRequest(
        topics=(named,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    ))  # fmt: skip
    if told is None:
        raise RuntimeUnavailable("no broker says which topics there are")
    return any(each.error_code is not ErrorCode.unknown_topic_or_partition for each in told.topics)


async def delete(topic: str, nodes: Sequence[Node], network: Network, patience_s: float) -> str:
    """Tried for so many seconds. "": it is gone; else why not, as a clause."""
    loop = asyncio.get_running_loop()
    until, why = loop.time() + patience_s, "no broker answers"
    named = deleting.DeleteTopicState(name=TopicName(topic), topic_id=None)
    request = deleting.DeleteTopicsRequest(topics=(named,), timeout=milliseconds(round(patience_s * 1000)))
    while True:
        for node in nodes:
            if (answer := await ask(network, node.address, request)) is None:
                continue
            (told,) = answer.responses
            if told.error_code in _GONE:
                return ""
            why = f"{told.error_message or told.error_code.name}, says {node.name}"
            if not told.error_code.retriable:
                return why
        if loop.time() > until:
            return why
        await asyncio.sleep(_AGAIN_S)


async def _first_answer(nodes: Iterable[Node], network: Network, request: Any) -> Any | None:
    for node in nodes:
        if (answer := await ask(network, node.address, request)) is not None:
            return answer
    return None


async def _by_address(told: Iterable[Any]) -> dict[tuple[str, int], int]:
    """As nodes have their addresses. What cannot be resolved here is left out."""
    loop = asyncio.get_running_loop()
    found: dict[tuple[str, int], int] = {}
    for each in told:
        try:
            resolved = await loop.getaddrinfo(str(each.host), int(each.port), family=socket.AF_INET)
        except OSError:
            continue
        found |= {(str(address[0]), int(each.port)): int(each.node_id) for *_, address in resolved}
    return found
