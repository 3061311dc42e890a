"""Who leads in a broker's place once a fault has struck it, as the report tells it."""

from __future__ import annotations

from harness.record.timeline.partitions import Inside, State
from harness.report.html.aggregate import Fault
from harness.report.html.takeovers import taken_over

ORIGIN = 5_000_000_000
NAMES = {1: "broker-1", 2: "broker-2", 3: "broker-3"}


def states(*leaders: tuple[float, int]) -> list[State]:
    """(second of the report, leader), one after the other."""
    return [State(ORIGIN + round(s * 1e9), leader, n, (), (), ()) for n, (s, leader) in enumerate(leaders)]


def fault(start: float, end: float | None, *targets: str) -> Fault:
    return Fault(0, "power:node", list(targets), start, end, True, {})


def test_each_leadership_is_counted_for_who_led_next() -> None:
    inside = Inside({
        "t-0": states((0, 1), (12, -1), (13, 2)), "t-1": states((0, 1), (12, 3), (14, 2)),
        "t-2": states((0, 2), (12, 3)), "t-3": states((0, 1)), "t-4": states((0, 1), (12, 2)),
    }, names=NAMES)  # fmt: skip
    assert taken_over(fault(10, 20, "broker-1", "controller-1"), inside, ORIGIN) == [
        "3 leaderships of broker-1 went to 2 brokers: broker-2 (2), broker-3 (1)"
    ]


def test_what_comes_long_after_is_no_consequence() -> None:
    inside = Inside({"t-0": states((0, 1), (40, 2))}, names=NAMES)
    assert taken_over(fault(10, 20, "broker-1"), inside, ORIGIN) == []
    assert taken_over(fault(10, 35, "broker-1"), inside, ORIGIN) == [
        "1 leadership of broker-1 went to 1 broker: broker-2 (1)"
    ]


def test_of_whom_nothing_is_known_nothing_is_said() -> None:
    assert taken_over(fault(10, None, "broker-9"), Inside({"t-0": states((0, -1), (12, 2))}, names=NAMES), 0) == []
