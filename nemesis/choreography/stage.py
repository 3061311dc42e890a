"""Takes the steps of a choreography on a live cluster: who plays which role, what is seen, what is done.

It follows one partition, and sees what the cluster's own admin tells of it. Brokers that it has frozen or brought down
itself are not asked, so that a look takes no longer than an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from harness.cluster import CLIENTS, Cluster, Evidence, Node, Shape
from harness.errors import describe
from harness.targets.admin import Metadata, Partition, Place, Unanswered, newest
from harness.targets.timing import Timing
from nemesis import pick
from nemesis.choreography.language import (
    CONTROLLERS,
    Elect,
    For,
    Link,
    Past,
    Reassign,
    Role,
    Roles,
    Step,
    Strike,
    Until,
)  # fmt: skip
from nemesis.membership.restoration import survivors

#: From a look at a condition to the next one, seconds.
POLL_S: Final = 0.05
#: That who is asked for the active controller, or for an election, may take.
ASKED_S: Final = 3.0
#: Of what a replica has to be silent for, at the longest: lag is noticed between once and one and a half times it.
PAST_LAG: Final = 1.6
PAST_SESSION_S: Final = 1.0

Pairs = Sequence[tuple[str, str]]


class Stage:
    """nodes: that it may touch. choice: see Choreography. key: of the links that it cuts and slows down. moved:
    partitions that have had other replicas than at first."""

    def __init__(
        self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any], timing: Timing, key: str
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._choice = choice
        self._random = Random(choice["node"])
        self._timing = timing
        self._key = key
        self._place: Place | None = None
        self._bound: dict[str, Node] = {}  # by role or name
        self._known: Partition | None = None  # the partition when its leader was last named
        self._known_controller: int | None = None
        self._frozen: set[str] = set()  # names of nodes
        self._down: set[str] = set()
        self._dark: set[str] = set()
        self._lost: set[str] = set()  # whose power was cut, ever
        self._cuts: dict[str, Pairs] = {}  # by the step that cut them
        self._slow: dict[tuple[str, str], None] = {}
        self._began = _now()
        self._taken: list[dict[str, Any]] = []
        self._losses: dict[str, Evidence] = {}
        self.moved: list[Place] = []

    async def take(self, steps: Sequence[Step]) -> AsyncIterator[Evidence]:
        """The evidence so far, after each step, and nothing ({}) now and then while it waits. Evidence: place, the
        partition; steps, each with step, at_s (since the first), and what was struck or seen; nodes, those that lost
        something, as of Node.cut_power()."""
        metadata = await self._look()
        place = pick([each for each in sorted(metadata.partitions) if not each[0].startswith("__")],
                     self._choice["partition"]) if metadata else None  # fmt: skip
        self._place = place
        if metadata is not None and place is not None:
            self._known = metadata.partitions[place]
        for step in steps:
            took: dict[str, Any] = {"step": str(step), "at_s": self._now_s()}
            self._taken.append(took)
            try:
                async for seen in self._take(step):
                    took |= seen
                    if not seen:
                        yield {}
            except Nobody as nobody:
                took["skipped"] = str(nobody)
            except Exception as error:  # no answer, a node in no state for it, a machine that lacks something
                took["failed"] = describe(error)
            yield self._evidence()

    def _evidence(self) -> Evidence:
        place = {} if self._place is None else {"place": f"{self._place[0]}-{self._place[1]}"}
        lost = {"nodes": dict(self._losses)} if self._losses else {}
        for what in ("unsynced_bytes", "unsynced_files", "unsynced_records"):
            if self._losses:
                lost[what] = sum(each.get(what, 0) for each in self._losses.values())
        return {**place, **lost, "steps": [dict(each) for each in self._taken]}

    async def _take(self, step: Step) -> AsyncIterator[Evidence]:
        match step:
            case Strike():
                yield await self._strike(step)
            case Link():
                yield await self._link(step)
            case Elect():
                async with asyncio.timeout(ASKED_S):
                    await self._cluster.admin.elect_preferred()
                yield {"struck": []}
            case Reassign():
                yield await self._reassign(step)
            case Until():
                async for seen in self._until(step):
                    yield seen
            case For() | Past():
                seconds = step.seconds if isinstance(step, For) else self._past(step)
                async for _ in _polling(seconds):
                    yield {}
                yield {"waited_s": round(seconds, 3)}

    def _past(self, step: Past) -> float:
        return self._timing.session + PAST_SESSION_S if step.what == "session" else self._timing.lag * PAST_LAG

    # Who plays which role.

    async def _who(self, role: Role) -> Node:
        """Raises Nobody."""
        node = self._bound.get(role.word)
        if node is None:
            node = await self._find(role.word)
            if not role.word.startswith("new-"):
                self._bound[role.word] = node
        if role.name:
            self._bound[role.name] = node
        return node

    async def _find(self, word: str) -> Node:
        if word in CONTROLLERS:
            return await self._find_controller(word)
        state = await self._state()
        if state is None:
            raise Nobody(f"no broker tells who is {word}")
        if word in ("leader", "new-leader"):
            self._known = state
            return self._node(state.leader, word)
        named = {node.id for node in self._bound.values()}
        ids = state.isr if word == "follower" else state.replicas
        among = [node for node in self._nodes if node.id in ids and node.id not in {state.leader, *named}]
        return self._drawn(among, word)

    async def _find_controller(self, word: str) -> Node:
        active = await self._active_controller()
        if word == "standby":
            named = {node.id for node in self._bound.values()}
            among = [n for n in self._cluster.controllers if n in self._nodes and n.id not in {active, *named}]
            return self._drawn(among, word)
        self._known_controller = active
        return self._node(-1 if active is None else active, word)

    def _drawn(self, among: Sequence[Node], word: str) -> Node:
        node = pick(among, self._random.random())
        if node is None:
            raise Nobody(f"there is no {word}")
        return node

    def _node(self, number: int, word: str) -> Node:
        for node in self._nodes:
            if node.id == number:
                return node
        raise Nobody(f"there is no {word}" if number < 0 else f"the {word} is none that it may strike")

    # What is seen.

    async def _look(self) -> Metadata | None:
        """What the brokers tell that can."""
        silent = self._frozen | self._down
        views = await asyncio.gather(
            *(self._cluster.admin.view(node.address) for node in self._cluster.brokers if node.name not in silent)
        )
        seen = [view for view in views if view is not None]
        return newest(seen) if seen else None

    async def _state(self) -> Partition | None:
        metadata = await self._look()
        return None if metadata is None or self._place is None else metadata.partitions.get(self._place)

    async def _active_controller(self) -> int | None:
        try:
            async with asyncio.timeout(ASKED_S):
                return (await self._cluster.admin.quorum()).leader
        except (TimeoutError, Unanswered):
            return None

    async def _until(self, step: Until) -> AsyncIterator[Evidence]:
        node = await self._who(step.whom) if step.whom is not None else None
        began, known, controller = _now(), self._known, self._known_controller
        if step.condition == "new-controller" and controller is None:
            controller = self._known_controller = await self._active_controller()
        while True:
            met = await self._met(step.condition, node, known, controller)
            seen = {"of": [node.name]} if node is not None else {}
            if met or _now() - began >= step.within:
                yield {**seen, "waited_s": round(_now() - began, 3), **({} if met else {"gave_up": True})}
                return
            yield {}
            await asyncio.sleep(POLL_S)

    async def _met(self, condition: str, node: Node | None, known: Partition | None, controller: int | None) -> bool:
        if condition == "new-controller":
            active = await self._active_controller()
            return active is not None and active != controller
        metadata = await self._look()
        state = None if metadata is None or self._place is None else metadata.partitions.get(self._place)
        if metadata is None or state is None:
            return False
        if node is None:
            if condition == "new-epoch":
                return state.leader >= 0 and (known is None or state.leader_epoch > known.leader_epoch)
            return state.leader >= 0 and (known is None or state.leader != known.leader)
        if condition in ("behind", "caught-up"):
            return await self._compared(node, state) == condition
        return _TOLD[condition](node.id, state, metadata)

    async def _compared(self, node: Node, state: Partition) -> str:
        """By the bytes of both logs: "behind", "caught-up", or "" where one of them is not told."""
        leader = next((each for each in self._cluster.brokers if each.id == state.leader), None)
        if leader is None or leader is node or self._place is None:
            return "caught-up" if leader is node else ""
        if {leader.name, node.name} & (self._frozen | self._down):
            return ""
        told = await asyncio.gather(*(self._cluster.admin.sizes(each.address) for each in (leader, node)))
        sizes = [None if each is None else each.get(self._place) for each in told]
        if sizes[0] is None or sizes[1] is None:
            return ""
        return "behind" if sizes[1] < sizes[0] else "caught-up"

    # What is done.

    async def _strike(self, step: Strike) -> Evidence:
        if step.whom is None:
            names = self._frozen if step.verb == "resume" else self._down
            nodes = [node for node in self._nodes if node.name in names]
            if not nodes:
                raise Nobody(f"there is nobody to {step.verb}")
        else:
            nodes = [await self._who(step.whom)]
        seen = [await _STRIKES[step.verb](self, node, step) for node in nodes]
        struck = {"struck": [node.name for node in nodes]}
        return {**struck, **(seen[0] if len(nodes) == 1 else {})}

    async def _pause(self, node: Node, step: Strike) -> Evidence:
        self._must_run(node)
        evidence = await node.pause()
        self._frozen.add(node.name)
        return evidence

    async def _resume(self, node: Node, step: Strike) -> Evidence:
        if node.name not in self._frozen:
            raise Nobody(f"{node.name} is not paused")
        self._frozen.discard(node.name)
        return await node.resume()

    async def _kill(self, node: Node, step: Strike) -> Evidence:
        self._must_be_up(node)
        evidence = await node.kill()
        self._frozen.discard(node.name)
        self._down.add(node.name)
        return evidence

    async def _stop(self, node: Node, step: Strike) -> Evidence:
        self._must_run(node)
        self._down.add(node.name)
        return await node.terminate()

    async def _power_off(self, node: Node, step: Strike) -> Evidence:
        """Once for each node: the contract counts a node as lost from its first loss to its return."""
        self._must_be_up(node)
        if node.name in self._lost:
            raise Nobody(f"{node.name} has lost its power before")
        self._frozen.discard(node.name)
        self._down.add(node.name)
        self._dark.add(node.name)
        self._lost.add(node.name)
        evidence = {"lost_at": round(_now() * 1e9), **await node.cut_power(late_s=step.late)}
        self._losses[node.name] = evidence
        return {"unsynced_bytes": evidence.get("unsynced_bytes", 0)}

    async def _start(self, node: Node, step: Strike) -> Evidence:
        if node.name not in self._down:
            raise Nobody(f"{node.name} is up")
        await (node.restore_power() if node.name in self._dark else node.start())
        self._down.discard(node.name)
        self._dark.discard(node.name)
        return {}

    async def _reassign(self, step: Reassign) -> Evidence:
        """replicas: those that the partition is to have."""
        admin, metadata = self._cluster.admin, await self._look()
        if metadata is None or self._place is None or self._place not in metadata.partitions:
            raise Nobody("no broker tells of the partition")
        state = metadata.partitions[self._place]
        if step.whom is None:
            if admin.original[self._place] == state.replicas:
                raise Nobody("it has the replicas that it had")
            replicas = admin.original[self._place]
        else:
            gone = (await self._who(step.whom)).id
            if gone not in state.replicas:
                raise Nobody(f"broker {gone} has no replica of it")
            replicas = survivors(metadata, state.replicas, self._place, {gone})
            if len(replicas) < len(state.replicas):
                raise Nobody("there is no spare broker that it could go to")
        async with asyncio.timeout(ASKED_S):
            refused = await admin.reassign({self._place: replicas})
        self.moved = [self._place]
        if refused:
            raise Nobody(str(refused[self._place]))
        return {"struck": [], "replicas": list(replicas)}

    def _must_be_up(self, node: Node) -> None:
        if node.name in self._down:
            raise Nobody(f"{node.name} is down")

    def _must_run(self, node: Node) -> None:
        self._must_be_up(node)
        if node.name in self._frozen:
            raise Nobody(f"{node.name} is paused")

    async def _link(self, step: Link) -> Evidence:
        if step.verb == "heal" and not step.some:
            return await self._heal_links()
        links = await self._links(step.some, step.whom, one_way=step.one_way)
        named = {"links": [f"{source} > {target}" for source, target in links]}
        match step.verb:
            case "delay":
                self._slow |= dict.fromkeys(links)
                shaped = await self._cluster.shape(self._key, list(self._slow), Shape(delay_ms=step.by * 1000))
                return {**named, **shaped}
            case "cut":
                self._cuts[str(len(self._taken))] = links
            case _:
                self._cuts = {by: [link for link in cut if link not in links] for by, cut in self._cuts.items()}
        await self._cluster.block(self._key, list(dict.fromkeys(link for cut in self._cuts.values() for link in cut)))
        return named

    async def _links(self, some: Roles | str, whom: Roles | str, *, one_way: bool) -> Pairs:
        first, second = await self._named(some), await self._named(whom)
        first = self._of(some, second) if first is None else first
        second = self._of(whom, first) if second is None else second
        there = [(one, other) for one in first for other in second if other not in first]
        if not there:
            raise Nobody("there is nobody at the other end")
        return list(dict.fromkeys(there if one_way else [*there, *((b, a) for a, b in there)]))

    async def _named(self, roles: Roles | str) -> list[str] | None:
        """None: a group."""
        return None if isinstance(roles, str) else [(await self._who(role)).name for role in roles]

    def _of(self, group: Roles | str, named: list[str] | None) -> list[str]:
        if group == CLIENTS:
            return [CLIENTS]
        return [node.name for node in _GROUPS[str(group)](self._cluster) if node.name not in (named or ())]

    async def _heal_links(self) -> Evidence:
        if not self._cuts and not self._slow:
            raise Nobody("there is nothing to heal")
        was_cut, was_slow = bool(self._cuts), bool(self._slow)
        self._cuts.clear()
        self._slow.clear()
        cut = await self._cluster.unblock(self._key) if was_cut else {}
        slow = await self._cluster.unshape(self._key) if was_slow else {}
        return {**slow, **cut}

    def _now_s(self) -> float:
        return round(_now() - self._began, 3)


class Nobody(Exception):
    """A step strikes nobody: why, as a clause."""


async def _polling(seconds: float) -> AsyncIterator[None]:
    """Again and again until they are over."""
    end = _now() + seconds
    while (left := end - _now()) > 0:
        yield
        await asyncio.sleep(min(POLL_S, left))


def _now() -> float:
    return asyncio.get_running_loop().time()


_STRIKES: Final = {
    "pause": Stage._pause, "resume": Stage._resume, "kill": Stage._kill, "stop": Stage._stop,
    "power-off": Stage._power_off, "start": Stage._start,
}  # fmt: skip
_GROUPS: Final[Mapping[str, Callable[[Cluster], Sequence[Node]]]] = {
    "everybody": lambda cluster: cluster.nodes, "brokers": lambda cluster: cluster.brokers,
    "controllers": lambda cluster: cluster.controllers,
}  # fmt: skip
#: What is told of a broker's id.
_TOLD: Final[Mapping[str, Callable[[int, Partition, Metadata], bool]]] = {
    "leads": lambda broker, state, metadata: state.leader == broker,
    "in-isr": lambda broker, state, metadata: broker in state.isr,
    "out-of-isr": lambda broker, state, metadata: broker not in state.isr,
    "has-replica": lambda broker, state, metadata: broker in state.replicas,
    "no-replica": lambda broker, state, metadata: broker not in state.replicas,
    "fenced": lambda broker, state, metadata: broker not in metadata.brokers,
    "unfenced": lambda broker, state, metadata: broker in metadata.brokers,
}
