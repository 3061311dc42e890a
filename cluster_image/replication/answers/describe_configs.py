"""DescribeConfigs: for each resource asked for its settings, all of them or those named. Which there are, a generation
knows."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from cluster_image.config import Config, Setting
from cluster_image.network import Entity
from cluster_image.wire.integers import i8
from cluster_image.wire.messages import NO_THROTTLE, make, repeated, response_module, shortened

#: Kinds of resources, where a value comes from, and of what type it is, in Kafka's numbers.
TOPIC: Final = i8(2)
BROKER: Final = i8(4)
OF_TOPIC: Final = i8(1)
DYNAMIC: Final = i8(2)  # this broker's own
DYNAMIC_OF_ALL: Final = i8(3)
OF_BROKER: Final = i8(4)
DEFAULT: Final = i8(5)
TYPES: Final = {
    "boolean": i8(1), "string": i8(2), "path": i8(2), "int": i8(5), "long": i8(5), "double": i8(6), "list": i8(7),
}  # fmt: skip


class Known(NamedTuple):
    """A setting, and the value that it has."""

    name: str
    setting: Setting
    value: Any
    source: i8
    read_only: bool = False


class NotKnown(Exception):
    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error: Final = error


def no_topic(name: str) -> NotKnown:
    return NotKnown(ErrorCode.unknown_topic_or_partition, shortened(f"there is no topic {name}"))


#: Of a topic's name, or a broker's number; empty: of all brokers. Raises NotKnown.
Find = Callable[[str], Iterable[Known]]


def describe_configs(request: Any, config: Config, of_topic: Find, of_broker: Find) -> Entity:
    module = response_module(request)
    twice = repeated((r.resource_type, r.resource_name) for r in request.resources)

    def known(resource: Any) -> list[Known]:
        if (resource.resource_type, resource.resource_name) in twice:
            raise NotKnown(ErrorCode.invalid_request, "the resource stands twice in the request")
        if resource.resource_type == TOPIC:
            return list(of_topic(resource.resource_name))
        if resource.resource_type != BROKER:
            raise NotKnown(ErrorCode.invalid_request, "only topics and brokers have settings")
        if resource.resource_name not in ("", str(config["node.id"])):
            raise NotKnown(ErrorCode.invalid_request, f"this is broker {config['node.id']}")
        return list(of_broker(resource.resource_name))

    return make(
        module.DescribeConfigsResponse,
        throttle_time=NO_THROTTLE,
        results=tuple(_result(module, request, resource, known) for resource in request.resources),
    )


def of_node(config: Config, settings: Mapping[str, Setting], hidden: Container[str]) -> Iterator[Known]:
    """What a broker was started with. hidden: names that are nobody's business, or no settings to others."""
    for name, setting in settings.items():
        if setting.type in TYPES and name not in hidden:
            yield Known(name, setting, config[name], source_of(config, settings, name), read_only=True)


def source_of(config: Config, settings: Mapping[str, Setting], name: str) -> i8:
    default = settings[name].default
    return DEFAULT if default is not None and config[name] == settings[name].read(default) else OF_BROKER


def _result(module: Any, request: Any, resource: Any, known: Callable[[Any], list[Known]]) -> Entity:
    error, message = ErrorCode.none, None
    found: list[Known] = []
    try:
        found = known(resource)
    except NotKnown as why:
        error, message = why.error, str(why)
    wanted = resource.configuration_keys
    return module.DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            make(
                module.DescribeConfigsResourceResult,
                name=each.name,
                value=_text(each.value),
                read_only=each.read_only,
                config_source=each.source,
                is_sensitive=False,
                synonyms=(),
                config_type=TYPES[each.setting.type],
                documentation=each.setting.help if getattr(request, "include_documentation", False) else None,
            )
            for each in found
            if wanted is None or each.name in wanted
        ),
    )  # fmt: skip


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
