"""What the search takes: whether it keeps its bounds, and how fast it judges what clients do.

Adversarial histories are those of harness/generate/hard.py, 1,000 of each model (CHAOS_BENCH=quick: 20;
CHAOS_SEARCH_HISTORIES says how many), each judged with its witness, in this process. Time is that of the check of a
table; memory is what the process had at most beyond what it had before (Linux).
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from checkers.models.bounds import resident_bytes
from checkers.verdict.judged import Judged
from harness.bench import Figure
from harness.bench.checkers import QUICK
from harness.generate.hard import MODELS, adversarial, kv_of_clients, register_log
from harness.record.judging import family_of

HISTORIES: Final = int(os.environ.get("CHAOS_SEARCH_HISTORIES", "20" if QUICK else "1000"))
BOUNDS: Final = {"seconds": 1.0, "memory_mb": 200.0}
KV_OPERATIONS: Final = 2_000
KV_KEYS: Final = 10
KV_AIM_S: Final = 3.0
KV_HISTORIES: Final = 5 if QUICK else 20
HUNDRED_AIM_S: Final = 1.0


def measure(directory: Path) -> Iterator[Figure]:
    for model in MODELS:
        yield _bounded(model)
    for clients in (10, 50):
        for wrong in (False, True):
            yield _kv(clients, wrong)
    yield _hundred(directory)


class Taken(NamedTuple):
    """seconds: of this process' own time; peak: bytes beyond those before."""

    judged: Judged
    seconds: float
    peak: int

    @property
    def word(self) -> str:
        return "fail" if self.judged.tally else "unknown" if self.judged.undecided else "pass"


def judge(plan: Mapping[str, Any], tables: Mapping[str, Any]) -> Taken:
    family = family_of(plan["workload"])
    gc.collect()
    with suppress(OSError):  # the peak begins anew
        Path("/proc/self/clear_refs").write_text("5")
    before, started = resident_bytes(), time.process_time()
    judged = family.check_tables(plan, tables)
    return Taken(judged, time.process_time() - started, max(_peak_bytes() - before, 0))


def _peak_bytes() -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _bounded(model: str) -> Figure:
    slowest, largest = 0.0, 0
    words: Counter[str] = Counter()
    for seed in range(HISTORIES):
        plan, tables = adversarial(model, seed)
        taken = judge({**plan, "bounds": BOUNDS}, tables)
        slowest, largest = max(slowest, taken.seconds), max(largest, taken.peak)
        words[taken.word] += 1
    reported = ", ".join(f"{words[word]:,} {word}" for word in ("pass", "fail", "unknown"))
    return Figure(
        f"{HISTORIES:,} adversarial histories of {model} within 1 s and 200 MB: longest, most",
        "2 s, 400 MB",
        f"{slowest:.2f} s, {largest / 1e6:.0f} MB; {reported}",
        slowest <= 2 * BOUNDS["seconds"] and largest <= 2e6 * BOUNDS["memory_mb"],
    )


def _kv(clients: int, wrong: bool) -> Figure:
    slowest, as_made = 0.0, 0
    for seed in range(KV_HISTORIES):
        taken = judge(*kv_of_clients(seed, clients, KV_OPERATIONS, KV_KEYS, wrong))
        slowest = max(slowest, taken.seconds)
        as_made += taken.word == ("fail" if wrong else "pass")
    return Figure(
        f"a {'wrong' if wrong else 'right'} kv history of {clients} clients, {KV_OPERATIONS:,} operations, "
        f"{KV_KEYS} keys, with its witness: longest of {KV_HISTORIES}, s",
        f"{KV_AIM_S:g}",
        f"{slowest:.2f}" + ("" if as_made == KV_HISTORIES else f"; {KV_HISTORIES - as_made} not as made"),
        slowest <= KV_AIM_S and as_made == KV_HISTORIES,
    )


def _hundred(directory: Path) -> Figure:
    """The whole command, start to end."""
    for seed in range(100):
        (directory / f"{seed:03}.edn").write_text(register_log(seed))
    command = [sys.executable, "-m", "harness", "check", str(directory), "--workload", "register"]
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=False)
        taken.append(time.perf_counter() - started)
    return Figure(
        "`chaos check` of 100 register histories of 100 operations, start to end, best of 3, s",
        f"{HUNDRED_AIM_S:g}",
        f"{min(taken):.2f}",
        min(taken) <= HUNDRED_AIM_S,
    )
