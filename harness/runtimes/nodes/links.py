"""Shapes links (see harness.cluster.Shape) through the agents of both ends, and measures what comes of it."""

from __future__ import annotations

import asyncio
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

from harness.cluster import CLIENTS, ClusterLost, Evidence, Link, NotAvailable, Shape

from .asking import AgentError
from .by_key import ByKey, each
from .node import AgentNode

_PATIENCE_S = 0.3  # for the answer to an echo, beside what the fault itself costs
_QUEUE_S = 1.0  # more, behind what waits for its turn at a rate
_MOST_PATIENCE_S = 3.0  # for all of it: the fault is drawn to last not much longer
_NOTHING = Shape()

_Answers = Mapping[str, Mapping[str, Any]]  # by the two who talk, "broker-1 > broker-2": as agent.echo.round_trips


class _Shaped(NamedTuple):
    """Of one key. before: what those links were like. while_: evidence of what they were like just before it was
    undone, if that was begun."""

    links: Sequence[Link]
    shape: Shape
    before: _Answers
    while_: Evidence | None = None


class Links:
    """Of one run. gateway: the address where all who are no nodes seem to be."""

    def __init__(self, nodes: Sequence[AgentNode], gateway: str) -> None:
        self._nodes = nodes
        self._addresses = {node.name: node.address[0] for node in nodes} | {CLIENTS: gateway}
        self._names = {address: name for name, address in self._addresses.items()}
        self._shaped: dict[str, _Shaped] = {}  # by key
        self._counts: ByKey[Mapping[str, Mapping[str, int]]] = ByKey()

    async def shape(self, key: str, links: Sequence[Link], shape: Shape) -> Evidence:
        struck = [node for node in self._nodes if any(node.name in link for link in links)]
        if shape.needs_netem:
            await self._check_netem(struck)
        before = await self._round_trips(links, _NOTHING)
        self._shaped[key] = shaped = _Shaped(tuple(links), shape, before)
        ends = {node.name: {"outgoing": set[str](), "incoming": set[str]()} for node in self._nodes}
        for source, target in links:
            if source != CLIENTS:
                ends[source]["outgoing"].add(self._addresses[target])
            if target != CLIENTS:
                ends[target]["incoming"].add(self._addresses[source])
        rules = rules_of("shape", key)
        common = {"outside": self._addresses[CLIENTS], "shape": asdict(shape)}

        async def shape_one(node: AgentNode) -> None:
            await node.shape(rules, {side: sorted(known) for side, known in ends[node.name].items()} | common)

        await each(self._counts.begin(key, struck), shape_one)
        return await self._compared(shaped)

    async def unshape(self, key: str) -> Evidence:
        shaped = self._shaped.get(key, _Shaped((), _NOTHING, {}))
        measured = shaped.while_
        if measured is None:
            measured = await self._compared(shaped) if self._counts.in_force(key) else {}
            self._shaped[key] = shaped._replace(while_=measured)
        counted = await self._counts.undo(key, lambda node: node.unshape(rules_of("shape", key)))
        self._shaped.pop(key, None)
        return measured | self._counted(counted)  # which counts the echoes, too

    def forget(self, node: AgentNode) -> None:
        """Nothing of it is shaped any more."""
        self._counts.forget(node)

    async def _check_netem(self, nodes: Sequence[AgentNode]) -> None:
        """Raises NotAvailable if one of them has none: it names it, unless it is the same with all."""
        told = await each(nodes, lambda node: node.lacks("netem"))
        lacking = {node.name: reason for node, reason in zip(nodes, told, strict=True) if reason}
        if len(lacking) == len(nodes) and len(set(lacking.values())) == 1:
            raise NotAvailable(f"not available here: {told[0]}")
        if lacking:
            named = "; ".join(f"{name}: {reason}" for name, reason in lacking.items())
            raise NotAvailable(f"not available here: {named}")

    def _counted(self, by_node: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Evidence:
        total: dict[str, Any] = {"packets_dropped": 0}
        dropped: dict[str, int] = defaultdict(int)
        for name, ends in by_node.items():
            for end, counts in ends.items():
                field, address = end.split()
                other = self._names[address]
                source, target = (other, name) if field == "saddr" else (name, other)
                for what, count in counts.items():
                    total[what] = total.get(what, 0) + count
                if counts.get("packets_dropped"):
                    dropped[f"{source} > {target}"] += counts["packets_dropped"]
        return {**total, "packets_dropped_by_link": dict(dropped)}

    async def _compared(self, shaped: _Shaped) -> Evidence:
        """Medians over the pairs that answered both before and now. Without any, unanswered_ms, if an answer may take
        longer than it is waited for."""
        during = await self._round_trips(shaped.links, shaped.shape)
        evidence: dict[str, Any] = {}
        before = {pair: found["ms"] for pair, found in shaped.before.items() if found["ms"] is not None}
        both = [pair for pair, found in during.items() if found["ms"] is not None and pair in before]
        if both:
            evidence["round_trip_ms"] = {
                "before": round(statistics.median(before[pair] for pair in both), 3),
                "while": round(statistics.median(during[pair]["ms"] for pair in both), 3),
            }
        elif before.keys() & during.keys() and _patience_s(shaped.shape) > _MOST_PATIENCE_S:
            evidence["unanswered_ms"] = _MOST_PATIENCE_S * 1e3
        if overtaken := sum(found["overtaken"] for found in during.values()):
            evidence["packets_reordered"] = overtaken
        return evidence

    async def _round_trips(self, links: Sequence[Link], shape: Shape) -> _Answers:
        """Of the nodes that can be asked: a fault that cannot be measured is one all the same."""
        asked: dict[str, dict[str, None]] = defaultdict(dict)
        for source, target in links:
            near, far = (target, source) if source == CLIENTS else (source, target)
            if near not in asked.get(far, ()):  # else the same way, from the other end
                asked[near][far] = None
        patience = min(_patience_s(shape), _MOST_PATIENCE_S)

        async def answers_to(node: AgentNode) -> Mapping[str, Mapping[str, Any]]:
            try:
                return await node.round_trips([self._addresses[far] for far in asked[node.name]], patience)
            except ClusterLost:
                raise
            except AgentError:  # its power has just been cut
                return {}

        nodes = [node for node in self._nodes if asked.get(node.name)]
        answers = await asyncio.gather(*map(answers_to, nodes))
        return {
            f"{node.name} > {self._names[address]}": found
            for node, answer in zip(nodes, answers, strict=True)
            for address, found in answer.items()
        }


def _patience_s(shape: Shape) -> float:
    """For the slowest answer."""
    return _PATIENCE_S + 2 * (shape.delay_ms + shape.jitter_ms) / 1e3 + bool(shape.rate_kbit) * _QUEUE_S


def rules_of(what: Literal["block", "shape"], key: str) -> str:
    """A name for the rules of a key, of letters, digits and hyphens, and none for two."""
    return f"{what}-{key.encode().hex()}"
