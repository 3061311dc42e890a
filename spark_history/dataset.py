"""Many runs in one dataset: what thousands of short simulated runs leave, instead of a directory each.

    <dataset>/<table>/<writer>-<number>.parquet

A writer puts its runs one after the other, so many to a file; files of the same name hold the same runs, each run as
one row group of every table. `runs` has a row a run: its plan, and what the tables of its history do not say. All files
of a name are renamed into place once they are whole, that of `runs` last: it commits them, so a writer killed at any
moment leaves only whole runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_history.errors import HistoryError
from spark_history.files import Ints, compact, encodings, read_lengths, read_row_group
from spark_history.schema import TABLES

RUNS_PER_FILE: Final = 50  # a task's work: enough that starting it costs nothing, few enough to even out

RUNS: Final = pa.schema(
    [
        ("run", pa.string()),
        ("plan", pa.string()),  # JSON, as in plan.json
        ("doubts", pa.list_(pa.string())),  # why the harness itself would not call it passed
        ("violation", pa.string()),  # JSON, as in violation.json; null: no invariant was violated
    ]
)
_TABLES: Final = {**TABLES, "runs": RUNS}  # the one that commits comes last
#: What datasets written by earlier versions lack.
_LATER: Final = (
    "trace", "metadata_log", "disk_state", "collected", "group_events", "transactions", "micro_operations",
    "stable_offsets", "calls",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    plan: Mapping[str, Any]
    tables: Mapping[str, pa.Table]  # by the names of schema.TABLES
    doubts: Sequence[str]
    violation: Mapping[str, Any] | None


class DatasetWriter:
    """directory: of the dataset, which others may write to as well; worker: this writer's own number. Runs are on disk
    once `runs_per_file` are there, or the writer is closed. Raises OSError."""

    def __init__(self, directory: Path, worker: int, *, runs_per_file: int = RUNS_PER_FILE) -> None:
        self._directory = directory
        self._worker = worker
        self._runs_per_file = runs_per_file
        self._number = 0
        self._runs = 0  # in the files that are open
        self._writers: dict[str, pq.ParquetWriter] = {}
        for table in _TABLES:
            (directory / table).mkdir(parents=True, exist_ok=True)

    def add(
        self,
        plan: Mapping[str, Any],
        tables: Mapping[str, pa.Table],
        *,
        doubts: Sequence[str] = (),
        violation: Mapping[str, Any] | None = None,
    ) -> None:
        """A run that is over. plan: what plan.json would hold; its `run` names the run. tables: of its history."""
        row = {"run": plan["run"], "plan": json.dumps(plan), "doubts": list(doubts)}
        row["violation"] = None if violation is None else json.dumps(violation)
        everything = {**tables, "runs": pa.Table.from_pylist([row], schema=RUNS)}
        with self._whole_or_not_at_all():
            for table, schema in _TABLES.items():
                rows = everything[table].cast(compact(schema))
                if table not in self._writers:
                    self._writers[table] = pq.ParquetWriter(
                        self._path(table, temporary=True),
                        compact(schema),
                        **encodings(schema),
                    )
                self._writers[table].write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._runs += 1
        if self._runs == self._runs_per_file:
            self.flush()

    def flush(self) -> None:
        """Put the runs so far into place."""
        if not self._runs:
            return
        with self._whole_or_not_at_all():
            for writer in self._writers.values():
                writer.close()
            for table in _TABLES:
                self._path(table, temporary=True).rename(self._path(table))
        self._writers.clear()
        self._runs = 0
        self._number += 1

    def close(self) -> None:
        self.flush()

    @contextmanager
    def _whole_or_not_at_all(self) -> Iterator[None]:
        """If the block fails, nothing is left of the files that are open."""
        try:
            yield
        except OSError:
            for writer in self._writers.values():
                with suppress(OSError):
                    writer.close()
                writer.is_open = False  # or it closes once more when it goes, and tells stderr that this fails
            for table in _TABLES:
                self._path(table, temporary=True).unlink(missing_ok=True)
            self._writers.clear()
            self._runs = 0
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _path(self, table: str, *, temporary: bool = False) -> Path:
        name = f"{self._worker:03}-{self._number:05}.parquet"
        return self._directory / table / (f".{name}.tmp" if temporary else name)


def list_parts(directory: Path) -> list[str]:
    """The names of the files that hold whole runs, in order."""
    return sorted(path.name for path in (directory / "runs").glob("*.parquet"))


def read_part(directory: Path, name: str) -> Iterator[Run]:
    """The runs in the files of that name, in the order in which they were added. Raises HistoryError."""
    yield from read_whole(directory, name).runs()


@dataclass(frozen=True)
class Part:
    """All that the files of one name hold."""

    tables: Mapping[str, pa.Table]  # by the names of schema.TABLES, one run after the other
    lengths: Mapping[str, Ints]  # rows of each run in each
    rows: Sequence[Mapping[str, Any]]  # of RUNS

    def runs(self) -> Iterator[Run]:
        starts = {table: np.cumsum(lengths) - lengths for table, lengths in self.lengths.items()}
        for number, row in enumerate(self.rows):
            violation = None if row["violation"] is None else json.loads(row["violation"])
            tables = {
                table: rows.slice(int(starts[table][number]), int(self.lengths[table][number]))
                for table, rows in self.tables.items()
            }
            yield Run(json.loads(row["plan"]), tables, row["doubts"], violation)


def read_run(directory: Path, name: str, number: int) -> Run:
    """One of the runs in the files of that name, others of which may be damaged. Raises HistoryError."""
    groups: dict[str, int] = {}
    tables = {}
    for table, schema in _TABLES.items():
        path = directory / table / name
        if table in _LATER and not path.exists():
            tables[table] = compact(schema).empty_table()
        else:
            tables[table], groups[table] = read_row_group(path, schema, number)
    if len(set(groups.values())) > 1:
        raise HistoryError(f"the files {name} of {directory} do not hold as many runs each")
    rows = tables.pop("runs").to_pylist()
    lengths = {table: np.array([rows_.num_rows], np.int64) for table, rows_ in tables.items()}
    return next(Part(tables, lengths, rows).runs())


def read_whole(directory: Path, name: str) -> Part:
    """Raises HistoryError."""
    tables, lengths = {}, {}
    for table, schema in _TABLES.items():
        path = directory / table / name
        if table in _LATER and not path.exists():
            tables[table], lengths[table] = compact(schema).empty_table(), np.zeros(0, np.int64)
        else:
            tables[table], lengths[table] = read_lengths(path, schema)
    rows = tables.pop("runs").to_pylist()
    del lengths["runs"]
    for table in _LATER:
        if not len(lengths[table]):
            lengths[table] = np.zeros(len(rows), np.int64)
    for table, of_runs in lengths.items():
        if len(of_runs) != len(rows):
            other = f"{directory / 'runs' / name} has {len(rows)}"
            raise HistoryError(f"{directory / table / name} holds {len(of_runs)} runs, where {other}")
    return Part(tables, lengths, rows)
