"""The bounded search: it stays within its limits, and says so when it hits one."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest

from checkers import registers
from checkers.models import bounds
from checkers.models.bounds import Bounds, Budget
from checkers.models.calls import Call
from checkers.models.core import find_core
from checkers.models.search import search
from checkers.registers.columns import CAS, READ, WRITE
from checkers.registers.searched import Register
from checkers.verdict.judged import verdict
from tests.checkers.histories.register_histories import Op, table


def hard(concurrent: int = 40, never_completed: int = 32) -> list[Op]:
    """Compare-and-set among few values, all at once and all acknowledged, and a value at the end that none leads to."""
    rng = random.Random(5)
    history = [Op("write", 0, 0, 5, "ok")]
    for _ in range(concurrent):
        one, other = rng.sample(range(8), 2)
        history.append(Op("cas", other, 10, 1000 + rng.randrange(50), "ok", expected=one))
    history += [Op("write", number % 8, 10, None, "info") for number in range(never_completed)]
    return [*history, Op("write", 9, 10, 1060, "ok"), Op("read", 1, 1100, 1110, "ok"), Op("read", 9, 1120, 1130, "ok")]


def test_hard_history_stays_within_its_time() -> None:
    started = time.process_time()  # at most the wall time, and no longer on a busy machine
    plan = {"run": "r", "initial": 0, "bounds": {"seconds": 1.0}}
    judged = registers.check_tables(plan, {"registers": table(hard())})
    assert time.process_time() - started < 2
    outcome = verdict(judged, plan)
    assert (outcome["verdict"], outcome["exit_code"]) == ("unknown", 2)
    assert "key 0: not decided within 1 s (--time-limit of chaos check): " in outcome["reason"]
    assert " of 44 completed operations were explained" in outcome["reason"]


@pytest.mark.parametrize("megabytes", [1, 4])
def test_hard_history_stays_within_its_memory(megabytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is counted as held: what the process has besides depends on what ran in it before."""
    monkeypatch.setattr(bounds, "resident_bytes", lambda: 0)
    plan = {"run": "r", "initial": 0, "bounds": {"seconds": 200.0, "memory_mb": megabytes}}
    tables = {"registers": table(hard(never_completed=0))}
    peaks = []
    for _ in range(3):  # what other threads of this process do meanwhile, Spark's for one, counts too
        tracemalloc.start()
        judged = registers.check_tables(plan, tables)
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
        assert f"not decided within {megabytes} MB of memory" in judged.undecided[0]
        if peaks[-1] < 1.1 * megabytes:
            break
    assert 0.3 * megabytes < min(peaks) < 1.1 * megabytes


def test_dozens_of_operations_that_never_complete() -> None:
    """Info operations are counted, not told apart, so that they do not multiply."""
    rng = random.Random(3)
    calls, value, at = [], 0, 0
    for number in range(2000):
        at += 10
        if number % 25 == 0:
            calls.append(Call(number, (WRITE, rng.randrange(5), 0), at, None))
        elif number % 3:
            calls.append(Call(number, (READ, value, 0), at - 15, at + 15))
        else:
            value = rng.randrange(5)
            calls.append(Call(number, (WRITE, value, 0), at, at + 5))
    answer = search(calls, Register(0, calls), Budget(Bounds(20)))
    assert answer.linearizable
    calls.append(Call(2000, (CAS, 1, 99), at + 100, at + 101))
    calls.append(Call(2001, (WRITE, 99, 0), at + 102, at + 103))
    refuted = search(calls, Register(0, calls), Budget(Bounds(20)))
    assert refuted.linearizable is False
    assert (refuted.blocked, refuted.done) == (2000, refuted.completions - 2)


def test_core_is_small_and_contradicts_itself() -> None:
    rng = random.Random(4)
    calls = [
        Call(number, (WRITE, rng.randrange(3), 0), 10 * number, 10 * number + rng.randrange(40))
        for number in range(200)
    ]
    calls += [Call(900, (WRITE, 7, 0), 990, 1001), Call(901, (WRITE, 8, 0), 1042, 1043)]
    calls += [Call(902, (READ, 7, 0), 1044, 1045)]
    answer = search(calls, Register(0, calls), Budget(Bounds()))
    assert answer.linearizable is False
    core = find_core(calls, lambda some, _: Register(0, some), answer, Bounds(3))
    assert 902 in {call.number for call in core}
    assert {call.number for call in core} <= {900, 901, 902} | set(range(200))
    assert len(core) <= 3
    assert search(core, Register(0, core), Budget(Bounds())).linearizable is False
