"""The seeds of one exploration that are simulated apart: on several machines (`--shard`), or some after it was stopped
(`--resume`). Each part has a directory, with a file that says which seeds it was to simulate, and of which."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow.parquet as pq

from harness.errors import BadArguments
from harness.plan.plan import Plan
from harness.plan.seeds import parse_seeds
from harness.record.results import EXPLORATION_FILE
from harness.report.browse.exploration import ranges
from spark_history.dataset import list_parts
from spark_history.regular import read_object

T = TypeVar("T")
FILE: Final = "seeds.json"
#: Of a plan, what differs from run to run, or from part to part.
_OF_RUNS: Final = frozenset({"run", "seed"})


@dataclass(frozen=True)
class Part:
    """plan: of all runs, as JSON, but for names and seeds. seeds: to be simulated here. of: of the whole exploration.
    guided: runs are made of others, so that their seeds tell nothing. drawn: fields of the plan that each seed draws
    for itself, in their order; None: it does not say, as those of an older version."""

    directory: Path
    plan: Mapping[str, Any]
    seeds: Sequence[int]
    of: Sequence[int]
    guided: bool
    drawn: Sequence[str] | None = None

    def write(self) -> None:
        """Raises OSError."""
        told = {
            "plan": self.plan, "drawn": self.drawn, "seeds": ranges(self.seeds), "of": ranges(self.of),
            "guided": self.guided,
        }  # fmt: skip
        (self.directory / FILE).write_text(json.dumps(told, indent=1) + "\n")

    def simulated(self) -> list[int]:
        """Seeds of the runs whose histories are here, with repetitions, in no order. Raises BadArguments."""
        seeds = []
        for name in list_parts(self.directory / "dataset"):
            path = self.directory / "dataset" / "runs" / name
            try:
                plans = pq.read_table(path, columns=["plan"])["plan"].to_pylist()
                seeds += [int(json.loads(plan)["seed"]) for plan in plans]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise BadArguments(f"{path} is damaged: {error}") from None
        return seeds

    def failing(self) -> Sequence[tuple[int, str]]:
        """Runs that the harness itself could not carry out or judge: seed, and `crashed` or `hang`. Raises
        BadArguments."""
        return self._told(
            lambda told: [(int(each["seed"]), str(each["result"])) for each in told["failing"]
                          if each["result"] != "fail"], [],
        )  # fmt: skip

    def ended_without_a_run(self) -> bool:
        """It was stopped before its first one was done. Raises BadArguments."""
        return self._told(lambda told: int(told["totals"]["runs"]) == 0, False)

    def _told(self, of: Callable[[Any], T], otherwise: T) -> T:
        """of: what it says at its end. otherwise: if its process did not come to that. Raises BadArguments."""
        path = self.directory / EXPLORATION_FILE
        try:
            return of(read_object(path))
        except FileNotFoundError:
            return otherwise
        except (OSError, ValueError, KeyError, TypeError):
            raise BadArguments(f"{path} is not what chaos explore writes") from None


def part(
    directory: Path, plan: Plan, seeds: Sequence[int], of: Sequence[int], guided: bool, drawn: Collection[str]
) -> Part:  # fmt: skip
    return Part(directory, plan.model_dump(mode="json", exclude=set(_OF_RUNS)), seeds, of, guided, sorted(drawn))


def read(directory: Path) -> Part:
    """Raises BadArguments."""
    try:
        told = json.loads((directory / FILE).read_text())
        seeds, of = (parse_seeds(told[name]) if told[name] else [] for name in ("seeds", "of"))
        drawn = None if told.get("drawn") is None else sorted(map(str, told["drawn"]))
        return Part(directory, dict(told["plan"]), seeds, of, bool(told["guided"]), drawn)
    except FileNotFoundError:
        raise BadArguments(f"{directory} is no exploration: it has no {FILE}") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise BadArguments(f"{directory / FILE} is not what chaos explore writes") from None


def left(directories: Sequence[Path], plan: Plan, seeds: Sequence[int], drawn: Collection[str]) -> list[int]:
    """Those of these seeds that no exploration there has simulated by this plan. drawn: see Part. Raises
    BadArguments."""
    wanted = part(Path(), plan, seeds, seeds, guided=False, drawn=drawn)
    done: set[int] = set()
    for each in map(read, directories):
        if each.guided:
            raise BadArguments(f"--resume: {each.directory} is guided; give its --corpus, and seeds that are new")
        if (other := _difference(wanted, each)) is not None:
            raise BadArguments(f"--resume: {each.directory} is another exploration: {other}")
        done.update(each.simulated())
    return [seed for seed in seeds if seed not in done]


def differing(here: Mapping[str, Any], there: Mapping[str, Any]) -> str | None:
    """What the plan of another exploration has else than this one, as JSON both; None: nothing."""
    names = sorted(here.keys() | there.keys(), key=lambda each: (each != "seed", each))  # which draws others
    for name in names:
        if here.get(name) != there.get(name):
            return f"its {name} is {there.get(name)}, not {here.get(name)}"
    return None


def _difference(one: Part, another: Part) -> str | None:
    if (other := differing(one.plan, another.plan)) is not None:
        return other
    mine, theirs = one.drawn, another.drawn
    if mine == theirs:
        return None
    if mine is None or theirs is None:
        return "one of them is of an older version, and does not say what its seeds draw"
    name = min({*mine} ^ {*theirs})
    return f"its {name} is {'' if name in theirs else 'not '}drawn by each seed"


@dataclass(frozen=True)
class Joined:
    """Several parts together. lines: what is to be said of them. complete: they are of one exploration, and each of its
    seeds was simulated, once. lost: runs that left no history, and were not made again."""

    lines: Sequence[str]
    complete: bool
    lost: int


def join(parts: Sequence[Part], others: Sequence[Path] = ()) -> Joined:
    """parts: at least one. others: directories of explorations that do not say of which they are a part. Raises
    BadArguments."""
    lines = [f"{each} does not say of which exploration it is: it has no {FILE}" for each in others]
    for each in parts:
        if (other := _difference(parts[0], each)) is not None:
            lines.append(f"{each.directory} is of another exploration than {parts[0].directory}: {other}")
        if each.guided and (count := len(each.simulated()) + len(each.failing())) < len(each.seeds):
            lines.append(f"{each.directory} was cut short: {count} of {len(each.seeds)} runs")
    plain = [each for each in parts if not each.guided]
    times = Counter(seed for each in plain for seed in each.simulated())
    lost = [what for each in parts for seed, what in each.failing() if each.guided or seed not in times]
    known = {seed for each in plain for seed, _ in each.failing()} | times.keys()
    of = {seed for each in plain for seed in each.of}
    if twice := [seed for seed, count in times.items() if count > 1]:
        lines.append(f"simulated more than once: seeds {_first_of(twice)}")
    if missing := sorted(of - known):
        lines.append(f"not simulated: {len(missing)} of {len(of)} seeds: {_first_of(missing)}")
    complete = not lines
    if lost:
        lines.append("left no history: " + ", ".join(f"{count} {what}" for what, count in Counter(lost).items()))
    return Joined(lines, complete, len(lost))


#: Ranges of seeds that a sentence names.
_NAMED: Final = 20


def _first_of(seeds: Sequence[int]) -> str:
    every = ranges(seeds).split(", ")
    return ", ".join(every[:_NAMED]) + (", …" if len(every) > _NAMED else "")
