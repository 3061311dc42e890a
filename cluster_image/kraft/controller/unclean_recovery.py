"""Unclean recovery: a leader for a partition of whose replicas nobody available is known to be complete (002, 5.3;
KIP-966).

The controller asks replicas how far their logs go, and elects the one whose log goes furthest. `unclean.recovery.
strategy`, of the topic or of the controller, says when:

| strategy    | begins                               | asks             | elects                                       |
| ----------- | ------------------------------------ | ---------------- | -------------------------------------------- |
| `balanced`  | when ISR and ELR are both empty      | the LastKnownELR | once all of them have told: the one whose    |
|             |                                      |                  | log goes furthest, when that is available    |
| `proactive` | when no member of the ISR or the ELR | every replica    | once all have told, or somebody has and      |
|             | is available                         |                  | unclean.recovery.timeout.ms are over since   |
|             |                                      |                  | the first was asked: the best one available  |
| `manual`    | when an operator asks for it         | every replica    | as `proactive`                               |

An operator (ElectLeaders, type UNCLEAN) may ask for it under any strategy: where Apache Kafka elects the first live
replica, the logs are looked at here as well. With `eligible.leader.replicas.version=0` there is no unclean recovery:
the last member of an ISR stays in it and is waited for.

Of each partition in question there is an `Inspection`:

    look()       begins one for each partition that needs it, and drops those of partitions that have changed since
    questions()  what is to be asked now: whoever is available and has not told
    hear()       an answer. It counts while the process that gave it is the one registered, and only if that knew of
                 the leader epoch that has no leader: from then on its log does not change
    decide()     the elections that the answers allow

None of this is in the metadata log: a new controller begins anew, and so does whoever was asked under a state of the
partition that has passed. Everything is decided on what this controller has written, in one step with what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cluster_image.replication.replica import PartitionKey
from cluster_image.wire.own_messages import MAX_PARTITIONS

from ..metadata.image import PartitionRegistration
from ..metadata.records import PartitionChangeRecord
from . import partition_change, rules
from .rules import LogInfo
from .term import Term

#: Partitions, and the partition epoch of the state that each is asked about in.
Question = dict[PartitionKey, int]


@dataclass(slots=True)
class Inspection:
    """partition: in the state that it is asked about. began: seconds, when first somebody could be asked."""

    partition: PartitionRegistration
    strategy: str
    began: float | None = None
    logs: dict[int, LogInfo] = field(default_factory=dict)  # as told, by broker


@dataclass(frozen=True, slots=True)
class Recovery:
    """An unclean election: perhaps a loss, which the controller cannot tell (002, 5.3.2). partition: before it.
    logs: of all that have told, by broker."""

    partition: PartitionRegistration
    leader: int
    strategy: str
    logs: Mapping[int, LogInfo]
    record: PartitionChangeRecord

    @property
    def leader_epoch(self) -> int:
        return self.partition.leader_epoch + 1


class UncleanRecovery:
    """Of one term of office. Times are those of the loop's clock, in seconds."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._timeout: Final[float] = term.config.seconds("unclean.recovery.timeout.ms")
        self._enabled: Final[bool] = term.elr_enabled
        self._inspections: dict[PartitionKey, Inspection] = {}
        self._asked_for: dict[PartitionKey, None] = {}  # by an operator

    def request(self, partition: PartitionRegistration) -> bool:
        """An operator wants this partition to have a leader, whatever is lost. False: there is nothing to recover
        from, as it has one, or unclean recovery is not there."""
        if not self._enabled or not rules.recovery_candidates(partition, rules.OPERATOR):
            return False
        self._asked_for[partition.topic_id, partition.index] = None
        return True

    def withdraw(self, partitions: Iterable[PartitionKey]) -> None:
        """The operator no longer waits: an election must not come out of the blue later."""
        for key in partitions:
            self._asked_for.pop(key, None)

    def look(self) -> None:
        """Take in what has become of the partitions."""
        if not self._enabled:
            return
        before, self._inspections = self._inspections, {}
        for partition in self._term.image.partitions():
            if partition.leader >= 0:
                continue
            key = (partition.topic_id, partition.index)
            strategy = self._strategy(key, partition)
            if not rules.recovery_candidates(partition, strategy):
                continue
            known = before.get(key)
            if known is None or known.strategy != strategy:
                known = Inspection(partition, strategy)
            elif known.partition != partition:
                same = known.partition.leader_epoch == partition.leader_epoch
                known = Inspection(partition, strategy, known.began if same else None)
            self._inspections[key] = known
        if self._asked_for:
            self._asked_for = {key: None for key in self._asked_for if key in self._inspections}

    def _strategy(self, key: PartitionKey, partition: PartitionRegistration) -> str:
        if key in self._asked_for:
            return rules.OPERATOR
        settings = self._term.image.topics[partition.topic].settings
        strategy: str = self._term.config.for_topic(settings)["unclean.recovery.strategy"]
        return strategy

    def questions(self, now: float) -> dict[int, Question]:
        """Of whom to ask what, by broker; what does not fit into one request is asked later."""
        brokers = self._term.image.brokers
        asked: dict[int, Question] = {}
        for key, inspection in self._inspections.items():
            heard = self._heard(inspection)
            for replica in rules.recovery_candidates(inspection.partition, inspection.strategy):
                broker = brokers.get(replica)
                if broker is None or broker.fenced or replica in heard:
                    continue
                if inspection.began is None:
                    inspection.began = now
                mine = asked.setdefault(replica, {})
                if len(mine) < MAX_PARTITIONS:
                    mine[key] = inspection.partition.partition_epoch
        return asked

    def hear(self, broker: int, question: Question, logs: Mapping[PartitionKey, LogInfo]) -> None:
        """A broker's answer to a question. Whether it counts is asked when it is used."""
        for key, info in logs.items():
            inspection = self._inspections.get(key)
            if inspection is not None and inspection.partition.partition_epoch == question.get(key):
                inspection.logs[broker] = info

    def _heard(self, inspection: Inspection) -> dict[int, LogInfo]:
        """What counts as of now."""
        brokers = self._term.image.brokers
        return {
            replica: info
            for replica, info in inspection.logs.items()
            if rules.log_info_counts(info, inspection.partition, brokers.get(replica))
        }

    def decide(self, now: float) -> list[Recovery]:
        """All elections that are due. Call look() in the same step before, and write the records in it."""
        decided = (self._decide(inspection, now) for inspection in self._inspections.values())
        return [recovery for recovery in decided if recovery is not None]

    def _decide(self, inspection: Inspection, now: float) -> Recovery | None:
        partition, strategy, brokers = inspection.partition, inspection.strategy, self._term.image.brokers
        heard = self._heard(inspection)
        candidates = rules.recovery_candidates(partition, strategy)
        timed_out = inspection.began is not None and now - inspection.began >= self._timeout
        if not rules.heard_enough(strategy, candidates, heard, timed_out):
            return None
        available = [r for r in candidates if rules.may_recover(brokers.get(r))]
        # Balanced never makes do with the second best: it waits for the best one to be available.
        leader = rules.best_log(candidates if strategy == rules.BALANCED else available, heard)
        if leader is None or leader not in available:
            return None
        record = partition_change.change(partition, partition.isr, replace(self._term.electorate(), recovered=leader))
        assert record is not None
        return Recovery(partition, leader, strategy, heard, record)


def describe(logs: Mapping[int, LogInfo], replicas: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """Who has told, in the partition's order, with the last epoch and the end offset of each."""
    reported = [r for r in replicas if r in logs]
    return {
        "candidates": tuple(reported),
        "epochs": tuple(logs[r].last_epoch for r in reported),
        "ends": tuple(logs[r].end_offset for r in reported),
    }
