"""Whether partitions are moved, and given other leaders, as it is asked for. Functions raise Wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration

from .judging import NONE, answers_of, held, hold, require, why_not

_PREFERRED: Final = 0


def reassigned(
    request: Any, image: MetadataImage, after: MetadataImage, step: Step, *, min_insync_replicas: int
) -> None:  # fmt: skip
    """min_insync_replicas: of topics without a value of their own."""
    asked = [(str(topic.name), each) for topic in request.topics for each in topic.partitions]
    answers = [each for topic in answers_of(step) for each in topic.partitions]
    twice = Counter((topic, each.partition_index) for topic, each in asked)
    hold(len(answers) == len(asked), f"it answers of {len(answers)} partitions, and was asked of {len(asked)}")
    if any(count > 1 for count in twice.values()):
        return
    for (topic, each), answer in zip(asked, answers, strict=True):
        index = int(each.partition_index)
        before = image.topics[topic].partitions.get(index) if topic in image.topics else None
        target = None if each.replicas is None else tuple(map(int, each.replicas))
        where = f"{topic}-{index}"
        if before is None:
            require(answer.error_code is ErrorCode.unknown_topic_or_partition, f"there is no {where}", answer)
            continue
        reason = _why_no_move(
            before, target, image, min_insync_replicas, getattr(request, "allow_replication_factor_change", True)
        )  # fmt: skip
        if reason is not None:
            require(answer.error_code is not NONE, f"{where} to {target}: {reason}", answer)
            continue
        require(answer.error_code is NONE, f"{where} may go to {target}", answer)
        now = after.topics[topic].partitions[index]
        coming = tuple(replica for replica in now.replicas if replica not in now.removing)
        hold(
            set(coming) == set(target or held(before)) and (not target or coming == target),
            f"{where} of {list(before.replicas)} was to go to {target}, and goes to {list(coming)}",
        )
        adding = list(now.adding)
        hold(target is not None or not adding, f"the move of {where} is cancelled, and {adding} are added")


def _why_no_move(
    before: PartitionRegistration, target: tuple[int, ...] | None, image: MetadataImage, min_insync_replicas: int,
    may_resize: bool,
) -> str | None:  # fmt: skip
    own = image.topics[before.topic].settings.get("min.insync.replicas", min_insync_replicas)
    there = held(before)
    least = min(int(own), len(there))
    if target is None and not before.adding and not before.removing:
        return "there is no move"
    if target is not None:
        if (reason := why_not(target, image)) is not None:
            return reason
        if len(target) < least or (not may_resize and len(target) != len(there)):
            return "not so many replicas"
    dropped = [replica for replica in before.replicas if replica not in (*there, *(target or ()))]
    complete = {*before.isr, *before.elr, *before.last_known_elr}
    left = [replica for replica in before.isr if replica not in dropped]
    return "too few in sync" if complete & {*dropped} and len(left) < least else None


def listed(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
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
        for topic in answers_of(step)
        for each in topic.partitions
    }
    hold(told == moving, f"{moving} move, and it tells of {told}")
    hold(all(topic.partitions for topic in answers_of(step)), "it tells of topics of which nothing moves")


def elected(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
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
    hold(told.keys() <= set(asked), f"it answers of {sorted(told.keys() - set(asked))}, which nobody asked for")
    for place in asked:
        topic, index = place
        partition = image.topics[topic].partitions.get(index) if topic in image.topics else None
        answer = told.get(place)
        error = ErrorCode.election_not_needed if answer is None else answer.error_code
        hold(every or answer is not None, f"it does not answer of {topic}-{index}")
        if partition is None:
            require(error is ErrorCode.unknown_topic_or_partition, f"there is no {topic}-{index}", answer)
            continue
        first = partition.replicas[0]
        broker = image.brokers.get(first)
        if partition.leader == first:
            require(error is ErrorCode.election_not_needed, f"broker {first} leads {topic}-{index}", answer)
            hold(not every or answer is None, f"it answers of {topic}-{index}, where nothing is needed")
            continue
        if broker is not None and broker.active and first in partition.isr:
            require(error is NONE, f"broker {first} may lead {topic}-{index}", answer)
        elif broker is None or not broker.active or first not in (*partition.elr, *partition.isr):
            refused = error is ErrorCode.preferred_leader_not_available
            require(refused, f"broker {first} may not lead {topic}-{index}", answer)
        leads = after.topics[topic].partitions[index].leader
        hold(error is not NONE or leads == first, f"broker {first} was to lead {topic}-{index}, and {leads} does")
