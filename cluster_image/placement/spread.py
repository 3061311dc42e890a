"""How evenly an assignment is spread: what each broker leads and holds, and who takes over from it if it dies.

A partition's replica list is a tuple of broker ids, the preferred leader first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from .racks import Racks

Replicas = tuple[int, ...]


class Spread:
    """Counts over some partitions, which grow with each that is added."""

    def __init__(self, partitions: Iterable[Sequence[int]] = ()) -> None:
        self.leaders: Counter[int] = Counter()  # preferred ones
        self.replicas: Counter[int] = Counter()
        self.seconds: Counter[int] = Counter()  # who leads in the place of any broker that is gone
        #: By broker: who leads in its place, of how many partitions, once it is gone.
        self.takeovers: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for replicas in partitions:
            self.add(replicas)

    def add(self, replicas: Sequence[int]) -> None:
        self.leaders[replicas[0]] += 1
        for broker in replicas:
            self.replicas[broker] += 1
        if len(replicas) > 1:
            self.seconds[replicas[1]] += 1
            self.takeovers[replicas[0]][replicas[1]] += 1

    def remove(self, replicas: Sequence[int]) -> None:
        self.leaders[replicas[0]] -= 1
        self.replicas.subtract(replicas)
        if len(replicas) > 1:
            self.seconds[replicas[1]] -= 1
            self.takeovers[replicas[0]][replicas[1]] -= 1


def apart(counts: Mapping[int, int], brokers: Iterable[int]) -> int:
    """Between the highest count of these brokers and the lowest. 0 for none."""
    found = [counts.get(broker, 0) for broker in brokers]
    return max(found) - min(found) if found else 0


def warnings(spread: Spread, brokers: Mapping[int, str | None]) -> list[str]:
    """A sentence for each way in which these partitions are not balanced: brokers that hold more than others, or lead
    more, and brokers whose leaderships would go to some of the others only. brokers: rack by id."""
    racks = Racks(brokers)
    unequal = len(set(racks.sizes.values())) > 1
    found = []
    for verb, counts, what in (("holds", spread.replicas, "replicas"), ("leads", spread.leaders, "partitions")):
        if apart(counts, brokers) > 1:
            most = max(brokers, key=lambda b: (counts[b], -b))
            least = min(brokers, key=lambda b: (counts[b], b))
            of_most, of_least = (f" (rack {racks.of[b] or 'none'})" if unequal else "" for b in (most, least))
            found.append(
                f"{'racks of unequal size: ' * unequal}broker {most}{of_most} {verb} {counts[most]} {what}, "
                f"broker {least}{of_least} {counts[least]}"
            )
    lopsided = [b for b in sorted(brokers) if apart(spread.takeovers[b], brokers.keys() - {b}) > 1]
    if lopsided:
        first = lopsided[0]
        heirs = sorted((b, count) for b, count in spread.takeovers[first].items() if count)
        number = len(lopsided) - 1
        others = f"; so it is with {number} other broker{'s' * (number > 1)}" if number else ""
        found.append(
            f"if broker {first} fails, its {spread.leaders[first]} leaderships go unevenly to the {len(brokers) - 1} "
            f"others: to {_brokers(heirs)}{others}"
        )
    return found


def _brokers(heirs: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"{broker} ({count})" for broker, count in heirs[:10])
    more = f" and {len(heirs) - 10} more" if len(heirs) > 10 else ""
    return f"{'broker' if len(heirs) == 1 else 'brokers'} {shown}{more}"
