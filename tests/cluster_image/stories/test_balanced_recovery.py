"""002, 5.3.3: balanced unclean recovery after a power outage of the whole cluster."""

from __future__ import annotations

from tests.cluster_image.stories.script import Script, tell


async def story(s: Script) -> None:
    # 1. Initial state.
    assert await s.next_state() == "Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await apart(s)
    assert s.ends() == {1: (15, 10), 2: (12, 8), 3: (10, 8)}

    # 2. A power outage takes down the cluster, and it comes back online: first the controllers.
    lost = [(await s.cut_power(broker))["lost_by_partition"] for broker in (1, 2, 3)]
    assert lost == [{"story-0": 7}, {}, {"story-0": 2}]
    for controller in s.controllers:
        await s.cut_power(controller)
    s.mend()
    for controller in s.controllers:
        await s.restore_power(controller)

    # 3. to 5. The controller fences the brokers one by one.
    assert await s.next_state() == "Leader=2, ISR=[2, 3], ELR=[], LastKnownELR=[]"
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[2], LastKnownELR=[]"
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[2, 3], LastKnownELR=[]"

    # 6. Broker 1 starts with loss of committed data. It was not in the ELR: no change, as the next one shows.
    await s.restore_power(1)
    await s.until(lambda: s.follows(1, -1))
    assert s.end_of(1) == 8

    # 7. Broker 2 starts without loss and is moved from the ELR to the LastKnownELR.
    await s.restore_power(2)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[3], LastKnownELR=[2]"
    await s.until(lambda: s.follows(2, -1))
    assert s.end_of(2) == 12

    # 8. So is broker 3, which has lost committed data.
    await s.restore_power(3)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[], LastKnownELR=[2, 3]"
    await s.until(lambda: s.follows(3, -1))
    assert s.end_of(3) == 8

    # 9. and 10. The controller asks all of the LastKnownELR for their logs and chooses replica 2.
    assert await s.next_state() == "Leader=2, ISR=[2], ELR=[], LastKnownELR=[3]"

    # In the end, no committed data was lost: not offsets 0 to 9. Of the rest, what replica 2 had is committed now.
    await s.settled()
    await s.produce("after")
    await s.settled()
    assert await s.read() == s.log_of(1) == s.log_of(2) == s.log_of(3) == [*map(str, range(12)), "after"]


async def apart(s: Script) -> None:
    """Bring the replicas to LEO=15, HWM=10; LEO=12, HWM=8; LEO=10, HWM=8, all of them in the ISR."""
    await s.produce(*map(str, range(8)))
    await s.until(lambda: s.ends() == {1: (8, 8), 2: (8, 8), 3: (8, 8)})
    s.write_back(1, 3)
    # The next fetch of replica 2 is on its way, from offset 8, until there is more to fetch than for replica 3.
    s.cut((2, 1))
    await s.passing(0.6)
    acknowledged = s.send("8", "9")
    await s.until(lambda: s.end_of(3) == 10)
    s.cut((1, 3))
    s.send("10", "11")
    await s.until(lambda: s.end_of(1) == 12)
    s.mend((2, 1))
    await s.until(lambda: s.end_of(2) == 12)
    s.cut((1, 2))
    # The leader hears of 8 and 9 from both, and they do not hear that it did.
    assert (await acknowledged).name == "none"
    s.send("12", "13", "14")
    await s.until(lambda: s.end_of(1) == 15)
    s.write_back(2)


def test_the_replica_that_has_lost_nothing_is_found_and_elected() -> None:
    ending = tell(story, (1, 2, 3), 2)
    assert (ending.violation, ending.losses) == (None, [])
