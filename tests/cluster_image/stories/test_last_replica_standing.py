"""000, 2.4.1's note: Last Replica Standing. The same faults with and without an ELR (KIP-966).

The ISR shrinks to the leader, whose power is cut. Its log is gone, yet the logs of the others are whole. Without an ELR
the metadata names nobody but that leader, so it is elected again, and the others give up what they have.
"""

from __future__ import annotations

import pytest

from checkers.inside.kraft.simulated import Invariants
from checkers.properties import LOST_APPEND
from harness.explore.simulate import Simulated, simulate
from harness.plan.plan import Plan
from harness.plan.schedule import Fault
from tests.cluster_image.stories.script import Ending, Script, tell

WITHOUT_ELR = {"eligible.leader.replicas.version": "0"}
#: What `chaos explore` without an ELR finds and `chaos shrink` leaves of it.
FAULTS = (
    Fault(fault=0, nemesis="partition", at=2.0, duration=14.0,
          choice={"variant": "one", "direction": "both", "targets": ["broker-2"]}),
    Fault(fault=1, nemesis="pause", at=7.0, duration=6.0, choice={"targets": ["broker-3"]}),
    Fault(fault=2, nemesis="power-outage", at=12.1, duration=0.5,
          choice={"in_write": 0, "late_s": 0.0, "targets": ["broker-1"]}),
)  # fmt: skip


async def beginning(s: Script) -> None:
    assert await s.next_state() == "Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await s.produce("m1", "m2")
    s.cut((1, 2), (2, 1), (2, 3), (3, 2))
    m3 = s.send("m3")
    assert await s.next_state() == "Leader=1, ISR=[1, 3], ELR=[], LastKnownELR=[]"
    assert (await m3).name == "none"
    assert (s.log_of(2), s.log_of(3)) == (["m1", "m2"], ["m1", "m2", "m3"])
    s.cut((1, 3), (3, 1))
    s.send("m4")  # refused once 1 stands alone


async def standing_alone(s: Script) -> None:
    await beginning(s)
    assert await s.next_state() == "Leader=1, ISR=[1], ELR=[], LastKnownELR=[]"
    assert (await s.cut_power(1))["lost_by_partition"] == {"story-0": 4}
    assert await s.next_state() == "Leader=NoLeader, ISR=[1], ELR=[], LastKnownELR=[]"
    assert s.log_of(3) == ["m1", "m2", "m3"]  # it is there, and may not lead
    await s.restore_power(1)
    assert await s.next_state() == "Leader=1, ISR=[1], ELR=[], LastKnownELR=[]"
    await s.until(lambda: s.follows(1, 1))


async def acknowledged_records_are_lost(s: Script) -> None:
    await standing_alone(s)
    s.mend()
    assert await s.next_state() in ("Leader=1, ISR=[1, 2], ELR=[], LastKnownELR=[]",
                                    "Leader=1, ISR=[1, 3], ELR=[], LastKnownELR=[]",
                                    "Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]")  # fmt: skip
    await s.settled()
    assert await s.read() == s.log_of(1) == s.log_of(2) == s.log_of(3) == []
    await s.produce("m5")
    assert await s.read() == ["m5"]  # at the offset at which m1 was acknowledged


async def nothing_is_lost(s: Script) -> None:
    await beginning(s)
    assert await s.next_state() == "Leader=1, ISR=[1], ELR=[3], LastKnownELR=[]"
    assert (await s.cut_power(1))["lost_by_partition"] == {"story-0": 4}
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[1], LastKnownELR=[]"
    await s.restore_power(1)
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[], LastKnownELR=[1]"
    s.mend()
    await s.settled()
    await s.produce("m5")
    await s.settled()
    assert await s.read() == s.log_of(1) == s.log_of(2) == s.log_of(3) == ["m1", "m2", "m3", "m5"]


def test_without_an_elr_what_was_acknowledged_is_lost_everywhere() -> None:
    ending = tell(acknowledged_records_are_lost, (1, 2, 3), 2, watched=False, settings=WITHOUT_ELR)
    assert ending == Ending(None, [])


def test_the_invariants_stop_it_when_the_last_replica_is_elected_again() -> None:
    violation = tell(standing_alone, (1, 2, 3), 2, settings=WITHOUT_ELR).violation
    assert violation is not None
    assert (violation.property, violation.where, violation.nodes) == ("LeaderCompleteness", "story-0", ("broker-1",))
    assert (
        "elected leader of epoch 2" in violation.message
        and "committed up to offset 3 it holds only what is below 0" in (violation.message)
    )


def test_with_an_elr_the_same_faults_lose_nothing() -> None:
    assert tell(nothing_is_lost, (1, 2, 3), 2) == Ending(None, [])


# -- as clients see it --------------------------------------------------------------------------------------------


def run(**settings: str) -> Simulated:
    plan = Plan(
        run="last-replica-standing", on="simulation", nemesis=("power-outage", "pause", "partition"), seed=1,
        time_limit=30.0, rate=10.0, concurrency=1, partitions=1, settings=settings,
    )  # fmt: skip
    return simulate(plan, FAULTS)


def test_three_faults_of_an_exploration_are_enough() -> None:
    violation = run(**WITHOUT_ELR).violation
    assert violation is not None
    assert (violation.property, violation.nodes) == ("LeaderCompleteness", ("broker-1",))


def test_without_an_elr_the_history_shows_appends_to_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("node_started", "node_gone", "changed", "check", "check_all"):
        monkeypatch.setattr(Invariants, method, lambda *arguments, **named: None)
    verdict = run(**WITHOUT_ELR).judge()
    assert verdict["verdict"] == "fail", verdict["reason"]
    assert verdict["contract"]["within"]
    assert any(LOST_APPEND in found["anomalies"] for found in verdict["anomalies"].values())


def test_with_an_elr_the_history_of_the_same_faults_is_right() -> None:
    done = run()
    assert (done.violation, done.judge()["verdict"]) == (None, "pass")
