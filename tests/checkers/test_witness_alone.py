"""Every witness is a contradiction: its operations alone cannot all take effect, nor can they whatever others do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from checkers import models, registers
from tests.checkers.histories import model_histories, register_histories
from tests.checkers.histories.model_histories import INITIAL
from tests.checkers.histories.random_histories import HISTORIES
from tests.checkers.histories.register_histories import linearizable

Timed = tuple[Any, int, int | None]


def contradicts(history: list[Any], ops: list[int], initial: Any, step: Callable[[Any, Any], Any]) -> None:
    """By brute force, which judges the witness alone; and with all others, as they went, at any time or never."""
    alone: list[Timed] = []
    relaxed: list[Timed] = []
    for number, op in enumerate(history):
        if op.outcome == "fail":
            continue
        timed = (op, op.invoke, op.complete if op.outcome == "ok" else None)
        if number in ops:
            alone.append(timed)
            relaxed.append(timed)
        else:
            relaxed.append((op, op.invoke, None))
    assert not linearizable(alone, initial, step), (history, ops)
    assert not linearizable(relaxed, initial, step), (history, ops)


@pytest.mark.parametrize("workload", INITIAL)
@pytest.mark.timeout(3600)
def test_witnesses_of_objects_contradict_themselves(workload: str) -> None:
    reported = 0
    for seed in range(HISTORIES):
        rng = random.Random(f"alone {workload} {seed}")
        history = model_histories.mutate(rng, model_histories.random_history(rng, workload))
        plan = {"run": "r", "workload": workload}
        for row in models.check_tables(plan, {"calls": model_histories.table(history)}).rows:
            reported += 1
            contradicts(
                history, row["ops"], INITIAL[workload], lambda state, op: model_histories.step(workload, state, op)
            )
    assert reported > HISTORIES // 100


@pytest.mark.parametrize("mode", ["distinct writes", "distinct writes and cas", "repeated values", "all"])
@pytest.mark.timeout(3600)
def test_witnesses_of_registers_contradict_themselves(mode: str) -> None:
    reported = 0
    for seed in range(HISTORIES):
        rng = random.Random(f"alone {mode} {seed}")
        history = register_histories.random_history(
            rng, initial=0, unique=mode.startswith("distinct"), cas=mode in ("distinct writes and cas", "all"), keys=1
        )
        history = register_histories.mutate(rng, history)
        plan = {"run": "r", "initial": 0}
        for row in registers.check_tables(plan, {"registers": register_histories.table(history)}).rows:
            if row["anomaly"] == "failed but visible":
                continue  # it names the failed write, too, which has no place in an order
            reported += 1
            contradicts(history, row["ops"], 0, register_histories.step_register)
    assert reported > HISTORIES // 100
