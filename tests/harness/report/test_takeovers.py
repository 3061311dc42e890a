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


def told(struck: Fault, inside: Inside, *faults: Fault) -> list[str]:
    return taken_over(struck, faults or (struck,), inside, ORIGIN)


def test_each_leadership_is_counted_for_who_led_next() -> None:
    inside = Inside({
        "t-0": states((0, 1), (12, -1), (13, 2)), "t-1": states((0, 1), (12, 3), (14, 2)),
        "t-2": states((0, 2), (12, 3)), "t-3": states((0, 1)), "t-4": states((0, 1), (12, 2)),
    }, names=NAMES)  # fmt: skip
    assert told(fault(10, 20, "broker-1", "controller-1"), inside) == [
        "3 leaderships of broker-1 went to 2 brokers: broker-2 (2), broker-3 (1)"
    ]


def test_what_comes_long_after_is_no_consequence() -> None:
    inside = Inside({"t-0": states((0, 1), (40, 2))}, names=NAMES)
    assert told(fault(10, 20, "broker-1"), inside) == []
    assert told(fault(10, 35, "broker-1"), inside) == ["1 leadership of broker-1 went to 1 broker: broker-2 (1)"]


def test_of_whom_nothing_is_known_nothing_is_said() -> None:
    assert told(fault(10, None, "broker-9"), Inside({"t-0": states((0, -1), (12, 2))}, names=NAMES)) == []


def test_what_follows_another_fault_on_the_same_broker_is_that_ones_doing() -> None:
    inside = Inside({"t-0": states((0, 1), (25, 2))}, names=NAMES)
    first, second = fault(10, 20, "broker-1"), fault(22, 30, "broker-1")
    assert told(first, inside, first, second) == []
    assert told(second, inside, first, second) == ["1 leadership of broker-1 went to 1 broker: broker-2 (1)"]


def test_who_stays_in_the_isr_was_not_taken_over_from_for_the_fault() -> None:
    """As with an election of preferred leaders."""
    elected = [*states((0, 1)), State(ORIGIN + 12_000_000_000, 2, 1, (1, 2), (), ())]
    assert told(fault(10, 20, "broker-1"), Inside({"t-0": elected}, names=NAMES)) == []
