"""Run one function over many units of work on Spark: a unit in, a small Arrow table out.

The rows themselves never pass through Spark: a unit names Parquet files, and its task reads and writes them with
Arrow. Measured, that costs a fifth of what a shuffle of the same rows does. Files must therefore lie where every
executor sees them: on this machine, or on a file system that all share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_history.files import HistoryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_SLOT: Final = 2  # so that units of unequal size even out

Unit = dict[str, Any]  # what json can hold
Work = Callable[[Unit], pa.Table]


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at the same time."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context to ask
        return 8


def run_tasks(spark: SparkSession, work: Work, units: Sequence[Unit]) -> list[pa.Table]:
    """`work` on every unit; the results in the order of the units. Few units have a task each, many share.

    work must be importable on the executors, and may run twice. A HistoryError it raises is raised here.
    """
    if not units:
        return []
    encoded = [json.dumps(unit) for unit in units]  # goes along with the function: no shuffle

    def run_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield _attempt(work, number, json.loads(encoded[number]))

    tasks = min(len(units), TASKS_PER_SLOT * parallelism(spark))
    numbers = spark.range(0, len(units), 1, tasks)
    done = numbers.mapInArrow(run_batches, "number long, result binary, error string").toArrow().sort_by("number")
    for error in done["error"].to_pylist():
        if error is not None:
            raise HistoryError(error)
    return [pa.ipc.open_stream(result).read_all() for result in done["result"].to_pylist()]


def _attempt(work: Work, number: int, unit: Unit) -> pa.RecordBatch:
    result, error = None, None
    try:
        table = work(unit)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        result = sink.getvalue().to_pybytes()
    except HistoryError as problem:
        error = str(problem)
    return pa.record_batch(
        [pa.array([number], pa.int64()), pa.array([result], pa.binary()), pa.array([error], pa.string())],
        names=["number", "result", "error"],
    )
