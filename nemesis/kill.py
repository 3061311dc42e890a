"""Ends processes, and starts them again. The page cache survives, but for what only the process knew.

A killed leader loses the records that no follower had fetched. Where followers are quick these are none, so
`kill:ahead` keeps them from fetching for a moment before: what the leader acknowledges in it, with acks 0 or 1, nobody
else has. One that is asked to stop (SIGTERM) hands its leaderships over first, and what it leaves is a clean shutdown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from harness.cluster import Cluster, Evidence, Node
from nemesis import Common, Draw, Nemesis, Situation, Targets, by_node, choose_node, draw_node, each, knob, pinned
from nemesis.at_operation import KillAtOperation
from nemesis.groups import choose_group, next_in_turn, variants_by_group


class Kill(Common):
    """SIGKILL, and a start a little later."""

    name = "kill"
    summary = "kills one process with SIGKILL and starts it again"
    preferred_targets: Targets = "leaders"
    group = ""  # of nemesis.groups; none: one node, as --targets says

    def draw(self, random: Random) -> Draw:
        draw = Draw(gap=random.uniform(2.0, 4.0), duration=random.uniform(1.0, 3.0), choice=draw_node(random))
        ahead = type(self) is Kill and self.acks != "all" and random.random() < 0.5
        return replace(draw, choice={**draw.choice, **_draw_ahead(random)}) if ahead else draw

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if self.group:
            return choose_group(self.group, choice, situation)
        return choose_node(choice, situation)

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        cut = await _cut_off_followers(cluster, nodes, choice["ahead_s"]) if choice.get("ahead_s") else {}
        killed = by_node(nodes, await asyncio.gather(*(node.kill() for node in nodes)))
        if not cut:
            return killed
        dropped = (await cluster.unblock(_key(nodes))).get("packets_dropped", 0)
        return {**killed, "ahead": {**cut, "packets_dropped": dropped}}

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        await cluster.unblock(_key(nodes))
        await asyncio.gather(*(node.start() for node in nodes))
        return {}

    def effective(self, evidence: Evidence) -> bool:
        return any(seen.get("exit_status") is not None for seen in each(evidence))


def _draw_ahead(random: Random) -> dict[str, float]:
    """Long enough for many records, and short of replica.lag.time.max.ms and of broker.session.timeout.ms, so that the
    followers stay in the ISR and one of them is elected."""
    return {"ahead_s": round(random.uniform(0.3, 0.6), 3)}


def _key(nodes: Sequence[Node]) -> str:
    return f"kill:ahead of {', '.join(node.name for node in nodes)}"


async def _cut_off_followers(cluster: Cluster, nodes: Sequence[Node], seconds: float) -> Evidence:
    """No broker fetches from these for so long; clients and controllers reach them as ever."""
    followers = [node for node in cluster.brokers if node not in nodes]
    there = [(node.name, other.name) for node in nodes for other in followers]
    await cluster.block(_key(nodes), [*there, *((other, node) for node, other in there)])
    await asyncio.sleep(seconds)
    return {"seconds": seconds, "from": [node.name for node in followers]}


class Ahead(Kill):
    name = "kill:ahead"
    summary = "keeps a leader's followers from fetching for a moment, then kills it: with acks 0 or 1 records are lost"

    def draw(self, random: Random) -> Draw:
        draw = super().draw(random)
        return replace(draw, choice={**draw.choice, **_draw_ahead(random)})

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        leader = situation.most_leading()
        return [leader] if leader else []

    def effective(self, evidence: Evidence) -> bool:
        return super().effective(evidence) and bool((evidence.get("ahead") or {}).get("packets_dropped"))


class Term(Kill):
    """A controlled shutdown: only a broker that leads nothing any more ends at once, see protocol 002."""

    name = "kill:term"
    summary = "asks one process to stop (SIGTERM), a controlled shutdown, and starts it again"

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        return by_node(nodes, await asyncio.gather(*(node.terminate() for node in nodes)))


class RollingTerm(Term):
    name = "kill:rolling"
    summary = "asks one broker after the other to stop and starts it again, each when the one before is in every ISR"
    waits_for_isr = True

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        if (named := pinned(choice, situation)) is not None:
            return named
        return next_in_turn(situation)


@dataclass
class Storm(Kill):
    """Killed again as soon as it is up: it never gets as far as to be of use."""

    name = "kill:storm"
    summary = "kills one process again and again, each time soon after it was started"
    times: float = knob(5, 2, 50, help="how often it is killed")
    up_s: float = knob(0.5, 0.0, 30.0, help="seconds it runs in between")

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        for _ in range(round(self.times) - 1):
            await super().inject(cluster, nodes, choice)
            await asyncio.gather(*(node.start() for node in nodes))
            await asyncio.sleep(self.up_s)
        return {**await super().inject(cluster, nodes, choice), "kills": round(self.times)}


@dataclass
class HwTruncation(Kill):
    """High watermark truncation followed by immediate leader election (protocol 004; KAFKA-1211).

    All followers of a leader are restarted while none of them can fetch from it: one that cuts its log at its own high
    watermark has no chance to get back what it has cut. Then the leader is killed, and one of them is elected. Of n
    replicas n - 1 crash at a time, and nothing that was written is lost: what is acknowledged has to survive it. (A
    follower has its log again after one fetch: without the cut a kill would have to hit that.)"""

    name = "hw-truncation"
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {}
    summary = "restarts a leader's followers, and kills it before they have fetched again"
    preferred_targets: Targets = "leaders"
    restart_s: float = knob(2.0, 0.1, 30.0, help="seconds that the followers have to come back, before the leader dies")

    def draw(self, random: Random) -> Draw:
        session = self.timing.session
        return Draw(random.uniform(4.0, 6.0), session + random.uniform(2.0, 3.0), {})

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        """The leader first."""
        if (named := pinned(choice, situation)) is not None:
            return named
        leader = situation.most_leading()
        if leader is None:
            return []
        return [leader, *(node for node in situation.free_among(situation.cluster.brokers) if node is not leader)]

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        leader, *followers = nodes
        await cluster.block(_key(nodes), [
            link for node in followers for link in ((leader.name, node.name), (node.name, leader.name))
        ])  # fmt: skip
        killed = by_node(followers, await asyncio.gather(*(node.kill() for node in followers)))
        await asyncio.gather(*(node.start() for node in followers))
        await asyncio.sleep(self.restart_s)
        died = by_node([leader], [await leader.kill()])
        cut = await cluster.unblock(_key(nodes))
        return {**killed, **died, "leader": leader.name, "packets_dropped": cut.get("packets_dropped", 0)}

    def effective(self, evidence: Evidence) -> bool:
        return super().effective(evidence) and bool(evidence.get("packets_dropped"))


Kill.variants = {
    "ahead": Ahead, "term": Term, "storm": Storm, "rolling": RollingTerm, "at-operation": KillAtOperation,
    **variants_by_group(Kill, "kills"),
}  # fmt: skip
