"""The cluster as a broker knows it: what a generation has to bring for these answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol
from uuid import UUID

from cluster_image.network import Address


class KnownBroker(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def address(self) -> Address: ...

    @property
    def rack(self) -> str | None: ...

    @property
    def fenced(self) -> bool:
        """It is a member, and not available."""


class KnownPartition(Protocol):
    """Replica sets are in their listed order; the first is preferred."""

    @property
    def index(self) -> int: ...

    @property
    def replicas(self) -> tuple[int, ...]: ...

    @property
    def isr(self) -> tuple[int, ...]: ...

    @property
    def leader(self) -> int:
        """-1: none."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def elr(self) -> tuple[int, ...]: ...

    @property
    def last_known_elr(self) -> tuple[int, ...]: ...


class KnownTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def id(self) -> UUID: ...

    @property
    def partitions(self) -> Mapping[int, KnownPartition]: ...


class KnownCluster(Protocol):
    @property
    def brokers(self) -> Mapping[int, KnownBroker]: ...

    @property
    def topics(self) -> Mapping[str, KnownTopic]: ...

    @property
    def topics_by_id(self) -> Mapping[UUID, KnownTopic]: ...


class AutoCreation(Protocol):
    def begin(self, names: Iterable[str]) -> None:
        """Make topics that a client has asked for."""
