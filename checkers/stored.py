"""The files of runs of registers, other objects and transactions: writes them, judges each file by itself, and
combines the results.

    plan.json
    history/manifest.json              {"format": 1, "workload", "tables": {table: paths below history/},
                                       "rows": {table: how many}, "origin": the first invocation, ns}
    history/<table>/<number>.parquet   what a file holds, its family says: all of a key, so that files are judged apart

A run or file that cannot be read, and a plan that cannot be judged by, leaves what it is of undecided: it costs the
rest, and the other runs, nothing.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import MAX_WITNESSES
from checkers.verdict.judged import Judged, quantiles
from spark_history.errors import HistoryError
from spark_history.files import Ints, write_parquet
from spark_history.regular import read_object, replacing
from spark_history.spark.tasks import Unit, run_tasks, shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A file holds about a sixteenth of a history, but no fewer rows than this, if there are as many.
FILE_ROWS: Final = 2_000
FILES: Final = 16
FORMAT: Final = 1

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Stored:
    """A run on disk. rows: of each table, where the manifest says so; origin: the first invocation, ns."""

    directory: Path
    plan: Plan
    tables: Mapping[str, Sequence[str]]
    rows: Mapping[str, int]
    origin: int

    @staticmethod
    def of(directory: Path, tables: Sequence[str], asked: Plan | None = None) -> Stored:
        """tables: that there must be; asked: entries that override those of the plan. Raises HistoryError."""
        plan, path = _read_json(directory / "plan.json"), directory / "history" / "manifest.json"
        manifest = _read_json(path)
        named, rows, origin = manifest.get("tables"), manifest.get("rows", {}), manifest.get("origin", 0)
        if not isinstance(named, dict) or any(table not in named for table in tables):
            raise HistoryError(f"{path} names no {' and no '.join(tables)}, so there is no history to be had")
        for table in tables:
            if not isinstance(named[table], list) or not all(isinstance(each, str) for each in named[table]):
                raise HistoryError(f"{path} is damaged: its {table!r} is no list of files")
        if not isinstance(rows, dict) or not all(type(each) is int for each in [origin, *rows.values()]):
            raise HistoryError(f"{path} is damaged: 'rows' and 'origin' are to be whole numbers")
        return Stored(directory, {**plan, **(asked or {})}, named, rows, origin)

    @property
    def run(self) -> str:
        return str(self.plan.get("run") or self.directory.name)

    def paths(self, table: str) -> list[Path]:
        return [self.directory / "history" / path for path in self.tables[table]]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except OSError as error:
        raise HistoryError(f"{path} cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise HistoryError(f"{path} is damaged: {error}") from None


class Writer:
    """Writes the layout above, a file at a time, in place of what was there: for histories larger than memory."""

    def __init__(self, directory: Path, plan: Plan, tables: Mapping[str, pa.Schema]) -> None:
        self.directory, self.plan = directory, plan
        self._schemas = tables
        self._paths: dict[str, list[str]] = {table: [] for table in tables}
        self._rows = dict.fromkeys(tables, 0)
        self._origin: int | None = None
        history = directory / "history"
        history.mkdir(parents=True, exist_ok=True)
        (history / "manifest.json").unlink(missing_ok=True)
        for table in tables:
            shutil.rmtree(history / table, ignore_errors=True)

    def add(self, name: str, table: pa.Table) -> None:
        """The next file of a table, with columns of its schema."""
        table = table.select(self._schemas[name].names).cast(self._schemas[name])
        self.count(name, table)
        write_parquet(self.next_path(name), table)

    def count(self, name: str, rows: pa.Table) -> None:
        """Rows of a file that the caller writes."""
        self._rows[name] += rows.num_rows
        if rows.num_rows and "invoke" in rows.column_names:
            first = int(pc.min(rows["invoke"]).as_py())
            self._origin = first if self._origin is None else min(self._origin, first)

    def next_path(self, name: str) -> Path:
        """Of the next file, which the manifest names from now on."""
        paths = self._paths[name]
        paths.append(f"{name}/{len(paths):06}.parquet")
        path = self.directory / "history" / paths[-1]
        path.parent.mkdir(exist_ok=True)
        return path

    def close(self) -> None:
        """Write what makes it a history: only now will a checker take it."""
        manifest = {
            "format": FORMAT,
            "workload": self.plan.get("workload"),
            "tables": self._paths,
            "rows": self._rows,
            "origin": self._origin or 0,
        }
        for path, content in (
            (self.directory / "plan.json", dict(self.plan)),
            (self.directory / "history" / "manifest.json", manifest),
        ):
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(content, indent=1) + "\n")


def write_files(directory: Path, plan: Plan, name: str, table: pa.Table, schema: pa.Schema, ends: Ints) -> None:
    """A run of one table, in files that end at some of `ends` (rows)."""
    writer = Writer(directory, plan, {name: schema})
    size, low = max(table.num_rows // FILES, FILE_ROWS), 0
    for end in ends.tolist():
        if end - low >= size or (end == table.num_rows and end > low):
            writer.add(name, table.slice(low, end - low))
            low = end
    writer.close()


def run_units(spark: SparkSession | None, work: Callable[[Unit], Any], units: Sequence[Unit]) -> list[Any]:
    """What `work` makes of each unit, in JSON's types: in one Spark job, or in this process. A unit that raises
    HistoryError becomes {"error": its message}."""

    def attempt(unit: Unit) -> pa.Table:
        try:
            facts = work(unit)
        except HistoryError as error:
            facts = {"error": str(error)}
        return pa.table({"facts": [json.dumps(facts)]})

    tables = map(attempt, units) if spark is None else run_tasks(spark, attempt, units)
    return [json.loads(table["facts"][0].as_py()) for table in tables]


def visible(spark: SparkSession | None, runs: Sequence[Path]) -> list[Path]:
    """The directories by names that units can use. Raises HistoryError if the executors do not see one."""
    return list(runs) if spark is None else shared(spark, runs)


def check_files(
    runs: Sequence[Path],
    table: str,
    properties: Callable[[Plan], Sequence[str]],
    judge_file: Callable[[Unit], dict[str, Any]],
    spark: SparkSession | None,
    asked: Plan | None = None,
) -> list[Judged]:
    """One job for all files of all runs of one table. judge_file: from {"path", "plan", "origin"} to the facts of one
    file, see judged_of(). spark: None: in this process."""
    stored: list[Stored | Judged] = []
    units: list[Unit] = []
    for run in visible(spark, runs):
        try:
            one = Stored.of(run, [table], asked)
        except HistoryError as error:
            stored.append(Judged(run.name, [], undecided=[str(error)]))
            continue
        stored.append(one)
        units += [{"path": str(path), "plan": dict(one.plan), "origin": one.origin} for path in one.paths(table)]
    results = iter(run_units(spark, judge_file, units))

    def gather(one: Stored | Judged) -> Judged:
        if isinstance(one, Judged):
            return one
        parts = [next(results) for _ in one.tables[table]]
        return judged_of({**one.plan, "run": one.run}, properties(one.plan), parts, one.origin)

    return [gather(one) for one in stored]


def judged_of(plan: Plan, properties: Sequence[str], parts: Sequence[Mapping[str, Any]], origin: int) -> Judged:
    """One run from what its parts show: anomalies (rows), tally, counts and undecided (sentences), and perhaps measured
    (values); or an error."""
    judged = Judged(str(plan.get("run", "")), properties, origin=origin)
    tally: dict[tuple[str, str], list[int]] = {}
    counts: Counter[str] = Counter()
    listed: Counter[tuple[str, str]] = Counter()
    measured: dict[str, list[float]] = {}
    for part in parts:
        if "error" in part:
            judged.undecided.append(f"{part['error']}: its operations are not judged")
            continue
        counts.update(part["counts"])
        judged.undecided += part["undecided"]
        for name, values in part.get("measured", {}).items():
            measured.setdefault(name, []).extend(values)
        for property_, anomaly, witnesses, records in part["tally"]:
            entry = tally.setdefault((property_, anomaly), [0, 0])
            entry[0] += witnesses
            entry[1] += records
        for row in part["anomalies"]:
            listed[row["property"], row["anomaly"]] += 1
            if listed[row["property"], row["anomaly"]] <= MAX_WITNESSES:
                judged.rows.append(row)
    judged.tally = [(*key, witnesses, records) for key, (witnesses, records) in tally.items()]
    judged.counts = dict(counts)
    judged.measured = {name: quantiles(values) for name, values in measured.items() if values}
    judged.undecided = list(dict.fromkeys(judged.undecided))  # of a plan that is wrong, all files say the same
    if len(judged.undecided) > _UNDECIDED:
        more = len(judged.undecided) - _UNDECIDED
        judged.undecided[_UNDECIDED:] = [f"{more:,} more keys were not decided"]
    return judged


_UNDECIDED: Final = 10
