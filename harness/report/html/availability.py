"""The report's availability table: one row a partition, one column a fault, coloured by the longest time without an
acknowledgement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.report import words

MOST_FAULTS: Final = 16
MOST_PARTITIONS: Final = 40
#: A cell is the hotter the longer its gap, in seconds.
_HEAT_S: Final = (0.1, 0.3, 1.0, 3.0, 10.0)


def heat_map(availability: Mapping[str, Any]) -> dict[str, Any] | None:
    """columns: names of faults; rows: {name, cells: [{heat (0 to 5), gap, p99, title}]}, the first cell beside all
    faults; unlisted: how many faults and partitions there are more. None: nothing was appended."""
    partitions = availability["partitions"]
    if not partitions:
        return None
    windows = availability["windows"][:MOST_FAULTS]
    rows = []
    for entry in partitions[:MOST_PARTITIONS]:
        cells = [_cell("beside all faults", entry["outside"])]
        cells += [_cell(f"F{window['fault']}", window) for window in entry["windows"][:MOST_FAULTS]]
        rows.append({"name": entry["partition"], "cells": cells})
    unlisted = availability["unlisted"]
    return {
        "columns": [f"F{window['fault']}" for window in windows],
        "rows": rows,
        "unlisted_faults": unlisted["windows"] + len(availability["windows"]) - len(windows),
        "unlisted_partitions": unlisted["partitions"] + len(partitions) - len(rows),
        "exact": availability["exact"],
    }


def _cell(where: str, cell: Mapping[str, Any]) -> dict[str, Any]:
    gap = cell["longest_gap_ms"] / 1e3
    latency = cell["latency_ms"] or {}
    lines = [f"{where}: {words.plural(cell['acknowledged'], 'append')} acknowledged"]
    lines.append(f"longest gap {words.duration(gap)}")
    if latency:
        reported = ", ".join(f"{name} {words.duration(value / 1e3)}" for name, value in latency.items())
        lines.append(f"latency {reported}")
    if "recovery" in cell:
        of = cell["recovery"]
        for moment in ("strike", "heal"):
            after, sustained = of[f"from_{moment}_ms"], of[f"sustained_from_{moment}_ms"]
            lines.append(f"after the {moment}: next {_after(after)}, sustained {_after(sustained)}")
    return {
        "heat": sum(gap > limit for limit in _HEAT_S),
        "gap": gap,
        "p99": latency["p99"] / 1e3 if latency else None,
        "title": "\n".join(lines),
    }


def _after(milliseconds: float | None) -> str:
    return "not before the end" if milliseconds is None else f"after {words.duration(milliseconds / 1e3)}"
