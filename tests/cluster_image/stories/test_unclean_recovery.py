"""002, 5.3.1: what each strategy of unclean recovery does when no candidate is available, and when one lies."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from cluster_image.kraft.controller import rules
from tests.cluster_image.stories.script import Script, tell

REPLICAS = (1, 2, 3)


async def candidates_gone(s: Script) -> None:
    """3 is out of sync, and alive; 1 and 2 have m2, which is committed, and are gone."""
    assert await s.next_state() == "Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await s.produce("m1")
    s.cut((1, 3), (3, 1), (2, 3), (3, 2))
    m2 = s.send("m2")
    assert await s.next_state() == "Leader=1, ISR=[1, 2], ELR=[], LastKnownELR=[]"
    assert (await m2).name == "none"
    await s.kill(1)
    assert await s.next_state() == "Leader=2, ISR=[2], ELR=[1], LastKnownELR=[]"
    await s.kill(2)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[1, 2], LastKnownELR=[]"
    s.mend()


async def everyone_is_back(s: Script, *values: str) -> None:
    await s.start(1)
    await s.start(2)
    await s.settled()
    await s.produce("m3")
    await s.settled()
    assert await s.read() == s.log_of(1) == s.log_of(2) == s.log_of(3) == [*values, "m3"]


async def proactive(s: Script) -> None:
    await candidates_gone(s)
    # Nobody waits for 1 and 2. What 3 has is the log from now on, and they are eligible no more.
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[], LastKnownELR=[1, 2]"
    assert s.unclean_elections == 1
    assert s.recovering
    await s.until(lambda: not s.recovering)  # by its own word, as nobody has joined the ISR yet
    assert s.states[-1] == "Leader=3, ISR=[3], ELR=[], LastKnownELR=[1, 2]"
    await everyone_is_back(s, "m1")


async def balanced(s: Script) -> None:
    await candidates_gone(s)
    await s.passing(10)
    assert s.states[-1] == "Leader=NoLeader, ISR=[], ELR=[1, 2], LastKnownELR=[]"
    await s.start(1)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[2], LastKnownELR=[1]"
    await s.start(2)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[], LastKnownELR=[1, 2]"
    assert s.unclean_elections == 0
    assert await s.next_state() == "Leader=1, ISR=[1], ELR=[], LastKnownELR=[2]"
    assert s.unclean_elections == 1, "a possible loss, though nothing was lost: the controller cannot tell"
    await s.settled()
    assert await s.read() == ["m1", "m2"]


async def manual(s: Script) -> None:
    await candidates_gone(s)
    await s.start(1)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[2], LastKnownELR=[1]"
    await s.start(2)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[], LastKnownELR=[1, 2]"
    await s.passing(10)
    assert s.states[-1] == "Leader=NoLeader, ISR=[], ELR=[], LastKnownELR=[1, 2]"
    assert s.unclean_elections == 0
    # The operator speaks.
    assert (await s.elect_uncleanly(3)).name == "none"
    assert await s.next_state() == "Leader=1, ISR=[1], ELR=[], LastKnownELR=[2]"
    assert s.unclean_elections == 1
    assert (await s.elect_uncleanly(3)).name == "election_not_needed"
    await s.settled()
    assert await s.read() == ["m1", "m2"]


async def an_operator_in_a_hurry(s: Script) -> None:
    await candidates_gone(s)
    assert (await s.elect_uncleanly(3)).name == "none"
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[], LastKnownELR=[1, 2]"
    await everyone_is_back(s, "m1")


@pytest.mark.parametrize(
    ("strategy", "story", "lost"),
    [
        ("proactive", proactive, True),
        ("balanced", balanced, False),
        ("manual", manual, False),
        ("manual", an_operator_in_a_hurry, True),
        ("balanced", an_operator_in_a_hurry, True),
    ],
)
def test_what_a_strategy_does_when_no_candidate_is_available(strategy: str, story: object, lost: bool) -> None:
    ending = tell(story, REPLICAS, 2, settings={"unclean.recovery.strategy": strategy})  # type: ignore[arg-type]
    assert ending.violation is None
    assert len(ending.losses) == lost, ending.losses


async def the_longest_log_is_not_the_best(s: Script) -> None:
    """1 has a tail that was never committed. 2 and 3 have less, and what came after."""
    assert await s.next_state() == "Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await s.produce("m1")
    s.cut((1, 2), (2, 1), (1, 3), (3, 1))
    await s.produce(*"abcde", acks="1")
    await s.kill(1)
    assert await s.next_state() == "Leader=2, ISR=[2, 3], ELR=[], LastKnownELR=[]"
    await s.until(lambda: s.follows(2, 2))
    await s.produce("m2")
    for broker in (2, 3):
        await s.kill(broker)
    await s.until(lambda: "Leader=NoLeader" in s.states[-1])
    s.mend()
    for broker in (1, 2, 3):
        await s.start(broker)
    await s.until(lambda: "NoLeader" not in s.states[-1])
    await s.settled()
    assert await s.read() == ["m1", "m2"]


def test_proactive_too_goes_by_the_epoch_first() -> None:
    settings = {"unclean.recovery.strategy": "proactive"}
    ending = tell(the_longest_log_is_not_the_best, (1, 2, 3), 2, settings=settings)
    assert (ending.violation, ending.losses) == (None, [])
    with pytest.raises(AssertionError, match="'m1', 'a'"):
        tell(the_longest_log_is_not_the_best, (1, 2, 3), 2, settings=settings, bug="M44")


async def a_candidate_loses_what_it_told_of(s: Script) -> None:
    """2 loses committed records, gets them back, tells of them, and loses them again before 3 is heard."""
    assert await s.next_state() == "Leader=2, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    await s.produce(*map(str, range(8)))
    await s.until(lambda: {s.end_of(r) for r in (1, 2, 3)} == {8})
    s.write_back(1, 2, 3)
    await s.produce("8", "9")
    await s.kill(1)
    assert await s.next_state() == "Leader=2, ISR=[2, 3], ELR=[], LastKnownELR=[]"
    assert (await s.cut_power(2))["lost_by_partition"] == {"story-0": 2}
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[2], LastKnownELR=[]"
    await s.restore_power(2)
    assert await s.next_state() == "Leader=3, ISR=[3], ELR=[], LastKnownELR=[2]"

    # 3 cannot tell the controllers that 2 has caught up, and is fenced.
    s.cut(*((3, controller) for controller in s.controllers))
    await s.until(lambda: s.follows(2, 3) and s.end_of(2) == 10)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[3], LastKnownELR=[2]"
    await s.kill(3)
    s.mend()
    await s.start(3)
    assert await s.next_state() == "Leader=NoLeader, ISR=[], ELR=[], LastKnownELR=[2, 3]"

    # Before it is available the controllers lose sight of it. 2 tells of its 10 records.
    s.cut(*((controller, 3) for controller in s.controllers))
    await s.passing(1)
    assert (await s.cut_power(2))["lost_by_partition"] == {"story-0": 2}
    await s.restore_power(2)
    await s.until(lambda: s.follows(2, -1))
    assert s.end_of(2) == 8

    s.mend()
    elected = await s.next_state()
    await s.start(1)
    await s.settled()
    assert elected == "Leader=3, ISR=[3], ELR=[], LastKnownELR=[2]"
    assert await s.read() == [*map(str, range(10))]


def test_what_a_candidate_told_before_its_last_power_cut_is_not_believed() -> None:
    ending = tell(a_candidate_loses_what_it_told_of, (2, 3, 1), 2)
    assert (ending.violation, ending.losses) == (None, [])


def test_else_committed_records_would_be_lost_within_the_contract() -> None:
    with patch.object(rules, "log_info_counts", lambda *_: True):
        ending = tell(a_candidate_loses_what_it_told_of, (2, 3, 1), 2)
    assert ending.violation is not None and ending.violation.property == "LeaderCompleteness"
