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
([settings], [features]) are put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import BadArguments
from harness.plan.toml_file import read_toml
from harness.suites.parts import key_of, seeds_of, together

_KEYS: Final = ("seeds", "all", "rows", "columns")


@dataclass(frozen=True)
class Cell:
    """One run. fields: of a Plan."""

    row: str
    column: str
    seed: int
    fields: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The same for the same run, whatever else is in the file."""
        return key_of(self.row, self.column, fields={**self.fields, "seed": self.seed})


@dataclass(frozen=True)
class Matrix:
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Cell]

    def of(self, row: str, column: str) -> Iterator[Cell]:
        return (cell for cell in self.cells if (cell.row, cell.column) == (row, column))


def read(path: Path, seeds: Sequence[int] | None = None) -> Matrix:
    """seeds: instead of the file's. Raises BadArguments."""
    found = read_toml(path, f"the matrix {path}")

    from harness.plan.plan_file import fields_of  # which takes time: a file that cannot be read is told at once

    if unknown := [key for key in found if key not in _KEYS]:
        raise BadArguments(f"{path} has {unknown[0]!r}, which no matrix has; there are {', '.join(_KEYS)}")
    for key, example in (("rows", "kraft"), ("columns", "kill")):
        parts = found.get(key)
        if not isinstance(parts, Mapping) or not parts or not all(isinstance(each, Mapping) for each in parts.values()):
            raise BadArguments(f"{path} has no {key}: tables such as [{key}.{example}], each with fields of a plan")
    wanted = seeds if seeds is not None else seeds_of(found.get("seeds", 1), path)
    common = fields_of(found.get("all", {}), f"{path}, [all]")
    rows = {name: fields_of(part, f"{path}, [rows.{name}]") for name, part in found["rows"].items()}
    columns = {name: fields_of(part, f"{path}, [columns.{name}]") for name, part in found["columns"].items()}
    cells = [
        Cell(row, column, seed, together(common, rows[row], columns[column]))
        for row in rows for column in columns for seed in wanted
    ]  # fmt: skip
    return Matrix(list(rows), list(columns), cells)
