"""Thresholds: what may be written, what each measures, and what becomes of a verdict by them."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.verdict.tally import EXIT_CODES
from checkers.verdict.thresholds import apply, parse


def window(gap_ms: float, healed: bool = True, recovery_ms: float | None = 900.0) -> dict[str, Any]:
    recovery = {"sustained_from_heal_ms": recovery_ms if healed else None}
    return {"longest_gap_ms": gap_ms, "until_s": 9.0 if healed else None, "recovery": recovery}


#: 20 s in which 10,000 appends were acknowledged.
AVAILABILITY: dict[str, Any] = {
    "acknowledged": 10_000,
    "latency_ms": {"p50": 2.0, "p90": 20.0, "p99": 200.0, "p99.9": 450.0, "max": 500.0},
    "outside": {"seconds": 15.0},
    "in_force": {"seconds": 5.0},
    "least_served": {"partition": "chaos-1", "share": 0.75},
    "windows": [window(3000.0), window(4000.0, recovery_ms=1500.0), window(100.0, healed=False)],
}


@pytest.mark.parametrize(
    ("held", "broken", "measured"),
    [
        ("recovery < 2s", "recovery < 1.5s", "1,500.0 ms"),
        ("recovery <= 1500ms", "recovery < 1500ms per fault", "1,500.0 ms"),
        ("unavailable < 6s", "unavailable < 5s", "5,000.0 ms"),  # a quarter of 20 s
        ("unavailable <= 4s per fault", "unavailable < 4s per fault", "4,000.0 ms"),
        ("p50 < 3ms", "p50 < 2ms", "2.0 ms"),
        ("p90 < 1m", "p90 < 19ms", "20.0 ms"),
        ("p99<500ms", "p99 < 0.1s", "200.0 ms"),
        ("p99.9 < 1s", "p99.9 < 450ms", "450.0 ms"),
        ("max <= 500ms", "max < 500ms", "500.0 ms"),
        ("served > 74.5%", "served > 75%", "75%"),
        ("acknowledged >= 500/s", "acknowledged > 500/s", "500/s"),
        ("acknowledged > 9999", "acknowledged > 10000", "10,000"),
    ],
)
def test_each_metric_is_held_against_its_bound(held: str, broken: str, measured: str) -> None:
    for text, expected in ((held, True), (broken, False)):
        judged = parse(text).judge(AVAILABILITY)
        assert (judged["held"], judged["measured"]) == (expected, measured), text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("p99", "no threshold"),
        ("p98 < 5ms", "no threshold"),
        ("p99 == 5ms", "no threshold"),
        ("p99 < 5", "a time with its unit"),
        ("p99 < 5%", "a time with its unit"),
        ("p99 < 5h", "a time with its unit"),
        ("p99 < -5ms", "no threshold"),
        ("served > 90", "a share"),
        ("served > 190%", "a share"),
        ("acknowledged > 5s", "records"),
        ("p99 < 5ms per fault", "per fault"),
        ("", "no threshold"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(text)


def test_an_endless_recovery_is_broken_and_one_that_never_began_is_not_measured() -> None:
    never = {**AVAILABILITY, "windows": [window(3000.0, recovery_ms=None)]}
    assert parse("recovery < 10s").judge(never) == {
        "expect": "recovery < 10s", "measured": "never", "value": None, "unit": "ms", "held": False,
    }  # fmt: skip
    for unhealed in ([], [window(1.0, healed=False)]):
        judged = parse("recovery < 10s").judge({**AVAILABILITY, "windows": unhealed})
        assert (judged["held"], judged["measured"]) == (None, "not measured")
    nothing = {"acknowledged": 0, "latency_ms": None, "windows": []}
    held = {text: parse(text).judge(nothing)["held"] for text in ("acknowledged > 1/s", "served > 1%", "p99 < 1s")}
    assert held == {"acknowledged > 1/s": False, "served > 1%": False, "p99 < 1s": None}


def test_faults_that_a_verdict_has_no_room_for_count_too() -> None:
    late = {**AVAILABILITY, "further_windows": [window(9000.0, recovery_ms=None)]}
    assert parse("recovery < 10s").judge(late)["measured"] == "never"
    assert parse("unavailable < 5s per fault").judge(late)["held"] is False


def judged(word: str, *expected: str, availability: Any = AVAILABILITY) -> dict[str, Any]:
    given = {"verdict": word, "reason": "so it is", "exit_code": EXIT_CODES[word], "availability": availability}
    return apply(expected, given, EXIT_CODES)


def test_a_verdict_by_its_thresholds_is_told_apart_from_safety() -> None:
    assert "thresholds" not in judged("pass") and "safety" not in judged("pass")
    kept = judged("pass", "p99 < 1s")
    assert (kept["verdict"], kept["safety"], kept["reason"], kept["exit_code"]) == ("pass", "pass", "so it is", 0)
    broken = judged("pass", "p99 < 1s", "p50 < 1ms", "recovery < 1s")
    assert (broken["verdict"], broken["safety"], broken["exit_code"]) == ("fail", "pass", 1)
    assert broken["reason"] == (
        "of the thresholds p50 < 1ms was expected and 2.0 ms measured, recovery < 1s was expected and 1,500.0 ms "
        "measured; safety: pass, so it is"
    )
    assert [each["held"] for each in broken["thresholds"]] == [True, False, False]


def test_a_safety_violation_stands_whatever_the_thresholds() -> None:
    for expected in ("p99 < 1s", "p99 < 1ms"):
        found = judged("fail", expected)
        assert (found["verdict"], found["safety"], found["reason"]) == ("fail", "fail", "so it is")


def test_what_is_unknown_or_not_measured_passes_nothing() -> None:
    assert judged("unknown", "p99 < 1s")["verdict"] == "unknown"
    assert judged("unknown", "p99 < 1ms")["verdict"] == "fail"  # it is known to be broken, whatever else is not known
    for availability in (None, {**AVAILABILITY, "windows": []}):
        found = judged("pass", "recovery < 1s", availability=availability)
        assert (found["verdict"], found["exit_code"]) == ("unknown", 2)
        assert "recovery < 1s could not be measured" in found["reason"]
    assert judged("pass", "nonsense")["verdict"] == "unknown"  # of a plan that somebody has edited
