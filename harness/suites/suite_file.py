"""A suite as a file: named plans (harness/plan/plan_file.py), each with its seeds and what is expected of it.

name = "short"                 # by default that of the file
seeds = "1..2"                 # a run of each plan for each; 1 if it is left out
[all]                          # of every plan
time_limit = "20s"
[plans.power-outage]
nemesis = "power-outage"
expect = ["p99 < 2s"]          # thresholds
[plans.power-outage-cluster]   # a control: unless it breaks a property, nothing was tested
nemesis = "power-outage-cluster"
expect = "fail"                # with thresholds: ["fail", "p99 < 2s"]
[plans.sizes]
seeds = "7"
[plans.sizes.matrix]           # a plan for each combination, named sizes[nemesis=kill, partitions=1] …
nemesis = ["kill", "pause"]
partitions = [1, 16]
"settings.replica.lag.time.max.ms" = [4000, 8000]
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import BadArguments
from harness.plan.toml_file import read_toml
from harness.suites.parts import TABLES, Planned, fields_and_expected, seeds_of, together

_KEYS: Final = ("name", "seeds", "all", "plans")
#: Of a plan in a suite, beside the fields that every plan has.
_OWN: Final = ("seeds", "matrix")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
#: So that a matrix of too many lists is told before a machine is busy for weeks.
_MOST: Final = 10_000


@dataclass(frozen=True)
class Suite:
    name: str
    file: Path
    runs: Sequence[Planned]


def read(path: Path) -> Suite:
    """Raises BadArguments."""
    found = read_toml(path, f"the suite {path}")
    if unknown := [key for key in found if key not in _KEYS]:
        raise BadArguments(f"{path} has {unknown[0]!r}, which no suite has; there are {', '.join(_KEYS)}")
    name, plans = found.get("name", path.stem), found.get("plans")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArguments(f"{path}: name {name!r} must be letters, digits, spaces, '.', '_' and '-', 64 at most")
    if not isinstance(plans, Mapping) or not plans or not all(isinstance(plan, Mapping) for plan in plans.values()):
        raise BadArguments(f"{path} has no plans: tables such as [plans.kill], each with fields of a plan")
    common, expected = fields_and_expected(found.get("all", {}), f"{path}, [all]")
    seeds = seeds_of(found.get("seeds", 1), path)
    runs: list[Planned] = []
    for plan_name, plan in plans.items():
        where = f"{path}, [plans.{plan_name}]"
        own = seeds_of(plan["seeds"], path) if "seeds" in plan else seeds
        for suffix, part in _combinations(plan, where):
            fields, expects = fields_and_expected(part, where)
            runs += [
                Planned(plan_name + suffix, seed, together(common, fields), expects or expected or "pass")
                for seed in own
            ]  # fmt: skip
            if len(runs) > _MOST:
                raise BadArguments(f"{path} asks for more than {_MOST:,} runs; leave out some of its plans or seeds")
    return Suite(name, path, runs)


def _combinations(plan: Mapping[str, Any], where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(what its name ends with, its fields) of each plan that a part stands for. Raises BadArguments."""
    fields = {name: value for name, value in plan.items() if name not in _OWN}
    matrix = plan.get("matrix", {})
    if not isinstance(matrix, Mapping) or not all(isinstance(values, list) and values for values in matrix.values()):
        raise BadArguments(f'{where}: matrix must be a table of lists, such as nemesis = ["kill", "pause"]')
    for chosen in itertools.product(*matrix.values()):
        given, words = dict(fields), []
        for name, value in zip(matrix, chosen, strict=True):
            table, dot, entry = name.partition(".")
            if dot:
                if table not in TABLES or not isinstance(given.get(table, {}), Mapping):
                    raise BadArguments(f"{where}: matrix has {name!r}; only {', '.join(TABLES)} have entries")
                given[table] = {**given.get(table, {}), entry: value}
            else:
                given[name] = value
            words.append(f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}")
        yield f"[{', '.join(words)}]" if words else "", given
