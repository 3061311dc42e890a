"""The smallest run of each bug, kept to be repeated: with the bug it breaks the same property, without it it passes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from harness.errors import BadArguments
from harness.explore.proofs.proving import SOUND, Smallest, without_bug
from harness.explore.shrinking.witness import witness_of
from harness.explore.simulate import simulate
from harness.plan.plan import Plan
from harness.plan.schedule import Fault, Schedule
from spark_history.regular import replacing

FILE: Final = "pinned.json"


@dataclass(frozen=True)
class Pinned:
    """broken: the property that the run breaks."""

    id: str
    plan: Plan
    schedule: Schedule
    broken: str


@dataclass(frozen=True)
class Repeated:
    """broke: what the run breaks now; empty: nothing. without: verdict of the run without the bug, or
    proving.BEYOND."""

    pinned: Pinned
    broke: str
    without: str
    reason: str

    @property
    def holds(self) -> bool:
        return self.broke == self.pinned.broken and self.without in SOUND


def load() -> Sequence[Pinned]:
    """By id."""
    told: Mapping[str, Any] = json.loads(files(__package__).joinpath(FILE).read_text())
    return [
        Pinned(
            id_, Plan(run=id_.lower(), on="simulation", **entry["plan"]),
            tuple(Fault(**fault) for fault in entry["schedule"]), entry["broken"],
        )
        for id_, entry in sorted(told.items())
    ]  # fmt: skip


def check(path: Path) -> None:
    """May save() add to what is there? Raises BadArguments."""
    try:
        if path.exists() and not isinstance(json.loads(path.read_text()), dict):
            raise ValueError(path)
    except (OSError, ValueError) as error:
        raise BadArguments(f"--pin: {path} is not what chaos prove --pin writes") from error


def save(smallest: Mapping[str, Smallest], path: Path) -> None:
    """Beside what is there of other bugs. smallest: by id. Raises OSError."""
    told = json.loads(path.read_text()) if path.exists() else {}
    for id_, each in smallest.items():
        plan = each.plan.model_dump(mode="json", exclude_defaults=True, exclude={"run", "on"})
        told[id_] = {
            "broken": each.broken, "plan": plan,
            "schedule": [fault.model_dump(mode="json") for fault in each.schedule],
        }  # fmt: skip
    with replacing(path) as new:
        new.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def repeat(pinned: Pinned) -> Repeated:
    witness = witness_of(simulate(pinned.plan, pinned.schedule))
    without, reason = without_bug(pinned.plan, pinned.schedule)
    broke = "" if witness is None else str(witness.broken)
    return Repeated(pinned, broke, without, reason)


def chosen(ids: Iterable[str]) -> Sequence[Pinned]:
    wanted = set(ids)
    return [each for each in load() if not wanted or each.id in wanted]
