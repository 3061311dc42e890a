"""004, replica divergence on restart after multiple hard failures: two logs with different lineage.

A and B are the brokers 1 and 2, and A leads. MinISR is 1, so that what a power outage of both does is beyond the
contract: losing m2 is acceptable, and nobody waits for A, which has it, before B is elected.
"""

from __future__ import annotations

from tests.cluster_image.stories.script import Script, tell

A, B = 1, 2


async def story(s: Script) -> None:
    assert await s.next_state() == "Leader=1, ISR=[1, 2], ELR=[], LastKnownELR=[]"
    await s.produce("m1")
    await s.until(lambda: s.high_watermark_of(B) == 1)
    s.write_back(A, B)
    await s.produce("m2")
    await s.passing(6)  # until A has noted its high watermark, 2, on the disk
    s.write_back(A)

    # A power outage affects both. Messages are flushed asynchronously: A has m2 on its disk, B has not.
    await s.cut_power(A)
    await s.passing(0.6)  # more than a heartbeat: A is the one that was silent for longer
    await s.cut_power(B)
    assert await s.next_state() == "Leader=2, ISR=[2], ELR=[], LastKnownELR=[]"
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[2], LastKnownELR=[]"

    # B comes back first and becomes leader. It accepts m3 in a new leader epoch, and one more.
    await s.restore_power(B)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[], LastKnownELR=[2]"
    assert await s.next_state() == "Leader=2, ISR=[2], ELR=[], LastKnownELR=[]"
    await s.until(lambda: s.follows(B, B))
    assert s.log_of(B) == ["m1"]
    await s.produce("m3")
    await s.produce("m4")

    # A starts and becomes a follower.
    await s.restore_power(A)
    await s.until(lambda: s.follows(A, B))
    await s.until(lambda: s.end_of(A) == 3)


async def logs_are_consistent(s: Script) -> None:
    await story(s)
    assert s.log_of(A) == ["m1", "m3", "m4"]
    await s.settled()
    assert await s.read() == s.log_of(A) == s.log_of(B) == ["m1", "m3", "m4"]


async def logs_diverge(s: Script) -> None:
    await story(s)
    assert await s.next_state() == "Leader=2, ISR=[1, 2], ELR=[], LastKnownELR=[]"
    assert await s.read() == s.log_of(B) == ["m1", "m3", "m4"]
    assert s.log_of(A) == ["m1", "m2", "m4"]


def test_by_leader_epochs_the_orphaned_record_is_truncated_and_the_logs_are_consistent() -> None:
    ending = tell(logs_are_consistent, (A, B), 1)
    assert ending.violation is None
    (loss,) = ending.losses
    assert "offsets 1 to 1 are lost: broker-2 was elected without them" in loss


def test_by_high_watermarks_the_logs_diverge_for_good() -> None:
    assert tell(logs_diverge, (A, B), 1, bug="M01", watched=False).violation is None


def test_the_invariants_stop_it_at_the_first_append_after_the_orphaned_record() -> None:
    violation = tell(story, (A, B), 1, bug="M01").violation
    assert violation is not None
    assert violation.property == "LogMatching"
    assert (
        "broker-1 holds offsets 2 to 2 of leader epoch 3" in violation.message
        and "after a batch of epoch 0" in violation.message
    )
