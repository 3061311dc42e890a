"""Parts of the agent on hosts, and of what talks to it, without a host: who holds it, answers given once, clocks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.runtimes.agent.host import __main__ as host
from harness.runtimes.agent.host import holding
from harness.runtimes.agent.host.server import Answers
from harness.runtimes.nodes.asking import AgentError
from harness.runtimes.ssh import agents, clean
from harness.runtimes.ssh.agents import HostAgents
from harness.runtimes.ssh.clean import Status
from harness.runtimes.ssh.host_clock import DRIFT, MOST_DRIFT, HostClock
from harness.runtimes.ssh.traces import on_our_clock

S = 1_000_000_000

#: Holds and lets go, again and again: whoever holds is alone, by a file that only one may make.
PROGRAM = """
import os, sys, time
from pathlib import Path
from random import Random
from harness.runtimes.agent.host import holding
folder = Path(sys.argv[1])
holding.FOLDER, holding.LOCK = folder, folder / "lock"
holding.SOCKET, holding.HEARD = folder / "agent.sock", folder / "heard"
random, mine, until = Random(sys.argv[2]), folder.with_name("alone"), time.monotonic() + 2
held = 0
while time.monotonic() < until:
    holding.is_held()
    try:
        lock = holding.hold({"who": sys.argv[2]})
    except holding.Held as error:
        assert set(error.holder) <= {"who"}
        continue
    os.close(os.open(mine, os.O_CREAT | os.O_EXCL))
    assert holding.holder_of() == {"who": sys.argv[2]} and holding.is_held()
    time.sleep(random.random() / 1000)
    mine.unlink()
    holding.remove_files()
    os.close(lock)
    held += 1
    time.sleep(random.random() / 1000)
print(held)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "run"
    for name, path in (("FOLDER", found), ("LOCK", found / "lock"), ("SOCKET", found / "s"), ("HEARD", found / "h")):
        monkeypatch.setattr(holding, name, path)
    return found


def test_one_holds_a_host_at_a_time_whoever_looks_and_whoever_removes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    several = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    ended = [each.communicate() for each in several]
    assert [each.returncode for each in several] == [0] * 4, [told[-500:] for _, told in ended]
    assert sum(int(told) for told, _ in ended) > 50
    assert not (tmp_path / "run").exists()


def test_who_holds_a_host_is_told_with_what_was_noted(folder: Path) -> None:
    assert holding.holder_of() is None
    assert not holding.is_held()
    lock = holding.hold({"run": "a", "who": "somebody with a long name"})
    holding.note(lock, {"run": "a", "guard": 1})
    with pytest.raises(holding.Held) as error:
        holding.hold({"run": "b"})
    assert error.value.holder == {"run": "a", "guard": 1} == holding.holder_of()
    holding.remove_files()
    assert not folder.exists()


def test_a_run_that_is_just_beginning_is_alive_however_long_that_takes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_alive() -> bool:
        told = host.status(tmp_path)
        return Status(told["held"], told["holder"], told["silent_s"], {}).is_alive

    monkeypatch.setattr(host.undo, "found", lambda _: {})
    monkeypatch.setattr(clean, "_ALIVE_S", 0.3)
    monkeypatch.setattr(holding, "_AGAIN_S", 0.01)
    lock = holding.hold({"run": "a"})
    assert is_alive()
    with holding.beginning():
        time.sleep(0.5)
        assert is_alive()
    time.sleep(0.5)
    assert not is_alive()
    os.close(lock)
    holding.remove_files()


def test_one_that_only_looks_keeps_nobody_from_holding(folder: Path) -> None:
    folder.mkdir()
    holding.LOCK.touch()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            holding.is_held()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(200):
            os.close(holding.hold({"run": "a"}))
    finally:
        over.set()
        looking.join()


def test_a_request_is_carried_out_once_however_often_and_at_once_it_comes() -> None:
    done: Counter[int] = Counter()

    def carry_out(request: Mapping[str, Any]) -> Any:
        time.sleep(0.002)
        done[request["number"]] += 1
        if request["number"] % 3 == 0:
            raise OSError(f"no {request['number']}")
        return request["number"]

    answers = Answers(carry_out)
    random = Random(1)
    told: dict[int, set[str]] = {number: set() for number in range(30)}

    def ask(numbers: list[int]) -> None:
        for number in numbers:
            told[number].add(answers.to(json.dumps({"id": f"id-{number}", "number": number}).encode()))

    several = [threading.Thread(target=ask, args=(random.sample(range(30), 30),)) for _ in range(6)]
    for each in several:
        each.start()
    for each in several:
        each.join()
    assert set(done.values()) == {1} and len(done) == 30
    assert all(len(answered) == 1 for answered in told.values())
    assert json.loads(*told[4]) == {"result": 4}
    assert json.loads(*told[3]) == {"error": "OSError: no 3"}


@pytest.mark.parametrize("line", [b"", b"x", b"[]", b"{}", b"1", b'{"id"}', b"\xff\n", b"null", b'["id"]'])
def test_what_is_no_request_is_told_and_nothing_else(line: bytes) -> None:
    assert "error" in json.loads(Answers(lambda request: pytest.fail("it was carried out")).to(line))


def test_an_answer_that_cannot_be_given_is_an_error() -> None:
    assert "error" in json.loads(Answers(lambda request: object()).to(b'{"id": "a"}'))
    assert "more than anybody reads" in json.loads(Answers(lambda request: "x" * (9 << 20)).to(b'{"id": "a"}'))["error"]


