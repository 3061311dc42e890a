"""What an operator can ask of a live cluster, whatever the target: its metadata, elections, reassignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

#: What changes something, by the request of Kafka's protocol that asks for it, whatever the runtime.
REQUESTS: Final[Mapping[str, str]] = {
    "reassign": "AlterPartitionReassignments", "elect_preferred": "ElectLeaders, of preferred leaders",
    "unregister": "UnregisterBroker", "raise_feature": "UpdateFeatures", "add_voter": "AddRaftVoter",
    "remove_voter": "RemoveRaftVoter",
}  # fmt: skip

Place = tuple[str, int]  # topic, partition
Ids = tuple[int, ...]  # of brokers


class Unanswered(Exception):
    """No broker has answered in PATIENCE_S. A sentence."""


@dataclass(frozen=True)
class Partition:
    leader: int  # -1: none
    leader_epoch: int
    replicas: Ids  # the preferred leader first
    isr: Ids
    elr: Ids


@dataclass(frozen=True)
class Move:
    """A reassignment under way."""

    replicas: Ids
    adding: Ids
    removing: Ids


@dataclass(frozen=True)
class Metadata:
    brokers: Ids  # that are registered and not fenced
    registered: frozenset[int]  # fenced ones too
    partitions: Mapping[Place, Partition]


@dataclass(frozen=True)
class Quorum:
    """That of the metadata log, as its leader has it: node ids, each with the id of its log directory."""

    leader: int
    voters: Mapping[int, str]
    observers: Mapping[int, str]


class Load(NamedTuple):
    """Of a broker: of how many partitions it has a replica, and of how many it is the preferred leader."""

    replicas: int
    leaders: int


@dataclass(frozen=True)
class Rebalancing:
    """A plan after which brokers hold and lead as many partitions as each other, within one, with the least data moved.

    targets: the replicas of each partition that changes. replicas, bytes: that are to move. is_least: nothing can do
    with less; None: nobody knows. before, after: by broker. assignment, weights, racks: what it was made of: replicas
    and bytes by partition, rack by broker."""

    targets: Mapping[Place, Ids]
    replicas: int
    bytes: int
    is_least: bool | None
    before: Mapping[int, Load]
    after: Mapping[int, Load]
    assignment: Mapping[Place, Ids]
    weights: Mapping[Place, int]
    racks: Mapping[int, str | None]


class Refusal(str):
    """Why something was refused. is_gone: there is no such partition any more; brokers may tell of it for a while, or
    until its deletion is repeated."""

    is_gone: bool

    def __new__(cls, reason: str, *, is_gone: bool = False) -> Refusal:
        made = super().__new__(cls, reason)
        made.is_gone = is_gone
        return made


class Admin(Protocol):
    """An operator's word to the cluster, the same object for the whole run. Every request may be repeated."""

    #: Replicas as they were when anybody first looked, before any of them was moved.
    original: dict[Place, Ids]
    #: By the name of a nemesis that is moving replicas or leaders: the partitions that it tells of. There is one at a
    #: time: two would undo each other's work.
    movers: dict[str, Sequence[Place]]
    #: Features that an upgrade is done with, and the levels that they have.
    raised: dict[str, int]

    async def metadata(self) -> Metadata:
        """The newest that any broker tells, partition by partition. Raises Unanswered."""
        ...

    async def views(self) -> Sequence[Metadata | None]:
        """What each broker tells now, in order; None for one that does not answer."""
        ...

    async def view(self, address: tuple[str, int]) -> Metadata | None:
        """What the broker there tells now; None: it does not answer."""
        ...

    async def sizes(self, address: tuple[str, int]) -> Mapping[Place, int] | None:
        """Bytes of each partition that the broker there holds; None: it does not answer."""
        ...

    async def reassign(self, targets: Mapping[Place, Ids | None]) -> Mapping[Place, Refusal]:
        """Give each partition these replicas, in this order, in place of what is under way; None: cancel that. Returns
        once it has begun, or is done where nobody is added. Of those refused, the reasons. Raises Unanswered."""
        ...

    async def moves(self) -> Mapping[Place, Move]:
        """Every reassignment under way, as the controller has it. Raises Unanswered."""
        ...

    async def rebalancing(self, brokers: Collection[int]) -> Rebalancing:
        """Over these brokers, from where replicas are going to be: nothing is changed yet. Raises Unanswered;
        ValueError, with a sentence: there are too few."""
        ...

    async def unregister(self, broker: int) -> str:
        """It is no part of the cluster any more. "", or why it was refused. Raises Unanswered."""
        ...

    async def elect_preferred(self) -> None:
        """Of every partition the first replica leads from now on, if it may. Raises Unanswered."""

    async def min_insync_replicas(self, topic: str) -> int:
        """Raises Unanswered."""
        ...

    async def supported(self, address: tuple[str, int]) -> Mapping[str, int]:
        """By feature, up to which level the node there supports it. Nothing: it does not say."""
        ...

    async def features(self) -> Mapping[str, tuple[int, int]]:
        """By feature, up to which level every broker that answers supports it, and which is in force (0: not). Raises
        Unanswered."""
        ...

    async def raise_feature(self, name: str, level: int) -> str:
        """Returns once it is in force: "". Else why it was refused. Raises Unanswered."""
        ...

    async def quorum(self) -> Quorum:
        """Raises Unanswered."""
        ...

    async def add_voter(self, node_id: int, directory: str, address: tuple[str, int]) -> str:
        """To the quorum; address: where the node serves it. "", or why it was refused. Raises Unanswered."""
        ...

    async def remove_voter(self, node_id: int, directory: str) -> str:
        """From the quorum. "", or why it was refused. Raises Unanswered."""
        ...


def newest(views: Sequence[Metadata]) -> Metadata:
    """Of several brokers', which may lag: each partition as of its highest leader epoch, and the smallest ISR of that;
    brokers as most tell."""
    partitions: dict[Place, Partition] = {}
    for view in views:
        for place, state in view.partitions.items():
            known = partitions.get(place)
            if known is None or (state.leader_epoch, -len(state.isr)) > (known.leader_epoch, -len(known.isr)):
                partitions[place] = state
    reported = Counter(broker for view in views for broker in view.brokers)
    return Metadata(
        tuple(sorted(broker for broker, count in reported.items() if 2 * count > len(views))),
        frozenset().union(*(view.registered for view in views)),
        dict(sorted(partitions.items())),
    )


def changed(before: Mapping[Place, Partition], after: Mapping[Place, Partition], what: str) -> Iterator[Place]:
    """The partitions whose `what`, a field of Partition, is not what it was."""
    for place, state in after.items():
        if place in before and getattr(before[place], what) != getattr(state, what):
            yield place
