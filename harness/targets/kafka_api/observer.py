"""What the live cluster says of itself: leaders, ISRs, the active controller. Asked over the Kafka protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from kio.schema.describe_quorum.v2 import request as describe_quorum
from kio.schema.metadata.v12 import request as metadata
from kio.schema.types import TopicName

from cluster_image.network import Address, Network
from cluster_image.wire.integers import i32
from harness.cluster import Cluster, Node
from harness.targets.view import ClusterView, PartitionState

#: Asked several times a second of nodes that may be dead, so not long; a healthy node answers within milliseconds.
REQUEST_TIMEOUT_S = 1.0
METADATA_TOPIC = TopicName("__cluster_metadata")
#: Of partitions with something wrong, named.
MOST_NAMED = 3


class KafkaObserver:
    """Asks each broker for its metadata, and the controllers for their leader."""

    def __init__(self, cluster: Cluster, network: Network, topic: str, quorum: ModuleType = describe_quorum) -> None:
        """quorum: kio's module of the DescribeQuorum version to ask for."""
        self._cluster = cluster
        self._network = network
        self._topic = topic
        self._quorum = quorum

    async def view(self) -> ClusterView:
        brokers = self._cluster.brokers
        answers, controller = await asyncio.gather(
            asyncio.gather(*(self._partitions(node) for node in brokers)), self._active_controller()
        )
        known = {node.id: answer for node, answer in zip(brokers, answers, strict=True) if answer}
        return ClusterView(known, controller, why_out_of_sync(brokers, known))

    async def unhealthy(self) -> str | None:
        """Where no controller answers, whether there is an active one is not known: not every target's can be asked
        from here."""
        brokers = self._cluster.brokers
        answers, quorum = await asyncio.gather(
            asyncio.gather(*(self._ask(node.address, _metadata_request(None)) for node in brokers)), self._has_leader()
        )
        return "; ".join(_wrong(brokers, answers, isrs=self._waits_for_isrs, quorum=quorum)) or None

    #: Does an ISR grow though nothing is produced?
    _waits_for_isrs = True

    async def _partitions(self, node: Node) -> dict[int, PartitionState]:
        response = await self._ask(node.address, _metadata_request(self._topic))
        return {index: state for (_, index), state in _states(response).items()}

    async def _active_controller(self) -> int | None:
        newest = max(await self._quorum_states(), key=lambda partition: partition.leader_epoch, default=None)
        return None if newest is None or newest.leader_id < 0 else int(newest.leader_id)

    async def _has_leader(self) -> bool | None:
        """Has the quorum one? None: nobody says."""
        states = await self._quorum_states()
        return any(state.leader_id >= 0 for state in states) if states else None

    async def _quorum_states(self) -> Sequence[Any]:
        """As each controller that answers has it."""
        request = describe_quorum_request(self._quorum)
        controllers = self._cluster.controllers
        answers = await asyncio.gather(
            *(self._ask(node.controller_address or node.address, request) for node in controllers)
        )
        return [p for answer in answers if answer for topic in answer.topics for p in topic.partitions]

    async def _ask(self, address: tuple[str, int], request: Any) -> Any | None:
        return await ask(self._network, address, request)


def _metadata_request(topic: str | None) -> metadata.MetadataRequest:
    """None: of all topics."""
    named = None if topic is None else (metadata.MetadataRequestTopic(topic_id=None, name=TopicName(topic)),)
    return metadata.MetadataRequest(
        topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


def _states(response: Any | None) -> dict[tuple[str, int], PartitionState]:
    """By topic and partition."""
    return {
        (str(answered.name), partition.partition_index): PartitionState(
            partition.leader_id,
            partition.leader_epoch,
            frozenset(partition.replica_nodes),
            frozenset(partition.isr_nodes),
        )
        for answered in (response.topics if response else ())
        for partition in answered.partitions
    }


def _wrong(brokers: Sequence[Node], answers: Sequence[Any | None], *, isrs: bool, quorum: bool | None) -> Iterator[str]:
    """A clause each. answers: to _metadata_request(None), of each broker. quorum: has it a leader?"""
    if silent := [node.name for node, answer in zip(brokers, answers, strict=True) if answer is None]:
        yield f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
    known = [answer for answer in answers if answer is not None]
    listed = [frozenset(int(each.node_id) for each in answer.brokers) for answer in known]
    there = frozenset[int]().union(*listed).intersection(*listed)
    if known and (missing := [node.name for node in brokers if node.id not in there and node.name not in silent]):
        yield f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing from the metadata of the others"
    newest: dict[tuple[str, int], PartitionState] = {}
    for answer in known:
        for place, state in _states(answer).items():
            before = newest.get(place)
            if before is None or (state.leader_epoch, -len(state.isr)) > (before.leader_epoch, -len(before.isr)):
                newest[place] = state
    leaderless = sorted(place for place, state in newest.items() if state.leader < 0)
    behind = sorted(place for place, state in newest.items() if isrs and state.replicas - state.isr)
    for places, what in ((leaderless, "no leader"), (behind, "a replica out of the ISR")):
        if places:
            named = ", ".join(f"{topic}-{index}" for topic, index in places[:MOST_NAMED])
            verb = "has" if len(places) == 1 else "have"
            yield (
                f"{len(places):,} of {len(newest):,} partitions {verb} {what} "
                f"({named}{' …' if len(places) > MOST_NAMED else ''})"
            )
    if quorum is False:
        yield "there is no active controller"


def describe_quorum_request(module: ModuleType) -> Any:
    """module: kio's, of the version to ask for."""
    partition = module.PartitionData(partition_index=i32(0))
    return module.DescribeQuorumRequest(topics=(module.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),))


async def ask(network: Network, address: tuple[str, int], request: Any) -> Any | None:
    """The response, or None from a node that does not answer. A new connection each time: after a fault an old one may
    be dead without either end knowing."""
    try:
        connection = await network.connect(Address(*address), client_id="chaos-observer", timeout=REQUEST_TIMEOUT_S)
    except (OSError, TimeoutError):
        return None
    try:
        return await connection.request(request, timeout=REQUEST_TIMEOUT_S)
    except (OSError, TimeoutError):
        return None
    finally:
        connection.close()


def why_out_of_sync(brokers: Sequence[Node], known: Mapping[int, Mapping[int, PartitionState]]) -> str | None:
    """Why not every replica is in its ISR, or None.

    Every broker must answer and agree. The one that came back last matters most: others may not have noticed yet
    that it was gone, while it serves metadata only once it has read its own new registration, which took it out of
    the ISRs.
    """
    for node in brokers:
        if node.id not in known:
            return f"{node.name} does not answer or does not know the topic"
    for node in brokers:
        for partition, state in sorted(known[node.id].items()):
            if state.leader < 0:
                return f"partition {partition} has no leader, says {node.name}"
            if missing := state.replicas - state.isr:
                names = ", ".join(str(broker) for broker in sorted(missing))
                return f"broker {names} is not in the ISR of partition {partition}, says {node.name}"
    return None
