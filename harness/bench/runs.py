"""Figures of ordinary runs of `chaos run` in containers, from what they save.

What each client records of acknowledged appends a second: producers and two readers of all logs in processes of their
own, on one machine with the cluster. As much is asked for as none delivers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from harness.bench import Figure
from harness.record.history import load_journal

#: Images are built, files are in the page cache.
WARM_UP: Final = ("--on", "docker", "--nemesis", "none", "--time-limit", "1")
POWER_OUTAGE: Final = ("--on", "docker", "--nemesis", "power-outage", "--time-limit", "60", "--seed", "1")
THROUGHPUT_S: Final = 30
THROUGHPUT: Final = ("--on", "docker", "--nemesis", "none", "--rate", "24000", "--time-limit", str(THROUGHPUT_S))
CLIENTS_S: Final = 20
CLIENTS_AIM: Final = 100_000
#: By client, what is asked for, in records a second.
CLIENTS: Final = {"librdkafka": 300_000, "java": 300_000, "aiokafka": 50_000, "kafka-python": 50_000, "kio": 50_000}
_WARM_UP_NS: Final = 2_000_000_000  # of clients that start meanwhile


def measure(results: Path) -> Iterator[Figure]:
    """Raises SystemExit if a run has no verdict."""
    _run(WARM_UP, results)
    outage = _run(POWER_OUTAGE, results)
    facts = json.loads((outage / "run.json").read_text())
    yield Figure("cluster ready", "5 s", f"{facts['ready_s']:.1f} s", facts["ready_s"] <= 5)
    after = facts["after_time_limit_s"]
    yield Figure("verdict and report after the time limit of a 60 s run", "20 s", f"{after:.1f} s", after <= 20)
    cuts = [ns / 1e6 for ns in _cut_times(outage)]
    yield Figure(
        "power cut to remounted, a node",
        "100 ms",
        f"{median(cuts):.0f} ms median, {max(cuts):.0f} ms longest of {len(cuts)}",
        max(cuts) <= 100,
    )
    throughput = _run(THROUGHPUT, results)
    verdict = json.loads((throughput / "verdict.json").read_text())
    rate = verdict["operations"]["acknowledged"] / THROUGHPUT_S
    yield Figure(
        f"acks=all records a second of the recording workload, {THROUGHPUT_S} s, verdict {verdict['verdict']}",
        "20,000",
        f"{rate:,.0f}",
        rate >= 20_000 and verdict["verdict"] == "pass",
    )


def measure_clients(results: Path) -> Iterator[Figure]:
    """Raises SystemExit if a run has no verdict."""
    _run(WARM_UP, results)
    for client, rate in CLIENTS.items():
        options = ("--client", client, "--rate", str(rate), "--concurrency", "2", "--time-limit", str(CLIENTS_S))
        directory = _run(("--on", "docker", "--nemesis", "none", *options), results)
        verdict = json.loads((directory / "verdict.json").read_text())
        recorded = _a_second(load_journal(directory / "journal")["operations"].to_pandas())
        aim = f"{CLIENTS_AIM:,}" if client == "librdkafka" else ""
        met = (recorded >= CLIENTS_AIM and verdict["verdict"] == "pass") if aim else None
        what = f"acks=all records a second recorded over {client}, verdict {verdict['verdict']}"
        yield Figure(what, aim, f"{recorded:,.0f}", met)


def _a_second(operations: Any) -> float:
    """Of acknowledged appends, from a moment after the first to the last."""
    appends = operations[(operations.kind == "append") & (operations.outcome == "ok")]
    begin = appends.complete.min() + _WARM_UP_NS
    counted = appends[appends.complete >= begin]
    return float(len(counted) / (counted.complete.max() - begin) * 1e9)


def _run(arguments: Sequence[str], results: Path) -> Path:
    command = [sys.executable, "-m", "harness", "run", *arguments, "--results", str(results)]
    before = set(results.iterdir())
    done = subprocess.run(command, check=False)
    made = [path for path in results.iterdir() if path not in before and (path / "verdict.json").exists()]
    if done.returncode not in (0, 1, 2) or len(made) != 1:
        raise SystemExit(f"`chaos run {' '.join(arguments)}` had no verdict (exit code {done.returncode})")
    return made[0]


def _cut_times(run: Path) -> Iterator[int]:
    """Nanoseconds from each power cut to the volume mounted again, a node."""
    for evidence in load_journal(run / "journal")["faults"]["evidence"].to_pylist():
        nodes: dict[str, Any] = json.loads(evidence).get("nodes", {})
        yield from (seen["cut_ns"] for seen in nodes.values() if "cut_ns" in seen)
