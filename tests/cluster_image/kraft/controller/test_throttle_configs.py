"""Settings of throttled replication (KIP-73): of topics, of a broker, and of all brokers."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig

from cluster_image.config import NO_LIMIT
from cluster_image.config.throttling import BROKER_SETTINGS, FOLLOWER, LEADER, rate_of, read_replicas
from cluster_image.kraft.broker.handlers.describe_configs import describe_configs
from cluster_image.kraft.controller.configs import APPEND, DELETE, SET, SUBTRACT
from cluster_image.kraft.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from tests.cluster_image.kraft.broker.test_partition import config
from tests.cluster_image.kraft.controller.test_alter_configs import alter, change, settings
from tests.cluster_image.kraft.controller_quorum import Quorum, three_brokers


def alter_broker(quorum: Quorum, id_: str, *changes: AlterableConfig) -> tuple[ErrorCode, str | None]:
    return alter(quorum, *changes, topic=id_, type_=BROKER_RESOURCE)


def rates(quorum: Quorum) -> dict[int, tuple[int, int]]:
    """By broker, as leader and as follower."""
    settings = quorum.image.broker_settings
    return {id_: (rate_of(settings, id_, LEADER), rate_of(settings, id_, FOLLOWER)) for id_ in (1, 2, 3)}


def described(quorum: Quorum, id_: str) -> dict[str, Any]:
    resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name=id_, configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=True)
    (result,) = describe_configs(quorum.image, config(node_id="1"), request).results
    assert result.error_code is ErrorCode.none
    return {setting.name: setting for setting in result.configs}


# -- of brokers --------------------------------------------------------------------------------------------------


def test_a_brokers_own_rate_goes_before_that_of_all_and_no_rate_is_no_limit() -> None:
    quorum = three_brokers()
    assert alter_broker(quorum, "", change(LEADER.rate, "500")) == (ErrorCode.none, None)
    assert alter_broker(quorum, "2", change(LEADER.rate, "70"), change(FOLLOWER.rate, "0")) == (ErrorCode.none, None)
    assert rates(quorum) == {1: (500, NO_LIMIT), 2: (70, 0), 3: (500, NO_LIMIT)}
    assert alter_broker(quorum, "2", change(LEADER.rate, operation=DELETE)) == (ErrorCode.none, None)
    assert rates(quorum)[2] == (500, 0)
    assert alter_broker(quorum, "", change(LEADER.rate, operation=DELETE)) == (ErrorCode.none, None)
    assert rates(quorum) == {1: (NO_LIMIT, NO_LIMIT), 2: (NO_LIMIT, 0), 3: (NO_LIMIT, NO_LIMIT)}


def test_what_kafkas_tool_removes_after_a_reassignment_can_be_removed() -> None:
    """Also what was never set, and the rate of moves between log directories, which change nothing here."""
    quorum = three_brokers()
    for id_ in "123":
        removed = [change(name, operation=DELETE) for name in BROKER_SETTINGS]
        assert alter_broker(quorum, id_, *removed) == (ErrorCode.none, None)
    assert quorum.image.broker_settings == {}


@pytest.mark.parametrize(
    ("id_", "changes", "error", "said"),
    [
        ("9", [change(LEADER.rate, "1")], ErrorCode.broker_id_not_registered, "there is no broker 9"),
        ("one", [change(LEADER.rate, "1")], ErrorCode.invalid_request, "one is no broker id"),
        ("01", [change(LEADER.rate, "1")], ErrorCode.invalid_request, "01 is no broker id"),
        ("1", [change("num.replica.fetchers", "2")], ErrorCode.invalid_request, "num.replica.fetchers is read-only"),
        ("", [change("no.such")], ErrorCode.invalid_request, "no.such is read-only"),
        ("1", [change("min.insync.replicas", operation=DELETE)], ErrorCode.invalid_request, "is read-only"),
        ("1", [change(LEADER.rate, "-1")], ErrorCode.invalid_config, "an integer from 0 on expected"),
        ("1", [change(LEADER.rate, "1e6")], ErrorCode.invalid_config, "an integer from 0 on expected"),
        ("1", [change(LEADER.rate, None)], ErrorCode.invalid_request, "is given no value"),
        ("1", [change(LEADER.rate, "1", APPEND)], ErrorCode.invalid_config, "is no list"),
        ("1", [change(LEADER.rate, "1"), change(LEADER.rate, "2")], ErrorCode.invalid_request, "stands twice"),
        ("1", [change(FOLLOWER.rate, "1"), change(LEADER.rate, "x")], ErrorCode.invalid_config, "x is not valid"),
    ],
)
def test_what_is_not_valid_changes_no_broker(
    id_: str, changes: list[AlterableConfig], error: ErrorCode, said: str
) -> None:
    quorum = three_brokers()
    refused, message = alter_broker(quorum, id_, *changes)
    assert refused is error and said in (message or "")
    assert quorum.image.broker_settings == {}


def test_validation_alone_changes_no_broker() -> None:
    quorum = three_brokers()
    validated = alter(quorum, change(LEADER.rate, "1"), topic="1", type_=BROKER_RESOURCE, validate_only=True)
    assert validated == (ErrorCode.none, None) and quorum.image.broker_settings == {}


def test_a_broker_tells_where_a_rate_comes_from() -> None:
    quorum = three_brokers()
    assert (described(quorum, "1")[LEADER.rate].value, described(quorum, "1")[LEADER.rate].config_source) == (
        str(NO_LIMIT), 5
    )  # fmt: skip
    assert described(quorum, "") == {}
    alter_broker(quorum, "", change(LEADER.rate, "500"), change(FOLLOWER.rate, "600"))
    alter_broker(quorum, "1", change(FOLLOWER.rate, "7"))
    alter_broker(quorum, "2", change(LEADER.rate, "8"))
    listed = described(quorum, "1")
    assert {name: (listed[name].value, listed[name].config_source) for name in (LEADER.rate, FOLLOWER.rate)} == {
        LEADER.rate: ("500", 3),
        FOLLOWER.rate: ("7", 2),
    }
    assert not any(listed[name].read_only for name in BROKER_SETTINGS)
    assert all(listed[name].read_only for name in listed.keys() - BROKER_SETTINGS.keys())
    of_all = described(quorum, "")
    assert {n: (s.value, s.config_source, s.read_only) for n, s in of_all.items()} == {
        LEADER.rate: ("500", 3, False),
        FOLLOWER.rate: ("600", 3, False),
    }


# -- of topics ---------------------------------------------------------------------------------------------------


def test_a_topics_throttled_replicas_are_set_added_to_and_taken_from() -> None:
    quorum = three_brokers()
    assert alter(quorum, change(LEADER.replicas, "0:1,0:2")) == (ErrorCode.none, None)
    assert alter(quorum, change(LEADER.replicas, "0:2,1:3", APPEND)) == (ErrorCode.none, None)
    assert settings(quorum) == {LEADER.replicas: "0:1,0:2,1:3"}
    assert alter(quorum, change(LEADER.replicas, "0:1", SUBTRACT)) == (ErrorCode.none, None)
    assert settings(quorum) == {LEADER.replicas: "0:2,1:3"}
    assert alter(quorum, change(FOLLOWER.replicas, "*")) == (ErrorCode.none, None)
    assert alter(quorum, change(LEADER.replicas, operation=DELETE)) == (ErrorCode.none, None)
    assert settings(quorum) == {FOLLOWER.replicas: "*"}


@pytest.mark.parametrize(
    ("text", "throttled"),
    [
        ("", set()),
        ("*", {(0, 1), (0, 2), (1, 1), (1, 2)}),
        (" 0:1 , 1:2 ", {(0, 1), (1, 2)}),
        ("0:1,,1:1", {(0, 1), (1, 1)}),
    ],
)
def test_which_replicas_a_list_names(text: str, throttled: set[tuple[int, int]]) -> None:
    found = read_replicas(text)
    assert {(p, b) for p in (0, 1) for b in (1, 2) if found.has(p, b)} == throttled


@pytest.mark.parametrize("value", ["none", "0", "0:", ":1", "0-1", "a:b", "-1:1", "0:1;1:1", "*,0:1", "0:1:2", "0:²"])
@pytest.mark.parametrize("operation", [SET, APPEND])
def test_what_is_no_list_of_replicas_is_refused_in_one_sentence(value: str, operation: int) -> None:
    quorum = three_brokers()
    error, message = alter(quorum, change(FOLLOWER.replicas, value, operation))
    assert error is ErrorCode.invalid_config and settings(quorum) == {}
    assert message == f"{FOLLOWER.replicas}={value} is not valid: `*`, or partition:broker,… expected"


def test_a_topic_tells_its_throttled_replicas() -> None:
    quorum = three_brokers()
    alter(quorum, change(LEADER.replicas, "0:1"))
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=True)
    (result,) = describe_configs(quorum.image, config(), request).results
    found = {s.name: (s.value, s.config_source, s.read_only, s.config_type) for s in result.configs}
    assert found[LEADER.replicas] == ("0:1", 1, False, 7) and found[FOLLOWER.replicas] == ("", 5, False, 7)
