"""Shapes links (see harness.cluster.Shape) through the agents of both ends, and measures what comes of it."""

from __future__ import annotations

import asyncio
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.cluster import CLIENTS, Evidence, Link, NotAvailable, Shape

from .agent_client import AgentError
from .node import DockerNode

_PATIENCE_S = 0.3  # for the answer to an echo, beside what the fault itself costs
_QUEUE_S = 1.0  # more, behind what waits for its turn at a rate
_NOTHING = Shape()


class Links:
    """Of one run. gateway: the address where all who are no nodes seem to be."""

    def __init__(self, nodes: Sequence[DockerNode], gateway: str) -> None:
        self._nodes = nodes
        self._addresses = {node.name: node.address[0] for node in nodes} | {CLIENTS: gateway}
        self._names = {address: name for name, address in self._addresses.items()}
        self._shaped: dict[str, tuple[Sequence[Link], Shape]] = {}  # by key

    async def shape(self, key: str, links: Sequence[Link], shape: Shape) -> Evidence:
        if shape.needs_netem and (reason := await self._nodes[0].lacks("netem")):
            raise NotAvailable(f"not available here: {reason}")
        before = await self._round_trips(links, _NOTHING)
        self._shaped[key] = tuple(links), shape
        ends = {node.name: {"outgoing": set[str](), "incoming": set[str]()} for node in self._nodes}
        for source, target in links:
            if source != CLIENTS:
                ends[source]["outgoing"].add(self._addresses[target])
            if target != CLIENTS:
                ends[target]["incoming"].add(self._addresses[source])
        common = {"outside": self._addresses[CLIENTS], "shape": asdict(shape)}
        await asyncio.gather(
            *(
                node.shape(_rules_of(key), {side: sorted(known) for side, known in ends[node.name].items()} | common)
                for node in self._nodes
            )
        )
        return _compared(before, await self._round_trips(links, shape))

    async def unshape(self, key: str) -> Evidence:
        links, shape = self._shaped.pop(key, ((), _NOTHING))
        try:
            during = await self._round_trips(links, shape)
        except AgentError:  # what cannot be measured is mended all the same
            during = {}
        counted = await asyncio.gather(*(node.unshape(_rules_of(key)) for node in self._nodes))
        return self._counted(counted) | _compared({}, during)

    async def unshape_all(self) -> None:
        self._shaped.clear()
        await asyncio.gather(*(node.unshape_all() for node in self._nodes))

    def _counted(self, by_node: Sequence[Mapping[str, Mapping[str, int]]]) -> Evidence:
        total: dict[str, Any] = {"packets_dropped": 0}
        dropped: dict[str, int] = defaultdict(int)
        for node, ends in zip(self._nodes, by_node, strict=True):
            for end, counts in ends.items():
                field, address = end.split()
                other = self._names[address]
                source, target = (other, node.name) if field == "saddr" else (node.name, other)
                for what, count in counts.items():
                    total[what] = total.get(what, 0) + count
                if counts.get("packets_dropped"):
                    dropped[f"{source} > {target}"] += counts["packets_dropped"]
        return {**total, "packets_dropped_by_link": dict(dropped)}

    async def _round_trips(self, links: Sequence[Link], shape: Shape) -> dict[str, Mapping[str, Any]]:
        """By the two who talk, "broker-1 > broker-2": as agent.echo.round_trips."""
        asked: dict[str, dict[str, None]] = defaultdict(dict)
        for source, target in links:
            near, far = (target, source) if source == CLIENTS else (source, target)
            if near not in asked.get(far, ()):  # else the same way, from the other end
                asked[near][far] = None
        patience = _PATIENCE_S + 2 * (shape.delay_ms + shape.jitter_ms) / 1e3 + bool(shape.rate_kbit) * _QUEUE_S
        nodes = [node for node in self._nodes if asked.get(node.name)]
        answers = await asyncio.gather(
            *(node.round_trips([self._addresses[far] for far in asked[node.name]], patience) for node in nodes)
        )
        return {
            f"{node.name} > {self._names[address]}": found
            for node, answer in zip(nodes, answers, strict=True)
            for address, found in answer.items()
        }


def _compared(before: Mapping[str, Mapping[str, Any]], during: Mapping[str, Mapping[str, Any]]) -> Evidence:
    """Medians over all who answered both times, or during the fault if it was not asked before."""
    seen = [each for each in (before, during) if each]
    answered = [pair for pair in during if all(found[pair]["ms"] is not None for found in seen)]
    evidence: dict[str, Any] = {}
    if answered:
        evidence["round_trip_ms"] = {
            when: round(statistics.median(found[pair]["ms"] for pair in answered), 3)
            for when, found in (("before", before), ("while", during))
            if found
        }
    if overtaken := sum(found["overtaken"] for found in during.values()):
        evidence["packets_reordered"] = overtaken
    return evidence


def _rules_of(key: str) -> str:
    """As runtime._rules_of(), and none that it makes."""
    return "s" + key.encode().hex()