def clock(*lives: list[tuple[float, float]], uncertainty: float = 0.001) -> HostClock:
    """(ours, theirs) in s, from boot to boot."""
    found = HostClock()
    for ours, theirs in (pair for life in lives for pair in life):
        found.add(round((ours - uncertainty) * S), round(theirs * S), round((ours + uncertainty) * S))
    return found


def test_a_moment_of_a_hosts_clock_is_ours_within_what_is_told() -> None:
    random = Random(7)
    for _ in range(200):
        offset, drift = random.uniform(-1e6, 1e6), random.uniform(-DRIFT, DRIFT) * 0.99
        found = HostClock()
        for ours in range(0, 600, 5):
            sent = ours + random.random()
            out, back = random.expovariate(200), random.expovariate(200)
            theirs = offset + (sent + out) * (1 + drift)
            found.add(round(sent * S), round(theirs * S), round((sent + out + back) * S))
        for _ in range(20):
            at = random.uniform(-100, 700)
            ours_ns, uncertainty = found.to_ours(round((offset + at * (1 + drift)) * S))
            assert abs(ours_ns - at * S) <= uncertainty + 1000  # of a float's own precision


@pytest.mark.parametrize("seed", range(20))
def test_a_moment_of_a_clock_that_is_being_corrected_is_ours_within_what_is_told(seed: int) -> None:
    """As chrony does it once the wall clock was set wrong: the monotonic clock runs faster, or slower, for a while."""
    random = Random(seed)
    begins, lasts = random.uniform(50, 150), random.uniform(10, 100)
    rate = random.choice([-1, 1]) * random.uniform(0.001, MOST_DRIFT - DRIFT)

    def theirs(ours: float) -> float:
        return 1e5 + ours + rate * min(max(ours - begins, 0.0), lasts)

    found = HostClock()
    for at in range(0, 300, 5):
        sent = at + random.random()
        out, back = random.expovariate(1000), random.expovariate(1000)
        found.add(round(sent * S), round(theirs(sent + out) * S), round((sent + out + back) * S))
    wrong = []
    for _ in range(100):
        at = random.uniform(0, 300)
        ours_ns, uncertainty = found.to_ours(round(theirs(at) * S))
        wrong.append(abs(ours_ns - at * S))
        assert wrong[-1] <= uncertainty + 1000
    assert found.uncertainty >= max(wrong)


def test_a_host_that_was_rebooted_begins_to_count_anew() -> None:
    # It had been up for 1000 s, was rebooted, and has now been up for as long as the run goes on after that.
    before = [(float(ours), 1000.0 + ours) for ours in range(0, 60, 5)]
    after = [(100.0 + since, 10.0 + since) for since in range(0, 60, 5)]
    found = clock(before, after)
    for theirs, ours in ((1000.0, 0.0), (1030.0, 30.0), (1059.0, 59.0), (10.0, 100.0), (12.0, 102.0), (69.0, 159.0)):
        at, uncertainty = found.to_ours(round(theirs * S))
        assert abs(at - ours * S) <= uncertainty < 0.05 * S, theirs
    # Of two lives that both may have had that time, the later one.
    young = clock([(0.0, 20.0), (5.0, 25.0)], [(50.0, 22.0), (55.0, 27.0)])
    assert abs(young.to_ours(25 * S)[0] - 53 * S) < 0.01 * S


def test_a_host_that_was_never_measured_says_nothing_of_our_time() -> None:
    assert HostClock().to_ours(5)[1] > 10**18
    assert HostClock().in_answer({"killed_at": 5})["clock_uncertainty_ns"] > 10**18


def test_times_in_answers_are_ours_and_nothing_else_is_changed() -> None:
    found = clock([(10.0, 110.0)])
    answer = {"killed_at": 111 * S, "cut_ns": 5, "pid": 7, "shut_down_at": 0, "file": "x"}
    moved = found.in_answer(answer)
    assert abs(moved["killed_at"] - 11 * S) <= moved["clock_uncertainty_ns"]
    assert {**moved, "killed_at": 111 * S, "clock_uncertainty_ns": None} == {**answer, "clock_uncertainty_ns": None}
    assert found.in_answer({"killed_at": 0, "pid": 7}) == {"killed_at": 0, "pid": 7}
    assert found.in_answer([1]) == [1]
    assert found.in_answer(None) is None


def test_a_trace_is_brought_onto_our_clock(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_bytes(b'{"time":110000000000,"event":"a"}\nnot one\n{"event":"time\\":5"}\n{"time":111000000000,"e":')
    on_our_clock(trace, clock([(10.0, 110.0)], uncertainty=0.0))
    assert trace.read_bytes().splitlines() == [
        b'{"time":10000000000,"event":"a"}', b"not one", b'{"event":"time\\":5"}', b'{"time":11000000000,"e":',
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["trace.jsonl"]


class Interrupted:
    """A session, and its channel: everything is closed while an answer is waited for."""

    name = "a"
    complaints = ""

    def __init__(self) -> None:
        self.closed = 0

    def open(self, command: list[str], *, sudo: bool) -> Interrupted:
        return self

    def send(self, request: bytes) -> None:
        pass

    def readline(self, seconds: float) -> bytes:
        self.agents.close()
        return b""

    def wait(self, seconds: float) -> int:
        return 0

    def close(self) -> None:
        self.closed += 1

    agents: HostAgents


def test_a_request_that_is_under_way_when_all_is_closed_is_lost_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "RETRY_S", 0.0)
    session: Any = Interrupted()
    session.agents = HostAgents({"n": session}, {"n": ["true"]}, 60.0)
    with pytest.raises(AgentError, match="its agent is gone"):
        session.agents.ask_now("n", "n", "look", {})
    assert session.closed == 1
