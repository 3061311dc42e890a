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
another. A topic a request: what of several is decided one after the other.

Sources: Apache Kafka's ReplicationControlManager and ConfigurationControlManager; KIP-455, KIP-460; 003.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.image import MetadataImage

from .judging import NONE, answers_of, hold, require
from .moves import elected, listed, reassigned
from .topics import created, deleted, extended

_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1


def checks(
    min_insync_replicas: int, deletes_topics: bool
) -> Mapping[str, Callable[[Any, MetadataImage, MetadataImage, Step], None]]:  # fmt: skip
    """By request, as deciding.Check. min_insync_replicas: of topics without a value of their own. deletes_topics:
    delete.topic.enable."""
    return {
        "CreateTopics": created, "CreatePartitions": extended,
        "DeleteTopics": partial(deleted, deletes_topics=deletes_topics),
        "AlterPartitionReassignments": partial(reassigned, min_insync_replicas=min_insync_replicas),
        "ListPartitionReassignments": listed, "ElectLeaders": elected,
        "IncrementalAlterConfigs": _altered, "UnregisterBroker": _unregistered,
    }  # fmt: skip


def _altered(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    if len({(each.resource_type, each.resource_name) for each in request.resources}) < len(request.resources):
        return
    answers = {(int(each.resource_type), str(each.resource_name)): each for each in answers_of(step)}
    changed: dict[tuple[int, str], dict[str, str]] = {}
    for resource in request.resources:
        kind, name = int(resource.resource_type), str(resource.resource_name)
        answer = answers[kind, name]
        invalid = (ErrorCode.invalid_config, ErrorCode.invalid_request)  # what values there are is not known here
        if kind == _TOPIC and name not in image.topics:
            require(answer.error_code is ErrorCode.unknown_topic_or_partition, f"there is no topic {name}", answer)
        elif kind == _BROKER and name.isdecimal() and int(name) not in image.brokers:
            require(answer.error_code is ErrorCode.broker_id_not_registered, f"there is no broker {name}", answer)
        else:
            require(answer.error_code in (NONE, *invalid), f"{name or 'all brokers'} may have others", answer)
        if answer.error_code is not NONE or kind not in (_TOPIC, _BROKER):
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
        hold(not step.records, "it was to look only, and writes something")
        return
    for (kind, name), settings in changed.items():
        now = dict(_settings(after, kind, name))
        hold(now == settings, f"{name or 'all brokers'} was to have {settings}, and has {now}")


def _settings(image: MetadataImage, kind: int, name: str) -> Mapping[str, str]:
    return image.topics[name].settings if kind == _TOPIC else image.broker_settings.get(name, {})


def _unregistered(request: Any, image: MetadataImage, after: MetadataImage, step: Step) -> None:
    broker = image.brokers.get(int(request.broker_id))
    error = step.answer.error_code  # type: ignore[union-attr]
    if broker is None:
        require(error is ErrorCode.broker_id_not_registered, f"there is no broker {request.broker_id}", step.answer)
        return
    holds = any(broker.id in partition.replicas for partition in image.partitions())
    if holds or not broker.fenced:
        require(error is ErrorCode.invalid_request, f"broker {broker.id} runs or has replicas", step.answer)
        return
    hold(error in (NONE, ErrorCode.invalid_request), f"it answers {error.name} of broker {broker.id}")
    gone = broker.id not in after.brokers
    hold(gone == (error is NONE), f"broker {broker.id} is {'gone' * gone or 'there'}, and the answer is {error.name}")
