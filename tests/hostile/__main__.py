"""See __init__.py."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from .attack import KINDS, attack
from .cluster import Cluster
from .load import produce

MEMORY_MB: Final = 256
SLOWER: Final = 3.0
_CALM_S: Final = 1.0


class Line(NamedTuple):
    kind: str
    began: float  # time.monotonic()
    ended: float
    answer: str
    megabytes: float
    ended_nodes: list[int]
    fencings: int
    depositions: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description="Hostile traffic: see __init__.py.")
    parser.add_argument("kinds", nargs="*", help="parts of names; all by default")
    parser.add_argument("--seconds", type=float, default=6.0, help="each kind")
    parser.add_argument("--short", action="store_true", help="a second each, and no percentile: for CI")
    arguments = parser.parse_args()
    seconds = 1.0 if arguments.short else arguments.seconds
    chosen = [name for name in KINDS if not arguments.kinds or any(part in name for part in arguments.kinds)]
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory))
        try:
            return _run(cluster, chosen, seconds, arguments.short)
        finally:
            cluster.stop()


def _run(cluster: Cluster, chosen: list[str], seconds: float, short: bool) -> int:
    target = cluster.start()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    producer = context.Process(target=produce, args=(cluster.bootstrap, target.topic, theirs), daemon=True)
    attackers, commands = context.Pipe()
    attacker = context.Process(target=attack, args=(target, commands), daemon=True)
    producer.start()
    attacker.start()
    time.sleep(5.0)  # until everything is warm
    lines = [_line(cluster, attackers, "(quiet)", 3.0 if short else 15.0)]
    for kind in chosen:
        lines.append(_line(cluster, attackers, kind, seconds))
        print(f"{kind}: {lines[-1].answer}", file=sys.stderr, flush=True)
    lines.append(_line(cluster, attackers, "(quiet again)", 3.0))
    ours.send(None)
    acknowledged, errors, ends = ours.recv()
    attacker.kill()
    producer.join()
    watermarks = cluster.ends()
    lost = [p for p, end in ends.items() if watermarks.get(p, 0) < end]
    return _report(lines, acknowledged, errors, lost, short)


def _line(cluster: Cluster, attackers: Any, kind: str, seconds: float) -> Line:
    before = cluster.troubles()
    cluster.most_memory()
    began = time.monotonic()
    answer = ""
    if kind in KINDS:
        attackers.send((kind, seconds))
        answer = attackers.recv()
    else:
        time.sleep(seconds)
    ended = time.monotonic()
    time.sleep(_CALM_S)
    after = cluster.troubles()
    return Line(
        kind, began, ended, answer, cluster.most_memory()[0], cluster.ended(), after.fencings - before.fencings,
        after.depositions - before.depositions,
    )  # fmt: skip


def _report(
    lines: list[Line], acknowledged: list[tuple[float, float]], errors: list[str], lost: list[int], short: bool
) -> int:
    print(f"{'kind':38} {'MB':>4} {'p99 ms':>7} {'ended':>5} {'fenced':>6} {'deposed':>7}  answer")
    quiet = _percentile(lines[0], acknowledged)
    failed: list[str] = []
    for line in lines:
        p99 = _percentile(line, acknowledged)
        print(
            f"{line.kind:38} {line.megabytes:4.0f} {p99 * 1000:7.1f} {len(line.ended_nodes):5} {line.fencings:6} "
            f"{line.depositions:7}  {line.answer}"
        )
        slow = not short and p99 > SLOWER * quiet
        if slow or line.ended_nodes or line.fencings or line.depositions or line.megabytes > MEMORY_MB:
            failed.append(line.kind)
    print(f"{len(lines) - 2} kinds; {len(acknowledged):,} records acknowledged, {len(errors)} refused"
          f"{f' ({errors[0]})' if errors else ''}; {'some lost' if lost else 'none lost'}")  # fmt: skip
    if failed:
        print(f"beyond the limits: {', '.join(failed)}")
    return int(bool(failed or errors or lost))


def _percentile(line: Line, acknowledged: list[tuple[float, float]]) -> float:
    """The 99th, in seconds, of the records that were sent meanwhile."""
    took = sorted(seconds for sent, seconds in acknowledged if line.began <= sent <= line.ended)
    return took[int(0.99 * (len(took) - 1))] if took else float("inf")


if __name__ == "__main__":
    sys.exit(main())
