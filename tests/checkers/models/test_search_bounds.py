"""Limits of time and memory hold for whatever is searched: histories of each model that are made to be hard."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from checkers.models.bounds import Bounds, Budget
from checkers.models.calls import Call
from checkers.models.search import search
from checkers.models.texts import Texts
from checkers.registers.columns import CAS, READ, WRITE
from checkers.registers.searched import Register
from harness.bench.search import judge
from harness.generate.hard import MODELS, OBJECTS, adversarial, kv_of_clients
from tests.checkers.models.test_search_brute_force import ACTIONS, prepared, random_calls

#: So much that what is linear in a history, to lay it out and tell of it, is little beside it on any machine.
SECONDS = 0.2
MEGABYTES = 100


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.timeout(300)
def test_hard_histories_stay_within_twice_their_limits(model: str) -> None:
    for seed in range(20):
        plan, tables = adversarial(model, seed)
        bounded = {**plan, "bounds": {"seconds": SECONDS, "memory_mb": MEGABYTES}}
        # A search that does not stop, does so each time; a machine that is busy with something else does not.
        goes = (judge(bounded, tables) for _ in range(3))
        taken = next((go for go in goes if go.seconds < 2 * SECONDS), None)
        assert taken is not None, (model, seed)
        assert taken.peak < 2e6 * MEGABYTES, (model, seed, taken.word)
        for undecided in taken.judged.undecided:
            assert "not decided within" in undecided


@pytest.mark.parametrize("clients", [10, 50])
@pytest.mark.parametrize("wrong", [False, True])
def test_kv_of_many_clients_is_judged_with_its_witness_in_seconds(clients: int, wrong: bool) -> None:
    taken = judge(*kv_of_clients(1, clients, 2000, 10, wrong))
    assert taken.word == ("fail" if wrong else "pass")
    assert taken.seconds < 3
    for row in taken.judged.rows:
        assert len(row["message"]) < 4000


def test_nine_indeterminate_appends_do_not_multiply() -> None:
    """20 operations, nine of them of unknown outcome: all orders of these were gone through, within no bound."""
    rng = random.Random(2)
    calls: list[Any] = []
    for number in range(9):
        calls.append(Call(number, ("append", f"{number % 3}a", None), number, None))
    for number in range(9, 19):
        kind = rng.choice(["append", "get"])
        action = ("get", None, "0a1a2a0a") if kind == "get" else ("append", "0a", None)
        calls.append(Call(number, action, 20 + number, 40 + number))
    calls.append(Call(19, ("get", None, "0a1a2a0a1a2a0a1a2a?"), 100, 110))
    budget = Budget(Bounds(1, 200))
    started = time.process_time()
    answer = search(calls, Texts(calls, "", budget), budget)
    assert answer.linearizable is False
    assert time.process_time() - started < 1


def test_what_many_operations_at_once_take_to_lay_out_is_bounded() -> None:
    """What is pending at each completion is as much as there are operations, times how many overlap."""
    count = 6000
    calls = [Call(n, (CAS if n % 2 else WRITE, n % 7, n % 5), 0, count + n) for n in range(count)]
    calls.append(Call(count, (READ, 99, 0), 3 * count, 3 * count + 1))
    for bounds in (Bounds(0.3, 1000), Bounds(60, 20)):
        started = time.process_time()
        answer = search(calls, Register(0, calls), Budget(bounds))
        assert answer.linearizable is None and answer.bound
        assert time.process_time() - started < (0.6 if bounds.seconds < 1 else 20)


@pytest.mark.parametrize("model", [name for name in ACTIONS if name in OBJECTS or name == "register"])
def test_a_bound_never_makes_a_verdict(model: str) -> None:
    """Whichever look at the bounds is the one that hits: the answer is the right one, or none."""
    for seed in range(30):
        calls = random_calls(random.Random(f"bound {model} {seed}"), ACTIONS[model])
        free = Budget(Bounds(60))
        truth = search(calls, prepared(model, calls, free), free)
        for after in (1, 5, 20, 100):
            budget = Budget(Bounds(60))
            _hit_after(budget, after)
            answer = search(calls, prepared(model, calls, Budget(Bounds(60))), budget)
            assert answer.linearizable in (truth.linearizable, None)


def _hit_after(budget: Budget, work: int) -> None:
    """The bound is hit once so much work was done."""
    budget.next_look = work
    look = budget.look

    def looked(held: int = 0) -> None:
        if budget.work >= work:
            budget.bounds = Bounds(0)
        look(held)

    budget.look = looked  # type: ignore[method-assign]
