"""Whole runs from journal to verdict, on Spark: histories of a working log, and the same with anomalies put in."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import checkers
from checkers.log import linearizability as log_linearizability
from checkers.log.scope import Options
from checkers.verdict import keeping
from checkers.verdict.keeping import without_stamps
from harness.report import witnesses
from spark_history.errors import HistoryError
from spark_history.ingest import History, ingest
from tests.checkers.histories.histories import SECOND, LongHistory, mutate, random_history, search
from tests.spark_history.test_ingest import journal

pytestmark = pytest.mark.spark


def small() -> LongHistory:
    return LongHistory(4_000, partitions=3, seconds=4)


def check(history: LongHistory, directory: Path, spark: Any, **plan: Any) -> dict[str, Any]:
    return checkers.check(history.write(directory, plan), spark)


def anomalies(directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(directory / "anomalies.parquet").to_pylist()
    return rows


def test_a_log_that_works_passes(spark: Any, tmp_path: Path) -> None:
    verdict = check(small(), tmp_path / "run", spark)
    assert (verdict["verdict"], verdict["exit_code"], verdict["complete"]) == ("pass", 0, True)
    assert verdict["operations"]["acknowledged"] == 4_000
    assert verdict["operations"]["records in final log"] == 4_000
    assert verdict["replica_records"] == 12_000
    assert json.loads((tmp_path / "run" / "verdict.json").read_text()) == verdict
    assert pq.read_table(tmp_path / "run" / "lost.parquet").num_rows == 0
    assert not anomalies(tmp_path / "run")


def test_every_lost_append_is_named(spark: Any, tmp_path: Path) -> None:
    history = small()
    mine = np.flatnonzero(history.partition == 1)
    history.in_final[mine[-1_100:]] = False
    verdict = check(history, tmp_path / "run", spark)
    assert (verdict["verdict"], verdict["lost"]) == ("fail", 1_100)
    lost = pq.read_table(tmp_path / "run" / "lost.parquet").to_pylist()
    assert [row["value"] for row in lost] == history.value[mine[-1_100:]].tolist()
    assert {row["complete"] for row in lost} == set(history.complete[mine[-1_100:]].tolist())
    assert len([row for row in anomalies(tmp_path / "run") if row["anomaly"] == "lost append"]) <= 1_000
    assert verdict["anomalies"]["log linearizability"]["anomalies"]["lost append"] == verdict["lost"]
    reported = witnesses.of_run(tmp_path / "run")
    sentences = [line.split(": ")[0] for line in reported if not line.startswith(" ")]
    assert sentences[:2] == ["lost append"] * 2 and "… and 998 more of lost append" in sentences
    bar = re.search(r"op \d+: append .* at offset \d+  \[(.*) s to ", reported[1])
    assert bar is not None and float(bar[1]) < 60  # since the run began, not since the machine did


def drop_a_record_on_one_replica(history: LongHistory) -> None:
    history.on_replica["broker-2"][5] = False


def acknowledge_out_of_order(history: LongHistory) -> None:
    a, b = np.flatnonzero(history.partition == 0)[[100, 400]]
    history.offset[[a, b]] = history.offset[[b, a]]


def stale_end(history: LongHistory) -> None:
    at = 10 * SECOND
    answer = {"process": 8, "kind": "list_offsets", "partition": 2, "outcome": "ok", "offset": 7}
    history.extra = [answer | {"invoke": at, "complete": at + 5}]


def acknowledge_an_offset_twice(history: LongHistory) -> None:
    again = {"process": 8, "kind": "append", "partition": 0, "value": 6, "outcome": "ok", "offset": 3}
    history.extra = [again | {"invoke": 1, "complete": 2}]


@pytest.mark.parametrize(
    ("inject", "property_", "anomaly"),
    [
        (drop_a_record_on_one_replica, "log matching", "replica hole"),
        (acknowledge_out_of_order, "log linearizability", "real-time inversion"),
        (stale_end, "log linearizability", "stale end of log"),
        (acknowledge_an_offset_twice, "log linearizability", "inconsistent offset"),
    ],
)
def test_an_injected_anomaly_is_found(
    spark: Any, tmp_path: Path, inject: Callable[[LongHistory], None], property_: str, anomaly: str
) -> None:
    history = small()
    inject(history)
    verdict = check(history, tmp_path / "run", spark)
    assert verdict["verdict"] == "fail"
    assert anomaly in verdict["anomalies"][property_]["anomalies"]


def test_a_run_that_was_killed_is_judged_as_far_as_it_goes(spark: Any, tmp_path: Path) -> None:
    history = small()
    history.final_reads = False
    verdict = check(history, tmp_path / "run", spark)
    assert (verdict["verdict"], verdict["complete"]) == ("unknown", False)
    assert "final reads" in verdict["reason"]
    assert verdict["undecided"] == 0  # the readers saw everything that was acknowledged


def test_judging_again_gives_the_same_verdict(spark: Any, tmp_path: Path) -> None:
    history = small()
    history.in_final[-5:] = False
    directory = history.write(tmp_path / "run")
    first, second = (without_stamps(checkers.check(directory, spark)) for _ in range(2))
    assert first == second


def test_many_runs_are_judged_in_one_go_and_kept_apart(spark: Any, tmp_path: Path) -> None:
    """Random histories as runs of one dataset, against the brute-force search."""
    expected: dict[str, bool] = {}
    runs: list[tuple[History, Options]] = []
    for seed in range(12):
        random = Random(seed)
        history = random_history(random)
        if seed % 2:
            history = mutate(mutate(history, random), random)
        directory = tmp_path / f"run-{seed}"
        laid_out = ingest(journal(directory, sorted(history, key=lambda op: op.invoke)), spark)
        laid_out = History(**vars(laid_out) | {"run": f"run-{seed}"})
        expected[laid_out.run] = search(history)
        runs.append((laid_out, Options()))
    found = log_linearizability.check(runs, spark).found
    broken = {run for run, property_, *_ in found.tally if property_ == "log linearizability"}
    assert {run: run not in broken for run in expected} == expected
    assert len(set(expected.values())) == 2


def test_a_long_log_in_segments_is_judged_as_in_one(spark: Any, tmp_path: Path) -> None:
    history = small()
    acknowledge_out_of_order(history)
    stale_end(history)
    history.in_final[np.flatnonzero(history.partition == 1)[-7:]] = False
    directory = history.write(tmp_path / "run")
    tallies = []
    for segment_offsets in (1 << 22, 250):
        laid_out = ingest(directory, spark, segment_offsets=segment_offsets)
        result = log_linearizability.check([(laid_out, Options())], spark)
        tally: Counter[str] = Counter()
        for _, _, anomaly, _, records in result.found.tally:
            tally[anomaly] += records
        tallies.append(tally)
    assert tallies[0] == tallies[1]
    assert set(tallies[0]) >= {"lost append", "stale end of log", "real-time inversion"}


def test_a_directory_that_is_no_run_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"has no plan\.json"):
        checkers.check(tmp_path, spark)


def test_a_violated_invariant_is_in_the_verdict_and_among_the_anomalies(spark: Any, tmp_path: Path) -> None:
    history = small()
    history.final_reads = False
    directory = history.write(tmp_path / "run", {"on": "simulation"})
    violation = {"property": "ConsistentRead", "message": "a read returned offset 4 twice", "where": "chaos-1"}
    violation |= {"nodes": ["broker-1"], "time_ns": 3 * SECOND, "step": 12, "event": "append"}
    (directory / "violation.json").write_text(json.dumps(violation))
    verdict = checkers.check(directory, spark)
    assert (verdict["verdict"], verdict["anomalies"]["ConsistentRead"]["count"]) == ("fail", 1)
    assert verdict["reason"] == "ConsistentRead violated on chaos-1 at 2.000 s: a read returned offset 4 twice"
    (row,) = anomalies(directory)
    assert (row["property"], row["topic"], row["partition"], row["ops"]) == ("ConsistentRead", "chaos", 1, [])
    assert row["message"].endswith("(step 12; append; broker-1)")
    (directory / "violation.json").write_text("{}")
    damaged = checkers.check(directory, spark)
    assert damaged["verdict"] == "unknown" and damaged["damaged"][0]["file"] == "violation.json"
    assert keeping.change(damaged).startswith("was fail by checkers ")


def test_a_damaged_history_is_laid_out_again(spark: Any, tmp_path: Path) -> None:
    directory = small().write(tmp_path / "run")
    before = without_stamps(checkers.check(directory, spark))
    history = ingest(directory, spark)
    damaged = history.path / history.logs[0].segments[0].paths["reads"]
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert without_stamps(checkers.check(directory, spark)) == before
