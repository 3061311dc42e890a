"""`chaos clean --on ssh` and `chaos install`, against hosts that are stand-ins: whose that is which lies there, and
what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.runtimes.agent.host import holding
from harness.runtimes.ssh import clean as module
from harness.runtimes.ssh.clean import clean
from harness.runtimes.ssh.connection.sessions import HostUnreachable, NotOnAll, Output, Session
from harness.runtimes.ssh.doctor import scripts
from harness.runtimes.ssh.hosts_file import Host, Hosts
from harness.runtimes.ssh.installation import install, installing

from ..ssh_server import SshServer

LOOK = {"python": [3, 11], "executable": "/usr/bin/python3", "machine": "x86_64", "ssh": None, "there": [],
        "anything": False}  # fmt: skip


class Left:
    """A host with what this status says. asked: what was run there, but for programs themselves."""

    def __init__(self, *folders: str, holder: dict[str, Any] | None = None, silent_s: float | None = None) -> None:
        found = {"folders": [f"/var/lib/chaos/{each}" for each in folders], "rules": []}
        held = silent_s is not None
        self.status = {"held": held, "holder": holder, "silent_s": silent_s, "found": found}
        self.asked: list[list[str]] = []
        self.closed = False

    def run(self, command: list[str], *, input: Any = b"", sudo: bool = False, **_: Any) -> Output:
        assert command[:2] == ["python3", "-c"]
        if command[2] == scripts.AGENT:
            assert sudo and input == scripts.packed_agent()
            self.asked.append(command[4:])
            answer: Any = self.status if command[4] == "status" else ["folders: all"]
        else:
            self.asked.append(command[3:])
            answer = LOOK
        return Output(0, json.dumps(answer).encode(), "")

    def close(self) -> None:
        self.closed = True


def cleaned(left: Left, monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[str]:
    monkeypatch.setattr(module, "Session", lambda host: left)
    found = clean(Hosts((Host("a", "a", "a"),), None, 60.0, Path("hosts.toml")), **how)
    assert left.closed
    assert [words for words in left.asked if words[0] not in ("look", "status", "remove")] == []
    return found


DEAD = {"run": "old", "who": "somebody"}


def test_what_is_only_looked_at_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Left("run-old", holder=DEAD)
    (line,) = cleaned(left, monkeypatch, looks_only=True)
    assert line == "would be removed from a, of run old of somebody: folders: /var/lib/chaos/run-old"
    assert [words[0] for words in left.asked] == ["look", "status"]


def test_what_a_dead_run_left_is_removed_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Left("run-old", holder=DEAD)
    assert cleaned(left, monkeypatch) == ["removed from a: folders: all"]
    assert left.asked[-1] == ["remove", "/var/lib/chaos", "old"]
    assert cleaned(Left(), monkeypatch) == []


def test_a_run_whose_host_was_rebooted_is_found_by_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """What says who holds the host is gone then."""
    assert cleaned(Left("run-mine"), monkeypatch, run="mine") == ["removed from a: folders: all"]
    assert cleaned(Left("run-a", "run-mine"), monkeypatch, run="mine") == ["removed from a: folders: all"]
    left = "a was left alone: what is there is of run another of nobody known"
    assert cleaned(Left("run-another"), monkeypatch, run="mine") == [left]


def test_whoever_holds_a_host_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    holds = Left("run-mine", holder=DEAD, silent_s=1.0)
    assert cleaned(holds, monkeypatch, run="mine") == ["a was left alone: what is there is of run old of somebody"]
    (line,) = cleaned(Left("run-old", holder=DEAD, silent_s=1.0), monkeypatch)
    assert line == (
        "a was left alone: the harness of run old of somebody was heard of 1 s ago, and may be running; if it is dead, "
        "try again in 10 s, or give --run old"
    )


def test_what_was_installed_is_told_though_another_host_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(session: Any, host: Host, *_: Any) -> list[str]:
        if host.name == "b":
            raise HostUnreachable("host b: nobody answers")
        return ["agent-1"]

    monkeypatch.setattr(installing, "Session", lambda host: Left())
    monkeypatch.setattr(install, "look", lambda *_, **__: install.Found("3.11", "/usr/bin/python3", "x86_64", 22))
    monkeypatch.setattr(install, "send", send)
    hosts = Hosts((Host("a", "a", "a"), Host("b", "b", "b")), None, 60.0, Path("hosts.toml"))
    with pytest.raises(NotOnAll, match=r"^host b: nobody answers$") as error:
        installing.install_on(hosts, None, str)
    assert error.value.done == {"a": "a: agent-1"}


def test_the_agent_answers_from_a_folder_of_which_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with SshServer(tmp_path) as server, Session(server.host(sudo=False)) as session:
        host = server.host(sudo=False)
        done = install.ask_agent(session, host, ["boot"], 30.0)
        assert (done.status, done.text.strip()) == (0, holding.boot()), done
        failed = install.ask_agent(session, host, ["sing"], 30.0)
        assert failed.status == 1 and "unknown command sing" in failed.err
