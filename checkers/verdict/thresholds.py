"""Thresholds on how well a run's cluster worked, such as `p99 < 500ms`: judged beside what must never happen.

| metric | in | what is held against the bound |
| --- | --- | --- |
| recovery | time | from the heal of a fault until every partition acknowledges again for good; of the slowest |
| unavailable | time | for how long in all the least served partition acknowledged nothing |
| unavailable … per fault | time | the longest time within a fault for which a partition acknowledged nothing |
| p50, p90, p99, p99.9, max | time | the latency of acknowledged appends |
| served | % | the share of the time for which the least served partition acknowledged |
| acknowledged | records, or /s | acknowledged appends, in all or a second |

A threshold is `METRIC OPERATOR BOUND`, with one of the operators < <= > >=. What it measures is in `availability` of
verdict.json (checkers/log/availability.py). A bound that was not met makes the verdict `fail`, with `safety` beside it:
what the verdict is without thresholds. One that could not be measured (a recovery, where no fault was healed) makes a
pass `unknown`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TIMES_MS: Final = {"ms": 1.0, "s": 1000.0, "m": 60_000.0}
_PERCENTILES: Final = ("p50", "p90", "p99", "p99.9", "max")
_METRICS: Final = ("recovery", "unavailable", *_PERCENTILES, "served", "acknowledged")
_FORM: Final = re.compile(
    r"\s*(?P<metric>[a-z0-9.]+)\s*(?P<operator>[<>]=?)\s*(?P<bound>\d+(\.\d+)?)\s*(?P<unit>%|/s|[a-z]*)"
    r"\s*(?P<each>per\s+fault)?\s*"
)
_EXAMPLES: Final = "recovery < 10s, p99 < 500ms, unavailable < 5s per fault, served > 90%, acknowledged > 1000/s"

Availability = Mapping[str, Any]


@dataclass(frozen=True)
class Threshold:
    """unit: ms, % or /s; "": a number of records. bound: in that unit."""

    text: str
    metric: str
    operator: str
    bound: float
    unit: str
    per_fault: bool = False

    def judge(self, availability: Availability | None) -> dict[str, Any]:
        """{expect, measured: a text, value: in `unit` (null: endless, or not measured), held: null where it could not
        be measured}."""
        value = self._measured(availability) if availability else None
        held = None if value is None else _OPERATORS[self.operator](value, self.bound)
        finite = value is not None and math.isfinite(value)
        return {"expect": self.text, "measured": self._words(value), "value": value if finite else None,
                "unit": self.unit, "held": held}  # fmt: skip

    def _measured(self, of: Availability) -> float | None:
        if not of.get("acknowledged"):  # then nothing was ever served; how slowly is not known
            return {"served": 0.0, "acknowledged": 0.0}.get(self.metric)
        if self.metric == "recovery":
            return _slowest_recovery(all_windows(of))
        if self.metric in _PERCENTILES:
            return float(of["latency_ms"][self.metric])
        seconds = float(of["outside"]["seconds"] + of["in_force"]["seconds"])
        if self.metric == "acknowledged":
            return float(of["acknowledged"]) / (seconds if self.unit else 1) if seconds or not self.unit else None
        if self.per_fault:
            return max((float(window["longest_gap_ms"]) for window in all_windows(of)), default=None)
        share = float(of["least_served"]["share"])
        return round(100 * share, 2) if self.metric == "served" else round((1 - share) * seconds * 1000, 3)

    def _words(self, value: float | None) -> str:
        if value is None:
            return "not measured"
        if self.unit == "ms":
            return "never" if math.isinf(value) else f"{value / 1000:,.1f} s" if value >= 10_000 else f"{value:,.1f} ms"
        return f"{value:,.0f}{self.unit}" if self.unit in ("", "/s") else f"{value:g}{self.unit}"


def all_windows(availability: Availability) -> list[Mapping[str, Any]]:
    """Of every fault that struck, also of those that `windows` of a verdict has no room for."""
    return [*availability["windows"], *availability.get("further_windows", ())]


def _slowest_recovery(windows: Sequence[Mapping[str, Any]]) -> float | None:
    """None: no fault was healed."""
    healed = [window["recovery"]["sustained_from_heal_ms"] for window in windows if window["until_s"] is not None]
    return max((math.inf if each is None else float(each) for each in healed), default=None)


def parse(text: str) -> Threshold:
    """Raises ValueError, a sentence."""
    match = _FORM.fullmatch(text)
    if match is None or match["metric"] not in _METRICS:
        raise ValueError(f"{text!r} is no threshold; there are {', '.join(_METRICS)}, for example {_EXAMPLES}")
    metric, given, bound = match["metric"], match["unit"], float(match["bound"])
    words = f"{metric} {match['operator']} {match['bound']}{given}{' per fault' * bool(match['each'])}"
    if match["each"] and metric not in ("recovery", "unavailable"):
        raise ValueError(f"{words!r}: only recovery and unavailable are measured per fault")
    if metric == "served":
        _check(given == "%" and bound <= 100, words, "a share of at most 100%, for example served > 90%")
        return Threshold(words, metric, match["operator"], bound, "%")
    if metric == "acknowledged":
        _check(given in ("", "/s"), words, "records, or records a second, for example acknowledged > 1000/s")
        return Threshold(words, metric, match["operator"], bound, given)
    _check(given in _TIMES_MS, words, "a time with its unit, ms, s or m, for example 500ms")
    return Threshold(words, metric, match["operator"], bound * _TIMES_MS[given], "ms", bool(match["each"]))


def _check(right: bool, words: str, what: str) -> None:
    if not right:
        raise ValueError(f"{words!r} must name {what}")


def apply(expected: Sequence[str], verdict: dict[str, Any], exit_codes: Mapping[str, int]) -> dict[str, Any]:
    """The verdict (content of verdict.json) with what became of each threshold in `thresholds`, and what it is without
    them in `safety`. Without thresholds it is as it was."""
    if not expected:
        return verdict
    judged = [_judged(text, verdict["availability"]) for text in expected]
    safety, reason = verdict["verdict"], verdict["reason"]
    broken = [each for each in judged if each["held"] is False]
    unmeasured = [each for each in judged if each["held"] is None]
    word = safety
    if safety != "fail" and broken:
        told = ", ".join(f"{each['expect']} was expected and {each['measured']} measured" for each in broken)
        word, reason = "fail", f"of the thresholds {told}; safety: {safety}, {reason}"
    elif safety == "pass" and unmeasured:
        told = ", ".join(each["expect"] for each in unmeasured)
        word, reason = "unknown", f"of the thresholds {told} could not be measured; safety: {safety}, {reason}"
    return {**verdict, "verdict": word, "reason": reason, "exit_code": exit_codes[word],
            "safety": safety, "thresholds": judged}  # fmt: skip


def _judged(text: Any, availability: Availability | None) -> dict[str, Any]:
    """Also of a plan that somebody has edited."""
    try:
        return parse(text).judge(availability)
    except (ValueError, TypeError) as error:
        return {"expect": str(text), "measured": str(error), "value": None, "unit": "", "held": None}
