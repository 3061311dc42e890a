"""The small drawing of a witness: the operations that contradict each other, and the faults in force, over time.

A line of words and a bar for each operation, in the order of their invocations; a pale bar up to the right edge
has no completion on record. Thin lines mark where each operation completed, so that one sees what came after it: the
argument of a contradiction is mostly that one bar ends before another begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from checkers.anomalies import seconds
from harness.report.html.svg import tag, text_at

WIDTH: Final = 900
MARGIN: Final = 6
ROW: Final = 38
BAR: Final = 12
LEAST_BAR: Final = 3


def witness_svg(witness: str | None, origin: int) -> Markup | None:
    """The drawing of what ANOMALIES has in its column `witness`; None if there is nothing to draw."""
    try:
        parts = json.loads(witness or "{}")
        operations, faults = parts.get("operations", []), parts.get("faults", [])
        if not operations:
            return None
        return _draw(operations, faults, origin)
    except (ValueError, KeyError, TypeError, AttributeError):  # a damaged row: its sentence and operations are there
        return None


def _draw(operations: list[Mapping[str, Any]], faults: list[Mapping[str, Any]], origin: int) -> Markup:
    since = min(each["invoke"] for each in operations)
    until = max(max(each["invoke"], each["complete"] or 0) for each in operations)
    span = max(until - since, 1)

    def x(time: int | None) -> float:
        share = 1.0 if time is None else min(max((time - since) / span, 0.0), 1.0)
        return round(MARGIN + share * (WIDTH - 2 * MARGIN), 1)

    height = ROW * (len(operations) + len(faults)) + MARGIN
    drawn = [
        tag("line", class_="moment", x1=x(each["complete"]), x2=x(each["complete"]), y1=0, y2=height)
        for each in operations
        if each["complete"] is not None
    ]
    y = 0
    for each in operations:
        outcome = each["outcome"] if each["outcome"] in ("ok", "fail", "info") else "info"
        css = outcome + (" open" if each["complete"] is None else "")
        said = "" if outcome == "ok" else f" ({each['outcome']})"
        who = "" if each["process"] is None else f"process {each['process']}, "
        words = f"{who}op {each['op']}: {each['what']}{said}"
        drawn += _row(y, words, each["invoke"], each["complete"], x, css, origin)
        y += ROW
    for fault in faults:
        words = f"{fault['nemesis']} of {' '.join(fault['targets'] or ()) or 'nothing'}"
        drawn += _row(y, words, fault["start"], fault["end"], x, "fault", origin)
        y += ROW
    title = "The operations of this witness over time, each from its invocation to its completion"
    return tag("svg", tag("title", title), *drawn, class_="witness", viewBox=f"0 0 {WIDTH} {height}", role="img")


def _row(y: int, words: str, start: int, end: int | None, x: Any, css: str, origin: int) -> list[Markup]:
    when = f"{seconds(start, origin)} to {'?' if end is None else seconds(end, origin)}"
    left = x(start)
    width = max(x(end) - left, LEAST_BAR)
    left = min(left, WIDTH - MARGIN - width)
    return [
        text_at(MARGIN, y + 16, words),
        text_at(WIDTH - MARGIN, y + 16, when, css="when", anchor="end"),
        tag("rect", tag("title", f"{words}, {when}"), class_=css, x=left, y=y + 21, width=width, height=BAR, rx=2),
    ]
