"""What `chaos check` takes for long runs, the whole command from start to end, with the report.

A run of 10 million appends, half of them acknowledged, in 500 flushes over 64 partitions, with faults and the logs of
three brokers, from its journal (harness/generate/recorded.py); and a generated history of 10 million operations, which
is laid out. `memory` is the most that all processes of the command held at a moment, pages that they share counted once
a process. CHAOS_BENCH=quick: a tenth of each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.bench import Figure
from harness.bench.processes import own_processes, status_kb
from harness.generate.log import generate
from harness.generate.recorded import generate_recorded

QUICK: Final = os.environ.get("CHAOS_BENCH") == "quick"
OPERATIONS: Final = 1_000_000 if QUICK else 10_000_000
FLUSHES: Final = 50 if QUICK else 500
RECORDED_AIM_S: Final = 15
RECORDED_AIM_GB: Final = 2
GENERATED_AIM_S: Final = 6
_SAMPLE_S: Final = 0.05


def measure(directory: Path) -> Iterator[Figure]:
    recorded, generated = directory / "recorded", directory / "generated"
    generate_recorded(recorded, appends=OPERATIONS, flushes=FLUSHES)
    took_s, peak_gb = _check(recorded)
    yield Figure(
        f"journal of {OPERATIONS:,} appends in {FLUSHES} flushes, to verdict and report",
        f"{RECORDED_AIM_S} s, {RECORDED_AIM_GB} GB",
        f"{took_s:.1f} s, memory {peak_gb:.1f} GB",
        took_s <= RECORDED_AIM_S and peak_gb <= RECORDED_AIM_GB,
    )
    generate(generated, operations=OPERATIONS, processes=30, seed=1)
    took_s, peak_gb = _check(generated)
    yield Figure(
        f"`chaos check` of {OPERATIONS:,} generated operations, with the report",
        f"{GENERATED_AIM_S} s",
        f"{took_s:.1f} s, memory {peak_gb:.1f} GB",
        took_s <= GENERATED_AIM_S,
    )


def _check(run: Path) -> tuple[float, float]:
    """Seconds, and GB at the most."""
    started, peak = time.perf_counter(), 0
    command = [sys.executable, "-m", "harness", "check", str(run)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as checking:
        while checking.poll() is None:
            peak = max(peak, sum(status_kb(pid, "VmRSS") for pid in own_processes(checking.pid)))
            time.sleep(_SAMPLE_S)
        took_s = time.perf_counter() - started
        if checking.returncode or not (run / "report.html").exists():
            reported = b"" if checking.stderr is None else checking.stderr.read()
            raise SystemExit(f"the bench's own run was not judged to pass: {reported.decode()}")
    return took_s, peak / 1e6
