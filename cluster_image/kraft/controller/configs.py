"""IncrementalAlterConfigs: settings of topics and of brokers, changed while the cluster runs (KIP-339).

**A change of min.insync.replicas** decides anew where the high watermark may advance, and with it who stays complete
(002, 5.2; KIP-966). In the same batch as the setting:

- Where the ISR now has MinISR members, nobody stays eligible beside it. Where it has not, the watermark has stood still
  and goes on to, and who is eligible stays so. (Apache Kafka clears the ELR of the topic at any change.)
- Every partition gets a new partition epoch. So a leader that has not heard of the new minimum yet can shrink no ISR by
  AlterPartition: it would advance its watermark by the old minimum, while the controller, which goes by the new one,
  would take who has just left for complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.config import ConfigError, Setting, items_of
from cluster_image.config.throttling import broker_setting_of
from cluster_image.config.topic_settings import check_topic_settings, is_list, setting_of
from cluster_image.wire.integers import i8, i32
from cluster_image.wire.messages import NO_THROTTLE, make, repeated, response_module

from ..metadata.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
)
from . import partition_change
from .term import Refused, Step, Term

#: Operations on a setting, in Kafka's numbers.
SET, DELETE, APPEND, SUBTRACT = range(4)
MIN_ISR: Final = "min.insync.replicas"
_BROKER_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")


def alter(term: Term, request: Any) -> Step:
    """Each topic and each broker on its own: all of its settings are changed, or none."""
    module = response_module(request)
    twice = repeated((r.resource_type, r.resource_name) for r in request.resources)
    records: list[MetadataRecord] = []
    responses = []
    for resource in request.resources:
        error, message = ErrorCode.none, None
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise Refused(ErrorCode.invalid_request, "the resource stands twice in the request")
            records += _altered(term, resource)
        except Refused as refused:
            error, message = refused.error, refused.message
        responses.append(
            module.AlterConfigsResourceResponse(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    answer = make(module.IncrementalAlterConfigsResponse, throttle_time=NO_THROTTLE, responses=tuple(responses))
    return Step(() if request.validate_only else records, answer)


def _altered(term: Term, resource: Any) -> list[MetadataRecord]:
    """Raises Refused."""
    if resource.resource_type == TOPIC_RESOURCE:
        return _altered_topic(term, resource)
    if resource.resource_type == BROKER_RESOURCE:
        return _altered_broker(term, resource)
    raise Refused(ErrorCode.invalid_request, "only topics and brokers have settings that can be changed")


def _altered_topic(term: Term, resource: Any) -> list[MetadataRecord]:
    topic = term.image.topics.get(resource.resource_name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {resource.resource_name}")
    changes = _changes(topic.settings, resource, setting_of)
    after = {name: value for name, value in {**topic.settings, **changes}.items() if value is not None}
    try:
        check_topic_settings(after, term.elr_enabled)
    except ConfigError as error:
        raise Refused(ErrorCode.invalid_config, str(error)) from None
    records: list[MetadataRecord] = [
        ConfigRecord(resource_name=topic.name, name=name, value=value) for name, value in changes.items()
    ]
    if MIN_ISR in changes:
        records += _partitions_by_new_minimum(term, topic.name, term.config.for_topic(after)[MIN_ISR])
    return records


def _altered_broker(term: Term, resource: Any) -> list[MetadataRecord]:
    """Of one that is registered, available or not, or with an empty name of all."""
    id_ = resource.resource_name
    if id_ and not _BROKER_ID.fullmatch(id_):
        raise Refused(ErrorCode.invalid_request, f"{id_} is no broker id")
    if id_ and int(id_) not in term.image.brokers:
        raise Refused(ErrorCode.broker_id_not_registered, f"there is no broker {id_}")
    try:
        settings = {config.name: broker_setting_of(config.name) for config in resource.configs}
    except ConfigError as error:
        raise Refused(ErrorCode.invalid_request, str(error)) from None
    changes = _changes(term.image.broker_settings.get(id_, {}), resource, broker_setting_of)
    try:
        for name, value in changes.items():
            if value is not None:
                settings[name].value_of(value)
    except ConfigError as error:
        raise Refused(ErrorCode.invalid_config, str(error)) from None
    return [
        ConfigRecord(resource_type=i8(BROKER_RESOURCE), resource_name=id_, name=name, value=value)
        for name, value in changes.items()
    ]


def _changes(present: Mapping[str, str], resource: Any, find: Callable[[str], Setting]) -> dict[str, str | None]:
    """The new values of the settings that are named, None for one that is given up. Raises Refused."""
    if repeated(config.name for config in resource.configs):
        raise Refused(ErrorCode.invalid_request, "a setting stands twice in the request")
    return {config.name: _changed(present, config, find) for config in resource.configs}


def _changed(present: Mapping[str, str], config: Any, find: Callable[[str], Setting]) -> str | None:
    """find: raises ConfigError for a setting that there is not. Raises Refused."""
    operation, value = int(config.config_operation), config.value
    if operation == DELETE:
        return None
    if value is None:
        raise Refused(ErrorCode.invalid_request, f"{config.name} is given no value")
    if operation == SET:
        return str(value)
    if operation not in (APPEND, SUBTRACT):
        raise Refused(ErrorCode.invalid_request, f"there is no operation {operation} on settings")
    try:
        setting = find(config.name)
    except ConfigError as error:
        raise Refused(ErrorCode.invalid_config, str(error)) from None
    if not is_list(setting):
        raise Refused(ErrorCode.invalid_config, f"{config.name} is no list")
    items, given = items_of(present.get(config.name, setting.default or "")), items_of(value)
    if operation == SUBTRACT:
        return ",".join(item for item in items if item not in given)
    return ",".join([*items, *(item for item in given if item not in items)])


def _partitions_by_new_minimum(term: Term, topic: str, min_isr: int) -> Iterator[MetadataRecord]:
    """See above."""
    electorate = replace(term.electorate(), min_insync_replicas=lambda _: min_isr)
    for partition in term.image.topics[topic].partitions.values():
        record = partition_change.change(partition, partition.isr, electorate)
        yield record or PartitionChangeRecord(partition_id=i32(partition.index), topic_id=partition.topic_id)
