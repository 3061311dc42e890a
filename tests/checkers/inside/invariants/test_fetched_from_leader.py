"""FetchedFromLeader: a replica that is fetched from elsewhere, from nobody, twice, or once it is gone, is blamed."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cluster_image.kraft.broker.replica_manager import ReplicaManager
from cluster_image.replication.fetcher import Fetcher
from harness.explore.simulate import simulate
from harness.explore.swarm import Swarm
from tests.checkers.inside.invariants.lies import EXPLORED, Lies, check_found


def from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that follows a second time is not fetched."""
    add = Fetcher.add

    def lie(self: Fetcher, partition: Any) -> None:
        if partition.leader_epoch == 0:
            add(self, partition)

    monkeypatch.setattr(Fetcher, "add", lie)


def from_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetcher of the leader before keeps it."""
    monkeypatch.setattr(Fetcher, "remove", lambda self, key: None)


LIES: Final[Lies] = {
    "from nobody": (from_nobody, "FetchedFromLeader", 0),
    "from both": (from_both, "FetchedFromLeader", 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_by_the_name_of_what_it_breaks(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    check_found(LIES, lie, monkeypatch)


def test_a_replica_that_is_gone_and_fetched_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = ReplicaManager._remove

    def lie(self: ReplicaManager, keys: Any) -> None:
        fetched = {each.key for _, each in self.fetched}
        gone = [self.partitions[key] for key in keys]
        remove(self, keys)
        for partition in gone:
            if partition.key in fetched:
                next(iter(self._fetchers.values())).add(partition)

    monkeypatch.setattr(ReplicaManager, "_remove", lie)
    plan = EXPLORED.model_copy(update={"nemesis": ("kill",), "short_lived_topics": 0.5, "time_limit": 20.0})
    done = simulate(Swarm(())(plan, 1))
    assert done.violation is not None and done.violation.property == "FetchedFromLeader", done.violation
    assert "and has no such replica" in str(done.violation)
