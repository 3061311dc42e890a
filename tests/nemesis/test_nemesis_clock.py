"""Faults of wall clocks: what is drawn, what is proof, and what simulation does. Containers: test_docker_clock.py."""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.cluster import NotOffered
from harness.errors import BadArguments
from harness.explore.simulate import simulate
from harness.plan import registry
from harness.plan.plan import Plan
from harness.report.words import evidence_by_node
from harness.runtimes.agent import clock as agent_clock
from harness.runtimes.agent.clock import ASK_IT, wall_minus_monotonic
from harness.runtimes.agent.clock_library import without_waits
from harness.runtimes.docker.node import DockerNode
from harness.runtimes.nodes.clock import NodeClock, wrong_clock
from harness.runtimes.simulation.clock import WALL_CLOCK_ORIGIN, WallClock
from nemesis import EVERYWHERE, merge
from nemesis.clock import Clock, ClockJump, Drift, Jump


def done(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def drawn(name: str, number: int = 300) -> list[dict[str, Any]]:
    nemesis = registry.make_nemeses([name])[name]
    return [dict(nemesis.draw(Random(f"7/{index}")).choice) for index in range(number)]


# -- what is drawn ------------------------------------------------------------------------------------------------


def test_clock_jumps_or_drifts_either_way() -> None:
    choices = drawn("clock")
    assert {frozenset(choice) for choice in choices} == {frozenset(("role", "node", "offset_s", "drift"))}
    jumps = [choice["offset_s"] for choice in choices if choice["offset_s"]]
    drifts = [choice["drift"] for choice in choices if choice["drift"]]
    assert len(jumps) + len(drifts) == 300 and 120 < len(jumps) < 180
    for values, least, most in ((jumps, 0.1, 86_400), (drifts, 0.001, 0.2)):
        assert 0.35 < sum(value < 0 for value in values) / len(values) < 0.65
        assert least <= min(map(abs, values)) < 3 * least and most / 3 < max(map(abs, values)) <= most


def test_knobs_bound_what_is_drawn() -> None:
    assert {abs(choice["offset_s"]) for choice in drawn("clock:jump:min_offset_s=3600:max_offset_s=3600")} == {3600}
    assert all(0.05 <= abs(choice["drift"]) <= 0.1 for choice in drawn("clock:drift:min_rate=0.05:max_rate=0.1"))
    with pytest.raises(BadArguments, match=r"max_rate cannot be '2'; valid: a number from 0.0001 to 0.9"):
        drawn("clock:drift:max_rate=2")


def test_the_slowest_drift_shows() -> None:
    for seed in range(200):
        draw = Drift().draw(Random(seed))
        assert abs(draw.choice["drift"]) * draw.duration * 1000 > 1, "evidence is in whole milliseconds"


@pytest.mark.parametrize("kind", [Clock, Jump, Drift, ClockJump])
def test_every_kind_needs_libfaketime_and_works_everywhere(kind: type[Any]) -> None:
    assert kind.needs == {"faketime"} and kind.runtimes == EVERYWHERE
    assert isinstance(registry.make_nemeses([kind.name])[kind.name], kind)


# -- evidence -----------------------------------------------------------------------------------------------------


def test_evidence_is_what_was_measured_when_it_was_wrong() -> None:
    class Node:
        name = "broker-1"
        answers = [  # noqa: RUF012
            {"clock_offset_ms": 0}, {"clock_offset_ms": 0, "clock_drifted_ms": -812, "clock_drifting_ms": 8000},
        ]  # fmt: skip

        async def set_clock(self, offset_s: float, drift: float = 0.0) -> dict[str, int]:
            return self.answers.pop(0)

    async def scenario() -> dict[str, Any]:
        nemesis, nodes = Drift(), [Node()]
        injected = await nemesis.inject(None, nodes, {"drift": -0.1})  # type: ignore[arg-type]
        assert not nemesis.effective(injected)
        healed = merge(injected, await nemesis.heal(None, nodes))  # type: ignore[arg-type]
        assert nemesis.effective(healed)
        return healed

    healed = done(scenario())
    assert healed["nodes"] == {"broker-1": {"clock_offset_ms": 0, "clock_drifted_ms": -812, "clock_drifting_ms": 8000}}
    assert evidence_by_node(healed) == [("broker-1", "clock lost 812 ms in all while it drifted")]


def test_a_clock_that_nobody_could_look_at_is_no_proof() -> None:
    asked = {"clock": {"offset_s": -0.1, "drift": 0.0}}
    assert not Jump().effective({**asked, "nodes": {"broker-1": {}}})
    assert not Jump().effective({"inject_failed": "OSError"})
    assert Jump().effective({**asked, "nodes": {"broker-1": {}, "broker-2": {"clock_offset_ms": -100}}})


@pytest.mark.parametrize(
    ("offset_s", "drift", "seen", "clear"),
    [
        (-0.1, 0.0, {"clock_offset_ms": -50}, True),
        (-0.1, 0.0, {"clock_offset_ms": -49}, False),
        (-0.1, 0.0, {"clock_offset_ms": 100}, False),
        (3600.0, 0.0, {"clock_offset_ms": 1}, False),
        (0.0, 0.1, {"clock_offset_ms": 1}, False),
        (0.0, 0.1, {"clock_drifted_ms": 500, "clock_drifting_ms": 10_000}, True),
        (0.0, 0.1, {"clock_drifted_ms": 499, "clock_drifting_ms": 10_000}, False),
        (0.0, 0.001, {"clock_drifted_ms": 1, "clock_drifting_ms": 4000}, False),
        (0.0, -0.1, {"clock_drifted_ms": 1000, "clock_drifting_ms": 10_000}, False),
        (5.0, 0.1, {"clock_offset_ms": 5000, "clock_drifted_ms": 0, "clock_drifting_ms": 10_000}, False),
        (5.0, 0.1, {"clock_offset_ms": 5000, "clock_drifted_ms": 900, "clock_drifting_ms": 10_000}, True),
        (0.0, 0.0, {"clock_offset_ms": 1}, False),
    ],
)
def test_an_error_of_the_measuring_is_no_effect(
    offset_s: float, drift: float, seen: dict[str, int], clear: bool
) -> None:
    evidence = {"clock": {"offset_s": offset_s, "drift": drift}, "nodes": {"broker-1": seen}}
    assert Clock().effective(evidence) is clear


# -- simulation ---------------------------------------------------------------------------------------------------


def test_a_simulated_clock_drifts_from_when_it_was_set() -> None:
    now = 100.0
    clock = WallClock(lambda: now)
    assert clock.set(10.0, -0.1) == {"clock_offset_ms": 10_000}
    now = 102.0
    assert clock() == pytest.approx(WALL_CLOCK_ORIGIN + 102 + 10 - 0.2, abs=1e-6)
    assert clock.leftovers() == ["has a clock that is 9.8 s ahead and gains -0.1 s a second"]
    assert clock.set(0.0, 0.0) == {"clock_drifted_ms": -200, "clock_drifting_ms": 2000, "clock_offset_ms": 0}
    now = 110.0
    assert clock() == pytest.approx(WALL_CLOCK_ORIGIN + 110, abs=1e-6)
    assert clock.set(0.0, 0.0) == {"clock_offset_ms": 0}, "safe to repeat"
    assert clock.leftovers() == []


def test_simulated_drift_is_the_same_again_and_shows_in_the_evidence() -> None:
    plan = Plan(run="r", on="simulation", seed=3, nemesis=("clock:drift",), time_limit=15)
    one, other = simulate(plan), simulate(plan)
    assert one.trace_hash == other.trace_hash
    faults = one.tables["faults"].to_pylist()
    assert faults and all(fault["effective"] for fault in faults if fault["targets"])
    for fault in faults:
        for seen in json.loads(fault["evidence"]).get("nodes", {}).values():
            assert seen["clock_offset_ms"] == 0 and seen["clock_drifted_ms"] != 0


# -- what a container is told -------------------------------------------------------------------------------------


def test_offset_file_gives_the_line_that_was_asked_for(tmp_path: Path) -> None:
    clock = NodeClock(tmp_path / "clock")
    assert agent_clock.read(clock.folder) == (0, 0)
    clock.set(5.0, -0.25)
    offset_s, drift = agent_clock.read(clock.folder)
    (start,) = struct.unpack_from("<q", (clock.folder / "start").read_bytes(), 16)
    for later in (0.0, 3.0):
        now = time.time() + later
        shown = start + offset_s + (now - start) * (1 + drift)  # as libfaketime reckons
        assert shown - now == pytest.approx(5 - 0.25 * later, abs=0.01)
    assert clock.offset_s == pytest.approx(5, abs=0.01)
    assert wrong_clock(clock, None) == "has a clock that is 5 s ahead"
    assert wrong_clock(clock, 0.001) == "has a clock that gains -0.25 s a second"
    clock.set(0.0)
    assert wrong_clock(clock, None) == wrong_clock(clock, 0.001) == ""
    assert sorted(path.name for path in clock.folder.iterdir()) == ["offset", "sem.start", "start"]


def test_the_clock_of_another_process_is_measured_to_the_millisecond() -> None:
    printed = subprocess.run([sys.executable, "-c", ASK_IT], check=True, capture_output=True, text=True).stdout
    assert float(printed) == pytest.approx(wall_minus_monotonic(), abs=0.005)


def test_a_docker_node_that_was_not_started_for_it_refuses() -> None:
    node: Any = object.__new__(DockerNode)
    node._lock = asyncio.Lock()
    with pytest.raises(NotOffered):
        done(node._set_clock(1.0, 0.0))


# -- the library --------------------------------------------------------------------------------------------------


def elf(*symbols: bytes) -> bytes:
    """A library that exports these, as far as clock_library.py looks."""
    names = b"\0" + b"\0".join(symbols) + b"\0"
    table = b"".join(
        struct.pack("<IBBHQQ", names.index(b"\0" + name + b"\0") + 1, 0x12, 0, 1, 0, 0) for name in symbols
    )
    sections = 64 + len(names) + len(table)
    header = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q10xHH", sections, 64, 3)
    empty = struct.pack("<IIQQQQIIQQ", *[0] * 10)
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, len(names), 0, 0, 0, 0)
    dynsym = struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, 64 + len(names), len(table), 1, 0, 0, 0)
    return header.ljust(64, b"\0") + names + table + empty + strings + dynsym


def exported(library: bytes, number: int, names_size: int) -> list[bytes]:
    found = []
    for index in range(number):
        (name,) = struct.unpack_from("<I", library, 64 + names_size + 24 * index)
        start = 64 + name
        found.append(library[start : library.index(b"\0", start)])
    return found


def test_the_library_lets_go_of_what_waits() -> None:
    symbols = (b"clock_gettime", b"clock_nanosleep", b"time", b"pthread_cond_timedwait", b"stat")
    library = elf(*symbols)
    size = len(b"\0".join(symbols)) + 2
    assert exported(library, 5, size) == list(symbols)
    assert exported(without_waits(library), 5, size) == [b"clock_gettime", b"", b"time", b"", b"stat"]
    assert len(without_waits(library)) == len(library)


@pytest.mark.parametrize("wrong", [b"", b"#!/bin/sh\n", elf(b"clock_gettime")])
def test_another_file_is_not_taken_for_the_library(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="not "):
        without_waits(wrong)
