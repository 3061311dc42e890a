"""Whether the harness of a run is still at work, by what its run.json says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.runtimes.owner import is_alive, machine


def still_running(record: Mapping[str, Any]) -> bool:
    """record: run.json of a run whose status is `running`. Of another machine's, which cannot be asked: True."""
    harness = record.get("harness")
    if not isinstance(harness, Mapping) or harness.get("machine") != machine():
        return True
    return is_alive(str(harness.get("process")))
