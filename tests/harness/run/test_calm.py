"""When the next fault may strike a cluster that takes long to recover."""

from __future__ import annotations

import asyncio

import pytest

from harness.run.calm import Calm
from harness.targets.timing import QUICK, Timing
from nemesis.kill import Kill
from nemesis.pause import Pause
from nemesis.power import LastInIsr
from workloads.tally import Tally

SLOW = Timing(session=3.0, start=6.0)
S = 1_000_000_000


def obstacle(served: dict[str, tuple[float, float]], timing: Timing = SLOW, nemesis: object = None) -> str:
    async def ask() -> str:
        return Calm(timing, lambda: served).obstacle(nemesis or Kill())  # type: ignore[arg-type]

    return asyncio.run(ask())


def test_clients_must_be_served_and_have_been_most_of_the_time() -> None:
    assert obstacle({"t-0": (0.1, 0.9), "t-1": (0.2, 0.61)}) == ""
    assert obstacle({"t-0": (0.1, 0.9), "t-1": (2.5, 0.9)}) == "t-1 has acknowledged nothing for 2.5 s"
    assert "t-1 has acknowledged for only 59% of the time so far" in obstacle({"t-0": (0.1, 0.9), "t-1": (0.1, 0.59)})


def test_a_quick_cluster_is_not_waited_for_nor_what_strikes_into_outages() -> None:
    down = {"t-0": (9.0, 0.1)}
    assert obstacle(down, QUICK) == "" and obstacle(down, nemesis=LastInIsr()) == "" and obstacle(down) != ""


def test_faults_that_waited_do_not_all_strike_at_once() -> None:
    async def ask() -> list[str]:
        calm = Calm(Timing(session=0.2, start=6.0), lambda: {"t-0": (0.0, 1.0)})
        found = [calm.obstacle(Kill()), calm.obstacle(Kill())]
        await asyncio.sleep(0.25)
        return [*found, calm.obstacle(Kill())]

    assert asyncio.run(ask()) == ["", "another fault has struck just now", ""]


def test_who_has_struck_least_often_is_next() -> None:
    async def ask() -> list[str]:
        calm = Calm(Timing(session=0.1, start=6.0), lambda: {"t-0": (0.0, 1.0)})
        kill, pause = Kill(), Pause()
        found = [calm.obstacle(kill), calm.obstacle(pause)]  # pause waits
        await asyncio.sleep(0.15)
        found += [calm.obstacle(kill), calm.obstacle(pause)]
        await asyncio.sleep(0.15)
        return [*found, calm.obstacle(kill)]  # pause does not wait any more

    struck = "another fault has struck just now"
    assert asyncio.run(ask()) == ["", struck, "it is the turn of pause", "", ""]


def test_who_has_given_up_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.calm.ASKS_AGAIN_S", 0.1)

    async def ask() -> str:
        calm = Calm(Timing(session=0.1, start=6.0), lambda: {"t-0": (0.0, 1.0)})
        calm.obstacle(Kill())
        assert calm.obstacle(Pause())
        await asyncio.sleep(0.15)
        return calm.obstacle(Kill())

    assert asyncio.run(ask()) == ""


def test_what_a_workload_tells_of_each_partition() -> None:
    tally = Tally()
    tally.begin(2, 10 * S)
    for second in range(11, 20):
        tally.acknowledged(0, second * S)
    tally.acknowledged(1, 14 * S)  # after 4 s of nothing
    assert tally.served(0, 20 * S) == (1.0, 1.0)
    assert tally.served(1, 20 * S) == (6.0, 0.0)


def test_a_low_rate_is_no_outage() -> None:
    tally = Tally()
    tally.begin(1, 10 * S, turn_s=3.0)
    for second in range(13, 100, 3):
        tally.acknowledged(0, second * S)
    assert tally.served(0, 100 * S) == (3.0, 1.0)
    assert tally.served(0, 130 * S)[1] < 0.75
