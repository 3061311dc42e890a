"""AdministratorAnswered: whether the controller decides what administrators ask for as it is asked.

| request                     | refused only if                                            | else it is written that
| --------------------------- | ---------------------------------------------------------- | ---------------------------
| CreateTopics                | the name is taken; there are no such numbers or brokers    | it is there, as asked
| CreatePartitions            | there is no such topic, or it has so many; no such brokers | it has so many, as asked
| DeleteTopics                | there is no such topic; topics may not be deleted          | it is gone
| AlterPartitionReassignments | there is no such partition, move or broker; too few would  | it goes where it was asked
|                             | be in sync                                                 | to, or stays
| ListPartitionReassignments  | (never)                                                    | (told: each move, as it is)
| ElectLeaders, preferred     | that one leads, or may not                                 | that one leads
| IncrementalAlterConfigs     | there is no such topic or broker                           | the settings are as asked
| UnregisterBroker            | there is no such broker; it runs, or has replicas          | it is gone

Where the controller chooses the replicas of a new topic, fenced brokers get some only where there are too few others;
and with a rack of its own for each, all of them active, no broker has two more of its leaders or of its replicas than
another. Judged at the decision, by the image that it is based on (and which is judged elsewhere). A topic a request:
what of several is decided one after the other.

Sources: Apache Kafka's ReplicationControlManager and ConfigurationControlManager; KIP-455, KIP-460; 003.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from checkers.inside.violation import Violated
from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration

_NONE: Final = ErrorCode.none
_MOST_PARTITIONS: Final = 10_000
_PREFERRED: Final = 0
_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
#: What a name is like that any metric and directory may have.
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")


class _Wrong(Exception):
    """A clause: what was decided, and what should have been."""


class AdministrationOracle:
    """min_insync_replicas: of topics without a value of their own. deletes_topics: delete.topic.enable."""

    def __init__(self, min_insync_replicas: int, deletes_topics: bool) -> None:
        self._min_isr = min_insync_replicas
        self._deletes_topics = deletes_topics
        self._violated: Violated | None = None
        self._checks: Mapping[str, Callable[[Any, MetadataImage, MetadataImage, Step], None]] = {
            "CreateTopicsRequest": _created, "CreatePartitionsRequest": _extended, "DeleteTopicsRequest": self._deleted,
            "AlterPartitionReassignmentsRequest": self._reassigned, "ElectLeadersRequest": _elected,
            "IncrementalAlterConfigsRequest": _altered, "UnregisterBrokerRequest": _unregistered,
            "ListPartitionReassignmentsRequest": _listed,
        }  # fmt: skip

    def decided(self, node: str, request: Any, image: MetadataImage, step: Step) -> None:
        """image: before the step. What is wrong is told by raise_violated(): here it would be an error of the node."""
        check = self._checks.get(type(request).__name__)
        if check is None or step.answer is None or self._violated is not None:
            return
        after = image.copy()
        for offset, record in enumerate(step.records, image.end_offset):
            after.replay(offset, record)
        try:
            check(request, image, after, step)
        except _Wrong as wrong:
            name = type(request).__name__.removesuffix("Request")
            self._violated = Violated("AdministratorAnswered", f"{node} decides {name}: {wrong}", "", (node,))

    def raise_violated(self) -> None:
        """Raises Violated."""
        if self._violated is not None:
            raise self._violated

    def _deleted(self, request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
        asked = getattr(request, "topics", None) or [(name, None) for name in request.topic_names]
        if len(asked) != 1:
            return
        name, id_ = asked[0] if isinstance(asked[0], tuple) else (asked[0].name, asked[0].topic_id)
        (answer,) = _answers(step)
        if (name is None) == (id_ is None):
            _require(answer.error_code is ErrorCode.invalid_request, f"named {name} and {id_}", answer)
            return
        topic = image.topics.get(name) if name is not None else image.topics_by_id.get(id_)
        missing = ErrorCode.unknown_topic_or_partition if name is not None else ErrorCode.unknown_topic_id
        if not self._deletes_topics:
            disabled = (ErrorCode.topic_deletion_disabled, ErrorCode.invalid_request)
            _require(answer.error_code in disabled, "no topic may be deleted", answer)
        elif topic is None:
            _require(answer.error_code is missing, f"there is no topic {name or id_}", answer)
        else:
            _require(answer.error_code is _NONE, f"topic {topic.name} may be deleted", answer)
            _hold(topic.name not in after.topics, f"topic {topic.name} is said to be deleted, and is there")
        _hold(answer.error_code is _NONE or not step.records, "it refuses and writes something")

    def _reassigned(self, request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
        asked = [(str(topic.name), each) for topic in request.topics for each in topic.partitions]
        answers = [each for topic in _answers(step) for each in topic.partitions]
        twice = Counter((topic, each.partition_index) for topic, each in asked)
        _hold(len(answers) == len(asked), f"it answers of {len(answers)} partitions, and was asked of {len(asked)}")
        if any(count > 1 for count in twice.values()):
            return
        for (topic, each), answer in zip(asked, answers, strict=True):
            index = int(each.partition_index)
            before = image.topics[topic].partitions.get(index) if topic in image.topics else None
            target = None if each.replicas is None else tuple(map(int, each.replicas))
            where = f"{topic}-{index}"
            if before is None:
                _require(answer.error_code is ErrorCode.unknown_topic_or_partition, f"there is no {where}", answer)
                continue
            reason = self._why_no_move(before, target, image, getattr(request, "allow_replication_factor_change", True))
            if reason is not None:
                _require(answer.error_code is not _NONE, f"{where} to {target}: {reason}", answer)
                continue
            _require(answer.error_code is _NONE, f"{where} may go to {target}", answer)
            now = after.topics[topic].partitions[index]
            coming = tuple(replica for replica in now.replicas if replica not in now.removing)
            _hold(
                set(coming) == set(target or _held(before)) and (not target or coming == target),
                f"{where} of {list(before.replicas)} was to go to {target}, and goes to {list(coming)}",
            )
            adding = list(now.adding)
            _hold(target is not None or not adding, f"the move of {where} is cancelled, and {adding} are added")

    def _why_no_move(
        self, before: PartitionRegistration, target: tuple[int, ...] | None, image: MetadataImage, may_resize: bool
    ) -> str | None:
        own = image.topics[before.topic].settings.get("min.insync.replicas", self._min_isr)
        held = _held(before)
        least = min(int(own), len(held))
        if target is None and not before.adding and not before.removing:
            return "there is no move"
        if target is not None:
            if (reason := _why_not(target, image)) is not None:
                return reason
            if len(target) < least or (not may_resize and len(target) != len(held)):
                return "not so many replicas"
        dropped = [replica for replica in before.replicas if replica not in (*held, *(target or ()))]
        complete = {*before.isr, *before.elr, *before.last_known_elr}
        left = [replica for replica in before.isr if replica not in dropped]
        return "too few in sync" if complete & {*dropped} and len(left) < least else None


def _created(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    if len(request.topics) != 1:
        return
    (asked,), (answer,) = request.topics, _answers(step)
    name = str(asked.name)
    if not name or not _PLAIN.issuperset(name) or answer.error_code is ErrorCode.invalid_config:
        return  # there is more to know about such
    _hold(answer.error_code is _NONE or not step.records, "it refuses and writes something")
    assigned = [tuple(map(int, each.broker_ids)) for each in asked.assignments]
    if name in image.topics:
        _require(answer.error_code is ErrorCode.topic_already_exists, f"there is a topic {name}", answer)
        return
    if assigned and (int(asked.num_partitions), int(asked.replication_factor)) != (-1, -1):
        _require(answer.error_code is ErrorCode.invalid_request, "both an assignment and numbers", answer)
        return
    if assigned:
        numbers = sorted(int(each.partition_index) for each in asked.assignments)
        reason = _why_none(assigned, image) if numbers == list(range(len(numbers))) else "not numbered from 0"
        assigned = [tuple(map(int, e.broker_ids)) for e in sorted(asked.assignments, key=lambda e: e.partition_index)]
    else:
        reason = _why_not_placed(int(asked.num_partitions), int(asked.replication_factor), image)
    if reason is not None:
        _require(answer.error_code is not _NONE, f"topic {name}: {reason}", answer)
        return
    _require(answer.error_code is _NONE, f"topic {name} may be made", answer)
    if getattr(request, "validate_only", False):
        _hold(not step.records, "it was to look only, and writes something")
        return
    topic = after.topics.get(name)
    if topic is None:
        raise _Wrong(f"topic {name} is said to be made, and is not there")
    settings = {each.name: each.value or "" for each in asked.configs}
    _hold(topic.settings == settings, f"topic {name} was to have {settings}, and has {topic.settings}")
    partitions = [topic.partitions[index] for index in sorted(topic.partitions)]
    if assigned:
        made = [partition.replicas for partition in partitions]
        _hold(made == assigned, f"topic {name} was to have {assigned}, and has {made}")
    else:
        if asked.num_partitions != -1:
            many = len(partitions)
            _hold(many == asked.num_partitions, f"{name} was to have {asked.num_partitions} partitions, and has {many}")
        _check_placed(partitions, int(asked.replication_factor), image)
        _check_even(partitions, image)
    _check_led(partitions, image)


def _extended(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    if len(request.topics) != 1:
        return
    (asked,), (answer,) = request.topics, _answers(step)
    name, wanted = str(asked.name), int(asked.count)
    _hold(answer.error_code is _NONE or not step.records, "it refuses and writes something")
    topic = image.topics.get(name)
    if topic is None:
        _require(answer.error_code is ErrorCode.unknown_topic_or_partition, f"there is no topic {name}", answer)
        return
    present = len(topic.partitions)
    replication = len(_held(topic.partitions[0]))
    assigned = [tuple(map(int, each.broker_ids)) for each in asked.assignments or ()]
    if not present < wanted <= _MOST_PARTITIONS:
        _require(answer.error_code is ErrorCode.invalid_partitions, f"{name} has {present} partitions", answer)
        return
    if asked.assignments is not None:
        fits = len(assigned) == wanted - present and all(len(each) == replication for each in assigned)
        reason = _why_none(assigned, image) if fits else "not so many"
    else:
        reason = _why_not_placed(wanted - present, replication, image)
    if reason is not None:
        _require(answer.error_code is not _NONE, f"{wanted} partitions of {name}: {reason}", answer)
        return
    _require(answer.error_code is _NONE, f"{name} may have {wanted} partitions", answer)
    if request.validate_only:
        _hold(not step.records, "it was to look only, and writes something")
        return
    now = after.topics[name].partitions
    _hold(sorted(now) == list(range(wanted)), f"{name} was to have {wanted} partitions, and has {sorted(now)}")
    kept = all(now[index] == partition for index, partition in topic.partitions.items())
    _hold(kept, f"partitions that {name} had are others")
    new = [now[index] for index in range(present, wanted)]
    if assigned:
        made = [partition.replicas for partition in new]
        _hold(made == assigned, f"{name} was to get {assigned}, and gets {made}")
    else:
        _check_placed(new, replication, image)
    _check_led(new, image)


def _listed(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    """Of the partitions that it asks for, or of all, those that move."""
    asked = None
    if request.topics is not None:
        asked = {(str(topic.name), int(index)) for topic in request.topics for index in topic.partition_indexes}
    moving = {
        (each.topic, each.index): (each.replicas, each.adding, each.removing)
        for each in image.partitions()
        if (each.adding or each.removing) and (asked is None or (each.topic, each.index) in asked)
    }
    told = {
        (str(topic.name), int(each.partition_index)): tuple(
            tuple(map(int, ids)) for ids in (each.replicas, each.adding_replicas, each.removing_replicas)
        )
        for topic in _answers(step)
        for each in topic.partitions
    }
    _hold(told == moving, f"{moving} move, and it tells of {told}")


def _elected(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    """Of preferred leaders."""
    if int(getattr(request, "election_type", _PREFERRED)) != _PREFERRED:
        return
    every = request.topic_partitions is None
    if every:
        asked = [(topic.name, index) for topic in image.topics.values() for index in topic.partitions]
    else:
        asked = [(str(topic.topic), int(index)) for topic in request.topic_partitions for index in topic.partitions]
    if any(count > 1 for count in Counter(asked).values()):
        return
    told = {
        (str(topic.topic), int(each.partition_id)): each
        for topic in step.answer.replica_election_results  # type: ignore[union-attr]
        for each in topic.partition_result
    }
    _hold(told.keys() <= set(asked), f"it answers of {sorted(told.keys() - set(asked))}, which nobody asked for")
    for place in asked:
        topic, index = place
        partition = image.topics[topic].partitions.get(index) if topic in image.topics else None
        answer = told.get(place)
        error = ErrorCode.election_not_needed if answer is None else answer.error_code
        _hold(every or answer is not None, f"it does not answer of {topic}-{index}")
        if partition is None:
            _require(error is ErrorCode.unknown_topic_or_partition, f"there is no {topic}-{index}", answer)
            continue
        first = partition.replicas[0]
        broker = image.brokers.get(first)
        if partition.leader == first:
            _require(error is ErrorCode.election_not_needed, f"broker {first} leads {topic}-{index}", answer)
            _hold(not every or answer is None, f"it answers of {topic}-{index}, where nothing is needed")
            continue
        if broker is not None and broker.active and first in partition.isr:
            _require(error is _NONE, f"broker {first} may lead {topic}-{index}", answer)
        elif broker is None or not broker.active or first not in (*partition.elr, *partition.isr):
            refused = error is ErrorCode.preferred_leader_not_available
            _require(refused, f"broker {first} may not lead {topic}-{index}", answer)
        leads = after.topics[topic].partitions[index].leader
        _hold(error is not _NONE or leads == first, f"broker {first} was to lead {topic}-{index}, and {leads} does")


def _altered(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    if len({(each.resource_type, each.resource_name) for each in request.resources}) < len(request.resources):
        return
    answers = {(int(each.resource_type), str(each.resource_name)): each for each in _answers(step)}
    changed: dict[tuple[int, str], dict[str, str]] = {}
    for resource in request.resources:
        kind, name = int(resource.resource_type), str(resource.resource_name)
        answer = answers[kind, name]
        invalid = (ErrorCode.invalid_config, ErrorCode.invalid_request)  # what values there are is not known here
        if kind == _TOPIC and name not in image.topics:
            _require(answer.error_code is ErrorCode.unknown_topic_or_partition, f"there is no topic {name}", answer)
        elif kind == _BROKER and name.isdecimal() and int(name) not in image.brokers:
            _require(answer.error_code is ErrorCode.broker_id_not_registered, f"there is no broker {name}", answer)
        else:
            _require(answer.error_code in (_NONE, *invalid), f"{name or 'all brokers'} may have others", answer)
        if answer.error_code is not _NONE or kind not in (_TOPIC, _BROKER):
            continue
        settings = dict(_settings(image, kind, name))
        if any(int(each.config_operation) not in (_SET, _DELETE) for each in resource.configs):
            continue  # of lists
        for each in resource.configs:
            if int(each.config_operation) == _SET:
                settings[each.name] = each.value
            else:
                settings.pop(each.name, None)
        changed[kind, name] = settings
    if request.validate_only:
        _hold(not step.records, "it was to look only, and writes something")
        return
    for (kind, name), settings in changed.items():
        now = dict(_settings(after, kind, name))
        _hold(now == settings, f"{name or 'all brokers'} was to have {settings}, and has {now}")


def _settings(image: MetadataImage, kind: int, name: str) -> Mapping[str, str]:
    return image.topics[name].settings if kind == _TOPIC else image.broker_settings.get(name, {})


def _unregistered(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    broker = image.brokers.get(int(request.broker_id))
    error = step.answer.error_code  # type: ignore[union-attr]
    if broker is None:
        _require(error is ErrorCode.broker_id_not_registered, f"there is no broker {request.broker_id}", step.answer)
        return
    holds = any(broker.id in partition.replicas for partition in image.partitions())
    if holds or not broker.fenced:
        _require(error is ErrorCode.invalid_request, f"broker {broker.id} runs or has replicas", step.answer)
        return
    _hold(error in (_NONE, ErrorCode.invalid_request), f"it answers {error.name} of broker {broker.id}")
    gone = broker.id not in after.brokers
    _hold(gone == (error is _NONE), f"broker {broker.id} is {'gone' * gone or 'there'}, and the answer is {error.name}")


# -- what there is --------------------------------------------------------------------------------------------


def _held(partition: PartitionRegistration) -> tuple[int, ...]:
    """Its replicas before the move that is under way."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def _why_not(replicas: Sequence[int], image: MetadataImage) -> str | None:
    """Why these can be no replicas of a partition."""
    if not replicas or len(set(replicas)) < len(replicas):
        return f"{list(replicas)} are no replicas"
    unknown = [replica for replica in replicas if replica not in image.brokers]
    return f"{unknown} are no brokers" if unknown else None


