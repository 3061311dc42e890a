"""How fast histories are judged: Spark started, files in the page cache, median of REPEATS.

`memory` is the most that this process, the JVM and the Python workers held together, shared pages counted once a
process (their peaks, summed, so rather too much). Sizes: CHAOS_BENCH=quick measures a tenth of them and not the
largest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from harness.bench import Figure, registers
from harness.bench.processes import own_processes, status_kb
from harness.generate.log import generate, generate_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_history.spark.tasks import Unit

REPEATS: Final = 5
QUICK: Final = os.environ.get("CHAOS_BENCH") == "quick"
#: (name, operations, partitions, aim in seconds or None)
LOGS: Final[Sequence[tuple[str, int, int, float | None]]] = (
    ("1e5 over 64 partitions", 100_000, 64, None),
    ("1e6 over 64 partitions", 1_000_000, 64, None),
    ("1e7 over 64 partitions", 10_000_000, 64, 3),
    ("1e7 in one hot partition", 10_000_000, 1, 4),
    ("1e8 over 64 partitions", 100_000_000, 64, 30),
)
RUNS: Final = 10_000
OPERATIONS_A_RUN: Final = 1_000
RUNS_AIM_S: Final = 20
VERDICT_AIM_S: Final = 3
MEMORY_AIM_GB: Final = 6


def measure(directory: Path) -> Iterator[Figure]:
    from spark_history.spark.session import start

    spark = start("local[2]")
    try:
        yield from _logs(directory, spark)
        yield from _verdict_of_a_run(directory, spark)
        yield from _runs(directory, spark)
        yield from registers.measure(directory)
    finally:
        spark.stop()


def _logs(directory: Path, spark: SparkSession) -> Iterator[Figure]:
    import shutil

    from checkers.log import linearizability as log_linearizability
    from checkers.log.scope import Options
    from spark_history.ingest import ingest
    from spark_history.spark.tasks import run_tasks

    for name, operations, partitions, aim in LOGS[: 3 if QUICK else None]:
        run = directory / name.replace(" ", "-")
        generate(run, operations=operations, processes=30, seed=1, partitions=partitions)
        history = ingest(run, spark)
        units = [
            {"files": [str(history.path / path) for path in part.paths.values()]}
            for log in history.logs
            for part in log.segments
        ]
        read_s = _median(lambda units=units: run_tasks(spark, read_files, units))  # type: ignore[misc]
        _forget_peaks()

        def judge(history: Any = history) -> None:
            found = log_linearizability.check([(history, Options())], spark).found
            if found.tally:
                raise SystemExit(f"the bench's own history is not right: {found.tally}")

        took_s = _median(judge)
        memory = peak_memory_gb()
        met = None if aim is None else took_s <= aim and memory <= MEMORY_AIM_GB
        yield Figure(
            f"log of {name}",
            f"{aim} s, {MEMORY_AIM_GB} GB" if aim else "",
            f"{took_s:.2f} s, reading alone {read_s:.2f} s, memory {memory:.1f} GB",
            met,
        )
        shutil.rmtree(run)


def read_files(unit: Unit) -> Any:
    """A task: the columns that judging reads, and nothing else."""
    import pyarrow as pa

    from checkers.log.segment import COLUMNS, READ_COLUMNS
    from spark_history.files import read_parquet

    operations, reads = unit["files"][:2]
    rows = read_parquet(operations, COLUMNS).num_rows + read_parquet(reads, READ_COLUMNS).num_rows
    return pa.table({"rows": [rows]})


def _verdict_of_a_run(directory: Path, spark: SparkSession) -> Iterator[Figure]:
    """From the journal of a run of 60 s at 2,000 records a second to its verdict, as `chaos run` does it."""
    import shutil

    import checkers

    run = directory / "a-run"
    generate(run, operations=125_000, processes=7, seed=1, partitions=8, journal=True)

    def judge() -> None:
        shutil.rmtree(run / "history", ignore_errors=True)
        checkers.check(run, spark)

    took_s = _median(judge)
    aim = f"{VERDICT_AIM_S} s"
    yield Figure("verdict of a 60 s run, from its journal", aim, f"{took_s:.2f} s", took_s <= VERDICT_AIM_S)


def _runs(directory: Path, spark: SparkSession) -> Iterator[Figure]:
    from checkers.dataset import check_dataset
    from spark_history.dataset import list_parts
    from spark_history.spark.tasks import run_tasks

    runs = RUNS // 10 if QUICK else RUNS
    dataset = directory / "runs"
    generate_runs(dataset, runs=runs, operations=OPERATIONS_A_RUN, processes=10, seed=1, partitions=4)
    units = [{"dataset": str(dataset), "part": name} for name in list_parts(dataset)]
    read_s = _median(lambda: run_tasks(spark, read_runs, units))
    _forget_peaks()
    took_s = _median(lambda: check_dataset(dataset, spark))
    aim = RUNS_AIM_S * runs / RUNS
    yield Figure(
        f"{runs:,} runs of {OPERATIONS_A_RUN:,} operations",
        f"{aim:g} s",
        f"{took_s:.2f} s, reading alone {read_s:.2f} s, memory {peak_memory_gb():.1f} GB",
        took_s <= aim,
    )


def read_runs(unit: Unit) -> Any:
    """A task: the files of a part of a dataset, and nothing else."""
    import pyarrow as pa

    from spark_history.dataset import read_whole

    return pa.table({"runs": [len(read_whole(Path(unit["dataset"]), unit["part"]).rows)]})


def _median(work: Callable[[], object]) -> float:
    """Seconds that `work` takes, once it has been done before."""
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def peak_memory_gb() -> float:
    """Of this process and its descendants: the sum of their peaks since _forget_peaks(), as far as these still live."""
    return sum(status_kb(pid, "VmHWM") for pid in own_processes()) / 1e6


def _forget_peaks() -> None:
    for pid in own_processes():
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is what it holds now
        except OSError:
            continue
