"""Schedules as files that people read, edit and give to `chaos run --schedule`: TOML, a table a fault, in any order.

[[fault]]
nemesis = "partition:one-way"  # as for --nemesis
at = 5.5                       # seconds since clients began, or "5.5s"
duration = "4s"                # from injected to healed
targets = ["broker-1"]         # whom to strike; left out: whom the nemesis chooses when the time comes
choice = {direction = "incoming"}  # what else there is to choose; left out: drawn from the seed
composite = "last-replica-standing"  # of what it is a part, if of anything; occurrence: which time, from 0
into_outages = true            # strike though clients are not served yet after an earlier fault (of slow targets)
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from harness.errors import BadArguments
from harness.plan import choices
from harness.plan.durations import seconds
from harness.plan.schedule import CALM_AT_END_S, Fault, Schedule
from nemesis import Nemesis
from nemesis.composites import Composite
from spark_history.regular import require_regular

SCHEDULE_FILE: Final = "schedule.toml"
#: Of versions before schedules could be edited by hand.
_OLD_FILE: Final = "schedule.json"
_ROUNDED_S: Final = 0.005  # what saved times may be off by


Seconds = Annotated[float, BeforeValidator(seconds)]

_SCHEDULE = TypeAdapter(Schedule)


class _Written(BaseModel):
    """A fault as a person writes it."""

    model_config = ConfigDict(extra="forbid")

    nemesis: str
    at: Annotated[Seconds, Field(ge=0)]
    duration: Annotated[Seconds, Field(gt=0)]
    fault: int | None = None
    targets: Annotated[list[str], Field(min_length=1)] | None = None
    choice: dict[str, Any] = {}
    composite: str | None = None
    occurrence: int = 0
    into_outages: bool = False


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    fault: list[_Written] = []


def save(schedule: Schedule, directory: Path) -> None:
    """As a file that can be edited by hand and given to --schedule."""
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment("Faults of this run, in seconds since clients began. To repeat them, changed or not:"))
    document.add(tomlkit.comment(f"chaos run --schedule {SCHEDULE_FILE}"))
    faults = tomlkit.aot()
    for fault in schedule:
        table = tomlkit.table()
        choice = dict(fault.choice)
        targets = choice.pop("targets", None)
        for name in ("fault", "nemesis", "at", "duration"):
            table.add(name, getattr(fault, name))
        if targets is not None:
            table.add("targets", targets)
        if choice:
            inline = tomlkit.inline_table()
            inline.update(choice)
            table.add("choice", inline)
        if fault.composite is not None:
            table.add("composite", fault.composite)
            table.add("occurrence", fault.occurrence)
        if fault.into_outages:
            table.add("into_outages", True)
        faults.append(table)
    if schedule:
        document.add("fault", faults)
    (directory / SCHEDULE_FILE).write_text(tomlkit.dumps(document))


def load(directory: Path) -> Schedule:
    """The schedule of a saved run. Raises OSError, or ValueError if it is damaged."""
    path = directory / SCHEDULE_FILE
    if not path.exists() and (directory / _OLD_FILE).exists():
        require_regular(directory / _OLD_FILE)
        return _SCHEDULE.validate_json((directory / _OLD_FILE).read_bytes())
    require_regular(path)
    faults = _read(path)
    return tuple(_planned(each, number, {}) for number, each in enumerate(faults))


def names_in(path: Path) -> tuple[str, ...]:
    """The nemeses that a schedule file written by hand asks for, each once: of parts, what they are parts of. Raises
    BadArguments."""
    return tuple(dict.fromkeys(each.composite or each.nemesis for each in _by_hand(path)))


def parts_in(path: Path) -> tuple[str, ...]:
    """The nemeses of its faults, each once. Raises BadArguments."""
    return tuple(dict.fromkeys(each.nemesis for each in _by_hand(path)))


def read(path: Path, nemeses: Mapping[str, Nemesis], seed: int, time_limit: float, nodes: Iterable[str]) -> Schedule:
    """A schedule file written by hand, in order of time. What its faults leave open is drawn from the seed.

    nodes: names that targets may have. Raises BadArguments.
    """
    known = list(nodes)
    if not _by_hand(path):
        raise BadArguments(f"{path} holds no fault; for a run without any give --nemesis none")
    written = sorted(_by_hand(path), key=lambda each: each.at)
    numbers = [each.fault for each in written if each.fault is not None]
    if len(set(numbers)) < len(numbers):
        raise BadArguments(f"{path} gives a number to two faults; leave numbers out")
    free = (number for number in range(len(written)) if number not in numbers)
    faults = []
    for each in written:
        where = f"{path}: the fault {each.nemesis} at {each.at:g} s"
        if len(set(each.targets or ())) < len(each.targets or ()):
            raise BadArguments(f"{where} names a target twice; name each once")
        for name in each.targets or ():
            if name not in known:
                raise BadArguments(f"{where} is to strike {name!r}, which is no node; there are {', '.join(known)}")
        if each.at + each.duration > time_limit - CALM_AT_END_S + _ROUNDED_S:
            raise BadArguments(
                f"{where} lasts until {each.at + each.duration:g} s and is to end {CALM_AT_END_S:g} s before the time "
                f"limit of {time_limit:g} s; give a longer --time-limit"
            )
        number = next(free) if each.fault is None else each.fault
        nemesis = nemeses[each.nemesis]
        if isinstance(nemesis, Composite):
            raise BadArguments(f"{where} stands for several faults; write them, as in the schedule.toml of a run of it")
        if (wrong := choices.problem(nemesis, each.choice, each.targets or ())) is not None:
            raise BadArguments(f"{where}: {wrong}")
        drawn = nemesis.draw(Random(f"{seed}/{each.nemesis}/{number}")).choice
        faults.append(_planned(each, number, drawn))
    return tuple(faults)


def _planned(written: _Written, number: int, drawn: Mapping[str, Any]) -> Fault:
    targets = {} if written.targets is None else {"targets": written.targets}
    return Fault(
        fault=number if written.fault is None else written.fault, nemesis=written.nemesis,
        at=written.at, duration=written.duration, choice={**drawn, **written.choice, **targets},
        composite=written.composite, occurrence=written.occurrence, into_outages=written.into_outages,
    )  # fmt: skip


def _by_hand(path: Path) -> list[_Written]:
    try:
        return _read(path)
    except OSError as error:
        raise BadArguments(f"{path} cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        # A name that is none explains best why another is missing.
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        place = [part for part in first["loc"] if part != "fault"]
        which = f"fault {place[0] + 1}" if place and isinstance(place[0], int) else "the file"
        what = ".".join(str(part) for part in place[1:]) if which != "the file" else ".".join(map(str, first["loc"]))
        problem = str(first.get("ctx", {}).get("error", first["msg"]))
        if first["type"] == "extra_forbidden":
            there_are = _File if which == "the file" else _Written
            problem = f"there is no such thing; there are {', '.join(there_are.model_fields)}"
        raise BadArguments(
            f"{path}: {which}{f', {what}' if what else ''}: {problem[:1].lower()}{problem[1:]}"
        ) from None
    except ValueError as error:
        raise BadArguments(f"{path} is not TOML: {error}") from None


def _read(path: Path) -> list[_Written]:
    """Raises OSError or ValueError."""
    require_regular(path)
    return _File.model_validate(tomllib.loads(path.read_text())).fault
