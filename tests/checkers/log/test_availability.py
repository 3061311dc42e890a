"""Availability against a plain computation on random histories, exact and put together from what tasks send."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from checkers.log import availability
from checkers.log.availability import summarise
from checkers.log.streams import ERROR, MIN_GAP_NS, SUSTAINED_NS, Part, Windows, measure
from harness.report.console import availability_lines
from spark_history.files import compact
from spark_history.ingest import History, ingest
from spark_history.schema import OPERATIONS
from tests.checkers.histories.histories import LongHistory
from tests.checkers.histories.random_histories import HISTORIES

MS = 1_000_000
ORIGIN = 86_400 * 10**9 * 100


def rows_of(random: Random, partitions: int) -> list[dict[str, Any]]:
    """Appends over about 4 s with a stall in the middle, in no order."""
    rows = []
    stall = random.uniform(0.5, 3)
    for number in range(random.randint(1, 60)):
        at = random.choice([random.uniform(0, stall), random.uniform(stall + random.random(), 4)])
        invoke = ORIGIN + int(at * 1e9) // MS * MS
        outcome = random.choices(["ok", "fail", "info"], [8, 1, 1])[0]
        took = random.choice([0, 1, 3, 200]) * MS + random.randint(0, 2) * 17
        rows.append({
            "op": number, "kind": "append", "topic": "t", "partition": random.randrange(partitions), "outcome": outcome,
            "invoke": invoke, "complete": None if outcome == "info" and random.random() < 0.5 else invoke + took,
        })  # fmt: skip
    rows.append(rows[0] | {"kind": "read", "invoke": 1, "complete": ORIGIN * 2, "outcome": "ok"})
    return rows


def faults_of(random: Random) -> list[dict[str, Any]]:
    faults = []
    for number in range(random.randint(0, 4)):
        start = ORIGIN + random.randint(0, 4000) * MS
        end = None if random.random() < 0.2 else start + random.randint(0, 1500) * MS
        evidence = {"skipped": "no time"} if random.random() < 0.1 else {}
        faults.append({
            "fault": number, "nemesis": "kill", "targets": ["broker-1"], "start": start, "end": end, "effective": True,
            "evidence": evidence,
        })  # fmt: skip
    return faults


def tables(rows: list[dict[str, Any]]) -> dict[str, pa.Table]:
    named: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        named.setdefault(f"t-{row['partition']}", []).append(row)
    empty = dict.fromkeys(OPERATIONS.names)
    return {
        name: pa.Table.from_pylist([empty | row for row in own], schema=OPERATIONS).cast(compact(OPERATIONS))
        for name, own in named.items()
    }


class Plain:
    """The definitions, followed one append at a time."""

    def __init__(self, rows: list[dict[str, Any]], faults: list[dict[str, Any]]) -> None:
        appends = [row for row in rows if row["kind"] == "append"]
        self.ok = [row for row in appends if row["outcome"] == "ok"]
        self.begin, self.end = min(r["invoke"] for r in appends), max(r["invoke"] for r in appends)
        self.faults = [fault for fault in faults if "skipped" not in fault["evidence"]]

    def latency(self, rows: list[dict[str, Any]]) -> dict[str, float] | None:
        taken = sorted(row["complete"] - row["invoke"] for row in rows)
        if not taken:
            return None
        ranks = {"p50": 500, "p90": 900, "p99": 990, "p99.9": 999, "max": 1000}
        # The smallest that so many thousandths do not exceed.
        return {
            name: next(v for v in taken if 1000 * sum(w <= v for w in taken) >= share * len(taken)) / MS
            for name, share in ranks.items()
        }

    def in_force(self, fault: dict[str, Any], time: int) -> bool:
        return fault["start"] <= time and (fault["end"] is None or time <= fault["end"])

    def gaps(self, rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
        times = sorted(row["complete"] for row in rows)
        points = [min([self.begin, *times[:1]]), *times] + ([self.end] if not times or self.end > times[-1] else [])
        return list(pairwise(points))

    def threshold(self, rows: list[dict[str, Any]]) -> int:
        times = sorted({row["complete"] for row in rows})
        return max(MIN_GAP_NS, 20 * ((times[-1] - times[0]) // (len(times) - 1)) if len(times) > 1 else 0)

    def recovery(self, rows: list[dict[str, Any]], moment: int | None, sustained: bool) -> float | None:
        if moment is None:
            return None
        long = [gap for gap in self.gaps(rows) if gap[1] - gap[0] > self.threshold(rows)]
        for time in sorted(row["complete"] for row in rows):
            if time >= moment and not (sustained and any(time <= low < time + SUSTAINED_NS for low, _ in long)):
                return (time - moment) / MS
        return None


def expect(result: dict[str, Any], plain: Plain, names: list[str], error: float) -> None:
    def near(reported: Any, rows: list[dict[str, Any]]) -> None:
        expected = plain.latency(rows)
        assert reported["acknowledged"] == len(rows)
        if expected is None:
            assert reported["latency_ms"] is None
        else:
            assert reported["latency_ms"] == pytest.approx(expected, rel=error, abs=1e-5)
            assert reported["latency_ms"]["max"] == pytest.approx(expected["max"], abs=1e-5)

    calm = [row for row in plain.ok if not any(plain.in_force(fault, row["complete"]) for fault in plain.faults)]
    near(result, plain.ok)
    near(result["outside"], calm)
    near(result["in_force"], [row for row in plain.ok if row not in calm])
    assert [entry["partition"] for entry in result["partitions"]] == names
    for entry in result["partitions"]:
        own = [row for row in plain.ok if f"t-{row['partition']}" == entry["partition"]]
        near(entry, own)
        gaps = plain.gaps(own)
        long = [high - low for low, high in gaps if high - low > plain.threshold(own)]
        assert (entry["gaps"]["count"], entry["gaps"]["total_ms"]) == (len(long), sum(long) / MS)
        if not error or long:
            assert entry["gaps"]["longest_ms"] == pytest.approx(max(high - low for low, high in gaps) / MS, abs=1e-5)
        for fault, reported in zip(sorted(plain.faults, key=lambda f: f["start"]), entry["windows"], strict=True):
            assert reported["fault"] == fault["fault"]
            near(reported, [row for row in own if plain.in_force(fault, row["complete"])])
            end = fault["end"] if fault["end"] is not None else ORIGIN * 9
            inside = [high - low for low, high in gaps if high >= fault["start"] and low <= end]
            if not error or max(inside, default=0) > MIN_GAP_NS:
                assert reported["longest_gap_ms"] == pytest.approx(max(inside, default=0) / MS, abs=1e-5)
            assert reported["recovery"] == pytest.approx({
                "from_strike_ms": plain.recovery(own, fault["start"], False),
                "from_heal_ms": plain.recovery(own, fault["end"], False),
                "sustained_from_strike_ms": plain.recovery(own, fault["start"], True),
                "sustained_from_heal_ms": plain.recovery(own, fault["end"], True),
            }, abs=1e-5)  # fmt: skip


def test_random_histories_agree_with_the_definitions_one_append_at_a_time() -> None:
    for seed in range(HISTORIES // 10):
        random = Random(seed)
        rows, faults = rows_of(random, random.randint(1, 3)), faults_of(random)
        logs = tables(rows)
        if not any(row["kind"] == "append" for row in rows):
            continue
        plain = Plain(rows, faults)
        expect(availability.of_tables(logs.items(), faults, ORIGIN), plain, sorted(logs), 0.0)
        # As tasks do it, a log cut into two segments at random.
        windows, width = Windows.of(faults), random.choice([1, 5, 40]) * MS
        parts: list[Part] = []
        for name, table in logs.items():
            half = np.array([random.random() < 0.5 for _ in range(table.num_rows)], bool)
            parts += [measure(name, table.filter(pa.array(mask)), windows, width) for mask in (half, ~half)]
        # Moments that both halves know are two there, so the mean interval may be shorter.
        if all(plain.threshold([r for r in plain.ok if r["partition"] == p]) == MIN_GAP_NS for p in range(3)):
            expect(summarise(parts, windows, ORIGIN, width), plain, sorted(logs), ERROR)


def test_a_partition_that_is_never_acknowledged_again_is_silent_to_the_end() -> None:
    rows = [
        {"op": n, "kind": "append", "topic": "t", "partition": n % 2, "outcome": "ok" if n < 20 or n % 2 else "fail",
         "invoke": ORIGIN + n * 50 * MS, "complete": ORIGIN + n * 50 * MS + MS}
        for n in range(100)
    ]  # fmt: skip
    fault = {"fault": 3, "nemesis": "kill", "targets": ["broker-1"], "start": ORIGIN + 1000 * MS,
             "end": ORIGIN + 2000 * MS, "effective": True, "evidence": {}}  # fmt: skip
    result = availability.of_tables(tables(rows).items(), [fault], ORIGIN)
    dead, alive = result["partitions"]
    assert dead["gaps"]["longest_ms"] == 99 * 50 - (18 * 50 + 1) and alive["gaps"]["longest_ms"] < 120
    assert set(dead["windows"][0]["recovery"].values()) == {None}
    (window,) = result["windows"]
    assert (window["gap_on"], window["recovery"]["sustained_from_heal_ms"]) == ("t-0", None)
    assert alive["windows"][0]["recovery"]["sustained_from_heal_ms"] < 110
    first, served, second = availability_lines(result)
    assert first.startswith("latency p50 1.0 ms") and "not before the end after 1 of them" in second
    assert result["least_served"]["partition"] == "t-0" and 0.17 < result["least_served"]["share"] < 0.19
    assert served == "every partition acknowledged for 18% of the time at least (t-0)"


def test_outages_do_not_make_themselves_shorter_by_making_the_mean_interval_longer() -> None:
    """Of a slow cluster: acknowledged every 300 ms for 3 s, and then not for 3 s, again and again."""
    times = [n * 6_000 + m * 300 for n in range(5) for m in range(10)]
    rows = [
        {"op": n, "kind": "append", "topic": "t", "partition": 0, "outcome": "ok", "invoke": ORIGIN + time * MS,
         "complete": ORIGIN + time * MS + MS} for n, time in enumerate(times)
    ]  # fmt: skip
    least = availability.of_tables(tables(rows).items(), [], ORIGIN)["least_served"]
    assert least["share"] == pytest.approx(5 * 2_700 / times[-1], abs=0.01)


def test_the_result_stays_small_however_many_faults_and_partitions_there_are() -> None:
    rows = [
        {"op": n, "kind": "append", "topic": "t", "partition": n % 100, "outcome": "ok", "invoke": ORIGIN + n * MS,
         "complete": ORIGIN + n * MS + MS} for n in range(2000)
    ]  # fmt: skip
    faults = [
        {"fault": n, "nemesis": "kill", "targets": [], "start": ORIGIN + n * MS, "end": ORIGIN + n * MS + 5,
         "effective": n >= 50, "evidence": {}} for n in range(150)
    ]  # fmt: skip
    result = availability.of_tables(tables(rows).items(), faults, ORIGIN)
    assert (len(result["windows"]), len(result["partitions"])) == (32, 64)
    assert result["unlisted"] == {"windows": 118, "partitions": 36}
    assert min(window["fault"] for window in result["windows"]) == 50, "those that took effect come first"
    every = {window["fault"] for window in (*result["windows"], *result["further_windows"])}
    assert every == set(range(150)) and all(window["recovery"] for window in result["further_windows"])


def test_nothing_appended_is_no_division_by_nothing() -> None:
    assert availability.of_tables([], [], 0)["latency_ms"] is None
    assert availability_lines(availability.of_tables([], [], 0)) == [] == availability_lines(None)


@pytest.mark.spark
def test_tasks_and_memory_tell_the_same(spark: Any, tmp_path: Any) -> None:
    history: History = ingest(LongHistory(4_000, partitions=3, seconds=4).write(tmp_path / "run"), spark)
    fault = {"fault": 0, "nemesis": "kill", "targets": [], "start": history.origin + 10**9,
             "end": history.origin + 2 * 10**9, "effective": True, "evidence": {}}  # fmt: skip
    exact = availability.of_history(history, [fault], 4_000, spark)
    rough = availability.of_history(history, [fault], availability.EXACT_APPENDS + 1, spark)
    assert exact["exact"] and not rough["exact"] and exact["acknowledged"] == rough["acknowledged"] == 4_000
    assert rough["latency_ms"] == pytest.approx(exact["latency_ms"], rel=ERROR)
    for a, b in zip(exact["windows"], rough["windows"], strict=True):
        assert a["recovery"] == b["recovery"] and a["acknowledged"] == b["acknowledged"] > 0
