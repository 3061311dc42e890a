"""What faults that resize or rebalance a cluster have moved (nemesis.membership.resizing): a broker's load before and
after, and a bar for each move, with the faults that struck meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from harness.report import words
from harness.report.html.aggregate import Fault
from harness.report.html.svg import tag, text_at

MOST_DRAWN: Final = 60
_WIDTH: Final = 760.0
_LEFT: Final = 220.0
_ROW: Final = 16.0
_LOADS: Final = ("before", "planned", "after")


def moves(faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """An entry for each fault that has moved replicas by a plan."""
    return [entry for fault in faults for entry in _of_fault(fault, faults)]


def _of_fault(fault: Fault, faults: Sequence[Fault]) -> Iterator[dict[str, Any]]:
    told = fault.evidence.get("rebalanced")
    if not isinstance(told, Mapping):
        return
    found = [move for move in told.get("moves") or () if _is_move(move)] if _is_list(told.get("moves")) else []
    took = _seconds(told.get("moving_ns"))
    start = fault.start + (_seconds(told.get("after_ns")) or 0.0)
    end = start + took if took is not None else start
    yield {
        "fault": fault,
        "began": start,
        "sentence": words.sentence(words.evidence({"rebalanced": told})),
        "meanwhile": [
            other for other in faults
            if other is not fault and not other.skipped and other.start <= end
            and (other.end is None or other.end >= start)
        ],
        "loads": list(_loads(told.get("load"))),
        "drawn": _bars(found[:MOST_DRAWN], took),
        "not_drawn": max(len(found) - MOST_DRAWN, 0),
    }  # fmt: skip


def _loads(load: Any) -> Iterator[dict[str, Any]]:
    """A row a broker: what it held and led before, was to hold, and held after."""
    stages = {stage: load.get(stage) if isinstance(load, Mapping) else None for stage in _LOADS}
    brokers = {str(b) for of in stages.values() if isinstance(of, Mapping) for b in of}
    for broker in sorted(brokers, key=lambda b: (len(b), b)):
        row: dict[str, Any] = {"broker": broker}
        for stage, of in stages.items():
            counts = of.get(broker) if isinstance(of, Mapping) else None
            for what in ("replicas", "leaders"):
                count = counts.get(what) if isinstance(counts, Mapping) else None
                row[f"{what}_{stage}"] = count if isinstance(count, int) else None
        yield row


def _bars(found: Sequence[Mapping[str, Any]], took: float | None) -> Markup | None:
    if not found:
        return None
    longest = max([_seconds(move["moving_ns"]) or 0.0 for move in found] + [took or 0.0]) or 1.0
    scale = (_WIDTH - _LEFT - 70) / longest
    rows = []
    for number, move in enumerate(found):
        y, seconds = number * _ROW, _seconds(move["moving_ns"]) or 0.0
        added, gone = _added(move), [b for b in move["from"] if b not in move["to"]]
        what = " ".join([*(f"+{b}" for b in added), *(f"−{b}" for b in gone)]) or "order"
        label = f"{move['partition']}: {what}"
        title = f"{label}, done after {words.duration(seconds)}"
        rows.append(tag(
            "g",
            tag("title", title),
            text_at(_LEFT - 8, y + 12, label, anchor="end"),
            tag("rect", x=_LEFT, y=y + 3, width=max(seconds * scale, 1.0), height=_ROW - 6, class_="move"),
            text_at(_LEFT + max(seconds * scale, 1.0) + 6, y + 12, words.duration(seconds)),
        ))  # fmt: skip
    height = len(found) * _ROW + 4
    return tag(
        "svg", *rows, viewBox=f"0 0 {_WIDTH:g} {height:g}", role="img", class_="moves",
        aria_label="How long each move took, from the beginning of the plan",
    )  # fmt: skip


def _added(move: Mapping[str, Any]) -> list[Any]:
    return [broker for broker in move["to"] if broker not in move["from"]]


def _is_move(move: Any) -> bool:
    return (
        isinstance(move, Mapping)
        and isinstance(move.get("partition"), str)
        and all(_is_list(move.get(key)) and all(isinstance(b, int) for b in move[key]) for key in ("from", "to"))
        and _seconds(move.get("moving_ns")) is not None
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _seconds(ns: Any) -> float | None:
    return ns / 1e9 if isinstance(ns, int) and not isinstance(ns, bool) and 0 <= ns < 1e18 else None