def _why_none(assigned: Iterable[Sequence[int]], image: MetadataImage) -> str | None:
    """Why these can be none of new partitions of a topic."""
    assigned = list(assigned)
    if len({len(replicas) for replicas in assigned}) != 1:
        return "not as many replicas each"
    for replicas in assigned:
        if (reason := _why_not(replicas, image)) is not None:
            return reason
        if not any(image.brokers[replica].active for replica in replicas):
            return f"none of {list(replicas)} is there"
    return None


def _why_not_placed(partitions: int, replication_factor: int, image: MetadataImage) -> str | None:
    """-1: as the cluster has it by default."""
    if not (partitions == -1 or 1 <= partitions <= _MOST_PARTITIONS) or partitions > 1000:
        return f"{partitions} partitions"
    if not any(broker.active for broker in image.brokers.values()):
        return "no broker is there"
    if replication_factor != -1 and not 1 <= replication_factor <= len(image.brokers):
        return f"{len(image.brokers)} brokers"
    return None


def _check_placed(partitions: Sequence[PartitionRegistration], replication_factor: int, image: MetadataImage) -> None:
    """Where the controller has chosen."""
    active = sum(broker.active for broker in image.brokers.values())
    for partition in partitions:
        where, replicas = f"{partition.topic}-{partition.index}", partition.replicas
        if replication_factor != -1:
            many = f"{where} was to have {replication_factor} replicas, and has {list(replicas)}"
            _hold(len(replicas) == replication_factor, many)
        fenced = [replica for replica in replicas if not image.brokers[replica].active]
        _hold(
            len(fenced) == max(0, len(replicas) - active),
            f"of the replicas {list(replicas)} of {where} {fenced} are not available, and {active} brokers are",
        )


