"""A matrix as a file: rows and columns are named parts of plans (harness/plan/plan_file.py), each cell both together.

seeds = "1..2"                 # a run for each, of each cell; 1 if it is left out
[all]                          # of every cell
time_limit = "60s"
[rows.kraft]
target = "kraft"
[rows."kafka 3.9.1"]
target = "kafka:3.9.1"
[columns.none]
nemesis = "none"
[columns.last-replica-standing]
nemesis = "last-replica-standing"

Where parts say the same field, that of the column counts before that of the row, and the row's before [all]; tables
([settings], [features], [clients]) are put together. A part may say what is expected of its cells, as plans of suites
do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import BadArguments
from harness.plan.toml_file import read_toml
from harness.suites.parts import Planned, fields_and_expected, seeds_of, together

_KEYS: Final = ("seeds", "all", "rows", "columns")


@dataclass(frozen=True)
class Matrix:
    """cells: the runs of each, by (row, column): one for each seed."""

    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], Sequence[Planned]]

    @property
    def runs(self) -> list[Planned]:
        return [planned for cell in self.cells.values() for planned in cell]


def read(path: Path, seeds: Sequence[int] | None = None) -> Matrix:
    """seeds: instead of the file's. Raises BadArguments."""
    found = read_toml(path, f"the matrix {path}")
    if unknown := [key for key in found if key not in _KEYS]:
        raise BadArguments(f"{path} has {unknown[0]!r}, which no matrix has; there are {', '.join(_KEYS)}")
    for key, example in (("rows", "kraft"), ("columns", "kill")):
        parts = found.get(key)
        if not isinstance(parts, Mapping) or not parts or not all(isinstance(each, Mapping) for each in parts.values()):
            raise BadArguments(f"{path} has no {key}: tables such as [{key}.{example}], each with fields of a plan")
    wanted = seeds if seeds is not None else seeds_of(found.get("seeds", 1), path)
    common, expected = fields_and_expected(found.get("all", {}), f"{path}, [all]")
    rows = {name: fields_and_expected(part, f"{path}, [rows.{name}]") for name, part in found["rows"].items()}
    columns = {name: fields_and_expected(part, f"{path}, [columns.{name}]") for name, part in found["columns"].items()}
    cells = {
        (row, column): [
            Planned(
                f"{row}, {column}", seed, together(common, of_row, of_column),
                column_expects or row_expects or expected or "pass",
            )
            for seed in wanted
        ]
        for row, (of_row, row_expects) in rows.items()
        for column, (of_column, column_expects) in columns.items()
    }  # fmt: skip
    return Matrix(list(rows), list(columns), cells)
