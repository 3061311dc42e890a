"""How long `chaos export` takes, from the command to the end of its process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.bench import Figure
from harness.cli.histories.generate import WORKLOADS, maker_of

OPERATIONS: Final = 2_500_000
PROCESSES: Final = 30
FORMATS: Final = ("edn", "jsonl", "parquet")
AIM_S: Final = 20.0


def measure(directory: Path) -> Iterator[Figure]:
    for workload, family in WORKLOADS.items():
        if workload == "cas-register":  # the same tables as of registers
            continue
        run = directory / workload
        maker_of(workload).generate(
            run, operations=OPERATIONS, processes=PROCESSES, seed=1, defect=None, **family.options
        )
        taken = [measure_export(run, format_) for format_ in FORMATS]
        name = f"export of {OPERATIONS:,} operations of {workload}: {', '.join(FORMATS)}, s"
        reported = ", ".join(f"{seconds:.1f}" for seconds in taken)
        yield Figure(name, f"{AIM_S:g} each", reported, max(taken) <= AIM_S)


def measure_export(run: Path, format_: str) -> float:
    """Seconds."""
    output = run.parent / f"export.{format_}"
    started = time.perf_counter()
    command = [sys.executable, "-m", "harness", "export", str(run), "--format", format_, "--output", str(output)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started
