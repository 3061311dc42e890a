"""Results directories such as runs, explorations, suites and matrices leave, made in no time, of any size.

`python -m tests.harness.record.catalog.made DIRECTORY 10000` makes one of that many runs, with verdicts of the
size that those of real runs have.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from harness.plan.plan import Plan

BEGIN: Final = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
NEMESES: Final = (("power-outage",), ("kill", "pause"), ("partition:one-way",), ("clock",), ("disk:full", "kill"))
VERDICTS: Final = ("pass", "pass", "pass", "fail", "unknown")
_REASONS: Final = {
    "pass": "every acknowledged append fits one order",
    "fail": "3 lost appends (3 acknowledged); the faults stayed within the contract, so this is a bug",
    "unknown": "vacuous: kill did not take effect",
}
_REPORT: Final = "<!doctype html><html lang='en'><title>report</title><h1>report of {name}</h1></html>"
_CODES: Final = {"pass": 0, "fail": 1, "unknown": 2}


def run(
    results: Path,
    name: str,
    verdict: str | None = "pass",
    *,
    started: datetime = BEGIN,
    seed: int = 1,
    nemesis: Sequence[str] = ("kill",),
    p99: float = 25.0,
    acknowledged: int = 60_000,
    faults: int = 2,
    partitions: int = 1,
    record: Mapping[str, Any] | None = None,
    settings: Mapping[str, str] | None = None,
    **plan: Any,
) -> Path:
    """A run's directory with its small files. verdict: None: there is none. record: of run.json, beside what is there.
    plan: fields of the plan."""
    directory = results / name
    directory.mkdir(parents=True)
    planned, command = _planned(tuple(nemesis), tuple(sorted(plan.items())))
    # Settings whatever they are.
    fields = {**planned, "run": name, "seed": seed, "settings": dict(settings or {})}
    (directory / "plan.json").write_text(json.dumps(fields, indent=2))
    said = {
        "status": "done", "phase": "tear down", "phases": {"start": 3.5, "ready": 2.0, "workload": 60.0, "check": 1.0},
        "problems": [], "command": f"{command} --seed {seed}", "started_at": started.isoformat(timespec="seconds"),
        "finished_at": (started + timedelta(seconds=70)).isoformat(timespec="seconds"), **(record or {}),
    }  # fmt: skip
    (directory / "run.json").write_text(json.dumps(said, indent=2))
    if verdict is not None:
        found = judged(name, verdict, nemesis, p99, acknowledged, faults, partitions)
        (directory / "verdict.json").write_text(json.dumps(found, indent=2))
        (directory / "report.html").write_text(_REPORT.format(name="a run"))
    return directory


@cache
def _planned(nemesis: tuple[str, ...], plan: tuple[tuple[str, Any], ...]) -> tuple[dict[str, Any], str]:
    """Fields of a plan, and its command without a seed. Kept: a plan is looked at from all sides while it is made."""
    made = Plan(run="r", nemesis=nemesis, **dict(plan))
    return made.model_dump(mode="json"), made.command().replace(" --seed 0", "")


def judged(
    name: str, verdict: str, nemesis: Sequence[str], p99: float, acknowledged: int, faults: int, partitions: int
) -> dict[str, Any]:
    """verdict.json, as far as an index and a comparison read it."""
    latency = {"p50": p99 / 5, "p90": p99 / 2, "p99": p99, "p99.9": p99 * 2, "max": p99 * 3}
    windows = [
        {"fault": number, "nemesis": nemesis[number % len(nemesis)] if nemesis else "none", "targets": ["broker-1"],
         "from_s": 5.0 + number, "until_s": 9.0 + number, "acknowledged": 13, "latency_ms": latency,
         "longest_gap_ms": 4000.0 + number, "gap_on": "chaos-0",
         "recovery": {"from_strike_ms": 5.0, "from_heal_ms": 1.0, "sustained_from_strike_ms": 5000.0,
                      "sustained_from_heal_ms": 1000.0 * (number + 1)}}
        for number in range(faults)
    ]  # fmt: skip
    lost = 3 if verdict == "fail" else 0
    return {
        "verdict": verdict, "reason": _REASONS[verdict], "exit_code": _CODES[verdict], "run": name,
        "operations": {"append ok": acknowledged, "append fail": 12, "append info": 3, "read ok": 500, "read fail": 1,
                       "read info": 0, "acknowledged": acknowledged},
        "lost": lost, "undecided": 0,
        "anomalies": {
            "log linearizability": {"count": lost, "witnesses": lost, "weak": False,
                                    "anomalies": {"lost append": lost} if lost else {}, "example": None},
            "log matching": {"count": 0, "witnesses": 0, "weak": False, "anomalies": {}, "example": None},
        },
        "faults": {each: {"injected": 2, "effective": 1 + (verdict != "unknown"), "skipped": 0} for each in nemesis},
        "nemeses": [{"nemesis": each, "faults": 2, "skipped": 0, "effective": 2, "why_not": None} for each in nemesis],
        "contract": {"within": True, "limit": 1, "worst": 1, "explanation": "at worst 1 broker had lost unsynced data"},
        "availability": {
            "exact": True, "acknowledged": acknowledged, "latency_ms": latency,
            "gaps": {"threshold_ms": 500.0, "longest_ms": 3900.0, "longest_at_s": 5.0, "count": 1, "total_ms": 3900.0},
            "outside": {"seconds": 20.0, "acknowledged": 1, "latency_ms": latency},
            "in_force": {"seconds": 40.0, "acknowledged": 1, "latency_ms": latency}, "windows": windows,
            "partitions": [{"partition": f"chaos-{each}", "acknowledged": 1, "latency_ms": latency, "windows": windows}
                           for each in range(partitions)],
        },
        "complete": True, "origin_ns": 1, "checkers": {"version": "0.1.0", "source": "23c86f985b38"},
    }  # fmt: skip


def suite(
    results: Path, name: str, started: datetime, plans: Mapping[str, str | None], *, finished: bool = True, **run_: Any
) -> Path:
    """plans: by stable name the verdict; None: it was not run. run_: of each run, as of run()."""
    stamp = f"{started:%Y%m%dT%H%M%S}"
    directory = results / f"{stamp}-suite-{name}"
    directory.mkdir(parents=True)
    outcomes = {"pass": "passed", "fail": "failed", "unknown": "error", None: "not run"}
    rows = []
    for number, (plan, verdict) in enumerate(plans.items()):
        below = ""
        if verdict is not None:
            below = f"runs/{stamp}-kill-s{number}"
            run(directory, below, verdict, started=started + timedelta(minutes=number), seed=number, **run_)
        rows.append({"name": plan, "seed": number, "expect": "pass", "outcome": outcomes[verdict],
                     "verdict": verdict or "",
                     "reason": _REASONS[verdict] if verdict else "", "directory": below, "took_s": 70.0})  # fmt: skip
    code = max((_CODES[verdict] for verdict in plans.values() if verdict), key=(0, 2, 1).index, default=2)
    said = {"suite": name, "file": f"suites/{name}.toml", "command": f"chaos suite suites/{name}.toml",
            "started_at": started.isoformat(),
            "finished_at": (started + timedelta(minutes=5)).isoformat() if finished else "",
            "exit_code": code, "runs": rows}  # fmt: skip
    (directory / "suite.json").write_text(json.dumps(said))
    return directory


def exploration(results: Path, name: str, failing: Mapping[int, tuple[str, int]], passed: Sequence[int]) -> Path:
    """failing: by seed what broke and after how many faults."""
    directory = results / name
    (directory / "dataset").mkdir(parents=True)
    rows = []
    for seed, (property_, faults) in failing.items():
        run(directory, f"runs/s{seed}", "fail", seed=seed, on="simulation")
        rows.append({"seed": seed, "result": "fail", "property": property_, "anomaly": "violation",
                     "message": f"{property_} does not hold: broker-2 leads from leader epoch 4 without offset 12",
                     "where": "chaos-0", "nodes": ["broker-2"], "time_s": 12.5, "step": 4000, "faults": faults,
                     "operations": 100 * faults, "trace_hash": "ab", "directory": f"/elsewhere/{name}/runs/s{seed}",
                     "replay": f"chaos replay results/{name}/runs/s{seed}"})  # fmt: skip
    count = len(failing) + len(passed) + 1
    said = {
        "directory": f"/elsewhere/{name}", "exit_code": 1 if failing else 0,
        "totals": {"asked": count, "runs": count, "passed": len(passed), "failed": len(failing),
                   "crashed": 0, "hang": 0,
                   "unknown": 1, "wall_s": 12.0},
        "failing": rows, "unknown": [{"reason": "vacuous: nothing was acknowledged after a fault", "seeds": [99]}],
        "passed_seeds": ", ".join(map(str, passed)), "without_effect": {},
        "coverage": {"kill": {"seeds": count, "seeds_effective": count - 1, "injected": 9, "effective": 8,
                              "skipped": 1}},
        "checked": ["LeaderCompleteness", "log linearizability"], "problems": [],
        "plan": Plan(run="x", on="simulation", nemesis=("kill",)).model_dump(mode="json", exclude={"run", "seed"}),
    }  # fmt: skip
    (directory / "explore.json").write_text(json.dumps(said))
    return directory


def systematic(results: Path, name: str, failing: Mapping[int, str], planned: int) -> Path:
    """failing: by operation of broker-1 what broke; one more proves nothing, and the others of ten pass."""
    directory = results / name
    directory.mkdir(parents=True)
    ran = []
    for operation in range(1, 11):
        result = "fail" if operation in failing else "unknown" if operation == 9 else "pass"
        failure = None
        if operation in failing:
            run(directory, f"runs/broker-1.{operation}", "fail", on="simulation")
            failure = {"seed": 7, "result": "fail", "property": failing[operation], "anomaly": "violation", "faults": 1,
                       "message": "broker-1 takes more for flushed than its disk has synced", "operations": operation,
                       "directory": f"/elsewhere/{name}/runs/broker-1.{operation}",
                       "replay": "chaos replay it"}  # fmt: skip
        path = f"chaos-0/{operation:020}.log" if operation % 2 else "quorum-state"
        struck = None if operation == 10 else {"operation": "sync", "path": path, "number": operation}
        ran.append({"node": "broker-1", "operation": operation, "again": None, "result": result, "struck": struck,
                    "reason": "vacuous: nothing was acknowledged" if result == "unknown" else "", "counted_again": 0,
                    "failure": failure})  # fmt: skip
    results_ = {"fail": len(failing), "pass": 9 - len(failing), "unknown": 1}
    said = {"directory": f"/elsewhere/{name}", "exit_code": 1 if failing else 2, "seed": 7, "every": "fsync",
            "of": "load", "depth": 1, "counted": {"broker-1": 10, "broker-2": 12}, "counted_again": 0,
            "planned": planned, "runs": 10, "struck": 9, "results": results_, "wall_s": 3.0, "ran": ran,
            "plan": Plan(run="x", on="simulation").model_dump(mode="json", exclude={"run"})}  # fmt: skip
    (directory / "systematic.json").write_text(json.dumps(said))
    return directory


def matrix(results: Path, name: str, verdicts: Sequence[str]) -> Path:
    directory = results / f"matrix-{name}"
    cells = {}
    for number, verdict in enumerate(verdicts):
        made = run(directory, f"runs/20260131T1200{number:02}-kill-s{number}", verdict, seed=number)
        cells[f"{number:016x}"] = {
            "name": "kraft, kill", "seed": number, "expect": "pass",
            "outcome": {"pass": "passed", "fail": "failed"}.get(verdict, "error"), "verdict": verdict,
            "reason": _REASONS[verdict], "lost": 0, "directory": f"runs/{made.name}", "took_s": 60.0,
        }  # fmt: skip
    (directory / "matrix.json").write_text(json.dumps({"command": f"chaos matrix {name}.toml", "cells": cells}))
    (directory / "matrix.html").write_text("<!doctype html><title>matrix</title>")
    return directory


def many(results: Path, count: int, *, faults: int = 6, partitions: int = 6) -> None:
    """`count` runs of different nemeses, seeds, verdicts, targets and settings, a minute after each other."""
    dice = random.Random(1)
    for number in range(count):
        started = BEGIN + timedelta(minutes=number)
        nemesis = NEMESES[number % len(NEMESES)]
        name = f"{started:%Y%m%dT%H%M%S}-{'-'.join(nemesis).replace(':', '-')}-s{number}"
        run(
            results, name, VERDICTS[dice.randrange(len(VERDICTS))], started=started, seed=number, nemesis=nemesis,
            p99=dice.uniform(10, 400), acknowledged=dice.randrange(10_000, 120_000), faults=faults,
            partitions=partitions,
            target="kraft" if number % 3 else "kafka:4.2.0", on="docker",
            settings={"broker.session.timeout.ms": "2000"} if number % 7 == 0 else {},
        )  # fmt: skip


if __name__ == "__main__":
    many(Path(sys.argv[1]), int(sys.argv[2]))
