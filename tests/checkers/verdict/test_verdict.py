from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkers.inside.violation import Violation
from checkers.properties import (
    HISTORY_PROPERTIES,
    LOG_LINEARIZABILITY,
    PROPERTIES,
    WATERMARK_FRESHNESS,
)
from checkers.verdict.verdict import Evidence, contract, judge
from spark_history.errors import HistoryError


def cut(start: int, end: int | None, *brokers: str, lost: int = 100, **evidence: Any) -> dict[str, Any]:
    own = {"unsynced_bytes": lost, "unsynced_files": 0, "unsynced_records": lost // 10}
    evidence = {**own, "nodes": dict.fromkeys(brokers, own), **evidence}
    return {
        "fault": start, "nemesis": "power-outage", "targets": list(brokers), "start": start, "end": end,
        "effective": lost > 0, "evidence": evidence,
    }  # fmt: skip


def verdict(**changes: Any) -> dict[str, Any]:
    evidence: dict[str, Any] = {
        "run": "r",
        "plan": {"nemesis": ["power-outage"], "acks": "all", "min_insync_replicas": 2},
        "tally": [],
        "counts": {"acknowledged": 100, "acknowledged since": 50, "undecided": 0},
        "faults": [cut(10, 20, "broker-1")],
        "complete": True,
        "missing": [],
        "origin": 0,
        "until": 60 * 10**9,
        "replica_records": 300,
    }
    return judge(Evidence(**evidence | changes))


def test_passes_when_faults_struck_and_nothing_is_wrong() -> None:
    result = verdict()
    assert (result["verdict"], result["exit_code"]) == ("pass", 0)
    assert result["judged_until_s"] == 60.0


def test_a_history_that_is_no_logs_is_weighed_though_nothing_acknowledged_is_lost() -> None:
    tally = [(LOG_LINEARIZABILITY, "inconsistent offset", 2, 2)]
    both = [cut(10, 20, "broker-1", "broker-2", "broker-3")]
    assert verdict(tally=tally, faults=both, wrong_in=["chaos-0"])["reason"].endswith("; beyond the contract")
    assert verdict(tally=tally, wrong_in=["chaos-0"])["reason"].endswith("within the contract, so this is a bug")


def test_what_was_not_looked_at_is_not_passed() -> None:
    assert verdict(replica_records=0)["verdict"] == "unknown"
    result = verdict(doubts=["not recovered 60 s after the last fault was healed"])
    assert (result["verdict"], result["reason"]) == ("unknown", "not recovered 60 s after the last fault was healed")
    tally = [(LOG_LINEARIZABILITY, "lost append", 7, 7)]
    assert verdict(tally=tally, replica_records=0, doubts=["crashed"])["verdict"] == "fail"


def test_damaged_files_are_counted() -> None:
    files = [(f"journal/reads-{number:06}.parquet", "it is missing") for number in range(3)]
    for count, also in ((1, ""), (2, ", and so is 1 more file"), (3, ", and so are 2 more files")):
        reason = verdict(damaged=files[:count])["reason"]
        assert reason == f"{files[0][0]} is damaged (it is missing){also}; what is left shows no violation"


def test_a_violation_fails_also_a_run_that_was_cut_short() -> None:
    tally = [(LOG_LINEARIZABILITY, "stale end of log", 1, 2), (LOG_LINEARIZABILITY, "lost append", 7, 7)]
    result = verdict(tally=tally, complete=False, faults=[])
    assert (result["verdict"], result["exit_code"]) == ("fail", 1)
    assert result["reason"].startswith("7 lost appends, stale end of log (2); ")
    assert result["reason"].endswith("the faults stayed within the contract, so this is a bug")
    assert result["anomalies"][LOG_LINEARIZABILITY]["count"] == 9


def test_a_weak_property_never_fails_a_run() -> None:
    result = verdict(tally=[(WATERMARK_FRESHNESS, "lagging watermark", 1, 40)])
    assert result["verdict"] == "pass"
    assert result["anomalies"][WATERMARK_FRESHNESS] == {
        "count": 40, "witnesses": 1, "weak": True, "anomalies": {"lagging watermark": 40}, "example": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"faults": []}, "no fault of power-outage took effect"),
        ({"faults": [cut(10, 20, "broker-1", lost=0)]}, "no fault"),
        ({"counts": {"acknowledged": 100, "acknowledged since": 0}}, "once the first fault had struck"),
        ({"counts": {"acknowledged": 0}}, "no append was acknowledged"),
    ],
)
def test_a_run_that_proves_nothing_is_vacuous(changes: dict[str, Any], why: str) -> None:
    result = verdict(**changes)
    assert (result["verdict"], result["exit_code"]) == ("unknown", 2)
    assert result["reason"].startswith("vacuous: ")
    assert why in result["reason"]


def part(composite: str, time: int, parts: int) -> dict[str, Any]:
    return {"part_of": {"composite": composite, "occurrence": time, "parts": parts}}


def fault(number: int, nemesis: str, effective: bool, **evidence: Any) -> dict[str, Any]:
    return cut(10 * number, 10 * number + 5, "broker-1", lost=0) | {
        "fault": number, "nemesis": nemesis, "effective": effective, "evidence": evidence,
    }  # fmt: skip


