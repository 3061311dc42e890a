"""Undoes what nemesis.membership does: every broker under its own id, every partition with the replicas it had."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.cluster import Evidence, Node
from harness.targets.admin import Admin, Ids, Metadata, Move, Place

#: For all of it. Other faults may be in force meanwhile, and no replica is in sync then.
PATIENCE_S: Final = 40.0
POLL_S: Final = 0.1
MOST_TOLD: Final = 4  # partitions in evidence


class NotRestored(Exception):
    """A sentence that says what is not as it was."""


async def restore(
    admin: Admin, nodes: Sequence[Node], places: Sequence[Place], *, empty: Sequence[Node] = ()
) -> Evidence:
    """These nodes run under their own ids, and every partition has its original replicas, all of them in sync as they
    were added; but for those on nodes that are to be `empty`, where topics that were made meanwhile may be. Safe to
    repeat. places: those to tell of. Raises NotRestored, Unanswered."""
    seen: Evidence = {}
    if places:
        seen["while"] = reported(await admin.metadata(), places, await admin.moves())
    work = _Restoration(admin)
    try:
        async with asyncio.timeout(PATIENCE_S):
            for node in nodes:
                await work.put_back(node)
            await work.reassign_back()
            for node in empty:
                if await node.is_running():
                    await work.empty(node)
            await admin.elect_preferred()
    except TimeoutError:
        raise NotRestored(f"not as before after {PATIENCE_S:g} s: {work.obstacle}") from None
    if places:
        seen["healed"] = reported(await admin.metadata(), places)
    return {"metadata": seen} if seen else {}


@dataclass
class _Restoration:
    admin: Admin
    obstacle: str = "no broker answers"
    #: Of which no replica can be moved: they are being deleted, and brokers may tell of them until that is repeated.
    gone: set[Place] = field(default_factory=set)

    async def reassign(self, targets: Mapping[Place, Ids | None]) -> Mapping[Place, str]:
        """See Admin."""
        refused = await self.admin.reassign(targets)
        self.gone.update(place for place, why in refused.items() if why.is_gone)
        return refused

    async def put_back(self, node: Node) -> None:
        running = await node.is_running()
        while node.id != node.own_id:
            if not running:
                await node.start()
            await self.empty(node)
            await node.terminate()
            running = False
            if not await self.was_given_more(node):
                break
        if not running:
            await node.put_back()  # also one that is itself again: that may have come halfway
            await node.start()

    async def was_given_more(self, node: Node) -> bool:
        """It has ended: is it a replica of a topic that was made just before? Who knows that it is gone knows of it."""
        while True:
            knowing = [view for view in await self.admin.views() if view is not None and node.id not in view.brokers]
            if knowing:
                return any(node.id in state.replicas for view in knowing for state in view.partitions.values())
            self.obstacle = f"no broker knows yet that broker {node.id} has ended"
            await asyncio.sleep(POLL_S)

    async def empty(self, node: Node) -> None:
        """Returns once nobody counts on this broker any more: with its process goes its disk. Every broker and the
        controller must say so, for a single one may not know of what it was given."""
        admin, cancelled = self.admin, False
        while True:
            moves = await admin.moves()
            if not cancelled:  # what has not been given to it yet stays where it was
                await self.reassign({place: None for place, move in moves.items() if node.id in move.adding})
                cancelled = True
                continue
            views = await admin.views()
            holding = {place for place, move in moves.items() if node.id in move.replicas}
            holding |= {
                p for view in views if view is not None for p, s in view.partitions.items() if node.id in s.replicas
            }
            held = sorted(holding - self.gone)
            if not held and None not in views:
                return
            self.obstacle = "not every broker answers"
            if held:
                seen = await admin.metadata()
                gone = {node.id, node.own_id}
                await self.reassign({place: survivors(seen, admin.original[place], place, gone) for place in held})
                self.obstacle = f"broker {node.id} still has {', '.join(f'{t}-{p}' for t, p in held)}"
            await asyncio.sleep(POLL_S)

    async def reassign_back(self) -> None:
        admin, cancelled = self.admin, False
        while True:
            moves = await admin.moves()
            seen = await admin.metadata()
            if not cancelled:
                await self.reassign(
                    {place: None for place, move in moves.items() if _target(move) != admin.original[place]}
                )
                cancelled = True
                continue
            wrong = {
                place: admin.original[place]
                for place, s in seen.partitions.items()
                if s.replicas != admin.original[place] and place not in self.gone
            }
            if not wrong and not moves:
                return
            refused = await self.reassign(wrong)
            unfinished = sorted({*wrong, *moves})
            self.obstacle = f"{', '.join(f'{t}-{p}' for t, p in unfinished)} have other replicas than they had"
            if refused:
                self.obstacle += f" ({next(iter(refused.values()))})"
            await asyncio.sleep(POLL_S)


def survivors(metadata: Metadata, original: Ids, place: Place, gone: Collection[int]) -> Ids:
    """The replicas of a partition when these brokers are gone: another broker in their place, if there is one."""
    rest = tuple(replica for replica in original if replica not in gone)
    spare = [broker for broker in metadata.brokers if broker not in rest and broker not in gone]
    return (*rest, spare[place[1] % len(spare)]) if spare and len(rest) < len(original) else rest


def _target(move: Move) -> Ids:
    return tuple(replica for replica in move.replicas if replica not in move.removing)


def reported(metadata: Metadata, places: Sequence[Place], moves: Mapping[Place, Move] | None = None) -> dict[str, Any]:
    """For evidence: brokers, and of the first of these partitions leader, replicas, isr; elr, adding and removing if
    there are any; partitions_in_all."""
    partitions = {}
    for place in [place for place in places if place in metadata.partitions][:MOST_TOLD]:
        state, move = metadata.partitions[place], (moves or {}).get(place)
        more = {"elr": state.elr, "adding": move.adding if move else (), "removing": move.removing if move else ()}
        partitions[f"{place[0]}-{place[1]}"] = {
            "leader": state.leader, "replicas": list(state.replicas), "isr": sorted(state.isr),
            **{name: list(ids) for name, ids in more.items() if ids},
        }  # fmt: skip
    return {"brokers": list(metadata.brokers), "partitions": partitions, "partitions_in_all": len(places)}
