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
#: What a kind does to others, it does each time; a machine that stands still for a moment does so once. So the least
#: percentile counts, of as many goes as it takes, and of no more than these.
GOES: Final = 3
_CALM_S: Final = 1.0


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
    judge = _Judge(cluster, attackers, ours, short)
    quiet = judge.line("", 3.0 if short else 5.0)
    print(_HEADER)
    print(quiet.text("(quiet)"), flush=True)
    failed: list[str] = []
    for kind in chosen:
        line = judge.line(kind, seconds, SLOWER * quiet.p99)
        print(line.text(kind), flush=True)
        slow = not short and line.p99 > SLOWER * quiet.p99
        if slow or line.ended_nodes or line.fencings or line.depositions or line.megabytes > MEMORY_MB:
            failed.append(kind)
    ours.send(None)
    acknowledged, errors, ends = ours.recv()
    attacker.kill()
    producer.join()
    watermarks = cluster.ends()
    lost = [p for p, end in ends.items() if watermarks.get(p, 0) < end]
    print(f"{len(chosen)} kinds; {acknowledged:,} records acknowledged, {len(errors)} refused"
          f"{f' ({errors[0]})' if errors else ''}; {'some lost' if lost else 'none lost'}")  # fmt: skip
    if failed:
        print(f"beyond the limits: {', '.join(failed)}")
    return int(bool(failed or errors or lost))


_HEADER: Final = f"{'kind':38} {'MB':>4} {'p99 ms':>7} {'goes':>4} {'ended':>5} {'fenced':>6} {'deposed':>7}  answer"


class Line(NamedTuple):
    p99: float  # seconds
    goes: int
    answer: str
    megabytes: float
    ended_nodes: list[int]
    fencings: int
    depositions: int

    def text(self, kind: str) -> str:
        return (
            f"{kind:38} {self.megabytes:4.0f} {self.p99 * 1000:7.1f} {self.goes:4} {len(self.ended_nodes):5} "
            f"{self.fencings:6} {self.depositions:7}  {self.answer}"
        )


class _Judge:
    def __init__(self, cluster: Cluster, attackers: Any, producer: Any, short: bool) -> None:
        self._cluster = cluster
        self._attackers = attackers
        self._producer = producer
        self._short = short

    def line(self, kind: str, seconds: float, enough: float = 0.0) -> Line:
        """kind: "" for none. enough: a percentile, in seconds, that needs no other go."""
        before = self._cluster.troubles()
        self._cluster.most_memory()
        answers: list[str] = []
        percentiles: list[float] = []
        while not percentiles or (len(percentiles) < GOES and min(percentiles) > enough and not self._short):
            began = time.monotonic()
            answers.append(self._go(kind, seconds))
            ended = time.monotonic()
            time.sleep(_CALM_S)
            percentiles.append(self._percentile(began, ended))
        after = self._cluster.troubles()
        return Line(
            min(percentiles), len(percentiles), answers[0], self._cluster.most_memory()[0], self._cluster.ended(),
            after.fencings - before.fencings, after.depositions - before.depositions,
        )  # fmt: skip

    def _go(self, kind: str, seconds: float) -> str:
        if not kind:
            time.sleep(seconds)
            return ""
        self._attackers.send((kind, seconds))
        answer: str = self._attackers.recv()
        return answer

    def _percentile(self, began: float, ended: float) -> float:
        """The 99th, in seconds, of the records that were sent meanwhile."""
        self._producer.send((began, ended))
        took = sorted(self._producer.recv())
        return took[int(0.99 * (len(took) - 1))] if took else float("inf")


if __name__ == "__main__":
    sys.exit(main())
