"""Of a simulated run that broke a property: a smaller one that breaks it too, and its story."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_history.regular import read_object

if TYPE_CHECKING:
    from harness.suites.parts import Planned
    from harness.suites.results import Ran

#: What `chaos shrink --json` says of a run, beside the run.
SUFFIX: Final = "-story.json"

#: broken: the property, and the anomaly. lines: numbered, in order of time. directory: of the smaller run, relative to
#: that of the suite. runs: how many were tried. minimal: nothing more could be taken away.
Story = Mapping[str, Any]


def can_be_told(planned: Planned, ran: Ran) -> bool:
    return ran.broken == "safety" and planned.fields.get("on") == "simulation"


def read(path: Path, directory: Path) -> Story | None:
    """directory: of the suite. None: there is none, as the run broke nothing when it was repeated, or was stopped."""
    try:
        found = read_object(path)
        smaller = Path(found["run"]).relative_to(directory.resolve())
        return whole({
            "broken": found["broken"], "lines": found["story"], "directory": str(smaller), "runs": found["runs"],
            "minimal": found["minimal"],
        })  # fmt: skip
    except (OSError, ValueError, KeyError):
        return None


def whole(story: Any) -> Story | None:
    """story: as it was saved. None: it is not one, or not whole."""
    try:
        lines = story["lines"]
        if not isinstance(lines, list) or not lines:
            return None
        return {
            "broken": str(story["broken"]), "lines": [str(line) for line in lines],
            "directory": str(story["directory"]), "runs": int(story["runs"]), "minimal": bool(story["minimal"]),
        }  # fmt: skip
    except (TypeError, KeyError, ValueError):
        return None
