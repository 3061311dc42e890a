"""Faults in an order that chance seldom finds: each step is taken by what is seen of the cluster at that moment.

What a choreography does is written in a small language (language.py). One has a name (library.py), is composed at
random (composing.py), or is given: `choreography:text=kill leader; until new-leader; start`. stage.py takes the steps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final

from harness.cluster import Cluster, Evidence, Node
from nemesis import Common, Draw, Layout, Nemesis, Situation, knob, merge, pinned
from nemesis.choreography import composing
from nemesis.choreography.language import CONTROLLERS, Reassign, Steps, parse, roles_of, text
from nemesis.choreography.library import BEYOND, LIBRARY, MOVES, Named
from nemesis.choreography.stage import Stage
from nemesis.groups import all_or_none
from nemesis.membership.restoration import restore

#: So much longer than expected one may take, seconds.
_PATIENCE_S: Final = (4.0, 5.0)
#: How often one of the library is drawn.
_NAMED: Final = 0.5


class _Choreography(Common):
    """choice: steps, the text; partition, in [0, 1), the one that it follows; node, in [0, 1), draws its followers."""

    name: str
    summary: str
    waits_for_isr = True
    free_choices = frozenset({"steps"})

    def steps_of(self, random: Random) -> Steps:
        raise NotImplementedError

    def draw(self, random: Random) -> Draw:
        steps = self.steps_of(random)
        choice = {"steps": text(steps), "partition": round(random.random(), 6), "node": round(random.random(), 6)}
        duration = composing.expected_s(steps, self.timing) + random.uniform(*_PATIENCE_S)
        return Draw(random.uniform(2.0, 4.0), duration, choice)

    def check(self, choice: Mapping[str, Any], targets: Sequence[str]) -> None:
        parse(choice["steps"])

    def smaller(self, choice: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        for steps in composing.smaller(choice["steps"]):
            yield {**choice, "steps": steps}

    def changed(self, choice: Mapping[str, Any], random: Random) -> Mapping[str, Any]:
        return {**choice, "steps": composing.changed(choice["steps"], random)}

    def impossible(self, layout: Layout) -> str | None:
        if layout.replication_factor == 1:
            return "partitions have no replica but their leader"
        # None that moves replicas is ever drawn, so that whatever is drawn here tells of all.
        moves = any(isinstance(step, Reassign) and step.whom is not None for step in self.steps_of(Random(0)))
        if moves and layout.brokers <= layout.replication_factor:
            return "every broker has a replica, and `reassign` needs one that has none; give more --brokers"
        return None

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        """All that it may touch: brokers, for who leads when is not known yet, and controllers, if they have a role."""
        if (named := pinned(choice, situation)) is not None:
            return named
        steps = parse(choice["steps"])
        if _moves(steps) and situation.cluster.admin.movers:
            return []
        words = {role.word for step in steps for role in roles_of(step)}
        of_controllers = not words.isdisjoint(CONTROLLERS)
        cluster = situation.cluster
        nodes = cluster.nodes if of_controllers else cluster.brokers
        return all_or_none(nodes, situation)

    async def unfold(
        self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]
    ) -> AsyncGenerator[Evidence, None]:
        """See nemesis.Nemesis."""
        stage = Stage(cluster, nodes, choice, self.timing, _key(nodes))
        steps = parse(choice["steps"])
        if _moves(steps):
            cluster.admin.movers[self.name] = ()
            await cluster.admin.metadata()  # what the replicas were, before any is moved
        async for evidence in stage.take(steps):
            if self.name in cluster.admin.movers:
                cluster.admin.movers[self.name] = stage.moved
            yield evidence

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        """To its end, however long that takes."""
        evidence: Evidence = {}
        async for seen in self.unfold(cluster, nodes, choice):
            evidence = merge(evidence, seen)
        return evidence

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        slow = await cluster.unshape(_key(nodes))
        cut = await cluster.unblock(_key(nodes))
        seen = {node.name: await node.resume() for node in nodes}
        for node in nodes:
            if not await node.is_running():
                await node.restore_power()
        moved: Evidence = {}
        if self.name in cluster.admin.movers:
            moved = await restore(cluster.admin, (), cluster.admin.movers[self.name])
            del cluster.admin.movers[self.name]
        frozen = {name: evidence for name, evidence in seen.items() if evidence.get("frozen_ns")}
        return {**slow, **cut, **moved, **({"nodes": frozen} if frozen else {})}

    def effective(self, evidence: Evidence) -> bool:
        return any(_struck(seen) for seen in (evidence, *evidence.get("steps", ())))


def _moves(steps: Steps) -> bool:
    """Does it move replicas? No two faults do at a time."""
    return any(isinstance(step, Reassign) for step in steps)


def _key(nodes: Sequence[Node]) -> str:
    """Of the links that it cuts and slows down: no two hold the same nodes."""
    return f"choreography of {', '.join(sorted(node.name for node in nodes))}"


def _struck(seen: Mapping[str, Any]) -> bool:
    """Of a step, or of what was in force in the end: did it break something?"""
    return bool(
        seen.get("exit_status") is not None or seen.get("frozen_ns") or seen.get("unsynced_bytes")
        or seen.get("packets_dropped") or seen.get("packets_delayed") or seen.get("frozen_state") == "frozen"
        or seen.get("replicas")
    )  # fmt: skip


@dataclass
class Composed(_Choreography):
    name = "choreography:random"
    summary = "three to seven steps, composed at random"

    def steps_of(self, random: Random) -> Steps:
        return composing.compose(random)


@dataclass
class Choreography(_Choreography):
    name = "choreography"
    summary = "steps in an order, each taken by what is seen: roles, ISRs, leader epochs; of its variants, or composed"
    text: str = knob("", help="what it does, in the language of docs/choreographies.md; by default drawn")
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {}

    def __post_init__(self) -> None:
        if self.text:
            parse(self.text)

    def steps_of(self, random: Random) -> Steps:
        named, composed = random.choice(tuple(LIBRARY.values())), composing.compose(random)
        if self.text:
            return parse(self.text)
        return parse(named.steps) if random.random() < _NAMED else composed


def _variant(name: str, named: Named) -> type[Nemesis]:
    def steps_of(self: _Choreography, random: Random) -> Steps:
        return parse(named.steps)

    attributes = {"name": f"choreography:{name}", "summary": named.summary, "steps_of": steps_of}
    made: type[Any] = type(f"Choreography{name.title().replace('-', '')}", (_Choreography,), attributes)
    return made


Choreography.variants = {
    "random": Composed, **{name: _variant(name, named) for name, named in {**LIBRARY, **MOVES, **BEYOND}.items()},
}  # fmt: skip
