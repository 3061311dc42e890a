"""Composite nemeses: several faults planned together, each of them carried out by an ordinary nemesis.

A composite never strikes by itself. The schedule has its parts in its place, under their own names and each with its
own evidence, so that they can be edited, taken away and shrunk one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple

from harness.cluster import Cluster, Evidence, Node
from nemesis import Common, Draw, Nemesis, Situation
from nemesis.clock import Clock
from nemesis.disk import Disk
from nemesis.kill import Kill, RollingTerm, Term
from nemesis.membership import Membership
from nemesis.network import Network
from nemesis.page_cache import PageCache
from nemesis.partition import Partition
from nemesis.pause import Pause
from nemesis.power import Power


class Part(NamedTuple):
    """One fault of a composite: `after` seconds since the composite began."""

    nemesis: Nemesis
    after: float
    duration: float


class Composite(Common):
    """draw() says how long all parts take together, parts() what they are; both of the same stream."""

    name: str
    summary: str

    def parts(self, random: Random) -> Sequence[Part]:
        raise NotImplementedError

    def draw(self, random: Random) -> Draw:
        parts = self.parts(random)
        return Draw(random.uniform(3.0, 6.0), max(part.after + part.duration for part in parts), {})

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        raise NotImplementedError("a composite strikes through its parts")

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        raise NotImplementedError("a composite strikes through its parts")

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return False


class LastReplicaStanding(Composite):
    """Longer than replica.lag.time.max.ms, so that the leader removes its followers; what it acknowledges to acks=1,
    and what was about to be acknowledged, is in its page cache alone when the power goes. With ELR the followers that
    it removed are still known to hold what acks=all was promised."""

    name = "last-replica-standing"
    summary = "a leader loses its followers until it is alone in an ISR, and then its power"

    def parts(self, random: Random) -> Sequence[Part]:
        lag = self.timing.lag
        cut = random.uniform(1.5 * lag + 1.0, 1.5 * lag + 3.0)
        return (
            Part(Partition.variants["followers"](), 0.0, cut),
            Part(Power.variants["last-in-isr"](), lag - 4.0 + random.uniform(1.0, 2.0), random.uniform(2.0, 3.0)),
        )


class RollingRestart(Composite):
    name = "rolling-restart"
    summary = "stops (SIGTERM) and starts one broker after the other, each when the one before is back in every ISR"

    def parts(self, random: Random) -> Sequence[Part]:
        return [Part(RollingTerm(), 4.0 * turn, random.uniform(0.5, 1.5)) for turn in range(3)]


class FlappingLeader(Composite):
    name = "flapping-leader"
    summary = "whoever leads most is cut off for a little longer than its session lasts, again and again"

    def parts(self, random: Random) -> Sequence[Part]:
        session = self.timing.session
        lasts = [random.uniform(session + 0.2, session + 1.0) for _ in range(4)]
        return [Part(Partition.variants["leader"](), (session + 1.5) * n, each) for n, each in enumerate(lasts)]


class MajorityDown(Composite):
    name = "majority-down"
    summary = "kills more than half of the racks at once: no quorum, no leaders, until they are back"

    def parts(self, random: Random) -> Sequence[Part]:
        return (Part(Kill.variants["majority"](), 0.0, random.uniform(4.0, 8.0)),)

    def draw(self, random: Random) -> Draw:
        """Until a quorum, a registration and an ISR are there again takes seconds: of a cluster that is never back
        nothing is learned."""
        return replace(super().draw(random), gap=random.uniform(8.0, 12.0))


#: By family: what works in every runtime, needs no netem, and leaves every replica's files as they were written.
_MIX: Final[Sequence[Sequence[type[Nemesis]]]] = (
    (Partition, *(each for name, each in Partition.variants.items() if name != "followers")),
    (Pause, *(Pause.variants[name] for name in ("minority", "leader", "controller"))),
    (Kill, Term, *(Kill.variants[name] for name in ("storm", "controller", "minority"))),
    tuple(Power.variants[name] for name in ("rack", "node", "leader", "during-recovery")),
    (PageCache,),
    tuple(Disk.variants[name] for name in ("full", "error", "slow", "read-only")),
    (Network, *(Network.variants[name] for name in ("loss", "duplicate"))),
    tuple(Clock.variants.values()),
    tuple(Membership.variants.values()),
)  # fmt: skip


class All(Composite):
    """Of every family, two at a time, within what MinISR - 1 allows."""

    name = "all"
    summary = "a mix of every family, drawn from the seed, two faults at a time"

    def parts(self, random: Random) -> Sequence[Part]:
        # Families first: one of many variants is no likelier than another.
        kinds = dict.fromkeys(random.choice(random.choice(_MIX)) for _ in range(2))
        later = [0.0, random.uniform(0.0, 3.0)]
        return [Part(kind(), after, random.uniform(2.0, 6.0)) for kind, after in zip(kinds, later, strict=False)]
