"""002, 5.2.2: clean recovery by the ELR after the sole member of an ISR has lost its page cache.

The text leaves out one moment of today's protocol: replica 1, fenced in an ISR below MinISR, is in the ELR (5.2.1, case
C) until its return tells that its shutdown was unclean, and from then on in the LastKnownELR (5.3.1) until the ISR has
MinISR members again.
"""

from __future__ import annotations

from tests.cluster_image.stories.script import Script, tell


async def story(s: Script) -> None:
    # 1. Initial state.
    assert await s.next_state() == "Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await s.produce("m1")

    # 2. The network becomes flaky. The ISR is still large enough for the high watermark to advance without replica 2.
    s.cut((1, 2), (2, 1), (2, 3), (3, 2))
    m2 = s.send("m2")
    assert await s.next_state() == "Leader=1, ISR=[1, 3], ELR=[], LastKnownELR=[]"
    assert (await m2).name == "none"
    assert (s.log_of(1), s.log_of(2), s.log_of(3)) == (["m1", "m2"], ["m1"], ["m1", "m2"])
    # It is not without replica 3.
    s.cut((1, 3), (3, 1))
    m3 = s.send("m3")
    assert await s.next_state() == "Leader=1, ISR=[1], ELR=[3], LastKnownELR=[]"
    assert (await m3).name == "not_enough_replicas_after_append"
    await s.produce("m4", acks="1")
    assert (s.end_of(1), s.high_watermark_of(1)) == (4, 2)

    # 3. Replica 1, leader and sole member of the ISR, has an unclean shutdown: all of its log is gone.
    assert (await s.cut_power(1))["lost_by_partition"] == {"story-0": 4}
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[1], LastKnownELR=[]"

    # 4. Replica 1 registers again, catches up to the leader and is back in the ISR.
    await s.restore_power(1)
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[], LastKnownELR=[1]"
    s.mend((1, 3), (3, 1))
    assert await s.next_state() == "Leader=3, ISR=[1, 3], ELR=[], LastKnownELR=[]"
    assert s.log_of(1) == s.log_of(3) == ["m1", "m2"]

    # No data loss of acks=all requests; what acks=1 was told of m4 was no promise.
    s.mend()
    assert await s.next_state() == "Leader=3, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await s.produce("m5")
    await s.settled()
    assert await s.read() == s.log_of(1) == s.log_of(2) == s.log_of(3) == ["m1", "m2", "m5"]


def test_nothing_is_lost_though_the_leader_lost_everything() -> None:
    ending = tell(story, (1, 2, 3), 2)
    assert (ending.violation, ending.losses) == (None, [])
