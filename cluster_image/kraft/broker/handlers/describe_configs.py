"""DescribeConfigs: settings of a topic, of this broker, and those that all brokers were given meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from cluster_image.config import IDENTITY, SETTINGS, TOPIC_SETTINGS, Config, Setting
from cluster_image.config.throttling import BROKER_SETTINGS, TOPIC_THROTTLES
from cluster_image.config.topic_settings import UNUSED
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.kraft.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from cluster_image.network import Entity
from cluster_image.wire.integers import i8
from cluster_image.wire.messages import NO_THROTTLE, make, repeated, response_module, shortened

#: Where a value comes from, and of what type it is, in Kafka's numbers.
_OF_TOPIC: Final = i8(1)
_DYNAMIC: Final = i8(2)  # this broker's own
_DYNAMIC_OF_ALL: Final = i8(3)
_OF_BROKER: Final = i8(4)
_DEFAULT: Final = i8(5)
_TYPES: Final = {
    "boolean": i8(1), "string": i8(2), "path": i8(2), "int": i8(5), "long": i8(5), "double": i8(6), "list": i8(7),
}  # fmt: skip


class _Found(NamedTuple):
    name: str
    setting: Setting
    value: Any
    source: i8


def describe_configs(image: MetadataImage, config: Config, request: Any) -> Entity:
    """For each resource asked for its settings, all of them or those named."""
    module = response_module(request)
    twice = repeated((r.resource_type, r.resource_name) for r in request.resources)
    return make(
        module.DescribeConfigsResponse,
        throttle_time=NO_THROTTLE,
        results=tuple(
            _result(module, image, config, request, r, (r.resource_type, r.resource_name) in twice)
            for r in request.resources
        ),
    )


def _result(
    module: Any, image: MetadataImage, config: Config, request: Any, resource: Any, named_twice: bool
) -> Entity:
    error, message = ErrorCode.none, None
    found: Iterator[_Found] = iter(())
    if named_twice:
        error, message = ErrorCode.invalid_request, "the resource stands twice in the request"
    elif resource.resource_type == TOPIC_RESOURCE:
        topic = image.topics.get(resource.resource_name)
        if topic is None:
            error = ErrorCode.unknown_topic_or_partition
            message = shortened(f"there is no topic {resource.resource_name}")
        else:
            found = _of_topic(config, topic.settings)
    elif resource.resource_type != BROKER_RESOURCE:
        error, message = ErrorCode.invalid_request, "only topics and brokers have settings"
    elif resource.resource_name == str(config["node.id"]):
        found = _of_broker(config, image.broker_settings)
    elif not resource.resource_name:
        found = _of_all_brokers(image.broker_settings)
    else:
        error, message = ErrorCode.invalid_request, f"this is broker {config['node.id']}"
    wanted = resource.configuration_keys
    return module.DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            make(
                module.DescribeConfigsResourceResult,
                name=name,
                value=_text(value),
                read_only=resource.resource_type == BROKER_RESOURCE and name not in BROKER_SETTINGS,
                config_source=source,
                is_sensitive=False,
                synonyms=(),
                config_type=_TYPES[setting.type],
                documentation=setting.help if getattr(request, "include_documentation", False) else None,
            )
            for name, setting, value, source in found
            if wanted is None or name in wanted
        ),
    )  # fmt: skip


def _of_topic(config: Config, overrides: Mapping[str, str]) -> Iterator[_Found]:
    values = config.for_topic(overrides)
    for name, of_node in TOPIC_SETTINGS.items():
        source = _OF_TOPIC if name in overrides else _source(config, of_node)
        yield _Found(name, SETTINGS[of_node], values[of_node], source)
    for name, setting in (*TOPIC_THROTTLES.items(), *UNUSED.items()):
        yield _Found(name, setting, overrides.get(name, setting.default), _OF_TOPIC if name in overrides else _DEFAULT)


def _of_broker(config: Config, dynamic: Mapping[str, Mapping[str, str]]) -> Iterator[_Found]:
    for name, setting in SETTINGS.items():
        if setting.type in _TYPES and name not in IDENTITY:
            yield _Found(name, setting, config[name], _source(config, name))
    own, of_all = dynamic.get(str(config["node.id"]), {}), dynamic.get("", {})
    for name, setting in BROKER_SETTINGS.items():
        source = _DYNAMIC if name in own else _DYNAMIC_OF_ALL if name in of_all else _DEFAULT
        yield _Found(name, setting, {**of_all, **own}.get(name, setting.default), source)


def _of_all_brokers(dynamic: Mapping[str, Mapping[str, str]]) -> Iterator[_Found]:
    """Those that were given: no broker is asked for its own."""
    of_all = dynamic.get("", {})
    for name, setting in BROKER_SETTINGS.items():
        if name in of_all:
            yield _Found(name, setting, of_all[name], _DYNAMIC_OF_ALL)


def _source(config: Config, name: str) -> i8:
    default = SETTINGS[name].default
    return _DEFAULT if default is not None and config[name] == SETTINGS[name].read(default) else _OF_BROKER


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
