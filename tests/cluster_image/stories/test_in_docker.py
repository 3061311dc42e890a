"""002, 5.2.2 and 5.3.3 in containers, with real power cuts: the metadata states as written there, step by step.

The same stories in simulation, where every moment can be looked at: test_clean_recovery.py, test_balanced_recovery.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster_image.stories.docker_script import DockerScript, tell_in_docker

pytestmark = pytest.mark.docker


async def clean_recovery(s: DockerScript) -> None:
    # 1. Initial state.
    assert await s.next_state() == "Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await s.produce("m1")

    # 2. The network becomes flaky. The ISR is still large enough for the high watermark to advance without replica 2.
    await s.cut((1, 2), (2, 1), (2, 3), (3, 2))
    m2 = s.send("m2")
    assert await s.next_state() == "Leader=1, ISR=[1, 3], ELR=[], LastKnownELR=[]"
    assert (await m2).name == "none"
    # It is not without replica 3.
    await s.cut((1, 3), (3, 1))
    m3 = s.send("m3")
    assert await s.next_state() == "Leader=1, ISR=[1], ELR=[3], LastKnownELR=[]"
    assert (await m3).name == "not_enough_replicas_after_append"
    await s.produce("m4", acks="1")
    assert await s.ends() == {1: 4, 2: 1, 3: 2}

    # 3. Replica 1, leader and sole member of the ISR, has an unclean shutdown: all of its log is gone.
    assert (await s.cut_power(1))["lost_by_partition"] == {"story-0": 4}
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[1], LastKnownELR=[]"

    # 4. Replica 1 registers again, catches up to the leader and is back in the ISR.
    await s.restore_power(1)
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[], LastKnownELR=[1]"
    await s.mend((1, 3), (3, 1))
    assert await s.next_state() == "Leader=3, ISR=[1, 3], ELR=[], LastKnownELR=[]"

    # No data loss of acks=all requests; what acks=1 was told of m4 was no promise.
    await s.mend()
    assert await s.next_state() == "Leader=3, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await s.produce("m5")
    assert await s.read() == ["m1", "m2", "m5"]


async def balanced_recovery(s: DockerScript) -> None:
    # 1. Initial state: LEO 15, 12 and 10, and what lies below 10 is committed.
    assert await s.next_state() == "Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await s.produce(*map(str, range(8)))
    await s.write_back(1, 3)
    # Replica 2 is silenced, and goes on when there is more to fetch than for replica 3.
    await s.cut((2, 1))
    await s.passing(0.6)
    acknowledged = s.send("8", "9")
    await ends_at(s, 3, 10)
    await s.cut((1, 3))
    s.send("10", "11")
    await ends_at(s, 1, 12)
    await s.mend((2, 1))
    await ends_at(s, 2, 12)
    assert (await acknowledged).name == "none"
    await s.cut((1, 2))
    s.send("12", "13", "14")
    await ends_at(s, 1, 15)
    await s.write_back(2)
    assert await s.ends() == {1: 15, 2: 12, 3: 10}

    # 2. A power outage takes down the cluster, and it comes back online: first the controllers.
    lost = await asyncio.gather(*(s.cut_power(broker) for broker in (1, 2, 3)))
    assert [evidence["lost_by_partition"] for evidence in lost] == [{"story-0": 7}, {}, {"story-0": 2}]
    await asyncio.gather(*(s.cut_power(controller) for controller in s.controllers))
    await s.mend()
    await asyncio.gather(*(s.restore_power(controller) for controller in s.controllers))

    # 3. to 5. The controller fences the brokers one by one.
    assert await s.next_state() == "Leader=2, ISR=[2, 3], ELR=[], LastKnownELR=[]"
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[2], LastKnownELR=[]"
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[2, 3], LastKnownELR=[]"

    # 6. Broker 1 starts with loss of committed data. It was not in the ELR: no change, as the next one shows.
    await s.restore_power(1)
    await ends_at(s, 1, 8)

    # 7. Broker 2 starts without loss and is moved from the ELR to the LastKnownELR.
    await s.restore_power(2)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[3], LastKnownELR=[2]"
    await ends_at(s, 2, 12)

    # 8. So is broker 3, which has lost committed data.
    await s.restore_power(3)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[], LastKnownELR=[2, 3]"

    # 9. and 10. The controller asks all of the LastKnownELR for their logs and chooses replica 2.
    assert await s.next_state() == "Leader=2, ISR=[2], ELR=[], LastKnownELR=[3]"

    # In the end, no committed data was lost: not offsets 0 to 9. Of the rest, what replica 2 had is committed now.
    await s.until(lambda: s.in_sync == [1, 2, 3])
    await s.produce("after")
    assert await s.read() == [*map(str, range(12)), "after"]


async def ends_at(s: DockerScript, broker: int, offset: int) -> None:
    async def reached() -> bool:
        return await s.end_of(broker) == offset

    await s.until(reached)


def test_clean_recovery(tmp_path: Path) -> None:
    tell_in_docker(clean_recovery, tmp_path)


@pytest.mark.nightly
def test_balanced_recovery(tmp_path: Path) -> None:
    # No follower leaves the ISR before the power does: not for being slow.
    tell_in_docker(balanced_recovery, tmp_path, **{"replica.lag.time.max.ms": "60000"})
