"""Nothing here touches the kernel's trigger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from harness.runtimes.agent.host.itself import reboot
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.ssh import reboot as power
from harness.runtimes.ssh.agents import NoAnswer
from harness.runtimes.ssh.connection.sessions import HostUnreachable, Output


def test_a_container_is_never_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboot, "in_container", lambda: True)
    monkeypatch.setattr(reboot, "_now", lambda trigger: pytest.fail("it was pulled"))
    with pytest.raises(OSError, match="this host is a container"):
        reboot.soon(reboot.TRIGGER)


class Rebooting:
    """A node, its session, and its host's agents. boots: which one its host is in, at one look after the other; "": it
    is down. Then the last one for ever."""

    name = "broker-1"
    agent_command = ("agent",)
    host = SimpleNamespace(name="a")

    def __init__(self, *boots: str, asked: Exception | None = None, started: Sequence[Exception] = ()) -> None:
        self._boots = list(boots)
        self._asked = asked
        self._started = list(started)
        self.session = self
        self.back_in: list[str] = []

    async def is_running(self) -> bool:
        return True

    def boot_of(self, node: str) -> str:
        return "boot 1"

    async def ask(self, node: str, do: str) -> Any:
        if do == "reboot" and self._asked is not None:
            raise self._asked
        return {"lost_files": 3} if do == "rebooted" else None

    def drop(self) -> None: ...

    def run(self, command: Sequence[str], **_: Any) -> Output:
        boot = self._boots.pop(0) if len(self._boots) > 1 else self._boots[0]
        if not boot:
            raise HostUnreachable("host a: nobody answers")
        return Output(0, boot.encode(), "")

    def start_agent(self) -> str:
        if self._started:
            raise self._started.pop(0)
        return "boot 2"

    def back(self, node: str, boot: str) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # it waits for lines
        self.back_in.append(boot)

    def cut_power(self) -> dict[str, Any]:
        this: Any = self
        return asyncio.run(power.cut_power(this, this, self.start_agent))


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "_GOES_S", 0.3)
    monkeypatch.setattr(power, "_LOOK_S", 0.02)
    monkeypatch.setattr(power, "BACK_S", 0.5)


LOST = NoAnswer("reboot on broker-1: host a: the connection was lost")


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("asked", [None, LOST], ids=["answered", "answer lost"])
def test_a_host_that_goes_is_waited_for_whether_or_not_it_could_say_so(asked: Exception | None) -> None:
    node = Rebooting("boot 1", "", asked=asked, started=[HostUnreachable("host a: nobody answers")] * 2)
    evidence = node.cut_power()
    assert node.back_in == ["boot 2"]
    assert evidence["rebooted"] == "a" and evidence["lost_files"] == 3 and evidence["exit_status"] == 137


@pytest.mark.usefixtures("patience")
def test_a_host_that_stays_up_was_not_rebooted() -> None:
    with pytest.raises(AgentError, match="host a was not rebooted by its trigger"):
        Rebooting("boot 1").cut_power()
    with pytest.raises(NoAnswer, match="the connection was lost"):
        Rebooting("boot 1", asked=LOST).cut_power()
    refused = AgentError("reboot on broker-1: OSError: this host is a container")
    with pytest.raises(AgentError, match="is a container"):
        Rebooting("", asked=refused).cut_power()


@pytest.mark.usefixtures("patience")
def test_a_host_that_does_not_come_back_is_told() -> None:
    node = Rebooting("", started=[HostUnreachable("host a: nobody answers")] * 1000)
    with pytest.raises(AgentError, match="host a did not come back: host a: nobody answers"):
        node.cut_power()
