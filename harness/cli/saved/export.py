"""`chaos export`: a run as a history of Jepsen's, or as tables in Parquet.

edn and jsonl: one file, an event a line; a name that ends in .gz is gzipped. spark_history/jepsen/export/export.py
says what the events look like, spark_history/jepsen/logs.py those of logs.

parquet: a directory with one file a table, `operations.parquet`, `reads.parquet` …, in the columns of
spark_history/schema.py, and plan.json: tables for notebooks, in which texts of few values are dictionaries.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.record import results
from harness.report.terminal import say
from spark_history.regular import read_object


def export(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run's name or directory, or latest.")],
    format_: Annotated[
        Literal["edn", "jsonl", "parquet"], typer.Option("--format", help="Jepsen's, JSON lines, or tables.")
    ] = "edn",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="By default in the run's directory: history.edn, history.jsonl, tables/. With .gz: gzipped.",
        ),
    ] = None,
    results_directory: Annotated[Path, typer.Option("--results", metavar="DIR", help="Where runs are kept.")] = Path(
        "results"
    ),
) -> int:
    """Write the history of a run so that Jepsen's tools, other programs or `chaos check` can read it."""
    directory = results.find(name, results_directory)
    target = output or directory / ("tables" if format_ == "parquet" else f"history.{format_}")
    if target.is_dir() and format_ != "parquet":
        raise BadArguments(f"--output {target} is a directory; give the name of a file")

    from spark_history.files import HistoryError

    try:
        if format_ == "parquet":
            reported = _write_tables(directory, target)
        else:
            reported = f"{_write_events(directory, target, format_):,} events"
    except HistoryError as error:
        raise HarnessFailure(str(error)) from error
    except OSError as error:
        raise HarnessFailure(f"{target} cannot be written: {error.strerror or error}") from error
    say(f"{target}: {reported}")
    return ExitCode.PASS


def _write_events(directory: Path, target: Path, format_: str) -> int:
    """How many events there are."""
    from checkers import how_it_ended
    from spark_history.jepsen.export.notation import NOTATIONS
    from spark_history.jepsen.export.run import write_run

    plan = _plan(directory)
    record = results.read_json(directory / "run.json")
    doubts = [*filter(None, [how_it_ended(record)]), *(record.get("doubts") or [])]
    violation = results.read_json(directory / "violation.json") or None
    return write_run(directory, plan, target, NOTATIONS[format_](), doubts=doubts, violation=violation)


def _plan(directory: Path) -> dict[str, Any]:
    """Raises HarnessFailure."""
    path = directory / "plan.json"
    try:
        return read_object(path) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise HarnessFailure(f"{path} cannot be read as a plan: {error}") from None


def _write_tables(directory: Path, target: Path) -> str:
    """One file a table, all or none; what was written."""
    import pyarrow.parquet as pq

    from spark_history.files import encodings

    counts: dict[str, int] = {}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="chaos-export-", dir=target.parent) as scratch, ExitStack() as stack:
        writers: dict[str, pq.ParquetWriter] = {}
        for table, rows in _tables(directory):
            if table not in writers:
                path = Path(scratch) / f"{table}.parquet"
                writers[table] = stack.enter_context(pq.ParquetWriter(path, rows.schema, **encodings(rows.schema)))
                counts[table] = 0
            counts[table] += rows.num_rows
            writers[table].write_table(rows.cast(writers[table].schema))
        stack.close()
        if (directory / "plan.json").is_file():
            shutil.copyfile(directory / "plan.json", Path(scratch) / "plan.json")
        target.mkdir(exist_ok=True)
        for path in sorted(Path(scratch).iterdir()):
            path.replace(target / path.name)
    return ", ".join(f"{table} {count:,}" for table, count in counts.items())


def _tables(directory: Path) -> Iterator[tuple[str, Any]]:
    """Parts of tables, each in its schema with dictionaries; of every table of the run at least one. Raises
    HistoryError."""
    from spark_history.files import compact
    from spark_history.jepsen.export.log import read_parts
    from spark_history.jepsen.export.run import is_log
    from spark_history.jepsen.export.tables import SCHEMAS, files, read_part
    from spark_history.schema import TABLES

    if not is_log(_plan(directory)):
        for table, schema in SCHEMAS.items():
            for path in files(directory, table):
                yield table, read_part(path, schema)
        return
    empty: Mapping[str, Any] = {table: compact(schema).empty_table() for table, schema in TABLES.items()}
    for table, rows in empty.items():
        yield table, rows
    yield from read_parts(directory)
