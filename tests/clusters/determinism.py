"""Is a simulated run the same in every process, whatever the order in which its hash tables iterate?

    python -m tests.clusters.determinism 50

simulates seeds 0..49 in two processes with two hash seeds, and compares the trace hashes. Tasks that are ready at once
run in other orders than asyncio's. A test does so with a few.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from harness.explore.simulate import simulate
from harness.plan.plan import Plan, TaskOrder

HASH_SEEDS = ("1", "2")
ORDERS: Sequence[TaskOrder] = ("random", "pct")
NEMESIS = ("power-outage", "kill", "pause", "partition", "clock-jump", "disk-full", "disk-error")


def trace_hashes(seeds: int, time_limit: float) -> Sequence[Sequence[str]]:
    """A list for each hash seed: the trace hash of seeds 0, 1, … ."""
    command = [sys.executable, "-m", __name__ if __name__ != "__main__" else "tests.clusters.determinism"]
    processes = [
        subprocess.Popen(
            [*command, str(seeds), str(time_limit), "one process"],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in HASH_SEEDS
    ]
    said = [process.communicate()[0].split() for process in processes]
    assert all(process.returncode == 0 for process in processes)
    return said


def _print_hashes(seeds: int, time_limit: float) -> None:
    for seed in range(seeds):
        simulated = simulate(
            Plan(run=f"s{seed}", on="simulation", nemesis=NEMESIS, seed=seed, time_limit=time_limit, rate=40,
                 partitions=4, concurrency=2, task_order=ORDERS[seed % len(ORDERS)])
        )  # fmt: skip
        assert not simulated.crash, f"seed {seed}: {simulated.crash}"
        print(simulated.trace_hash, flush=True)


def main(arguments: Sequence[str]) -> int:
    seeds = int(arguments[0]) if arguments else 50
    time_limit = float(arguments[1]) if len(arguments) > 1 else 60.0
    if len(arguments) > 2:
        _print_hashes(seeds, time_limit)
        return 0
    first, second = trace_hashes(seeds, time_limit)
    differ = [seed for seed in range(seeds) if first[seed] != second[seed]]
    print(f"{seeds - len(differ)} of {seeds} seeds have one trace hash" + (f"; not {differ}" if differ else ""))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
