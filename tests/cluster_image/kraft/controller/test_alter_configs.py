"""Settings of living topics: changed, refused, listed, and what a change of min.insync.replicas does to a partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from cluster_image.config import ConfigError
from cluster_image.config.topic_settings import UNUSED
from cluster_image.kraft.broker.handlers.describe_configs import describe_configs
from cluster_image.kraft.controller.configs import APPEND, DELETE, SET, SUBTRACT
from cluster_image.kraft.metadata.records import TOPIC_RESOURCE
from tests.cluster_image.kraft.broker.test_partition import Replica, append, config, registration
from tests.cluster_image.kraft.controller_quorum import SESSION, Quorum, three_brokers

MIN_ISR = "min.insync.replicas"


def change(name: str, value: str | None = None, operation: int = SET) -> AlterableConfig:
    return AlterableConfig(name=name, config_operation=operation, value=value)


def alter(
    quorum: Quorum,
    *changes: AlterableConfig,
    topic: str = "t",
    type_: int = TOPIC_RESOURCE,
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    resource = AlterConfigsResource(resource_type=type_, resource_name=topic, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    (response,) = quorum.do(quorum.controller.alter_configs(request)).responses
    return response.error_code, response.error_message


def altered(quorum: Quorum, *changes: AlterableConfig) -> None:
    assert alter(quorum, *changes) == (ErrorCode.none, None)


def below_its_minimum() -> Quorum:
    """MinISR 2, leader 1 alone in the ISR, 2 eligible."""
    quorum = three_brokers()
    for isr in ((1, 2), (1,)):
        assert quorum.alter(1, {r: quorum.epochs[r] for r in isr}) is ErrorCode.none
    assert quorum.state() == (1, (1,), (2,), ())
    return quorum


# -- min.insync.replicas -----------------------------------------------------------------------------------------


def test_nobody_stays_eligible_beside_an_isr_that_a_lower_minimum_makes_large_enough() -> None:
    """Its leader commits alone from now on: who is not in the ISR does not stay complete."""
    quorum = below_its_minimum()
    altered(quorum, change(MIN_ISR, "1"))
    assert quorum.state() == (1, (1,), (), ())
    quorum.fence(1, SESSION)
    assert quorum.partition().leader == -1, "2 may lack what 1 has acknowledged"


def test_who_is_eligible_stays_so_while_no_record_can_be_committed() -> None:
    quorum = below_its_minimum()
    altered(quorum, change(MIN_ISR, "3"))
    altered(quorum, change(MIN_ISR, operation=DELETE))
    assert quorum.state() == (1, (1,), (2,), ())


def test_a_leader_that_has_not_heard_of_the_new_minimum_shrinks_no_isr() -> None:
    """It would commit with the ISR that it has proposed, by the old minimum, while the controller takes who has left
    for complete, by the new one."""
    quorum = three_brokers()
    known = quorum.partition().partition_epoch
    altered(quorum, change(MIN_ISR, "3"))
    proposed = {r: quorum.epochs[r] for r in (1, 2)}
    assert quorum.alter(1, proposed, partition_epoch=known) is ErrorCode.invalid_update_version
    assert quorum.state() == (1, (1, 2, 3), (), ())
    assert quorum.alter(1, proposed) is ErrorCode.none
    assert quorum.state() == (1, (1, 2), (3,), ())


def test_other_settings_are_no_change_of_a_partition() -> None:
    quorum = three_brokers()
    known = quorum.partition().partition_epoch
    altered(quorum, change("retention.ms", "1000"))
    assert quorum.partition().partition_epoch == known


def test_what_a_lower_minimum_lets_through_is_committed_at_once(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    partition = replica.lead(isr=(1, 2))
    done = append(partition)
    partition.apply(registration(1, (1,), 0, 1), now=0.0)
    assert done.result() is ErrorCode.not_enough_replicas_after_append and partition.high_watermark == 0
    partition.configure(config(min_insync_replicas="1"))
    assert partition.high_watermark == 1


def test_what_a_higher_minimum_holds_back_is_answered_at_once(tmp_path: Path) -> None:
    partition = Replica(tmp_path).lead(isr=(1, 2))
    done = append(partition)
    partition.configure(config(min_insync_replicas="3"))
    assert done.result() is ErrorCode.not_enough_replicas_after_append


# -- the request -------------------------------------------------------------------------------------------------


def settings(quorum: Quorum) -> dict[str, str]:
    return dict(quorum.image.topics["t"].settings)


def test_settings_are_set_and_given_up() -> None:
    quorum = three_brokers()
    altered(quorum, change(MIN_ISR, "1"), change("retention.ms", "5"))
    assert settings(quorum) == {MIN_ISR: "1", "retention.ms": "5"}
    altered(quorum, change(MIN_ISR, operation=DELETE), change("flush.ms", operation=DELETE))
    assert settings(quorum) == {"retention.ms": "5"}


def test_a_list_is_added_to_and_taken_from() -> None:
    quorum = three_brokers()
    altered(quorum, change("cleanup.policy", "compact", APPEND))
    assert settings(quorum) == {"cleanup.policy": "delete,compact"}
    altered(quorum, change("cleanup.policy", "delete", SUBTRACT))
    assert settings(quorum) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([change(MIN_ISR, "none")], ErrorCode.invalid_config),
        ([change("no.such", "1")], ErrorCode.invalid_config),
        ([change("no.such", "1", APPEND)], ErrorCode.invalid_config),
        ([change("cleanup.policy", "throw away")], ErrorCode.invalid_config),
        ([change("retention.ms", "1", APPEND)], ErrorCode.invalid_config),
        ([change("retention.ms", "-2")], ErrorCode.invalid_config),
        ([change("unclean.leader.election.enable", "true")], ErrorCode.invalid_config),
        ([change(MIN_ISR, None)], ErrorCode.invalid_request),
        ([change(MIN_ISR, "1", 9)], ErrorCode.invalid_request),
        ([change(MIN_ISR, "1"), change(MIN_ISR, "3")], ErrorCode.invalid_request),
        ([change("retention.ms", "5"), change("no.such", "1")], ErrorCode.invalid_config),
    ],
)  # fmt: skip
def test_what_is_not_valid_changes_nothing(changes: list[AlterableConfig], error: ErrorCode) -> None:
    quorum = three_brokers()
    known = quorum.partition()
    assert alter(quorum, *changes)[0] is error
    assert settings(quorum) == {} and quorum.partition() == known


def test_only_topics_that_there_are_can_be_changed() -> None:
    quorum = three_brokers()
    assert alter(quorum, change(MIN_ISR, "1"), topic="u")[0] is ErrorCode.unknown_topic_or_partition
    assert alter(quorum, change(MIN_ISR, "1"), topic="1", type_=8)[0] is ErrorCode.invalid_request


def test_validation_alone_changes_nothing() -> None:
    quorum = three_brokers()
    assert alter(quorum, change(MIN_ISR, "1"), validate_only=True) == (ErrorCode.none, None)
    assert settings(quorum) == {}


# -- settings that change nothing here ---------------------------------------------------------------------------


def described(quorum: Quorum, *names: str) -> dict[str, Any]:
    request = DescribeConfigsRequest(
        resources=(
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configuration_keys=names or None),
        ),
        include_synonyms=False,
        include_documentation=True,
    )  # fmt: skip
    (result,) = describe_configs(quorum.image, config(), request).results
    return {setting.name: setting for setting in result.configs}


def test_settings_that_change_nothing_are_taken_and_listed_as_such() -> None:
    quorum = three_brokers()
    altered(quorum, change("retention.ms", "60000"), change("compression.type", "zstd"))
    listed = described(quorum)
    assert (listed["retention.ms"].value, listed["retention.ms"].config_source) == ("60000", 1)
    assert (listed["cleanup.policy"].value, listed["cleanup.policy"].config_source) == ("delete", 5)
    assert listed["compression.type"].documentation.startswith("Changes nothing here: ")
    assert not any(setting.read_only for setting in listed.values())


@pytest.mark.parametrize("name", UNUSED)
def test_each_default_is_a_valid_value(name: str) -> None:
    default = UNUSED[name].default
    assert default is not None
    UNUSED[name].value_of(default)
    with pytest.raises(ConfigError, match=name):
        UNUSED[name].value_of("no such thing")


# -- unclean recovery needs the ELR ------------------------------------------------------------------------------


def test_a_strategy_of_unclean_recovery_is_refused_where_there_is_none() -> None:
    with pytest.raises(ConfigError, match=r"needs eligible\.leader\.replicas\.version=1"):
        config(eligible_leader_replicas_version="0", unclean_recovery_strategy="proactive")
    quorum = three_brokers(eligible_leader_replicas_version="0")
    error, message = alter(quorum, change("unclean.recovery.strategy", "manual"))
    assert error is ErrorCode.invalid_config and "eligible.leader.replicas.version=1" in (message or "")
    assert quorum.create_on((1, 2, 3), name="u", unclean_recovery_strategy="manual") is ErrorCode.invalid_config
