"""The harness' end of agents, against hosts that are stand-ins: frozen, down, rebooted, slow, or speaking nonsense."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.ssh import agents
from harness.runtimes.ssh.agents import HostAgents, NoAnswer

from .stand_in_host import StandIn

RETRY_S = 0.8
SOON_S = 5.0  # of what takes a moment, on a machine that is busy


@pytest.fixture
def host() -> StandIn:
    return StandIn()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def asking(host: StandIn, told: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[HostAgents]:
    monkeypatch.setattr(agents, "RETRY_S", RETRY_S)
    monkeypatch.setattr(agents, "_WATCH_S", 0.02)
    monkeypatch.setattr(agents, "_LOOK_S", 0.05)
    session: Any = host
    found = HostAgents({"n": session}, {"n": ["connect"]}, 0.6, told.append)  # a beat every 0.1 s
    yield found
    found.close()


def soon(holds: Callable[[], object]) -> None:
    until = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def beats() -> int:
    return sum(thread.name == "beat n" for thread in threading.enumerate())


def test_an_agent_hears_of_us_as_soon_as_it_is_there(host: StandIn, asking: HostAgents) -> None:
    asking.started("n", host.boot)
    soon(lambda: host.asked["monotonic_ns"] > 6)
    asking.wait_until_measured()
    assert len(asking.clocks["n"].samples) >= 4


def test_a_frozen_host_costs_the_time_of_the_beat_once(host: StandIn, asking: HostAgents, told: list[str]) -> None:
    """And not that of an answer (60 s), whoever waits for one."""
    asking.started("n", host.boot)
    asking.wait_until_measured()
    host.state = "frozen"
    began = time.monotonic()
    with pytest.raises(NoAnswer, match="kill on n: its agent has not answered for 1 s"):
        asking.ask_now("n", "n", "kill", {})
    assert time.monotonic() - began < RETRY_S + 2
    assert asking.why_not("n")
    began = time.monotonic()
    with pytest.raises(NoAnswer, match="start on n: its agent has not answered for 1 s"):
        asking.ask_now("n", "n", "start", {})
    assert time.monotonic() - began < 0.3
    host.state = "well"
    soon(lambda: not asking.why_not("n"))
    asking.ask_now("n", "n", "start", {})
    ((since, until, why),) = asking.lost["n"]
    assert until is not None and since < until and "has not answered" in why
    soon(lambda: told[-1] == "n answers again")


def test_what_takes_long_makes_no_host_a_lost_one(
    host: StandIn, asking: HostAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "ANSWER_S", 0.3)
    host.takes_s = {"copy_disk": 1.0, "fill_disk": 100.0}
    asking.started("n", host.boot)
    asking.ask_now("n", "n", "copy_disk", {})
    with pytest.raises(NoAnswer, match="fill_disk on n: its agent has not answered for 1 s"):
        asking.ask_now("n", "n", "fill_disk", {})
    assert asking.why_not("n") == "" and not asking.lost.get("n")
    asking.ask_now("n", "n", "kill", {})


def test_a_host_that_was_rebooted_by_somebody_else_can_be_asked_for_files(host: StandIn, asking: HostAgents) -> None:
    asking.started("n", host.boot)
    asking.wait_until_measured()
    host.state = "down"
    soon(lambda: "nobody answers" in asking.why_not("n"))
    host.boot, host.state = "boot 2", "gone"
    soon(lambda: not asking.why_not("n"))
    with pytest.raises(NoAnswer, match="host a was rebooted, and with it went the agent"):
        asking.ask_now("n", "n", "kill", {})
    ((_, until, why),) = asking.lost["n"]
    assert until is None and why.startswith("host a was rebooted")


def test_a_host_that_is_back_is_not_lost_any_more_and_has_one_beat(host: StandIn, asking: HostAgents) -> None:
    asking.started("n", host.boot)
    asking.wait_until_measured()
    host.state = "down"
    soon(lambda: asking.why_not("n"))
    host.boot, host.state = "boot 2", "gone"
    soon(lambda: not asking.why_not("n"))
    measured = len(asking.clocks["n"].samples)
    host.state = "well"
    asking.started("n", host.boot)
    asking.back("n", host.boot)
    assert len(asking.clocks["n"].samples) >= measured + 4, "what it tells next is of a new life of its clock"
    asking.ask_now("n", "n", "rebooted", {})
    assert [until is not None for _, until, _ in asking.lost["n"]] == [True]
    assert beats() == 1
    seen = host.asked["monotonic_ns"]
    soon(lambda: host.asked["monotonic_ns"] > seen + 3)


def test_that_an_agent_was_gone_is_not_said_of_the_one_after_it(host: StandIn, asking: HostAgents) -> None:
    asking.started("n", host.boot)
    asking.wait_until_measured()
    old = agents._Gone("the agent has ended", 0)
    asking.back("n", "boot 2")
    asking._is_gone("n", old)
    asking.ask_now("n", "n", "kill", {})


def test_half_an_answer_is_asked_for_again(host: StandIn, asking: HostAgents) -> None:
    host.nonsense = [b'{"result": 12']
    assert asking.ask_now("n", "n", "kill", {}) > 1000
    assert len(host.ids) == 2 and len(set(host.ids)) == 1


@pytest.mark.parametrize("answer", [b"what?\n", b"[]\n", b'{"result": null}\n', b"\xff\n", b"{}\n", b"3\n"])
def test_nothing_that_is_answered_ends_the_beat(
    host: StandIn, asking: HostAgents, told: list[str], answer: bytes
) -> None:
    host.nonsense = [answer] * 5
    asking.started("n", host.boot)
    soon(lambda: not host.nonsense and host.asked["monotonic_ns"] > 8)
    assert beats() == 1 and not asking.lost.get("n")
    assert [line for line in told if "cannot be measured" in line] == told[:1] != []


def test_an_answer_that_is_none_is_an_error_of_its_request(host: StandIn, asking: HostAgents) -> None:
    host.nonsense = [b"what?\n"]
    with pytest.raises(AgentError, match="kill on n: its agent gives an answer that is none"):
        asking.ask_now("n", "n", "kill", {})


def test_nobody_asks_on_once_all_is_closed(host: StandIn, asking: HostAgents) -> None:
    asking.started("n", host.boot)
    host.state = "down"
    asking.close()
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        asking.ask_now("n", "n", "kill", {})
    assert time.monotonic() - began < RETRY_S / 2
    soon(lambda: beats() == 0)
    assert not asking.lost.get("n"), "it is us who hang up"
