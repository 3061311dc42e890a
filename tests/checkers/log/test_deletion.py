"""Logs that begin further up than anybody asked for, or than records are old."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from checkers.log.deletion import COLUMNS, DELETED_TOO_MUCH, Log, applies, check
from checkers.properties import DELETION
from cluster_image.kraft.broker.partition import Partition
from cluster_image.replication import rules
from harness.explore.simulate import simulate
from harness.plan.plan import Plan
from spark_history.files import compact
from spark_history.log import FinalReads

S = 1_000_000_000
PLAN: dict[str, Any] = {"log_start": "moves"}


def append(offset: int, second: int) -> dict[str, Any]:
    return {"kind": "append", "outcome": "ok", "offset": offset, "invoke": second * S, "complete": second * S + 1}


def delete(offset: int, outcome: str = "ok", low_watermark: int | None = None, answered: bool = True) -> dict[str, Any]:
    row = {"kind": "delete_records", "outcome": outcome, "offset": offset, "high_watermark": low_watermark}
    return {**row, "invoke": 50 * S, "complete": 50 * S + 1 if answered else None}


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=COLUMNS).cast(compact(COLUMNS))


def log(start: int, *operations: dict[str, Any]) -> Log:
    """A hundred records, one a second from second 0 on; the final log begins at `start`."""
    rows = [*(append(offset, offset) for offset in range(100)), *operations]
    half = len(rows) // 2
    return Log(
        "chaos",
        3,
        [table(rows[:half]), table(rows[half:])],
        FinalReads(((start, 100),), start, 100, 100 * S, 1, start, start),
    )


def messages(plan: dict[str, Any], *logs: Log, faults: Sequence[dict[str, Any]] = ()) -> list[str]:
    found = check(plan, "r", logs, faults).anomalies
    assert all((row["property"], row["anomaly"]) == (DELETION, DELETED_TOO_MUCH) for row in found.rows)
    return [row["message"] for row in found.rows]


def test_what_was_asked_for_may_go_and_no_more() -> None:
    assert messages(PLAN, log(40, delete(40))) == []
    assert messages(PLAN, log(30, delete(40))) == [], "one that began lower was elected"
    assert messages(PLAN, log(41, delete(20), delete(40))) == [
        "chaos-3 begins at offset 41, and nothing from offset 40 on was to be deleted: 1 acknowledged records are gone"
    ]
    assert messages(PLAN, log(0)) == [] != messages(PLAN, log(1))


@pytest.mark.parametrize(("deletion", "wrong"), [
    (delete(60, "info"), False), (delete(60, "fail"), True), (delete(-1, low_watermark=60), False),
    (delete(-1, low_watermark=59), True), (delete(-1, "info", answered=False), False), (delete(-1, "fail"), True),
])  # fmt: skip
def test_what_a_request_may_have_done(deletion: dict[str, Any], wrong: bool) -> None:
    assert bool(messages(PLAN, log(60, deletion))) == wrong


@pytest.mark.parametrize(("settings", "start", "wrong"), [
    ({"log.retention.ms": "20000"}, 79, False), ({"log.retention.ms": "20000"}, 82, True),
    ({"log.retention.ms": "20000", "log.retention.bytes": "7"}, 82, False),
    ({"log.retention.minutes": "1"}, 30, False), ({"log.retention.minutes": "1"}, 45, True),
    ({"log.retention.ms": "-1", "log.retention.minutes": "1"}, 1, True), ({"log.retention.ms": "x"}, 82, False),
])  # fmt: skip
def test_records_that_are_old_may_go_and_no_others(settings: dict[str, str], start: int, wrong: bool) -> None:
    plan = {**PLAN, "settings": settings}
    assert bool(messages(plan, log(start))) == wrong
    if "log.retention.ms" in settings and wrong and settings["log.retention.ms"] != "-1":
        assert messages(plan, log(start), faults=[{"nemesis": "clock:jump"}]) == [], "nobody knows how old they were"


def test_where_all_is_old_all_may_go() -> None:
    old = log(100)._replace(tables=[table([append(0, 0), delete(0)])])
    assert messages({**PLAN, "settings": {"log.retention.ms": "1000"}}, old) == []


def test_it_is_for_runs_that_delete() -> None:
    assert not applies({}) and applies(PLAN)


def test_a_deletion_of_all_that_timed_out_had_been_done_when_it_was_answered() -> None:
    """At second 50: what was appended later was not meant."""
    timed_out = delete(-1, "info")
    assert messages(PLAN, log(51, timed_out)) == [] != messages(PLAN, log(52, timed_out))


def test_how_much_was_deleted_is_told_and_what_nobody_knows() -> None:
    lost = delete(-1, "info", answered=False)
    found = check(
        PLAN, "r", [log(60, lost), log(10, delete(10))._replace(partition=4), log(0)._replace(partition=5)], ()
    )
    assert found.as_dict() == {
        "deleted": 70, "not_judged": ["chaos-3"],
        "logs": {"chaos-3": {"begins_at": 60, "deleted": 60}, "chaos-4": {"begins_at": 10, "deleted": 10}},
    }  # fmt: skip


DELETING = Plan(run="r", on="simulation", time_limit=15.0, rate=40.0, partitions=4, seed=3)


def of_a_run(**changes: Any) -> dict[str, Any]:
    return simulate(DELETING.model_copy(update=changes)).judge()


def test_a_broker_that_deletes_more_than_it_was_asked_to_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    good = of_a_run(delete_records=2.0)
    assert good["verdict"] == "pass" and "were deleted as they were to be, all others" in good["reason"]
    delete_records = Partition.delete_records
    # All below the high watermark goes, whatever was asked for.
    monkeypatch.setattr(Partition, "delete_records", lambda self, offset, done: delete_records(self, -1, done))
    bad = of_a_run(delete_records=2.0)
    assert bad["verdict"] == "fail" and "deleted too much" in bad["reason"]


def test_retention_that_takes_what_is_not_old_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"log.retention.ms": "20000", "log.segment.bytes": "2000"}
    assert of_a_run(settings=settings, time_limit=30.0)["verdict"] == "pass"
    monkeypatch.setattr(rules, "is_out_of_date", lambda latest, now, retention: latest is not None)
    bad = of_a_run(settings=settings, time_limit=30.0)
    assert bad["verdict"] == "fail" and "deleted too much" in bad["reason"]
