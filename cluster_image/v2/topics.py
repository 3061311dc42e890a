"""The topics of which a broker has replicas, for the APIs that ask for records."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def topic_id(name: str) -> UUID:
    """001 knows no topic ids, and requests of today's clients name topics by them: so every topic of a name has the
    same."""
    return uuid5(NAMESPACE_URL, name)


class Topic:
    """Implements replication.served.Topic: as far as this broker has replicas of it."""

    settings: Mapping[str, str] = _NOTHING

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.id: Final = topic_id(name)
        self.partitions: set[int] = set()


class HostedTopics:
    """Implements replication.served.Topics."""

    broker_settings: Mapping[str, Mapping[str, str]] = _NOTHING

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}

    def add(self, name: str, index: int) -> None:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name)
            self.topics_by_id[topic.id] = topic
        topic.partitions.add(index)

    def remove(self, name: str, index: int) -> None:
        topic = self.topics[name]
        topic.partitions.discard(index)
        if not topic.partitions:
            del self.topics[name]
            del self.topics_by_id[topic.id]
