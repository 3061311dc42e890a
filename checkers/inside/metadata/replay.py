"""The cluster's state as the metadata log gives it, replayed from its records, and what must hold of it.

Not the cluster's own replay (cluster_image/kraft/metadata/image.py): a checker that shares the code it judges would
share its mistakes. Records are those of the table `metadata_log`: a type's name and its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

NO_LEADER: Final = -1
_NO_CHANGE: Final = -2  # of a leader
_RECOVERING: Final = 1
_TOPIC: Final = 2  # a resource type
_ELR: Final = "eligible.leader.replicas.version"

Ids = tuple[int, ...]
Place = tuple[str, int]  # topic, partition


class Contradiction(Exception):
    """A record that does not fit the state before it."""


class UnknownRecord(Exception):
    """A record of a later version: the state after it cannot be told."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition at one partition epoch. offset: of the record that made it so."""

    topic: str
    index: int
    replicas: Ids
    isr: Ids
    elr: Ids
    last_known_elr: Ids
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovering: bool
    offset: int
    moves: bool = False  # is a reassignment under way?

    @property
    def place(self) -> Place:
        return self.topic, self.index

    def __str__(self) -> str:
        return (
            f"replicas {list(self.replicas)}, leader {self.leader}, ISR {list(self.isr)}, ELR {list(self.elr)}, "
            f"LastKnownELR {list(self.last_known_elr)}, leader epoch {self.leader_epoch}, partition epoch "
            f"{self.partition_epoch}"
        )


@dataclass(frozen=True, slots=True)
class Broker:
    epoch: int
    fenced: bool
    shutting_down: bool


@dataclass(frozen=True, slots=True)
class Change:
    """before: None where the partition is new."""

    before: PartitionState | None
    after: PartitionState

    @property
    def elects(self) -> bool:
        before = self.before
        return self.after.leader != NO_LEADER and (before is None or before.leader_epoch != self.after.leader_epoch)

    @property
    def is_unclean(self) -> bool:
        """Is somebody elected who was not known to be complete (002, 5.3)? By the record that ends a reassignment a
        replica may both join the ISR and lead."""
        before, after = self.before, self.after
        if before is None or not self.elects or after.leader in (before.leader, *before.isr, *before.elr):
            return False
        ends_reassignment = before.moves and not after.moves and bool(before.isr or before.elr)
        return after.recovering or not ends_reassignment


