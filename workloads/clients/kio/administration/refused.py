"""Requests of administrators that only look, that are refused, or that elect preferred leaders: what is answered, and
whether something is written all the same, is for a simulation's invariants to judge (AdministratorAnswered)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any, Final

from cluster_image.network import Entity
from workloads.clients.kio.administration import requests
from workloads.clients.kio.requests import request_module

_ELECT_LEADERS: Final = request_module(43, 2)
_ALTER_REASSIGNMENTS: Final = request_module(45, 0)
_LIST_REASSIGNMENTS: Final = request_module(46, 0)
_UNREGISTER_BROKER: Final = request_module(64, 0)
_PREFERRED: Final = 0
#: That there is not.
MISSING_TOPIC: Final = "chaos-missing"
MISSING_PARTITION: Final = 999
MISSING_BROKER: Final = 999


def ask_in_vain(random: Random, topic: str, partitions: int, replication_factor: int, timeout: float) -> Entity:
    """One of them. topic: that there is, with so many partitions. timeout: seconds that the cluster may take."""
    ask: Callable[[Random, str, int, int, float], Entity] = random.choice(
        (_list_moves, _elect, _create, _extend, _delete, _move, _set, _unregister)
    )
    return ask(random, topic, partitions, replication_factor, timeout)


def _list_moves(random: Random, topic: str, partitions: int, _: int, timeout: float) -> Entity:
    module = _LIST_REASSIGNMENTS
    asked = [
        module.ListPartitionReassignmentsTopics(name=name, partition_indexes=(*range(partitions), MISSING_PARTITION))
        for name in (topic, MISSING_TOPIC)
    ]
    topics = random.choice((None, tuple(asked)))
    return _of(module.ListPartitionReassignmentsRequest, timeout, topics=topics)


def _elect(random: Random, topic: str, partitions: int, _: int, timeout: float) -> Entity:
    module = _ELECT_LEADERS
    asked = (
        module.TopicPartitions(topic=topic, partitions=(*range(partitions), MISSING_PARTITION)),
        module.TopicPartitions(topic=MISSING_TOPIC, partitions=(0,)),
    )
    topics = random.choice((None, asked))
    return _of(module.ElectLeadersRequest, timeout, election_type=_PREFERRED, topic_partitions=topics)


def _create(random: Random, topic: str, partitions: int, replication_factor: int, timeout: float) -> Entity:
    """What is there, on more brokers than there are, or nowhere."""
    name, count, replicas = random.choice(
        ((topic, partitions, replication_factor), (MISSING_TOPIC, 1, MISSING_BROKER), (MISSING_TOPIC, 0, 1))
    )
    return requests.create_topic_request(name, count, replicas, {}, timeout)


def _extend(random: Random, topic: str, partitions: int, replication_factor: int, timeout: float) -> Entity:
    """To as many as there are, of what is not there, or on brokers that are not there."""
    name, count, assignment = random.choice(
        (
            (topic, partitions, ()), (topic, partitions - 1, ()), (MISSING_TOPIC, 2, ()),
            (topic, partitions + 1, ((MISSING_BROKER,) * replication_factor,)),
        )
    )  # fmt: skip
    return requests.create_partitions_request(name, count, timeout, assignment=assignment)


def _delete(_: Random, topic: str, partitions: int, replication_factor: int, timeout: float) -> Entity:
    return requests.delete_topic_request(MISSING_TOPIC, timeout)


def _move(random: Random, topic: str, _: int, replication_factor: int, timeout: float) -> Entity:
    """A partition that there is not, to nowhere; one that there is, to who is not there."""
    module = _ALTER_REASSIGNMENTS
    index, replicas = random.choice(((MISSING_PARTITION, None), (0, (MISSING_BROKER,) * replication_factor)))
    partition = module.ReassignablePartition(partition_index=index, replicas=replicas)
    topics = (module.ReassignableTopic(name=topic, partitions=(partition,)),)
    return _of(module.AlterPartitionReassignmentsRequest, timeout, topics=topics)


def _set(random: Random, topic: str, partitions: int, _: int, timeout: float) -> Entity:
    of, settings = random.choice(
        (
            ((requests.TOPIC, MISSING_TOPIC), {"flush.messages": "1"}),
            ((requests.BROKER, str(MISSING_BROKER)), {"leader.replication.throttled.rate": "1"}),
            ((requests.TOPIC, topic), {"flush.messages": "none"}),
        )
    )
    return requests.alter_settings_request({of: settings})


def _unregister(_: Random, topic: str, partitions: int, replication_factor: int, timeout: float) -> Entity:
    return _UNREGISTER_BROKER.UnregisterBrokerRequest(broker_id=MISSING_BROKER)


def _of(request: Any, timeout: float, **fields: Sequence[Any] | int | None) -> Entity:
    made: Entity = request(timeout=timedelta(seconds=timeout), **fields)
    return made