def _check_even(partitions: Sequence[PartitionRegistration], image: MetadataImage) -> None:
    """Of a whole topic: over brokers that all are there, each in a rack of its own."""
    racks = Counter(broker.rack for broker in image.brokers.values())
    if not all(broker.active for broker in image.brokers.values()) or max(racks.values(), default=0) > 1:
        return
    leaders = Counter(partition.replicas[0] for partition in partitions)
    replicas = Counter(replica for partition in partitions for replica in partition.replicas)
    for what, counts in (("leaders", leaders), ("replicas", replicas)):
        of_each = [counts[broker] for broker in image.brokers]
        told = {broker: counts[broker] for broker in image.brokers}
        _hold(max(of_each) - min(of_each) <= 1, f"its {what} are not dealt out evenly: {told}")


def _check_led(partitions: Sequence[PartitionRegistration], image: MetadataImage) -> None:
    """As nothing is written yet, all that are there are in sync, and the first of them leads."""
    for partition in partitions:
        there = tuple(replica for replica in partition.replicas if image.brokers[replica].active)
        _hold(
            (partition.isr, partition.leader) == (there, there[0] if there else -1),
            f"{partition.topic}-{partition.index} of {list(partition.replicas)}, of which {list(there)} are there, "
            f"begins with leader {partition.leader} and ISR {list(partition.isr)}",
        )


def _answers(step: Step) -> Sequence[Any]:
    for name in ("topics", "responses", "results"):
        if (answers := getattr(step.answer, name, None)) is not None:
            return list(answers)
    return []


def _require(holds: bool, fact: str, answer: Any) -> None:
    if not holds:
        error = "nothing" if answer is None else answer.error_code.name
        message = getattr(answer, "error_message", None)
        raise _Wrong(f"{fact}, and it answers {error}{f' ({message})' if message else ''}")


def _hold(holds: bool, message: str) -> None:
    if not holds:
        raise _Wrong(message)
