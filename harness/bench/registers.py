"""How long the check of registers takes, Spark started, and reading the files alone."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from checkers import registers
from checkers.registers.columns import COLUMNS
from harness.bench import Figure
from harness.generate.registers import generate
from spark_history.files import read_parquet
from spark_history.spark.tasks import Unit, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATIONS: Final = 1_000_000
PROCESSES: Final = 30
TIMES: Final = 5
AIM_S: Final = 1.0


def measure(directory: Path) -> Iterator[Figure]:
    from spark_history.spark.session import start

    spark = start("local[2]")
    for keys in (1, 1000):
        seconds, reading = measure_keys(directory / f"keys-{keys}", spark, keys)
        name = f"registers: {OPERATIONS:,} operations on {keys:,} key{'s' if keys > 1 else ''}, s"
        yield Figure(name, f"{AIM_S:g}", f"{seconds:.2f}", seconds <= AIM_S)
        yield Figure("reading its files alone, s", "", f"{reading:.2f}")


def measure_keys(run: Path, spark: SparkSession, keys: int, operations: int = OPERATIONS) -> tuple[float, float]:
    """Seconds to judge a generated history of so many keys, and to read its files; the median of TIMES each."""
    generate(run, operations=operations, processes=PROCESSES, seed=1, defect=None, keys=keys)
    manifest = json.loads((run / "history" / "manifest.json").read_text())
    units: list[Unit] = [{"path": str(run / "history" / path)} for path in manifest["tables"]["registers"]]

    def check() -> None:
        (judged,) = registers.check_directories([run], spark)
        assert not judged.tally and not judged.undecided and judged.counts["operations"] == operations

    return _median(check), _median(lambda: run_tasks(spark, read_file, units))


def read_file(unit: Unit) -> pa.Table:
    return pa.table({"rows": [read_parquet(unit["path"], COLUMNS).num_rows]})


def _median(work: Callable[[], Any]) -> float:
    work()  # what is done once: workers started, modules imported
    taken = []
    for _ in range(TIMES):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
