"""Judge histories on a master, in a process of its own: a process has one session. `python -m
tests.spark_history.spark.spark_elsewhere MASTER DIRECTORY` judges all below DIRECTORY (see judge_all) and prints what
it found as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import checkers
from checkers.dataset import check_dataset
from checkers.verdict.keeping import without_stamps
from spark_history import ingest
from spark_history.errors import HistoryError
from spark_history.spark import session, tasks
from spark_history.spark.failures import SparkUnavailable
from spark_history.spark.master import parse
from tests.spark_history.spark.spark_pages import listening
from tests.spark_history.spark.spark_processes import free_port

SEGMENT_OFFSETS = 400  # so that logs of a thousand records have several segments


def judge_all(directory: Path, engine: Any, groups: tuple[str, ...] = ("runs", "segments")) -> dict[str, Any]:
    """runs/: runs by themselves; segments/: the same, in segments of SEGMENT_OFFSETS; dataset/: runs in a dataset."""
    found: dict[str, Any] = {}
    for group in groups:
        if group == "segments":
            ingest.ingest.__kwdefaults__["segment_offsets"] = SEGMENT_OFFSETS
        for run in sorted((directory / group).iterdir()):
            verdict = checkers.check(run, engine)
            rows = pq.read_table(run / "anomalies.parquet").to_pylist()
            lost = pq.read_table(run / "lost.parquet").to_pylist()
            found[f"{group}/{run.name}"] = {
                "verdict": without_stamps(verdict),
                "anomalies": sorted(map(repr, rows)),
                "lost": sorted(map(repr, lost)),
                "segments": len(list((run / "history" / "operations").rglob("*.parquet"))),
            }  # fmt: skip
    ingest.ingest.__kwdefaults__["segment_offsets"] = ingest.SEGMENT_OFFSETS
    found["dataset"] = check_dataset(directory / "dataset", engine)
    return found


def look_around(spark: Any, damaged: Path) -> dict[str, Any]:
    """What is different elsewhere: where the code is, how much runs at a time, and how it fails."""
    import checkers as imported

    def where(unit: tasks.Unit) -> pa.Table:
        return pa.table({"where": [imported.__file__ or ""], "at": [os.getcwd()]})

    def die(unit: tasks.Unit) -> pa.Table:
        os.kill(os.getpid(), 9)
        return pa.table({})

    def stumble(unit: tasks.Unit) -> pa.Table:
        raise ValueError("no such luck")

    code = [table["where"][0].as_py() for table in tasks.run_tasks(spark, where, [{"unit": n} for n in range(4)])]
    said: dict[str, str] = {}
    for name, work in (("die", die), ("stumble", stumble)):
        said[name] = _error(lambda work=work: tasks.run_tasks(spark, work, [{}]))
    said["damaged"] = _error(lambda: checkers.check(damaged, spark).get("reason"))
    tasks._seen.clear()
    marks = tasks._mark
    tasks._mark = lambda directory: Path("/proc/never-there")
    said["unshared"] = _error(lambda: tasks.shared(spark, [damaged]))
    tasks._mark = marks
    said["second"] = _error(lambda: session.start("local[1]"))
    return {"code": code, "parallelism": tasks.parallelism(spark), "said": said}


def try_pythons(spark: Any, master: str, pythons: list[str]) -> list[str]:
    """What is said of executors with these Pythons."""

    def try_it() -> None:
        try:
            session._run_first_job(parse(master), spark)
        except Exception as error:
            raise session._unavailable(parse(master), error, None) from error

    said = []
    for python in pythons:
        spark.sparkContext.pythonExec = python
        said.append(_error(try_it))
    return said


def _error(action: Any) -> str:
    try:
        return f"no error: {action()}"
    except (HistoryError, SparkUnavailable, tasks.TaskFailed) as error:
        return f"{type(error).__name__}: {error}"


def main(master: str, directory: Path, *pythons: str) -> None:
    port = free_port() if master.startswith("spark:") else None
    spark = session.start(master, ui_port=port)
    pages = [] if port is None else [address.hex() for address in listening(port)]
    # How a log is cut into segments does not depend on where they are judged: one kind of cluster is enough.
    found = judge_all(directory, spark, ("runs", "segments") if port is not None else ("runs",))
    around = look_around(spark, directory / "damaged") | {"pages": pages}
    said = try_pythons(spark, master, list(pythons)) if pythons else []
    print(json.dumps({"found": found, "pythons": said, **around}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