SKIPPED = {"skipped": "no time left: nobody is free"}
LOST_NOTHING = {"unsynced_bytes": 0}


@pytest.mark.parametrize(
    ("asked", "faults", "why"),
    [
        (["kill"], [fault(0, "kill", True)], ""),
        (["kill", "power:node"], [fault(0, "kill", True), fault(1, "power:node", True)], ""),
        (["kill"], [fault(0, "kill", False, **SKIPPED), fault(1, "kill", True)], ""),
        (
            ["kill", "power:node"],
            [fault(0, "kill", True), *(fault(n, "power:node", False, **SKIPPED) for n in (1, 2))],
            "power:node did not take effect: 2 of 2 faults skipped (no time left: nobody is free)",
        ),
        (
            ["kill", "power:node"],
            [fault(0, "kill", True), fault(1, "power:node", False, **LOST_NOTHING)],
            "power:node did not take effect: 1 of 1 without effect (nothing that had not been synced was lost)",
        ),
        (["kill", "pause"], [fault(0, "kill", True)], "pause did not take effect: none of its faults was begun"),
        (
            ["last-replica-standing"],
            [
                fault(0, "partition", True, **part("last-replica-standing", 0, 2)),
                fault(1, "power:node", False, **SKIPPED, **part("last-replica-standing", 0, 2)),
                fault(2, "partition", False, **part("last-replica-standing", 1, 2)),
                fault(3, "power:node", True, **part("last-replica-standing", 1, 2)),
            ],
            "last-replica-standing did not take effect: 1 of 4 faults skipped (no time left: nobody is free), 1 of 4 "
            "without effect (it left no trace)",
        ),
        (
            ["last-replica-standing"],
            [
                fault(0, "partition", False, **part("last-replica-standing", 0, 2)),
                fault(2, "partition", True, **part("last-replica-standing", 1, 2)),
                fault(3, "power:node", True, **part("last-replica-standing", 1, 2)),
            ],
            "",
        ),
        (
            ["last-replica-standing"],
            [fault(2, "partition", True, **part("last-replica-standing", 1, 2))],
            "last-replica-standing did not take effect: never all of its parts at a time",
        ),
        (  # what is a part of something else is not the nemesis itself
            ["all", "kill"],
            [fault(0, "kill", True, **part("all", 0, 1))],
            "kill did not take effect: none of its faults was begun",
        ),
        (["all"], [fault(0, "kill", True)], ""),  # as earlier versions have recorded it
    ],
)
def test_each_nemesis_asked_for_must_have_taken_effect(asked: list[str], faults: list[Any], why: str) -> None:
    found = verdict(faults=faults, plan={**PLAN, "nemesis": asked})
    assert (found["verdict"], found["reason"] if why else "") == (
        ("unknown", f"vacuous: {why}") if why else ("pass", "")
    )  # fmt: skip
    assert [each["nemesis"] for each in found["nemeses"] if each["why_not"]] == ([why.split()[0]] if why else [])
    for must, word in (("none", "pass"), ("any", "pass" if any(each["effective"] for each in faults) else "unknown")):
        assert verdict(faults=faults, plan={**PLAN, "nemesis": asked, "must_take_effect": must})["verdict"] == word


def test_a_run_that_was_ended_early_is_unknown_and_says_so() -> None:
    how = "the run was cut short by SIGTERM after 12.3 s of 60 s"
    found = verdict(ended=how)
    assert (found["verdict"], found["ended_early"]) == ("unknown", how)
    assert found["reason"].startswith(f"{how}: no violation in the ")
    assert verdict(ended=how, tally=[(LOG_LINEARIZABILITY, "lost append", 7, 7)])["verdict"] == "fail"


def test_evidence_that_is_missing_is_named() -> None:
    found = verdict(gaps=["no trace of broker-2 was found", *(f"no log of chaos-{n} is on record" for n in range(4))])
    assert found["verdict"] == "unknown" and not found["complete"] and len(found["evidence_missing"]) == 5
    assert found["reason"] == (
        "evidence is missing: no trace of broker-2 was found; no log of chaos-0 is on record; "
        "no log of chaos-1 is on record; and 2 more such"
    )


def test_without_replica_logs_nothing_is_said_of_whether_they_match() -> None:
    assert "log matching" not in verdict(replica_records=0)["anomalies"]


def test_what_is_lost_is_told_apart_by_who_knew_of_it() -> None:
    counts = {"acknowledged": 13_195, "lost": 13_507, "lost unacknowledged": 312}
    found = verdict(counts=counts, tally=[(LOG_LINEARIZABILITY, "lost append", 9, 13_507)])
    assert found["reason"].startswith("13,507 lost appends (13,195 acknowledged, 312 only returned by reads); ")


VIOLATION = Violation("ElectionSafety", "two leaders in epoch 4.", "", ("controller-1",), 12_345_000_000, 77, "quorum")


