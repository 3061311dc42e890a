"""--delete-records: what the client that deletes does, what is recorded of it, and how readers go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BadArguments
from harness.explore.simulate import simulate
from harness.plan import plan_file
from harness.plan.plan import Plan, make_plan
from workloads.clients.kio import outcomes
from workloads.clients.kio.requests import ErrorCode


def plan(**fields: object) -> Plan:
    defaults = {
        "run": "r", "on": "simulation", "nemesis": (), "seed": 5, "time_limit": 12.0, "rate": 60, "partitions": 2,
        "concurrency": 2,
    }  # fmt: skip
    return make_plan(**{**defaults, **fields})


def test_records_are_deleted_and_what_is_left_is_read() -> None:
    done = simulate(plan(delete_records=1.0))
    assert (done.crash, done.violation, list(done.problems)) == ("", None, [])
    rows = done.tables["operations"].to_pylist()
    deletions = [row for row in rows if row["kind"] == "delete_records"]
    succeeded = [row for row in deletions if row["outcome"] == "ok"]
    assert len(succeeded) > 10 and {row["partition"] for row in succeeded} == {0, 1}
    assert any(row["offset"] == -1 for row in succeeded), "now and then all that is committed"
    for row in succeeded:
        assert row["high_watermark"] >= max(row["offset"], 0), "the low watermark has reached what was asked for"
    for partition in (0, 1):
        mine = [row for row in rows if row["partition"] == partition]
        finals = [row for row in mine if row["kind"] == "final_read" and row["outcome"] == "ok"]
        start = max(row["high_watermark"] for row in succeeded if row["partition"] == partition)
        assert min(row["offset"] for row in finals) >= start
        reads = [row for row in mine if row["kind"] == "read"]
        last = max(row["complete"] for row in succeeded if row["partition"] == partition)
        assert any(row["invoke"] > last and row["outcome"] == "ok" for row in reads), "readers go on"


def test_retention_alone_moves_log_starts() -> None:
    settings = {"log.retention.ms": "3000", "log.segment.bytes": "1024", "log.retention.check.interval.ms": "500"}
    done = simulate(plan(settings=settings))
    assert (done.crash, done.violation) == ("", None)
    rows = done.tables["operations"].to_pylist()
    assert not [row for row in rows if row["kind"] == "delete_records"]
    finals = [row for row in rows if row["kind"] == "final_read" and row["outcome"] == "ok"]
    assert finals and all(row["offset"] > 0 for row in finals)


@pytest.mark.parametrize(
    ("fields", "log_start"),
    [
        ({}, 0),
        ({"delete_records": 5.0}, "moves"),
        ({"settings": {"log.retention.ms": "5000"}}, "moves"),
        ({"settings": {"log.retention.bytes": "5000"}}, "moves"),
        ({"settings": {"log.retention.ms": "-1", "log.retention.bytes": "-1"}}, 0),
    ],
)
def test_a_plan_says_where_logs_may_start(fields: dict[str, object], log_start: object, tmp_path: Path) -> None:
    of = plan(**fields)
    assert of.log_start == log_start
    of.save(tmp_path)
    assert Plan.load(tmp_path) == of
    assert ("--delete-records 5" in of.command()) == ("delete_records" in fields)


def test_a_time_in_a_file() -> None:
    assert plan_file.fields_of({"delete_records": "500ms"}, "plan") == {"delete_records": 0.5}


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), 1e9])
def test_a_time_that_makes_no_sense(seconds: float) -> None:
    with pytest.raises(BadArguments, match="--delete-records is"):
        plan(delete_records=seconds)


def test_a_workload_that_deletes_nothing() -> None:
    with pytest.raises(BadArguments, match="workload compacted deletes no records; append does"):
        plan(delete_records=1.0, workload="compacted", target="kafka:4.2.0", on="docker")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ErrorCode.none, "ok"),
        (ErrorCode.offset_out_of_range, "fail"),
        (ErrorCode.policy_violation, "fail"),
        (ErrorCode.request_timed_out, "info"),
        (ErrorCode.not_leader_or_follower, "info"),
    ],
)
def test_what_is_known_of_a_deletion(error: ErrorCode, outcome: str) -> None:
    """A leader that is deposed while it waits answers NOT_LEADER_OR_FOLLOWER, and has deleted."""
    assert outcomes.of_deletion(error) == outcome


def test_readers_that_are_behind_go_on_from_the_start() -> None:
    """A pause holds them up, and what they would read next is deleted meanwhile."""
    done = simulate(plan(delete_records=0.5, nemesis=("pause",), time_limit=20.0))
    assert (done.crash, done.violation) == ("", None)
    reads = [row for row in done.tables["operations"].to_pylist() if row["kind"] == "read"]
    behind = [row for row in reads if row["error"] == "OFFSET_OUT_OF_RANGE"]
    assert behind
    for row in behind:
        mine = [r for r in reads if (r["process"], r["partition"]) == (row["process"], row["partition"])]
        assert any(r["invoke"] > row["complete"] and r["offset"] > row["offset"] and r["outcome"] == "ok" for r in mine)
