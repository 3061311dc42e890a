"""What checkers of registers and of models share: runs as files of whole keys, judged apart and put together."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import MAX_WITNESSES
from checkers.judged import Judged
from spark_history.files import HistoryError, Ints, write_parquet
from spark_history.tasks import Unit, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A file of a history holds about a sixteenth of it, but no fewer rows than this, if there are as many.
FILE_ROWS: Final = 2_000
_FILES: Final = 16


def write_files(directory: Path, plan: Mapping[str, Any], table_name: str, table: pa.Table, ends: Ints) -> None:
    """Write plan.json, manifest.json and the rows of `table` in files that end at some of `ends`."""
    history = directory / "history"
    shutil.rmtree(history / table_name, ignore_errors=True)
    size = max(table.num_rows // _FILES, FILE_ROWS)
    paths: list[str] = []
    low = 0
    for end in ends.tolist():
        if end - low >= size or (end == table.num_rows and end > low):
            paths.append(f"{table_name}/{len(paths):05}.parquet")
            write_parquet(history / paths[-1], table.slice(low, end - low))
            low = end
    origin = pc.min(table["invoke"]).as_py() or 0
    write_manifest(directory, plan, table_name, paths, origin)


def write_manifest(
    directory: Path, plan: Mapping[str, Any], table_name: str, paths: Sequence[str], origin: int
) -> None:
    """paths: of the files of the table, relative to history/; origin: the first invocation, ns."""
    manifest = {"format": 1, "workload": plan.get("workload"), "tables": {table_name: list(paths)}, "origin": origin}
    (directory / "history").mkdir(parents=True, exist_ok=True)
    (directory / "history" / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    (directory / "plan.json").write_text(json.dumps(dict(plan), indent=1) + "\n")


def check_files(
    runs: Sequence[Path],
    table_name: str,
    properties: Callable[[Mapping[str, Any]], Sequence[str]],
    judge_file: Callable[[Unit], dict[str, Any]],
    spark: SparkSession,
) -> list[Judged]:
    """One Spark job for all files of all runs. judge_file: from {"path", "plan", "origin"} to the facts of one file.

    A file that is damaged leaves its operations undecided. Raises HistoryError if a run is not a history.
    """
    units: list[Unit] = []
    plans, origins, spans = [], [], []
    for run in runs:
        plan, manifest = _read_json(run / "plan.json"), _read_json(run / "history" / "manifest.json")
        paths = manifest.get("tables", {}).get(table_name, [])
        plans.append(plan)
        origins.append(int(manifest.get("origin", 0)))
        spans.append(len(paths))
        units += [{"path": str(run / "history" / path), "plan": plan, "origin": origins[-1]} for path in paths]

    def work(unit: Unit) -> pa.Table:
        try:
            facts = judge_file(unit)
        except HistoryError as error:
            facts = {
                "anomalies": [],
                "tally": [],
                "counts": {},
                "undecided": [f"{error}: its operations are not judged"],
            }
        return pa.table({"facts": [json.dumps(facts)]})

    results = iter(run_tasks(spark, work, units))
    return [
        judged_of(plan, properties(plan), [json.loads(next(results)["facts"][0].as_py()) for _ in range(span)], origin)
        for plan, origin, span in zip(plans, origins, spans, strict=True)
    ]


def judged_of(
    plan: Mapping[str, Any], properties: Sequence[str], parts: Sequence[Mapping[str, Any]], origin: int
) -> Judged:
    """One run from what its parts show: anomalies (rows), tally, counts and undecided (sentences)."""
    judged = Judged(str(plan.get("run", "")), properties, origin=origin)
    tally: dict[tuple[str, str], list[int]] = {}
    counts: Counter[str] = Counter()
    listed: Counter[tuple[str, str]] = Counter()
    for part in parts:
        counts.update(part["counts"])
        judged.undecided += part["undecided"]
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
    if len(judged.undecided) > _UNDECIDED:
        more = len(judged.undecided) - _UNDECIDED
        judged.undecided[_UNDECIDED:] = [f"{more:,} more keys were not decided"]
    return judged


_UNDECIDED: Final = 10


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise HistoryError(f"{path} cannot be read ({error.strerror})") from None
    except ValueError:
        raise HistoryError(f"{path} is damaged: it does not hold JSON") from None
    if not isinstance(content, dict):
        raise HistoryError(f"{path} is damaged: it does not hold a JSON object")
    return content
