"""A directory of runs that are worth being changed, a file each: what one exploration has learned, for the next.

A file has a plan and its faults, not the states that it reached: the code may have changed, so they are run again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from harness.errors import BadArguments
from harness.explore.guided.guide import Entry
from harness.explore.workers import Job
from harness.plan import registry
from harness.plan.plan import Plan
from harness.plan.schedule import Fault
from spark_history.regular import replacing


def load(directory: Path) -> Sequence[Job]:
    """In the order of their names; nothing if there is no such directory. Raises BadArguments."""
    if directory.exists() and not directory.is_dir():
        raise BadArguments(f"--corpus {directory} is no directory")
    found = []
    for path in sorted(directory.glob("*.json")):
        try:
            told = json.loads(path.read_text())
            plan = Plan(run="corpus", on="simulation", **told["plan"])
            schedule = tuple(Fault(**fault) for fault in told["schedule"])
            registry.make_nemeses({fault.nemesis for fault in schedule}, plan.acks, plan.timing)
            found.append(Job(plan, schedule))
        except OSError as error:
            raise BadArguments(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, ValidationError, BadArguments):
            raise BadArguments(f"{path} is no run of a corpus; remove it, or give another --corpus") from None
    return found


def save(entries: Sequence[Entry], directory: Path, others: Sequence[Job] = ()) -> int:
    """So few of them that together they reach all that all of them do, and `others`, instead of what is there. How
    many. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    kept = {}
    for job in [*(entry.job for entry in _cover(entries)), *others]:
        assert job.schedule is not None
        told = {
            "plan": job.plan.model_dump(mode="json", exclude_defaults=True, exclude={"run", "on"}),
            "schedule": [fault.model_dump(mode="json", exclude_defaults=True) for fault in job.schedule],
        }
        text = json.dumps(told, indent=1, sort_keys=True) + "\n"
        kept[f"{sha256(text.encode()).hexdigest()[:16]}.json"] = text
    for name, text in kept.items():
        with replacing(directory / name) as new:  # half a file would be refused as no run
            new.write_text(text)
    for path in directory.glob("*.json"):
        if path.name not in kept:
            path.unlink()
    return len(kept)


def _cover(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Greedily: those with most states first, each that adds one."""
    covered: set[int] = set()
    kept = []
    for entry in sorted(entries, key=lambda each: (-len(each.states), each.number)):
        if not entry.states <= covered:
            covered |= entry.states
            kept.append(entry)
    return kept
