"""Promises that something comes about: a rule that never lets it is found by the name of the promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from checkers.properties import OF_LIVENESS
from cluster_image.kraft.broker import rules as broker_rules
from cluster_image.kraft.broker.leadership import Leadership
from cluster_image.kraft.broker.replica_manager import ReplicaManager
from cluster_image.kraft.controller import rules as controller_rules
from cluster_image.kraft.raft import replica
from cluster_image.kraft.raft import rules as raft_rules
from cluster_image.kraft.raft.snapshots import RETAINED, SnapshotStore
from cluster_image.replication import rules as replication_rules
from cluster_image.replication.log_manager import LogManager
from cluster_image.storage.log import Log
from harness.explore.simulate import simulate
from harness.plan.plan import Plan
from tests.checkers.inside.invariants.test_durability import EXPLORED

Patch = Callable[[pytest.MonkeyPatch], None]


def never(module: Any, rule: str, answer: Any = False) -> Patch:
    """The rule always answers so."""
    return lambda monkeypatch: monkeypatch.setattr(module, rule, lambda *arguments, **named: answer)


def stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_rules, "next_high_watermark", lambda current, ends: current)


def forgets_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leadership, "answer_up_to", lambda self, committed, verdict: None)


def waits_for_who_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_rules, "waits_to_join_isr", lambda lags, eligible: eligible)


def keeps_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "remove_obsolete_segments", lambda self, at_most=None: 0)


def metadata_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "trim", lambda log, snapshots, high_watermark: snapshots.keep_latest(RETAINED))


def directories_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(self: LogManager, name: str) -> None:
        for file in self._disk.list(name):
            self._disk.remove(f"{name}/{file}")

    monkeypatch.setattr(LogManager, "_remove_directory", empty)


def logs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicaManager, "_delete", lambda self, gone: None)


def answers_no_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leadership, "answer_deleted", lambda self, low_watermark: None)


MOVED: Final = EXPLORED.model_copy(update={"nemesis": ("membership:reassign",), "brokers": 4, "time_limit": 60.0})
CUT_OFF: Final = EXPLORED.model_copy(
    update={"nemesis": ("choreography:minority-with-controller",), "time_limit": 40.0}
)
#: Followers far behind take a while to catch up.
FETCHES_LITTLE: Final = {"replica.fetch.max.bytes": "100", "replica.fetch.response.max.bytes": "100"}
SLOW: Final = EXPLORED.model_copy(
    update={"nemesis": ("pause", "partition", "kill"), "rate": 400.0, "latency_ms": 5.0, "time_limit": 30.0,
            "settings": FETCHES_LITTLE}
)
DELETING: Final = EXPLORED.model_copy(
    update={"nemesis": ("kill", "pause"), "rate": 100.0, "time_limit": 30.0, "delete_records": 2.0,
            "settings": {"log.segment.bytes": "1024", "log.retention.bytes": "4096",
                         "log.retention.check.interval.ms": "500"}}
)  # fmt: skip
SHORT_LIVED: Final = EXPLORED.model_copy(
    update={"nemesis": ("kill", "partition"), "time_limit": 30.0, "short_lived_topics": 0.5}
)
SNAPSHOTS: Final = EXPLORED.model_copy(
    update={"brokers": 4, "nemesis": ("membership", "kill"), "time_limit": 30.0,
            "settings": {"metadata.log.max.record.bytes.between.snapshots": "600"}}
)  # fmt: skip
PLANTED: Final[Mapping[str, tuple[str, Patch, Plan]]] = {
    "stands": ("WatermarkAdvances", stands, EXPLORED),
    "waits for who lags": ("WatermarkAdvances", waits_for_who_lags, SLOW),
    "nobody joins": ("IsrExpands", never(broker_rules, "may_join_isr"), EXPLORED),
    "no move ends": ("ReassignmentCompletes", never(controller_rules, "may_complete_reassignment"), MOVED),
    "nobody is unfenced": ("BrokerUnfenced", never(controller_rules, "may_unfence"), EXPLORED),
    "no vote is given": ("LeaderElected", never(raft_rules, "may_grant_vote"), EXPLORED),
    "no leader resigns": ("LeaderResigns", never(raft_rules, "leadership_lapses_at", float("inf")), CUT_OFF),
    "nothing is too old": ("RecordsDeleted", never(replication_rules, "is_beyond_size"), DELETING),
    "files stay": ("RecordsDeleted", keeps_files, DELETING),
    "snapshots stay": ("RecordsDeleted", never(SnapshotStore, "keep_latest", None), SNAPSHOTS),
    "the metadata log stays": ("RecordsDeleted", metadata_stays, SNAPSHOTS),
    "logs stay": ("RecordsDeleted", logs_stay, SHORT_LIVED),
    "directories stay": ("RecordsDeleted", directories_stay, SHORT_LIVED),
    "no deletion is answered": ("RequestsAnswered", answers_no_deletion, DELETING),
    "producers are forgotten": ("RequestsAnswered", forgets_producers, EXPLORED),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_never_comes_about_is_found_by_its_name(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    property_, patch, plan = PLANTED[planted]
    patch(monkeypatch)
    assert property_ in OF_LIVENESS
    found = {}
    for seed in range(5):
        done = simulate(plan.model_copy(update={"seed": seed}))
        assert not done.crash
        if done.violation is not None:
            found[seed] = done.violation.property
            if done.violation.property == property_:
                assert done.judge()["verdict"] == "fail"
                return
    pytest.fail(f"{property_} was not violated: {found}")
