"""python -m tests.nightly.kafka [--short]: runs of Apache Kafka whose verdicts are known; exit code 1 if one is not.

Without ELR a power cut of the last replica in an ISR loses acknowledged records, with it none does: told by releases,
and by the same release with the feature switched the other way; and what docs/findings.md shows. --short: the two of
them that CI runs, in less than four minutes. Needs containers, and the Maven client or a filled cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

_ELR: Final = "eligible.leader.replicas.version"
#: See docs/findings.md: of an Apache Kafka the last leader is elected with whatever it has left.
_LAST_LEADER: Final = str(Path(__file__).with_name("last-leader.toml"))


class Run(NamedTuple):
    target: str
    nemesis: str  # "": as a schedule has it
    verdict: str
    time_limit: int = 60
    more: tuple[str, ...] = ()


SHORT: Final = (
    Run("kafka:4.2.0", "power-outage", "pass", 30),
    Run("kafka:3.9.1", "last-replica-standing", "fail", 40),
)
ALL: Final = (
    Run("kafka:4.2.0", "power-outage", "pass"),
    Run("kafka:4.2.0", "power-outage-cluster", "fail"),
    Run("kafka:3.9.1", "last-replica-standing", "fail"),
    Run("kafka:4.2.0", "last-replica-standing", "pass"),
    Run("kafka:4.2.0", "last-replica-standing", "fail", more=("--feature", f"{_ELR}=0")),
    Run("kafka:4.0.0", "last-replica-standing", "pass", more=("--feature", f"{_ELR}=1")),
    Run("kafka:4.2.0", "kill,pause,partition,power-outage", "pass", 90),
    Run("kafka:4.2.0", "last-replica-standing", "pass", 180, ("--timeouts", "kafka")),
    Run("kafka:4.2.0", "power-outage", "pass", more=("--workload", "compacted")),
    Run("kafka:4.2.0", "power-outage", "pass", more=("--workload", "idempotent")),
    Run("kafka:3.9.1", "membership:controller", "pass", more=("--set", "chaos.quorum=dynamic")),
    Run("kafka:4.2.0", "", "fail", 40, ("--schedule", _LAST_LEADER)),
    Run("kraft", "", "pass", 40, ("--schedule", _LAST_LEADER)),
    Run("kafka:3.9.1", "membership:upgrade", "pass", 120, ("--upgrade-to", "4.2.0")),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.kafka", description="See tests/nightly/kafka.py.")
    parser.add_argument("--short", action="store_true", help="the two that CI runs")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as results:
        for run in SHORT if arguments.short else ALL:
            began = time.monotonic()
            verdict = _carry_out(run, arguments.seed, Path(results))
            problem = _problem(run, verdict)
            wrong += bool(problem)
            took = f"{time.monotonic() - began:.0f} s"
            words = " ".join((run.target, run.nemesis, *run.more))
            print(f"{'NOT AS KNOWN' if problem else 'as known':12} {words}: {verdict.get('verdict')}, {took}{problem}",
                  flush=True)  # fmt: skip
    return int(bool(wrong))


def _carry_out(run: Run, seed: int, results: Path) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "harness", "run", "--target", run.target,
        *(("--nemesis", run.nemesis) if run.nemesis else ()), *run.more,
        "--time-limit", str(run.time_limit), "--seed", str(seed), "--results", str(results),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    runs = sorted(results.iterdir(), key=lambda path: path.stat().st_mtime)
    try:
        verdict: dict[str, Any] = json.loads((runs[-1] / "verdict.json").read_text())
        return verdict
    except (IndexError, OSError, ValueError):
        return {"verdict": "none", "reason": (done.stderr or done.stdout).strip().rpartition("\n")[2]}


def _problem(run: Run, verdict: dict[str, Any]) -> str:
    """What is not as it should be, as the end of a sentence."""
    if verdict.get("verdict") != run.verdict:
        return f": {verdict.get('reason')}"
    if run.verdict == "fail" and not verdict.get("losses"):
        return ": no evidence says how the records were lost"
    if run.target == "kraft":
        return ""
    looked_at = verdict["nodes"].get("looked_at", {})
    empty = [name for name in ("MetadataLogMatching", "CommittedPrefix", "SegmentIntegrity") if name not in looked_at]
    if run.nemesis.startswith("power-outage") and "right after power cuts" not in looked_at["RecoveryPointCheckpoint"]:
        empty.append("disks right after power cuts")
    return f": {', '.join(empty)} not judged" if empty else ""


if __name__ == "__main__":
    sys.exit(main())
