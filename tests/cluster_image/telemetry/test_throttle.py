"""The throttle of a reassignment, as changes of settings: what is set, and that all of it is removed."""

from __future__ import annotations

import pytest

from cluster_image.config import ConfigError
from cluster_image.config.throttling import FOLLOWER, LEADER
from cluster_image.kraft.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from cluster_image.tools.cluster import ConfigChange, request_of
from cluster_image.tools.throttle import Move, Reassignment, throttle, unthrottle
from tests.cluster_image.kraft.controller_quorum import three_brokers

MOVES: Reassignment = {
    "a": {1: Move((1, 2), (1, 3)), 0: Move((2, 1), (3, 4)), 2: Move((1, 2), (2, 1)), 3: Move((1, 2), (1,))},
    "b": {0: Move((7, 8), (8, 7))},
}


def test_present_replicas_are_throttled_as_leaders_and_new_ones_as_followers() -> None:
    changes = throttle(MOVES, 500)
    of_topics = [change for change in changes if change.resource_type == TOPIC_RESOURCE]
    assert of_topics == [
        ConfigChange(TOPIC_RESOURCE, "a", LEADER.replicas, "0:1,0:2,1:1,1:2"),
        ConfigChange(TOPIC_RESOURCE, "a", FOLLOWER.replicas, "0:3,0:4,1:3"),
    ], "what gets no new replica is left alone"
    of_brokers = [change for change in changes if change.resource_type == BROKER_RESOURCE]
    assert {(c.resource_name, c.name) for c in of_brokers} == {
        (broker, side.rate) for broker in "1234" for side in (LEADER, FOLLOWER)
    }
    assert {c.value for c in of_brokers} == {"500"}


def test_all_that_was_set_is_removed() -> None:
    given = {change[:3] for change in throttle(MOVES, 500)}
    removed = unthrottle(MOVES, brokers=[9])
    assert all(change.value is None for change in removed)
    more = {(BROKER_RESOURCE, "9", side.rate) for side in (LEADER, FOLLOWER)}
    assert {change[:3] for change in removed} == given | more


@pytest.mark.parametrize("rate", [-1, 2**63])
def test_a_rate_that_no_broker_takes_is_refused(rate: int) -> None:
    with pytest.raises(ConfigError, match="an integer from 0 on expected"):
        throttle(MOVES, rate)


def test_the_controller_takes_the_request_and_its_opposite() -> None:
    quorum = three_brokers()
    moves: Reassignment = {"t": {0: Move((1, 2), (1, 3))}}
    set_ = quorum.do(quorum.controller.alter_configs(request_of(throttle(moves, 500))))
    assert [(r.resource_name, r.error_message) for r in set_.responses] == [(n, None) for n in ("t", "1", "2", "3")]
    assert quorum.image.topics["t"].settings == {LEADER.replicas: "0:1,0:2", FOLLOWER.replicas: "0:3"}
    assert quorum.image.broker_settings == {id_: {LEADER.rate: "500", FOLLOWER.rate: "500"} for id_ in "123"}
    quorum.do(quorum.controller.alter_configs(request_of(unthrottle(moves))))
    assert quorum.image.topics["t"].settings == {} and quorum.image.broker_settings == {}
