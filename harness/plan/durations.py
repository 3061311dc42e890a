"""Converts durations as people write them (5, 5.5s, 500ms, 2m, 1h) to seconds."""

from __future__ import annotations

import re
from typing import Any, Final

_UNITS_S: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(value: Any) -> float:
    """5, 5.5, "5.5s", "500ms", "2m" or "1h" as seconds. Raises ValueError."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(value))
    if isinstance(value, bool) or match is None or match[2] not in _UNITS_S:
        raise ValueError(f"{value!r} is no time; valid: seconds, or a number with a unit, e.g. 500ms, 10s, 2m")
    return round(float(match[1]) * _UNITS_S[match[2]], 6)
