"""The search by itself, on small histories where much overlaps, little is distinct and many outcomes are unknown."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from checkers.models.bounds import Bounds, Budget
from checkers.models.calls import Call, Object
from checkers.models.core import find_core
from checkers.models.objects import MODELS, UNKNOWN
from checkers.models.search import search
from checkers.models.texts import Texts
from checkers.registers.columns import CAS, READ, REFUSED, WRITE
from checkers.registers.searched import Register
from tests.checkers.histories.random_histories import HISTORIES
from tests.checkers.histories.register_histories import linearizable

Make = Callable[[random.Random, bool], Any]  # an action; whether it is ok


def register_action(rng: random.Random, ok: bool) -> Any:
    kind = rng.choice([READ, READ, WRITE, WRITE, CAS, REFUSED] if ok else [WRITE, WRITE, CAS])
    return (kind, rng.randrange(4), rng.randrange(4) if kind in (CAS, REFUSED) else 0)


def kv_action(rng: random.Random, ok: bool) -> Any:
    f = rng.choice(["get", "get", "put", "append", "append"])
    if f == "get":
        return (f, None, rng.choice(["", "a", "b", "aa", "ab", "ba", "aba", "abb"]) if ok else UNKNOWN)
    return (f, rng.choice(["", "a", "a", "b", "ab", "z"]), None)


def queue_action(rng: random.Random, ok: bool) -> Any:
    if rng.random() < 0.5:
        return ("enqueue", rng.randrange(2), None)
    return ("dequeue", None, rng.choice([0, 0, 1, 1, None]) if ok else UNKNOWN)


def set_action(rng: random.Random, ok: bool) -> Any:
    if rng.random() < 0.6:
        return ("add", rng.randrange(3), None)
    return ("read", None, tuple(rng.sample(range(3), rng.randrange(4))) if ok else UNKNOWN)


def mutex_action(rng: random.Random, ok: bool) -> Any:
    return (rng.choice(["acquire", "release"]), None, None)


def counter_action(rng: random.Random, ok: bool) -> Any:
    if rng.random() < 0.6:
        return ("add", rng.choice([-1, 0, 1, 1, 2]), None)
    return ("read", None, rng.randrange(-1, 4) if ok else UNKNOWN)


def txn_action(rng: random.Random, ok: bool) -> Any:
    steps = [(rng.choice("rw"), rng.choice("ab"), rng.choice([None, 1, 2])) for _ in range(rng.choice([1, 1, 2]))]
    asked = tuple((f, key, value if f == "w" else None) for f, key, value in steps)
    return ("txn", asked, tuple(steps) if ok else UNKNOWN)


def prepared(model: str, calls: list[Call], budget: Budget) -> Object:
    if model == "register":
        return Register(0, calls)
    return Texts(calls, "", budget) if model == "kv" else MODELS[model]


def plain_step(model: str) -> tuple[Any, Callable[[Any, Any], Any]]:
    """Initial state, and what each action does, without anything that keeps the search small."""
    if model != "register":
        return MODELS[model].initial, MODELS[model].step

    def step(state: int, action: tuple[int, int, int]) -> list[int]:
        kind, value, expected = action
        if kind == WRITE:
            return [value]
        if kind == CAS:
            return [value] if state == expected else []
        return [state] if (state == value if kind == READ else state != expected) else []

    return 0, step


ACTIONS: dict[str, Make] = {
    "register": register_action,
    "kv": kv_action,
    "queue": queue_action,
    "fifo-queue": queue_action,
    "set": set_action,
    "mutex": mutex_action,
    "counter": counter_action,
    "multi-register": txn_action,
}


def random_calls(rng: random.Random, make: Make) -> list[Call]:
    count, span, longest = rng.randint(2, 8), rng.choice([3, 8, 20]), rng.choice([2, 6, 12])
    open_ = rng.choice([0.0, 0.2, 0.5])
    calls = []
    for number in range(count):
        invoke = rng.randrange(span)
        complete = None if rng.random() < open_ else invoke + rng.randint(1, longest)
        calls.append(Call(number, make(rng, complete is not None), invoke, complete))
    if rng.random() < 0.6:  # one comes after the others, and may be a read
        calls[-1] = replace(calls[-1], invoke=span + longest, complete=span + longest + 1)
        calls[-1] = replace(calls[-1], action=make(rng, True))
    return calls


LAST: dict[str, Any] = {"kv": ("get", None, ""), "register": (READ, 0, 0), "counter": ("read", None, 0)}


def with_true_results(rng: random.Random, model: str, calls: list[Call]) -> list[Call]:
    """Reads return what they would if each call took effect at an instant of its own, but for one now and then: so that
    most of the history can be explained, and much of it in few ways."""
    points = sorted((rng.uniform(call.invoke, call.end if call.complete else 40), call.number) for call in calls)
    by_number = {call.number: call for call in calls}
    state, step = plain_step(model)
    for _, number in points:
        call = by_number[number]
        if call.complete is None and rng.random() < 0.3:
            continue
        action = call.action
        if call.complete is not None and rng.random() < 0.95:
            if model in LAST and number == len(calls) - 1:
                action = LAST[model]
            if model == "kv" and action[0] == "get":
                action = ("get", None, state)
            elif model == "register" and action[0] in (READ, CAS):
                action = (READ, state, 0) if action[0] == READ else (CAS, action[1], state)
            elif model == "counter" and action[0] == "read":
                action = ("read", None, state)
            elif model == "set" and action[0] == "read":
                action = ("read", None, tuple(state))
            elif model == "fifo-queue" and action[0] == "dequeue":
                action = ("dequeue", None, state[0] if state else None)
            by_number[number] = replace(call, action=action)
        state = next(iter(step(state, action)), state)
    return list(by_number.values())


@pytest.mark.parametrize("model", ACTIONS)
@pytest.mark.timeout(3600)
def test_search_agrees_with_brute_force(model: str) -> None:
    verdicts: Counter[bool] = Counter()
    initial, step = plain_step(model)
    for seed in range(HISTORIES):
        rng = random.Random(f"{model} {seed}")
        calls = random_calls(rng, ACTIONS[model])
        if seed % 3:
            calls = with_true_results(rng, model, calls)
        expected = linearizable([(call.action, call.invoke, call.complete) for call in calls], initial, step)
        budget = Budget(Bounds(60))
        answer = search(calls, prepared(model, calls, budget), budget)
        assert answer.linearizable == expected, (seed, calls)
        verdicts[expected] += 1
        if expected or seed % 5:
            continue
        core = find_core(calls, lambda some, mine: prepared(model, list(some), mine), answer, Bounds(60))
        numbers = {call.number for call in core}
        relaxed = [call if call.number in numbers else replace(call, complete=None) for call in calls]
        for reported in (relaxed, core):
            timed = [(call.action, call.invoke, call.complete) for call in reported]
            assert not linearizable(timed, initial, step), (seed, calls, core)
    assert min(verdicts.values()) > HISTORIES // 100, "both verdicts are put to the test"
