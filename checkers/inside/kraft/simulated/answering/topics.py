"""Whether topics are made, extended and deleted as it is asked for. Functions raise Wrong, or Violated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration

from ..assignments import check_none_better, check_placed
from .judging import NONE, Wrong, answers_of, held, hold, require, why_not

_MOST_PARTITIONS: Final = 10_000
#: What a name is like that any metric and directory may have.
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")


def created(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    if len(request.topics) == 1:
        _check_created(request, image, after, step)
    _check_racks([str(asked.name) for asked in request.topics if not asked.assignments], image, after)


def _check_created(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    """Of one topic."""
    (asked,), (answer,) = request.topics, answers_of(step)
    name = str(asked.name)
    if not name or not _PLAIN.issuperset(name) or answer.error_code is ErrorCode.invalid_config:
        return  # there is more to know about such
    hold(answer.error_code is NONE or not step.records, "it refuses and writes something")
    assigned = [tuple(map(int, each.broker_ids)) for each in asked.assignments]
    if name in image.topics:
        require(answer.error_code is ErrorCode.topic_already_exists, f"there is a topic {name}", answer)
        return
    if assigned and (int(asked.num_partitions), int(asked.replication_factor)) != (-1, -1):
        require(answer.error_code is ErrorCode.invalid_request, "both an assignment and numbers", answer)
        return
    if assigned:
        numbers = sorted(int(each.partition_index) for each in asked.assignments)
        reason = _why_none(assigned, image) if numbers == list(range(len(numbers))) else "not numbered from 0"
        assigned = [tuple(map(int, e.broker_ids)) for e in sorted(asked.assignments, key=lambda e: e.partition_index)]
    else:
        reason = _why_not_placed(int(asked.num_partitions), int(asked.replication_factor), image)
    if reason is not None:
        require(answer.error_code is not NONE, f"topic {name}: {reason}", answer)
        return
    require(answer.error_code is NONE, f"topic {name} may be made", answer)
    if getattr(request, "validate_only", False):
        hold(not step.records, "it was to look only, and writes something")
        return
    topic = after.topics.get(name)
    if topic is None:
        raise Wrong(f"topic {name} is said to be made, and is not there")
    settings = {each.name: each.value or "" for each in asked.configs}
    hold(topic.settings == settings, f"topic {name} was to have {settings}, and has {topic.settings}")
    partitions = [topic.partitions[index] for index in sorted(topic.partitions)]
    if assigned:
        made = [partition.replicas for partition in partitions]
        hold(made == assigned, f"topic {name} was to have {assigned}, and has {made}")
    else:
        if asked.num_partitions != -1:
            many = len(partitions)
            hold(many == asked.num_partitions, f"{name} was to have {asked.num_partitions} partitions, and has {many}")
        _check_placed(partitions, int(asked.replication_factor), image)
        _check_even(partitions, image)
        check_none_better(partitions, image, after)
    _check_led(partitions, image)


def extended(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    if len(request.topics) == 1:
        _check_extended(request, image, after, step)
    _check_racks([str(asked.name) for asked in request.topics if asked.assignments is None], image, after)


def _check_extended(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    """Of one topic."""
    (asked,), (answer,) = request.topics, answers_of(step)
    name, wanted = str(asked.name), int(asked.count)
    hold(answer.error_code is NONE or not step.records, "it refuses and writes something")
    topic = image.topics.get(name)
    if topic is None:
        require(answer.error_code is ErrorCode.unknown_topic_or_partition, f"there is no topic {name}", answer)
        return
    present = len(topic.partitions)
    replication = len(held(topic.partitions[0]))
    assigned = [tuple(map(int, each.broker_ids)) for each in asked.assignments or ()]
    if not present < wanted <= _MOST_PARTITIONS:
        require(answer.error_code is ErrorCode.invalid_partitions, f"{name} has {present} partitions", answer)
        return
    if asked.assignments is not None:
        fits = len(assigned) == wanted - present and all(len(each) == replication for each in assigned)
        reason = _why_none(assigned, image) if fits else "not so many"
    else:
        reason = _why_not_placed(wanted - present, replication, image)
    if reason is not None:
        require(answer.error_code is not NONE, f"{wanted} partitions of {name}: {reason}", answer)
        return
    require(answer.error_code is NONE, f"{name} may have {wanted} partitions", answer)
    if request.validate_only:
        hold(not step.records, "it was to look only, and writes something")
        return
    now = after.topics[name].partitions
    hold(sorted(now) == list(range(wanted)), f"{name} was to have {wanted} partitions, and has {sorted(now)}")
    kept = all(now[index] == partition for index, partition in topic.partitions.items())
    hold(kept, f"partitions that {name} had are others")
    new = [now[index] for index in range(present, wanted)]
    if assigned:
        made = [partition.replicas for partition in new]
        hold(made == assigned, f"{name} was to get {assigned}, and gets {made}")
    else:
        _check_placed(new, replication, image)
        check_none_better(new, image, after)
    _check_led(new, image)


def deleted(
    request: Any, image: MetadataImage, after: MetadataImage, step: Step, *, deletes_topics: bool
) -> None:  # fmt: skip
    """deletes_topics: delete.topic.enable."""
    asked = getattr(request, "topics", None)
    named: list[tuple[Any, Any]] = (
        [(name, None) for name in request.topic_names] if asked is None
        else [(each.name, each.topic_id) for each in asked]
    )  # fmt: skip
    if len(named) != 1:
        _check_twice(named, image, step)
        return
    name, id_ = named[0]
    (answer,) = answers_of(step)
    if (name is None) == (id_ is None):
        require(answer.error_code is ErrorCode.invalid_request, f"named {name} and {id_}", answer)
        return
    topic = image.topics.get(name) if name is not None else image.topics_by_id.get(id_)
    missing = ErrorCode.unknown_topic_or_partition if name is not None else ErrorCode.unknown_topic_id
    if not deletes_topics:
        disabled = (ErrorCode.topic_deletion_disabled, ErrorCode.invalid_request)
        require(answer.error_code in disabled, "no topic may be deleted", answer)
    elif topic is None:
        require(answer.error_code is missing, f"there is no topic {name or id_}", answer)
    else:
        require(answer.error_code is NONE, f"topic {topic.name} may be deleted", answer)
        hold(topic.name not in after.topics, f"topic {topic.name} is said to be deleted, and is there")
    hold(answer.error_code is NONE or not step.records, "it refuses and writes something")


def _check_twice(named: Sequence[tuple[Any, Any]], image: MetadataImage, step: Step) -> None:
    """By its name and by its id, or by either twice: no order is promised among what a request asks for."""
    topics = [image.topics.get(name) if name is not None else image.topics_by_id.get(id_) for name, id_ in named]
    for answer, topic in zip(answers_of(step), topics, strict=True):
        if topic is not None and topics.count(topic) > 1:
            require(answer.error_code is not NONE, f"topic {topic.name} is to be deleted twice", answer)


def _why_none(assigned: Iterable[Sequence[int]], image: MetadataImage) -> str | None:
    """Why these can be none of new partitions of a topic."""
    assigned = list(assigned)
    if len({len(replicas) for replicas in assigned}) != 1:
        return "not as many replicas each"
    for replicas in assigned:
        if (reason := why_not(replicas, image)) is not None:
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
            hold(len(replicas) == replication_factor, many)
        fenced = [replica for replica in replicas if not image.brokers[replica].active]
        hold(
            len(fenced) == max(0, len(replicas) - active),
            f"of the replicas {list(replicas)} of {where} {fenced} are not available, and {active} brokers are",
        )


def _check_racks(names: Iterable[str], image: MetadataImage, after: MetadataImage) -> None:
    """Of the new partitions of topics whose replicas the controller has chosen. Raises Violated, of ValidReplicas."""
    for name in names:
        before, now = image.topics.get(name), after.topics.get(name)
        for index, partition in (now.partitions if now is not None else {}).items():
            if before is None or index not in before.partitions:
                check_placed(partition, image)


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
        hold(max(of_each) - min(of_each) <= 1, f"its {what} are not dealt out evenly: {told}")


def _check_led(partitions: Sequence[PartitionRegistration], image: MetadataImage) -> None:
    """As nothing is written yet, all that are there are in sync, and the first of them leads."""
    for partition in partitions:
        there = tuple(replica for replica in partition.replicas if image.brokers[replica].active)
        hold(
            (partition.isr, partition.leader) == (there, there[0] if there else -1),
            f"{partition.topic}-{partition.index} of {list(partition.replicas)}, of which {list(there)} are there, "
            f"begins with leader {partition.leader} and ISR {list(partition.isr)}",
        )
