"""DescribeConfigs: settings of a topic, of this broker, and those that all brokers were given meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cluster_image.config import IDENTITY, SETTINGS, TOPIC_SETTINGS, Config
from cluster_image.config.throttling import BROKER_SETTINGS, TOPIC_THROTTLES
from cluster_image.config.topic_settings import UNUSED
from cluster_image.kraft.metadata.image import MetadataImage
from cluster_image.network import Entity
from cluster_image.replication.answers import describe_configs as answers
from cluster_image.replication.answers.describe_configs import Known


def describe_configs(image: MetadataImage, config: Config, request: Any) -> Entity:
    """For each resource asked for its settings, all of them or those named."""

    def of_topic(name: str) -> Iterator[Known]:
        topic = image.topics.get(name)
        if topic is None:
            raise answers.no_topic(name)
        return _of_topic(config, topic.settings)

    def of_broker(name: str) -> Iterator[Known]:
        return _of_broker(config, image.broker_settings) if name else _of_all_brokers(image.broker_settings)

    return answers.describe_configs(request, config, of_topic, of_broker)


def _of_topic(config: Config, overrides: Mapping[str, str]) -> Iterator[Known]:
    values = config.for_topic(overrides)
    for name, of_node in TOPIC_SETTINGS.items():
        source = answers.OF_TOPIC if name in overrides else answers.source_of(config, SETTINGS, of_node)
        yield Known(name, SETTINGS[of_node], values[of_node], source)
    for name, setting in (*TOPIC_THROTTLES.items(), *UNUSED.items()):
        source = answers.OF_TOPIC if name in overrides else answers.DEFAULT
        yield Known(name, setting, overrides.get(name, setting.default), source)


def _of_broker(config: Config, dynamic: Mapping[str, Mapping[str, str]]) -> Iterator[Known]:
    yield from answers.of_node(config, SETTINGS, IDENTITY)
    own, of_all = dynamic.get(str(config["node.id"]), {}), dynamic.get("", {})
    for name, setting in BROKER_SETTINGS.items():
        source = answers.DYNAMIC if name in own else answers.DYNAMIC_OF_ALL if name in of_all else answers.DEFAULT
        yield Known(name, setting, {**of_all, **own}.get(name, setting.default), source)


def _of_all_brokers(dynamic: Mapping[str, Mapping[str, str]]) -> Iterator[Known]:
    """Those that were given: no broker is asked for its own."""
    of_all = dynamic.get("", {})
    for name, setting in BROKER_SETTINGS.items():
        if name in of_all:
            yield Known(name, setting, of_all[name], answers.DYNAMIC_OF_ALL)
