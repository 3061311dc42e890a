"""Run one function over many units of work, on Spark or in this process: a unit in, a small Arrow table out.

On Spark: what is long, a dataset of many runs, and whatever goes to a master elsewhere. `Here` runs the same tasks in
threads of this process, for what this machine's memory holds: Arrow and numpy let go of the interpreter's lock where
they spend their time, and a JVM takes longer to start than ten million operations to judge.

The rows themselves never pass through Spark: a unit names Parquet files, and its task reads and writes them with
Arrow. Measured, that costs a fifth of what a shuffle of the same rows does. Files must therefore lie where every
executor sees them: on this machine, or on a file system that all share (`shared` says so where they do not).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from spark_history.errors import HistoryError
from spark_history.spark.failures import SparkUnavailable, brief, explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Up to so many operations of a log's run need no Spark: some 200 bytes each, so 4 GB. Beyond, and with a master
#: elsewhere or Spark's own pages, they are judged on Spark.
IN_PROCESS: Final = 20_000_000
TASKS_PER_SLOT: Final = 2  # so that units of unequal size even out
_MANY: Final = 1 << 16  # more than any cluster runs at the same time

Unit = dict[str, Any]  # what json can hold
Work = Callable[[Unit], pa.Table]

_T = TypeVar("_T")


class TaskFailed(Exception):
    """A task raised what it should not: a mistake of ours, not of the history or of Spark."""


@dataclass(frozen=True)
class Here:
    """The engine without Spark. threads: tasks at the same time, or threads of one task that divides its work."""

    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))


Engine: TypeAlias = "SparkSession | Here"


def parallelism(engine: Engine) -> int:
    """How many tasks run at the same time: the cores of all executors."""
    if isinstance(engine, Here):
        return engine.threads
    from spark_history.spark.session import is_connect

    spark = engine
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    # Spark Connect does not tell, but a range is cut into as many parts as that unless one says otherwise. Asked each
    # time: executors come and go, and 0.2 s are little beside the jobs that need to know.
    query = f"SELECT max(part) AS last FROM (SELECT spark_partition_id() AS part FROM range({_MANY}))"
    parts = _guarded(lambda: spark.sql(query).toArrow()["last"][0].as_py())
    return int(parts) + 1


def run_tasks(engine: Engine, work: Work, units: Sequence[Unit]) -> list[pa.Table]:
    """`work` on every unit; the results in the order of the units. Few units have a task each, many share.

    work must be importable on the executors, and may run twice. A HistoryError it raises is raised here, and what it
    says of a file that cannot be read or written. Raises SparkUnavailable if tasks die or Spark is lost.
    """
    if not units:
        return []
    if isinstance(engine, Here):
        return _run_here(engine.threads, work, units)
    spark = engine
    encoded = [json.dumps(unit) for unit in units]  # goes along with the function: no shuffle

    def run_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield _attempt(work, number, json.loads(encoded[number]))

    tasks = min(len(units), TASKS_PER_SLOT * parallelism(spark))
    numbers = spark.range(0, len(units), 1, tasks)
    columns = "number long, result binary, error string"
    done = _guarded(lambda: numbers.mapInArrow(run_batches, columns).toArrow()).sort_by("number")
    for error in done["error"].to_pylist():
        if error is not None:
            raise HistoryError(error)
    return [pa.ipc.open_stream(result).read_all() for result in done["result"].to_pylist()]


def _run_here(threads: int, work: Work, units: Sequence[Unit]) -> list[pa.Table]:
    """As run_tasks(). Units go through JSON as they do on Spark, so that what a task gets is the same."""

    def attempt(unit: Unit) -> pa.Table:
        try:
            return work(json.loads(json.dumps(unit)))
        except OSError as error:
            raise HistoryError(str(error)) from None

    if len(units) == 1 or threads == 1:
        return [attempt(unit) for unit in units]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(attempt, units))


def _guarded(job: Callable[[], _T]) -> _T:
    """What a job returns, and in place of a stack trace of Java's one sentence."""
    try:
        return job()
    except Exception as error:
        if known := explain(error):
            raise SparkUnavailable(f"Spark could not do its part: {known}") from error
        raise TaskFailed(brief(error)) from error


def _attempt(work: Work, number: int, unit: Unit) -> pa.RecordBatch:
    result, error = None, None
    try:
        table = work(unit)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        result = sink.getvalue().to_pybytes()
    except (HistoryError, OSError) as problem:
        error = str(problem)
    return pa.record_batch(
        [pa.array([number], pa.int64()), pa.array([result], pa.binary()), pa.array([error], pa.string())],
        names=["number", "result", "error"],
    )


def shared(engine: Engine, directories: Sequence[Path]) -> list[Path]:
    """The directories by names that tasks can use, which read and write below them: as given where Spark is in this
    process, and absolute elsewhere. Raises HistoryError, naming the first that the executors do not see."""
    if isinstance(engine, Here):
        return list(directories)
    from spark_history.spark.session import is_local

    spark = engine
    if is_local(spark):
        return list(directories)
    absolute = [directory.resolve() for directory in directories]
    marked = {parent: _mark(parent) for parent in {directory.parent for directory in absolute} - _seen}
    units: list[Unit] = [{"directory": str(parent), "mark": mark and mark.name} for parent, mark in marked.items()]
    try:
        hosts = [table["unseen"][0].as_py() for table in run_tasks(spark, _look_for, units)]
    finally:
        for mark in filter(None, marked.values()):
            mark.unlink(missing_ok=True)
    for unit, host in zip(units, hosts, strict=True):
        if host is not None:
            raise HistoryError(
                f"{unit['directory']} is not there for Spark's executors (on {host}): "
                "it must lie on a file system that all machines share, or be judged with --spark local[*]"
            )
    _seen.update(marked)
    return absolute


_seen: Final[set[Path]] = set()  # directories whose entries the executors of this process's session have seen


def _mark(directory: Path) -> Path | None:
    """A new file there, so that another machine's directory of the same name is told apart; None: may not write."""
    mark = directory / f".chaos-{secrets.token_hex(8)}"
    try:
        mark.touch(exist_ok=False)
    except OSError:
        return None
    return mark


def _look_for(unit: Unit) -> pa.Table:
    """The host on which a directory, or the mark in it, is not seen; null: it is."""
    directory = unit["directory"]
    seen = os.path.isdir(directory) if unit["mark"] is None else os.path.exists(f"{directory}/{unit['mark']}")
    return pa.table({"unseen": pa.array([None if seen else os.uname().nodename], pa.string())})
