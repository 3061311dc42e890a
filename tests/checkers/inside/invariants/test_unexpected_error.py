"""Code of a node that is wrong is found wherever it runs: answering a request, by a timer, in a task."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cluster_image.kraft.broker.leadership import Leadership
from cluster_image.kraft.broker.partition import Partition
from harness.explore.simulate import simulate
from tests.checkers.inside.invariants.test_durability import EXPLORED

RETAINED: Final = {"log.segment.bytes": "1024", "log.retention.bytes": "1024", "log.retention.check.interval.ms": "500"}
PLACES: Final = {"request": (Leadership, "wait"), "timer": (Partition, "apply_retention"),
                 "task": (Partition, "consider_shrinking")}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_it_is_found(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def wrong(self: Any, *arguments: Any, **named: Any) -> None:
        raise KeyError("of the code itself")

    monkeypatch.setattr(*PLACES[place], wrong)
    done = simulate(EXPLORED.model_copy(update={"settings": RETAINED, "time_limit": 20.0}))
    assert done.violation is not None and done.violation.property == "UnexpectedError"
    assert "KeyError('of the code itself')" in done.violation.message and done.violation.nodes


def test_what_a_disk_or_a_peer_brings_about_is_no_fault_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, *arguments: Any, **named: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(Leadership, "wait", full)
    done = simulate(EXPLORED.model_copy(update={"time_limit": 20.0}))
    assert done.violation is None or done.violation.property != "UnexpectedError"
