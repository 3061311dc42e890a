"""`make bench`: the figures that chaos aims at, measured on this machine and printed as a table.

Figures of containers are taken from ordinary runs of `chaos run`, from what they save; those of simulation from runs in
this process, on one core, and from a short `chaos explore`. A bench, not a test: a figure that misses its aim is shown
as such and does not fail.
"""

from __future__ import annotations

import cProfile
import json
import os
import platform
import pstats
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from harness.explore.exploration import explore
from harness.history import load_journal
from harness.plan import Plan
from harness.runtimes import choose_runtime
from harness.simulate import simulate

WARM_UP = ("--on", "docker", "--nemesis", "none", "--time-limit", "1")  # images are built, files are in the page cache
POWER_OUTAGE = ("--on", "docker", "--nemesis", "power-outage", "--time-limit", "60", "--seed", "1")
THROUGHPUT_S = 30
THROUGHPUT = ("--on", "docker", "--nemesis", "none", "--rate", "24000", "--time-limit", str(THROUGHPUT_S))


EXPLORED_SEEDS = 20
EXPLORED = ("power-outage", "kill", "pause", "partition")
#: Where simulation spends its time: what a file's path begins with, the first that fits.
PARTS = {
    "cluster": ("cluster_image/",),
    "clients and history": ("workloads/", "harness/history.py", "harness/observer.py"),
    "invariants": ("harness/runtimes/simulation/invariants/",),
    "loop, network and disk": ("harness/runtimes/simulation/",),
    "asyncio": ("asyncio/",),
    "kio": ("kio/",),
}


class Figure(NamedTuple):
    name: str
    aim: str
    measured: str
    met: bool


def measure(results: Path) -> Iterator[Figure]:
    """Make the runs and take the figures from them. Raises SystemExit if a run has no verdict."""
    yield from _of_simulation(results)
    place, why = choose_runtime()
    if place == "docker":
        yield from _of_containers(results)
    else:
        print(f"no figures of containers: {why}", file=sys.stderr)


def _of_simulation(results: Path) -> Iterator[Figure]:
    default = Plan(run="bench", on="simulation")
    yield _speed("simulated seconds a second, default cluster and workload", default)
    small = default.model_copy(update={"nemesis": EXPLORED, "rate": 40.0, "partitions": 4, "concurrency": 2})
    yield _speed("the same, workload of chaos explore and its faults", small)
    yield Figure("where that time goes", "", _where_time_goes(small), True)
    explored = explore(small, range(EXPLORED_SEEDS), results).as_dict()["totals"]
    yield Figure("seeds of 60 s an hour, all cores", "", f"{explored['seeds_an_hour']:,.0f}", True)


def _speed(name: str, plan: Plan) -> Figure:
    done = simulate(plan)
    speed = done.virtual_s / done.wall_s
    return Figure(name, "60", f"{speed:.0f}", speed >= 60)


def _where_time_goes(plan: Plan) -> str:
    """Shares of the time in functions of each part, built-in ones apart."""
    profile = cProfile.Profile()
    profile.runcall(simulate, plan)
    spent: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        found = (part for part, starts in PARTS.items() if any(start in file for start in starts))
        spent["built-in functions" if file == "~" else next(found, "other")] += own
    return ", ".join(f"{part} {share / spent.total():.0%}" for part, share in spent.most_common())


def _of_containers(results: Path) -> Iterator[Figure]:
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
        f"acks=all records a second at RF 3, {THROUGHPUT_S} s, verdict {verdict['verdict']}",
        "20,000",
        f"{rate:,.0f}",
        rate >= 20_000 and verdict["verdict"] == "pass",
    )


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


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="chaos-bench-") as directory:
        figures = list(measure(Path(directory)))
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    table = Table(title=machine)
    for column in ("figure", "aim", "measured", "met"):
        table.add_column(column)
    for figure in figures:
        table.add_row(figure.name, figure.aim, figure.measured, "yes" if figure.met else "no")
    Console().print(table)


if __name__ == "__main__":
    main()
