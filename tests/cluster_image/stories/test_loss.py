"""004, high watermark truncation followed by immediate leader election: a committed record is lost.

A and B are the brokers 1 and 2, and B leads. As the protocol stands now, a follower that restarts stays a candidate for
leadership only if it has shut down cleanly and the ISR is below MinISR: then it is in the ELR (002, 5.2). So MinISR is
2, and A restarts in an orderly way. After a crash, even a follower that truncates too much does no harm: the last test.
"""

from __future__ import annotations

from tests.cluster_image.stories.script import Script, tell

A, B = 1, 2


async def beginning(s: Script) -> None:
    assert await s.next_state() == "Leader=2, ISR=[1, 2], ELR=[], LastKnownELR=[]"
    await s.produce("m1")
    await s.until(lambda: s.high_watermark_of(A) == 1)

    # A fetches m2, and its next fetch tells B so. B's answer, by which A would learn that m2 is committed, never comes.
    m2 = s.send("m2")
    await s.until(lambda: s.log_of(A) == ["m1", "m2"])
    s.cut((B, A))
    await s.until(lambda: s.high_watermark_of(B) == 2)
    await s.until(m2.done)
    assert (m2.result().name, s.high_watermark_of(A)) == ("none", 1)


async def story(s: Script) -> None:
    await beginning(s)
    # A restarts. Whether it truncates or not: before it has fetched again, B fails.
    await s.shut_down(A)
    assert await s.next_state() == "Leader=2, ISR=[2], ELR=[1], LastKnownELR=[]"
    s.mend()
    await s.start(A)
    await s.until(lambda: s.follows(A, B))
    await s.kill(B)

    # A becomes the new leader.
    assert await s.next_state() == "Leader=1, ISR=[1], ELR=[2], LastKnownELR=[]"
    await s.until(lambda: s.follows(A, A))


async def nothing_is_lost(s: Script) -> None:
    await story(s)
    assert s.log_of(A) == ["m1", "m2"]
    await s.start(B)
    await s.settled()
    await s.produce("m3")
    assert await s.read() == s.log_of(A) == s.log_of(B) == ["m1", "m2", "m3"]


async def m2_is_lost(s: Script) -> None:
    await story(s)
    assert s.log_of(A) == await s.read() == ["m1"]
    await s.start(B)  # "regardless of whether B comes back or not"
    await s.until(lambda: s.follows(B, A))
    assert await s.read() == ["m1"]


def test_by_leader_epochs_nothing_is_lost() -> None:
    ending = tell(nothing_is_lost, (B, A), 2)
    assert (ending.violation, ending.losses) == (None, [])


def test_by_high_watermarks_the_new_leader_lacks_an_acknowledged_record() -> None:
    assert tell(m2_is_lost, (B, A), 2, bug="M01", watched=False).violation is None


def test_the_invariants_stop_it_when_a_candidate_truncates_what_is_committed() -> None:
    violation = tell(story, (B, A), 2, bug="M01").violation
    assert violation is not None
    assert (violation.property, violation.event) == ("LeaderCandidateCompleteness", "broker-1 truncate story-0")


async def a_crash(s: Script) -> None:
    await beginning(s)
    await s.kill(A)
    assert await s.next_state() == "Leader=2, ISR=[2], ELR=[1], LastKnownELR=[]"
    s.mend()
    await s.start(A)
    assert await s.next_state() == "Leader=2, ISR=[2], ELR=[], LastKnownELR=[1]"
    await s.until(lambda: s.follows(A, B))
    assert s.log_of(A) == []  # its last checkpoint was from before m1
    await s.kill(B)

    # A must wait for B, and B's log is better.
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[2], LastKnownELR=[1]"
    await s.start(B)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[], LastKnownELR=[1, 2]"
    assert await s.next_state() == "Leader=2, ISR=[2], ELR=[], LastKnownELR=[1]"
    assert await s.next_state() == "Leader=2, ISR=[1, 2], ELR=[], LastKnownELR=[]"
    await s.settled()
    await s.produce("m3")
    assert await s.read() == s.log_of(A) == s.log_of(B) == ["m1", "m2", "m3"]


def test_after_a_crash_nobody_counts_on_a_follower_that_has_truncated() -> None:
    ending = tell(a_crash, (B, A), 2, bug="M01")
    assert (ending.violation, ending.losses) == (None, [])
