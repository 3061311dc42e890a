"""Topics that are gone: what was known of a name is of one topic, unless it came again."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.inside.metadata.history import MetadataHistory
from checkers.inside.metadata.memberships import CommitTimes, memberships
from checkers.inside.metadata.replay import MetadataState, PartitionState

PARTITION: dict[str, Any] = {
    "partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3], "eligible_leader_replicas": [], "last_known_elr": [],
    "leader": 1, "leader_epoch": 0, "partition_epoch": 0, "leader_recovery_state": 0,
}  # fmt: skip


def topic(state: MetadataState, offset: int, id_: str) -> None:
    state.replay(offset, "TopicRecord", {"topic_id": id_, "name": "short"})
    state.replay(offset + 1, "PartitionRecord", {**PARTITION, "topic_id": id_})


@pytest.mark.parametrize("comes_again", [False, True])
def test_who_held_what_of_a_topic_that_is_gone(comes_again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    state = MetadataState()
    topic(state, 0, "a")
    held = state.partitions["short", 0]
    assert isinstance(held, PartitionState)
    state.replay(2, "RemoveTopicRecord", {"topic_id": "a"})
    if comes_again:
        topic(state, 3, "b")
    history = MetadataHistory(
        True, removed={*state.removed}, again={*state.again}, steps=[(("short", 0), 1, held, 2)],
        strategies={"short": "manual"},
    )  # fmt: skip
    monkeypatch.setattr(CommitTimes, "__init__", lambda self, trace: None)
    monkeypatch.setattr(CommitTimes, "of", lambda self, offset: 100 + offset)
    found = memberships(None, {"broker-1": 1}, history)  # type: ignore[arg-type]
    assert found is not None and history.removed == {"short"}
    if comes_again:
        assert found.steps == {} and found.strategies == {}, "a log of that name may be of either"
    else:
        assert [step.isr for step in found.steps["short", 0]] == [(1, 2, 3)] and found.strategies == {"short": "manual"}