@dataclass
class MetadataState:
    """After every record replayed so far."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    partitions: dict[Place, PartitionState] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)  # id: name
    settings: dict[str, dict[str, str]] = field(default_factory=dict)  # by topic
    removed: dict[str, None] = field(default_factory=dict)  # names of topics that are gone: they may come again
    again: dict[str, None] = field(default_factory=dict)  # those that did
    elr_since: int | None = None  # offset of the record that switched ELR on, of Apache Kafka; None: it is off

    def replay(self, offset: int, type_: str, fields: Mapping[str, Any]) -> Change | None:
        """The change of a partition, if it is one. Raises Contradiction, UnknownRecord."""
        if type_ not in _REPLAYED:
            raise UnknownRecord(type_)
        try:
            return _REPLAYED[type_](self, offset, fields)
        except KeyError as error:
            raise Contradiction(f"it is about {error}, which is not there") from None

    def image(self) -> tuple[object, ...]:
        """What two equal states have in common, however they came about."""
        partitions = {place: replace(partition, offset=0) for place, partition in self.partitions.items()}
        settings = {topic: own for topic, own in self.settings.items() if own}
        return self.brokers, partitions, self.topics, settings

    def min_isr(self, partition: PartitionState, default: int) -> int:
        """A partition with fewer replicas than min.insync.replicas needs them all (KAFKA-21110)."""
        own = self.settings.get(partition.topic, {}).get("min.insync.replicas", default)
        return min(int(own), len(partition.replicas))

    # -- records ----------------------------------------------------------------------------------------------

    def _ignore(self, offset: int, fields: Mapping[str, Any]) -> None: ...

    def _set_feature(self, offset: int, fields: Mapping[str, Any]) -> None:
        if fields["name"] == _ELR:
            self.elr_since = offset if fields["feature_level"] > 0 else None

    def _register_broker(self, offset: int, fields: Mapping[str, Any]) -> None:
        self.brokers[fields["broker_id"]] = Broker(
            fields["broker_epoch"], bool(fields["fenced"]), bool(fields["in_controlled_shutdown"])
        )

    def _unregister_broker(self, offset: int, fields: Mapping[str, Any]) -> None:
        del self.brokers[fields["broker_id"]]

    def _change_broker(self, offset: int, fields: Mapping[str, Any]) -> None:
        broker = self.brokers[fields["broker_id"]]
        if broker.epoch != fields["broker_epoch"]:
            raise Contradiction(f"the epoch of broker {fields['broker_id']} is {broker.epoch}")
        fenced = broker.fenced if fields["fenced"] == 0 else fields["fenced"] > 0
        self.brokers[fields["broker_id"]] = Broker(
            broker.epoch, fenced, broker.shutting_down or fields["in_controlled_shutdown"] > 0
        )

    def _add_topic(self, offset: int, fields: Mapping[str, Any]) -> None:
        if fields["name"] in self.topics.values():
            raise Contradiction(f"there is a topic {fields['name']} already")
        self.topics[fields["topic_id"]] = fields["name"]
        if fields["name"] in self.removed:
            self.again[fields["name"]] = None

    def _remove_topic(self, offset: int, fields: Mapping[str, Any]) -> None:
        name = self.topics.pop(fields["topic_id"])
        self.removed[name] = None
        self.settings.pop(name, None)
        for place in [place for place in self.partitions if place[0] == name]:
            del self.partitions[place]

    def _clear_elr(self, offset: int, fields: Mapping[str, Any]) -> None:
        """Of one topic, or of all."""
        for place, partition in list(self.partitions.items()):
            if fields["topic_name"] in ("", place[0]) and (partition.elr or partition.last_known_elr):
                self.partitions[place] = replace(partition, elr=(), last_known_elr=())

    def _configure(self, offset: int, fields: Mapping[str, Any]) -> None:
        if fields.get("resource_type", _TOPIC) != _TOPIC:
            return
        settings = self.settings.setdefault(fields["resource_name"], {})
        if fields["value"] is None:
            settings.pop(fields["name"], None)
        else:
            settings[fields["name"]] = fields["value"]

    def _add_partition(self, offset: int, fields: Mapping[str, Any]) -> Change:
        after = PartitionState(
            self.topics[fields["topic_id"]], fields["partition_id"], tuple(fields["replicas"]), tuple(fields["isr"]),
            tuple(fields["eligible_leader_replicas"] or ()), tuple(fields["last_known_elr"] or ()), fields["leader"],
            fields["leader_epoch"], fields["partition_epoch"], fields["leader_recovery_state"] == _RECOVERING, offset,
            bool(fields.get("adding_replicas") or fields.get("removing_replicas")),
        )  # fmt: skip
        before = self.partitions.get(after.place)
        self.partitions[after.place] = after
        return Change(before, after)

    def _change_partition(self, offset: int, fields: Mapping[str, Any]) -> Change:
        before = self.partitions[self.topics[fields["topic_id"]], fields["partition_id"]]
        elects = fields["leader"] != _NO_CHANGE

        def changed(name: str, known: Ids) -> Ids:
            return known if fields[name] is None else tuple(fields[name])

        after = replace(
            before,
            replicas=changed("replicas", before.replicas),
            isr=changed("isr", before.isr),
            elr=changed("eligible_leader_replicas", before.elr),
            last_known_elr=changed("last_known_elr", before.last_known_elr),
            leader=fields["leader"] if elects else before.leader,
            leader_epoch=before.leader_epoch + elects,
            partition_epoch=before.partition_epoch + 1,
            recovering=before.recovering if fields["leader_recovery_state"] < 0
            else fields["leader_recovery_state"] == _RECOVERING,
            offset=offset,
            moves=_moves(before, fields),
        )  # fmt: skip
        self.partitions[after.place] = after
        return Change(before, after)


def _moves(before: PartitionState, fields: Mapping[str, Any]) -> bool:
    """Is a reassignment under way after this change? One that ends empties what it had of both."""
    given = [fields[name] for name in ("adding_replicas", "removing_replicas") if fields.get(name) is not None]
    return any(given) if given else before.moves


_REPLAYED: Final[Mapping[str, Callable[[MetadataState, int, Mapping[str, Any]], Change | None]]] = {
    "RegisterBrokerRecord": MetadataState._register_broker,
    "UnregisterBrokerRecord": MetadataState._unregister_broker,
    "BrokerRegistrationChangeRecord": MetadataState._change_broker,
    "TopicRecord": MetadataState._add_topic,
    "RemoveTopicRecord": MetadataState._remove_topic,
    "ConfigRecord": MetadataState._configure,
    "PartitionRecord": MetadataState._add_partition,
    "PartitionChangeRecord": MetadataState._change_partition,
    "ProducerIdsRecord": MetadataState._ignore,
    "LeaderChange": MetadataState._ignore,
    "SnapshotHeader": MetadataState._ignore,
    "SnapshotFooter": MetadataState._ignore,
    "Control": MetadataState._ignore,
    "NoOpRecord": MetadataState._ignore,
    # Of Apache Kafka alone. What an aborted transaction began would have to be taken back: it is left unknown.
    "ClearElrRecord": MetadataState._clear_elr,
    "FeatureLevelRecord": MetadataState._set_feature,
    **dict.fromkeys(
        (
            "RegisterControllerRecord",
            "UnregisterControllerRecord",
            "ZkMigrationStateRecord",
            "BeginTransactionRecord",
            "EndTransactionRecord",
            "ClientQuotaRecord",
            "AccessControlEntryRecord",
            "RemoveAccessControlEntryRecord",
            "UserScramCredentialRecord",
            "RemoveUserScramCredentialRecord",
            "DelegationTokenRecord",
            "RemoveDelegationTokenRecord",
            "KRaftVersion",
            "KRaftVoters",
        ),
        MetadataState._ignore,
    ),
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """What does not hold of a partition's state: `anomaly` is its short name."""

    property: str
    anomaly: str
    place: Place
    message: str