def test_a_violated_invariant_fails_a_run_whatever_else_is_missing() -> None:
    result = verdict(violation=VIOLATION, counts={}, complete=False, faults=[], replica_records=0, doubts=["crashed"])
    assert (result["verdict"], result["exit_code"]) == ("fail", 1)
    assert result["reason"] == "ElectionSafety violated at 12.345 s: two leaders in epoch 4"
    assert result["anomalies"]["ElectionSafety"]["anomalies"] == {"violation": 1}


def test_what_else_was_found_is_named_after_the_invariant() -> None:
    result = verdict(violation=VIOLATION, tally=[(LOG_LINEARIZABILITY, "lost append", 7, 7)])
    assert "two leaders in epoch 4; besides, 7 lost appends; " in result["reason"]
    assert result["anomalies"]["log linearizability"]["count"] == 7


def test_a_hang_is_no_property_that_was_violated() -> None:
    hang = replace(VIOLATION, property="Hang", message="nothing is ready and no timer runs", where="chaos-1")
    assert verdict(violation=hang)["reason"] == "Hang on chaos-1 at 12.345 s: nothing is ready and no timer runs"


def test_a_property_of_another_version_is_reported_too() -> None:
    other = replace(VIOLATION, property="NewInvariant")
    assert verdict(violation=other)["anomalies"]["NewInvariant"]["count"] == 1


def test_invariants_are_listed_where_they_were_checked() -> None:
    plan = {"nemesis": [], "min_insync_replicas": 2}
    assert set(verdict(plan=plan)["anomalies"]) == set(HISTORY_PROPERTIES)
    assert tuple(verdict(plan=plan | {"on": "simulation"})["anomalies"]) == PROPERTIES


def test_the_witness_of_a_violation_says_step_event_and_nodes() -> None:
    (row,) = replace(VIOLATION, where="my-topic-3").anomalies("r", 10**9).rows
    assert (row["topic"], row["partition"], row["anomaly"]) == ("my-topic", 3, "violation")
    assert row["message"].endswith("at 11.345 s: two leaders in epoch 4 (step 77; quorum; controller-1)")
    (row,) = VIOLATION.anomalies("r", 20 * 10**9).rows
    assert (row["topic"], row["partition"]) == (None, None)
    assert "at the start, before any operation" in row["message"]


@pytest.mark.parametrize("missing", ["property", "nodes", "time_ns", "step"])
def test_a_violation_that_lacks_a_field_is_refused(missing: str) -> None:
    fields = {**vars(VIOLATION), "nodes": ["controller-1"]}
    assert Violation.of(fields) == VIOLATION
    with pytest.raises(HistoryError, match=missing):
        Violation.of({name: value for name, value in fields.items() if name != missing})


def test_without_a_nemesis_no_fault_is_expected() -> None:
    assert verdict(plan={"nemesis": []}, faults=[])["verdict"] == "pass"


def test_a_history_without_final_reads_is_unknown_and_says_what_is_undecided() -> None:
    counts = {"acknowledged": 100, "acknowledged since": 50, "undecided": 12}
    result = verdict(complete=False, missing=["chaos-0"], counts=counts)
    assert (result["verdict"], result["undecided"], result["complete"]) == ("unknown", 12, False)
    assert "chaos-0" in result["reason"]
    assert "12 of 100" in result["reason"]


PLAN = {"acks": "all", "min_insync_replicas": 2}


def test_one_lossy_broker_at_a_time_is_within_the_contract() -> None:
    faults = [cut(10, 20, "broker-1", "controller-1", in_sync_at=30), cut(30, 40, "broker-2", in_sync_at=50)]
    assert contract(PLAN, faults)["within"] is True
    assert contract(PLAN, faults)["worst"] == 1


def test_a_second_loss_before_the_first_is_back_in_sync_is_beyond() -> None:
    faults = [cut(10, 20, "broker-1", in_sync_at=31), cut(30, 40, "broker-2", in_sync_at=50)]
    result = contract(PLAN, faults)
    assert (result["within"], result["limit"], result["worst"]) == (False, 1, 2)
    assert "broker-1, broker-2" in result["explanation"]


def test_a_broker_that_never_came_back_in_sync_counts_to_the_end() -> None:
    faults = [cut(10, 20, "broker-1", not_in_sync="broker 1 is missing"), cut(90, 99, "broker-2", in_sync_at=100)]
    assert contract(PLAN, faults)["worst"] == 2


def test_the_same_broker_twice_counts_once_and_a_cut_without_loss_not_at_all() -> None:
    faults = [cut(10, None, "broker-1"), cut(30, 40, "broker-1"), cut(30, 40, "broker-2", lost=0)]
    assert contract(PLAN, faults)["worst"] == 1


def test_the_contract_says_so_where_acks_do_not_cover_it() -> None:
    assert "acks=1" in contract({"acks": "1", "min_insync_replicas": 2}, [])["explanation"]


def test_the_contract_says_so_where_unclean_recovery_promises_nothing() -> None:
    plan = {"min_insync_replicas": 2, "settings": {"unclean.recovery.strategy": "proactive"}}
    assert "unclean.recovery.strategy=proactive" in contract(plan, [])["explanation"]
    assert "strategy" not in contract({"min_insync_replicas": 2, "settings": {}}, [])["explanation"]
