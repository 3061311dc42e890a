"""Whether every defect that `chaos generate` knows is found, and nothing in good histories, at each size.

What is measured is what a user gets: each history is generated to disk and judged as `chaos check` judges it, and then
removed. A defect is planted at a few places of a history, however long that is. CHAOS_BENCH=quick leaves the largest
size out; CHAOS_WORKLOADS="kafka append" takes some of the workloads.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from harness.bench import Figure
from harness.bench.checkers import QUICK
from harness.cli.histories.generate import WORKLOADS, defects_of, maker_of
from harness.record.judging import Asked, Judge
from harness.record.sources import HistorySource

OPERATIONS: Final = (1_000, 100_000) if QUICK else (1_000, 100_000, 10_000_000)
PROCESSES: Final = 30
SEED: Final = 7


def measure(directory: Path) -> Iterator[Figure]:
    judge = Judge(Asked(), lambda _: None, _judge_log)
    for workload in os.environ.get("CHAOS_WORKLOADS", " ".join(WORKLOADS)).split():
        for operations in OPERATIONS:
            yield _figure(directory, workload, operations, judge)


def _figure(directory: Path, workload: str, operations: int, judge: Judge) -> Figure:
    defects = list(defects_of(workload))
    wrong, slowest = [], 0.0
    for defect in (None, *defects):
        run = directory / f"{workload}-{operations}-{defect or 'good'}"
        label = maker_of(workload).generate(
            run, operations=operations, processes=PROCESSES, seed=SEED, defect=defect, **WORKLOADS[workload].options
        )
        started = time.perf_counter()
        (outcome,) = judge.judge(HistorySource(run, "run"))
        slowest = max(slowest, time.perf_counter() - started)
        found = _anomalies(outcome.verdict)
        as_labelled = outcome.verdict.get("verdict") == label["verdict"]
        if not as_labelled or (label["anomaly"] not in found if label["anomaly"] else found):
            wrong.append(defect or "good")
        print(
            f"{run.name}: labelled {label['verdict']} {label['anomaly'] or ''}, judged "
            f"{outcome.error or outcome.verdict['verdict']} {', '.join(found)}",
            file=sys.stderr,
        )
        shutil.rmtree(run)
    return Figure(
        f"{workload}: {len(defects)} defects and a good history, {operations:g} operations",
        "each as labelled",
        f"not {', '.join(wrong)}" if wrong else f"all; {slowest:.1f} s at most",
        not wrong,
    )


def _anomalies(verdict: Mapping[str, Any]) -> list[str]:
    return [name for each in verdict.get("anomalies", {}).values() for name in each["anomalies"]]


def _judge_log(directory: Path) -> Mapping[str, Any]:
    from harness.run.components import Verification

    return Verification().start_analysis(directory, None).judge()
