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
#: percentile counts, beside the least of the quiet seconds before each, of as many goes as it takes, and of no more
#: than these.
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
    print(_HEADER)
    failed: list[str] = []
    for kind in chosen:
        line = judge.line(kind, seconds)
        print(line.text(kind), flush=True)
        slow = not short and line.times > SLOWER
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


_HEADER: Final = (
    f"{'kind':38} {'MB':>4} {'quiet ms':>8} {'p99 ms':>7} {'times':>5} {'goes':>4} {'stolen %':>8} {'ended':>5} "
    f"{'fenced':>6} {'deposed':>7}  answer"
)


class Go(NamedTuple):
    """Percentiles in seconds. stolen: of the machine's processors, what its host gave to others, 0.0 to 1.0."""

    answer: str
    quiet: float  # before it
    p99: float
    stolen: float

    @property
    def times(self) -> float:
        """Of the quiet percentile. Without one there is nothing to compare with, and no limit is kept."""
        return self.p99 / self.quiet if self.quiet < float("inf") else float("inf")


class Line(NamedTuple):
    go: Go  # the one that counts
    goes: int
    megabytes: float
    ended_nodes: list[int]
    fencings: int
    depositions: int

    @property
    def times(self) -> float:
        return self.go.times

    def text(self, kind: str) -> str:
        go = self.go
        latency = f"{go.quiet * 1000:8.1f} {go.p99 * 1000:7.1f} {go.times:5.1f} {self.goes:4} {go.stolen * 100:8.0f}"
        troubles = f"{len(self.ended_nodes):5} {self.fencings:6} {self.depositions:7}"
        return f"{kind:38} {self.megabytes:4.0f} {latency} {troubles}  {go.answer}"


def _least(goes: list[Go]) -> Go:
    """The least percentile of all, and the least quiet one: what a go leaves behind may be in the next one's quiet
    seconds."""
    return min(goes, key=lambda go: go.p99)._replace(quiet=min(go.quiet for go in goes))


class _Judge:
    def __init__(self, cluster: Cluster, attackers: Any, producer: Any, short: bool) -> None:
        self._cluster = cluster
        self._attackers = attackers
        self._producer = producer
        self._short = short

    def line(self, kind: str, seconds: float) -> Line:
        before = self._cluster.troubles()
        self._cluster.most_memory()
        goes: list[Go] = []
        while not goes or (len(goes) < GOES and _least(goes).times > SLOWER and not self._short):
            goes.append(self._go(kind, seconds))
        after = self._cluster.troubles()
        return Line(
            _least(goes), len(goes), self._cluster.most_memory()[0], self._cluster.ended(),
            after.fencings - before.fencings, after.depositions - before.depositions,
        )  # fmt: skip

    def _go(self, kind: str, seconds: float) -> Go:
        began = time.monotonic()
        time.sleep(seconds)
        attacked, before = time.monotonic(), _processor_seconds()
        self._attackers.send((kind, seconds))
        answer = self._attackers.recv()
        ended, after = time.monotonic(), _processor_seconds()
        time.sleep(_CALM_S)
        percentiles = [self._percentile(*times) for times in ((began, attacked), (attacked, ended))]
        self._cluster.settle()
        return Go(answer, *percentiles, (after.stolen - before.stolen) / max(after.all - before.all, 1))

    def _percentile(self, began: float, ended: float) -> float:
        """The 99th, in seconds, of the records that were sent meanwhile."""
        self._producer.send((began, ended))
        took = sorted(self._producer.recv())
        return took[int(0.99 * (len(took) - 1))] if took else float("inf")


class _Processors(NamedTuple):
    stolen: int
    all: int


def _processor_seconds() -> _Processors:
    """Since the machine began, in hundredths (proc(5), /proc/stat)."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return _Processors(steal, user + nice + system + idle + iowait + irq + softirq + steal)


if __name__ == "__main__":
    sys.exit(main())
