"""Why a simulated run was stopped: a property of the protocol that did not hold, with full knowledge of all nodes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from checkers.inside.violation import Violation

VIOLATION_FILE = "violation.json"


@dataclass(frozen=True)
class Halt(Violation):
    """time_ns: virtual. step: callbacks of nodes and clients run until then. event: the last thing that changed. where:
    "topic-0", or empty."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"nodes": list(self.nodes)}

    def save(self, directory: Path) -> None:
        (directory / VIOLATION_FILE).write_text(json.dumps(self.as_dict(), indent=2) + "\n")