def complaints(
    state: MetadataState, places: Sequence[Place], min_insync_replicas: int, elr_enabled: bool
) -> Iterator[Complaint]:
    """Properties of the controller's state (checkers/inside/kraft/simulated/__init__.py states them too): to be asked
    after each whole batch of committed records, of the partitions that it may have touched. elr_enabled: from the
    beginning, whatever the records say of it."""
    for place in places:
        partition = state.partitions.get(place)
        if partition is None:
            continue
        for property_, anomaly, sentence in _of_partition(partition, state, min_insync_replicas, elr_enabled):
            yield Complaint(property_, anomaly, place, f"{sentence}: {partition}")


def _of_partition(
    partition: PartitionState, state: MetadataState, default_min_isr: int, elr_enabled: bool
) -> Iterator[tuple[str, str, str]]:
    isr, elr = set(partition.isr), set(partition.elr)
    min_isr = state.min_isr(partition, default_min_isr)
    valid = "ValidControllerIsrAndElr"
    if not isr | elr <= set(partition.replicas):
        yield valid, "stranger in ISR or ELR", "a member of the ISR or ELR is no replica"
    if isr & elr:
        yield valid, "in ISR and ELR", f"{sorted(isr & elr)} are in the ISR and in the ELR"
    if len(isr) >= min_isr and (elr or partition.last_known_elr):
        yield (
            valid,
            "ELR beside a full ISR",
            (f"the ISR has {len(isr)} members and the minimum is {min_isr}, so nobody else may be eligible"),
        )
    if partition.leader not in (*isr, NO_LEADER):
        yield "ValidControllerState", "leader outside the ISR", f"leader {partition.leader} is not in the ISR"
    # Before KIP-966 the last member stays in the ISR, fenced or not (000, 2.8).
    elr_enabled = elr_enabled or (state.elr_since is not None and state.elr_since < partition.offset)
    may_stay = not elr_enabled and len(isr) == 1 and partition.leader == NO_LEADER
    gone = sorted(r for r in isr if r not in state.brokers or _is_gone(state.brokers[r]))
    if gone and not may_stay:
        yield "ValidControllerState", "fenced member of an ISR", f"{gone} are in the ISR though fenced or shutting down"


def _is_gone(broker: Broker) -> bool:
    return broker.fenced or broker.shutting_down
