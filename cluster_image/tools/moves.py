"""Reassignments that a tool begins, watches to their end, and can be interrupted in."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..placement.spread import Replicas
from ..telemetry.printable import say
from .cluster import Cluster, Place, State, state_once
from .output import ToolError, plural, size
from .throttle import Move, Reassignment, throttle, unthrottle

_EVERY_S: Final = 0.5
#: An election is refused to who has not replayed the metadata yet, or is just not there.
_ELECTIONS: Final = 10


class Interrupted(Exception):
    """Ctrl-C while data moves. The message says what goes on, and what to do."""


@dataclass
class Moves:
    """targets: replicas that each partition is to have in the end, in this order. throttle: bytes a second that each
    broker sends and takes for them at most (KIP-73); None: no limit. also_led: further partitions that are to be led by
    their preferred leaders in the end. whole: if one of them is refused, none is moved."""

    cluster: Cluster
    targets: Mapping[Place, Replicas]
    throttle: int | None = None
    also_led: Collection[Place] = ()
    whole: bool = False
    show: Callable[[str], None] = lambda line: say(line, file=sys.stderr)
    begun: set[Place] = field(default_factory=set)
    refused: dict[Place, str] = field(default_factory=dict)
    _throttled: bool = False

    async def carry_out(self) -> dict[str, Any]:
        """Returns what was done, once all of it is. Raises ToolError: something was refused or changed by somebody
        else, or nobody answers any more; Interrupted."""
        started = asyncio.get_running_loop().time()
        try:
            moved = await self._carry_out()
        except asyncio.CancelledError:
            raise Interrupted(f"interrupted: {self._how_to_go_on()}") from None
        except ToolError as error:
            if not self.begun and not self._throttled:
                raise
            raise ToolError(f"{error}; {self._how_to_go_on()}") from None
        if self.refused:
            raise ToolError(self._refusal())
        return {"replicas_moved": moved, "seconds": round(asyncio.get_running_loop().time() - started, 1)}

    async def _carry_out(self) -> int:
        """How many replicas have moved."""
        state = await self.cluster.state()
        targets = {place: after for place, after in self.targets.items() if place in state.replicas}
        if gone := self.targets.keys() - targets.keys():
            self.show(f"{_first_of(gone)} deleted meanwhile")
        going_to_be = state.targets()
        wanted = {place: after for place, after in targets.items() if going_to_be[place] != after}
        self.begun |= targets.keys() - wanted.keys()
        moving = _reassignment(state, targets)
        if self.throttle is None and await self.cluster.throttled({topic for topic, _ in state.replicas}):
            self._throttled = True
            self.show("a throttle of an earlier command is in force, and is removed in the end")
        if self.throttle is not None:
            self._throttled = True  # before it is asked: what follows must be told of, even if it is in part
            for broker in await self.cluster.configure(throttle(moving, self.throttle), state.brokers):
                self.show(f"broker {broker} is not alive and gets no throttle")
        self.begun |= wanted.keys()
        self.refused = await self.cluster.reassign(wanted)
        self.begun -= self.refused.keys()
        if self.refused and self.whole:
            await self._take_back(wanted.keys() - self.refused.keys() - state.moving.keys(), moving)
        added = {
            place: tuple(b for b in after if b not in _without(state.replicas[place], state, place))
            for place, after in targets.items() if place in self.begun
        }  # fmt: skip
        await self._watch(added)
        await self._check({place: after for place, after in targets.items() if place in self.begun})
        if self._throttled:
            await _unthrottle(self.cluster, moving, self.show)
            self._throttled = False
        await self._lead()
        return sum(map(len, added.values()))

    def _refusal(self) -> str:
        return f"{_first_of(self.refused)} refused: {self.refused[min(self.refused)]}"

    async def _take_back(self, begun: Collection[Place], moving: Reassignment) -> None:
        """Raises ToolError, always."""
        left = await self.cluster.reassign(dict.fromkeys(begun))
        self.begun -= set(begun) - left.keys()
        if self._throttled:
            await _unthrottle(self.cluster, moving, self.show)
            self._throttled = False
        raise ToolError(f"{self._refusal()}; nothing was moved" if not left else self._refusal())

    async def _check(self, targets: Mapping[Place, Replicas]) -> None:
        """No longer under way may mean that somebody has cancelled it. Raises ToolError."""

        def others(state: State) -> list[Place]:
            return [place for place, after in targets.items() if state.replicas.get(place, after) != after]

        state = await state_once(self.cluster, lambda state: not others(state), self.cluster.patience)
        if changed := others(state):
            self.begun -= set(changed)
            raise ToolError(
                f"{_first_of(changed)} not on the brokers of the plan: somebody has cancelled or changed it"
            )

    async def _watch(self, added: Mapping[Place, Replicas]) -> None:
        """Until none of them is under way, with a line whenever more is done."""
        total = sum(map(len, added.values()))
        before, absent = "", set[int]()
        while True:
            state = await self.cluster.state()
            waiting = {place: state.moving[place].adding for place in self.begun if place in state.moving}
            if total:
                sizes = await self.cluster.sizes(state.brokers)
                line = _progress(added, waiting, state, sizes, total)
                if line != before:
                    self.show(line)
                    before = line
            if not waiting:
                return
            awaited = {broker for adding in waiting.values() for broker in adding}
            if gone := sorted(awaited - state.brokers.keys() - absent):
                self.show(f"waiting for broker {gone[0]}, which is not alive")
            absent = awaited - state.brokers.keys()
            await asyncio.sleep(_EVERY_S)

    async def _lead(self) -> None:
        """Preferred leaders, as far as they may. Who may not has it by auto.leader.rebalance, once it may."""
        for _ in range(_ELECTIONS):
            state = await self.cluster.state()
            places = self.begun.union(self.also_led)
            # A broker may lag behind the controller, and show replicas as they were before the move.
            first = {p: (self.targets[p] if p in self.begun else state.replicas.get(p, ()))[:1] for p in places}
            others = [p for p in places if p in state.replicas and (state.leaders[p],) != first[p]]
            if not others:
                return
            await self.cluster.elect_preferred(others)
            await asyncio.sleep(_EVERY_S)
        self.show(f"{len(others)} partitions are not led by their preferred leaders yet")

    def _how_to_go_on(self) -> str:
        number = len(self.begun)
        if not number and not self._throttled:
            return "nothing was begun"
        if not number:
            return "the throttle is still set: to remove it, run the same again, or reassign --cancel"
        return (
            f"up to {plural(number, 'reassignment')} may be under way, and will be without this command"
            f"{', under the throttle' * self._throttled}; to go on with all of it"
            f"{' and remove the throttle' * self._throttled}, run the same again; to cancel, run reassign --cancel"
        )


def _without(replicas: Replicas, state: State, place: Place) -> Replicas:
    """Those that are not just being added."""
    moving = state.moving.get(place)
    return replicas if moving is None else tuple(r for r in replicas if r not in moving.adding)


def _progress(
    added: Mapping[Place, Replicas],
    waiting: Mapping[Place, Replicas],
    state: State,
    told: Mapping[int, Mapping[Place, int] | None],
    total: int,
) -> str:
    sizes = {broker: of for broker, of in told.items() if of is not None}
    left = sum(len(set(added[place]) & set(adding)) for place, adding in waiting.items())
    to_move, moved = 0, 0
    for place, brokers in added.items():
        whole = max((sizes[b].get(place, 0) for b in state.replicas.get(place, ()) if b in sizes), default=0)
        for broker in brokers:
            to_move += whole
            there = sizes.get(broker, {}).get(place, 0)
            moved += min(there, whole) if broker in waiting.get(place, ()) else whole
    return f"{total - left} of {total} replicas moved, {size(moved)} of {size(to_move)}"


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _first_of(places: Collection[Place]) -> str:
    """With the verb."""
    first, others = _name(next(iter(sorted(places)))), len(places) - 1
    return f"{first} and {others} other{'s' * (others > 1)} are" if others else f"{first} is"


def _reassignment(state: State, targets: Mapping[Place, Replicas]) -> Reassignment:
    moves: dict[str, dict[int, Move]] = defaultdict(dict)
    for place, target in targets.items():
        topic, index = place
        moves[topic][index] = Move(_without(state.replicas[place], state, place), target)
    return moves


async def cancel(cluster: Cluster, places: Collection[Place] | None) -> int:
    """How many reassignments were under way, of these partitions or of all. Their throttle goes too. Raises
    ToolError."""
    state = await cluster.state()
    if unknown := [place for place in places or () if place not in state.replicas]:
        raise ToolError(f"there is no partition {_name(unknown[0])}")
    ongoing = [place for place in state.moving if places is None or place in places]
    refused = await cluster.reassign(dict.fromkeys(ongoing))
    still = (await cluster.state()).moving
    for place, reason in refused.items():
        if place in still:
            raise ToolError(f"{_name(place)} goes on: {reason}")
    going_to_be = state.targets()
    moved = _reassignment(state, {place: going_to_be[place] for place in ongoing})
    await _unthrottle(cluster, moved, lambda line: say(line, file=sys.stderr))
    return len(ongoing)


async def _unthrottle(cluster: Cluster, moved: Reassignment, show: Callable[[str], None]) -> None:
    """With all that an earlier one has left which was ended, unless another is under way."""
    state = await cluster.state()
    topics = () if state.moving else await cluster.throttled({topic for topic, _ in state.replicas})
    for broker in await cluster.configure(unthrottle(moved, state.brokers, topics), state.brokers):
        show(f"broker {broker} is not alive and may keep a throttle: remove it once it is back (reassign --cancel)")
