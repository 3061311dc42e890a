"""The shortest cycle of each class, in each strongly connected component of the dependencies of transactions.

| class         | edges                                                         |
| ------------- | ------------------------------------------------------------- |
| G0            | ww                                                            |
| G1c           | ww and wr, at least one wr                                    |
| G-single      | ww and wr, and exactly one rw                                 |
| G-nonadjacent | ww and wr, and several rw of which no two follow one another  |
| G2-item       | ww and wr, and several rw                                     |

With `-process` at least one edge says that a process ran one transaction after the other, with `-realtime` that one
completed before the other was invoked (Elle; G-nonadjacent: Cerone and Gotsman, Analysing Snapshot Isolation, 2016).
A component is reported with the worst of G0 and G1c and the worst of the others; what these imply is left out.

A class is an automaton that reads the edges of a cycle; its states are layers of a graph with a copy of every vertex
each. So one breadth-first search finds the shortest cycle of any class, and e (see graph.py) of the layers says of a
class with real-time edges whether there is one. A search that looks at more than BUDGET edges is given up: then the
class is named in `given_up`, and a cycle of another class stands for the component.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from checkers.transactions.consistency import CYCLES, implied
from checkers.transactions.graph import (
    NO_EDGES,
    PROCESS,
    REALTIME,
    RW,
    WR,
    WW,
    Adjacency,
    Edges,
    Graph,
    components,
    earliest,
)
from checkers.transactions.history import NOTHING
from spark_history.files import Bools, Ints

BUDGET: Final = 1_000_000
STARTS: Final = 2000  # edges of a component, or late transactions, from which a shortest cycle is looked for
NOWHERE: Final = -1


@dataclass(frozen=True)
class Class:
    """other, rw: the layer that each layer leads to along an edge of such a kind; NOWHERE: none.

    A cycle is looked for from an edge that must be on it. An rw edge leads to layer 1, and the way back to its source
    ends in one of `back`; another edge leads to layer 0, and the way back ends in one of `ends`.
    """

    kinds: tuple[int, ...]
    other: tuple[int, ...]
    rw: tuple[int, ...]
    ends: tuple[int, ...]
    back: tuple[int, ...] = ()
    start: tuple[int, ...] = (RW,)


CLASSES: Final = {
    "G0": Class((WW,), (0,), (NOWHERE,), (0,), start=(WW,)),
    "G1c": Class((WW, WR), (0,), (NOWHERE,), (0,), start=(WR,)),
    "G-single": Class((WW, WR, RW), (0, 1), (1, NOWHERE), (1,), (1,)),
    "G-nonadjacent": Class((WW, WR, RW), (0, 2, 2), (1, NOWHERE, 1), (1, 2), (2,)),
    "G2-item": Class((WW, WR, RW), (0, 1), (1, 1), (1,), (1,)),
}


@dataclass(frozen=True)
class Cycle:
    """edges[i] leads from the transaction that edges[i - 1] leads to."""

    name: str
    edges: Edges


@dataclass
class Found:
    cycles: list[Cycle] = field(default_factory=list)
    given_up: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Layered:
    """A copy of the vertices for each layer: vertex v of layer l is v + l * size."""

    size: int
    of: Class
    source: Ints
    target: Ints
    edge: Ints  # which of the edges it is

    @property
    def vertices(self) -> int:
        return self.size * len(self.of.other)

    @staticmethod
    def build(size: int, edges: Edges, of: Class) -> Layered:
        rw = edges.kind == RW
        allowed = np.isin(edges.kind, (*of.kinds, PROCESS, REALTIME))
        parts: list[tuple[Ints, Ints, Ints]] = []
        for layer in range(len(of.other)):
            for which, to in ((~rw, of.other[layer]), (rw, of.rw[layer])):
                if to != NOWHERE:
                    rows = np.flatnonzero(which & allowed)
                    parts.append((edges.source[rows] + layer * size, edges.target[rows] + to * size, rows))
        return Layered(size, of, *(np.concatenate([part[i] for part in parts]) for i in range(3)))


def find(graph: Graph) -> Found:
    """All components, also those that only process and real-time edges close."""
    found = Found()
    implied_at: dict[int, set[str]] = {}  # by transaction: what need not be looked for any more
    _search_components(graph.components(), graph.edges, NO_EDGES, "", implied_at, found)
    if violations := graph.violations():
        process = graph.process_edges(NOTHING)
        _search_components(graph.process_components(process), graph.edges, process, "-process", implied_at, found)
        _search_real_time(graph, violations, implied_at, found)
    return found


def _search_components(
    members: Sequence[Ints],
    edges: Edges,
    process: Edges,
    variant: str,
    implied_at: dict[int, set[str]],
    found: Found,
) -> None:
    for vertices, inside in _by_component(members, edges.plus(process)):
        known = set().union(*(implied_at.get(int(vertex), ()) for vertex in vertices))
        names = _search_component(vertices, inside, variant, known, found)
        everything = set().union(*(implied(name) for name in names))
        for vertex in vertices.tolist() if everything else ():
            implied_at.setdefault(vertex, set()).update(everything)


def _by_component(members: Sequence[Ints], edges: Edges) -> Iterator[tuple[Ints, Edges]]:
    """Each component with the edges within it."""
    if not members:
        return
    vertices = np.concatenate(members)
    number = np.repeat(np.arange(len(members)), [len(each) for each in members])
    order = np.argsort(vertices)
    vertices, number = vertices[order], number[order]
    at = [np.minimum(np.searchsorted(vertices, ends), len(vertices) - 1) for ends in (edges.source, edges.target)]
    inside = (vertices[at[0]] == edges.source) & (vertices[at[1]] == edges.target)
    inside &= number[at[0]] == number[at[1]]
    rows = np.flatnonzero(inside)
    component = number[at[0][rows]]
    rows = rows[np.argsort(component, kind="stable")]
    cuts = np.searchsorted(np.sort(component), np.arange(len(members) + 1))
    for i, each in enumerate(members):
        yield each, edges.take(rows[cuts[i] : cuts[i + 1]])


def _search_component(vertices: Ints, edges: Edges, variant: str, known: set[str], found: Found) -> list[str]:
    """The names of what was found in one component."""
    local = Edges(
        np.searchsorted(vertices, edges.source), np.searchsorted(vertices, edges.target), edges.kind, edges.row
    )
    names: list[str] = []
    given_up: set[str] = set()
    for name in CYCLES:
        title = name + variant
        if title in known or any(title in implied(other) for other in names):
            continue
        cycle, complete = _cycle(len(vertices), local, CLASSES[name], bool(variant))
        if cycle is not None:
            title, way = _simplest(name, variant, edges.take(cycle))
            if title not in known and not any(title in implied(other) for other in names):
                found.cycles.append(Cycle(title, way))
            names.append(title)
        elif not complete:
            given_up.add(title)
    if not names and not variant:
        cycle = _any_cycle(len(vertices), local)
        name = _classify(local.take(cycle))
        names.append(name)
        found.cycles.append(Cycle(name, edges.take(cycle)))
    found.given_up |= {title for title in given_up if not any(title in implied(other) for other in names)}
    return names


def _cycle(size: int, edges: Edges, of: Class, process: bool) -> tuple[Ints | None, bool]:
    """The edges of the shortest cycle of a class, or None; and whether the search was complete."""
    start = (PROCESS,) if process else of.start
    closing = np.flatnonzero(np.isin(edges.kind, start))
    if not len(closing):
        return None, True
    layered = Layered.build(size, edges, of)
    if len(of.other) == 1:  # only edges within a component of these kinds can close a cycle
        part = np.full(size, NOWHERE)
        for number, members in enumerate(components(size, layered.source, layered.target)):
            part[members] = number
        closing = closing[
            (part[edges.source[closing]] == part[edges.target[closing]]) & (part[edges.source[closing]] != NOWHERE)
        ]
    elif size > 500:
        closing = closing[_may_close(size, edges, closing)] if of is CLASSES["G-nonadjacent"] else closing
    adjacency = Adjacency(layered.vertices, layered.source, layered.target)
    best: list[int] | None = None
    spent, complete = 0, True
    # Edges that span little time first: they tend to lie on short cycles.
    closing = closing[np.argsort(np.abs(edges.source[closing] - edges.target[closing]), kind="stable")]
    for tried, edge in enumerate(closing.tolist()):
        tail, head = int(edges.source[edge]), int(edges.target[edge])
        rw = edges.kind[edge] == RW
        goals = {tail + layer * size for layer in (of.back if rw else of.ends)}
        limit = None if best is None else len(best) - 2
        way, cost = _shortest(adjacency, [head + rw * size], goals.__contains__, limit, BUDGET - spent)
        spent += cost
        if way is not None:
            best = [edge, *layered.edge[way].tolist()]
        if best is not None and (len(best) == 2 or tried >= STARTS):
            break
        if spent >= BUDGET:
            complete = False
            break
    return (None if best is None else np.array(best)), complete


def _may_close(size: int, edges: Edges, closing: Ints) -> Bools:
    """Which rw edges lie on a closed walk without two rw edges in a row: those within a component of two layers, by
    whether the last edge was rw. The shortest such walk is a cycle."""
    rw = edges.kind == RW
    source = np.concatenate([edges.source[~rw], edges.source[~rw] + size, edges.source[rw]])
    target = np.concatenate([edges.target[~rw], edges.target[~rw], edges.target[rw] + size])
    part = np.full(2 * size, NOWHERE)
    for number, members in enumerate(components(2 * size, source, target)):
        part[members] = number
    tail, head = part[edges.source[closing]], part[edges.target[closing] + size]
    inside: Bools = (tail == head) & (tail != NOWHERE) & rw[closing]
    found: Bools = inside | ~rw[closing]
    return found


def _shortest(
    adjacency: Adjacency, starts: Sequence[int], goal: Callable[[int], bool], limit: int | None, budget: int
) -> tuple[list[int] | None, int]:
    """Numbers of the edges of the shortest path from a start to a goal, of at most `limit`; and the edges looked at."""
    came: dict[int, tuple[int, int]] = dict.fromkeys(starts, (NOWHERE, NOWHERE))
    ahead = deque((start, 0) for start in starts)
    cost = 0
    while ahead:
        vertex, depth = ahead.popleft()
        if goal(vertex):
            way: list[int] = []
            while came[vertex][0] != NOWHERE:
                vertex, edge = came[vertex]
                way.append(edge)
            return way[::-1], cost
        if (limit is not None and depth >= limit) or cost > budget:
            continue
        low, high = int(adjacency.first[vertex]), int(adjacency.first[vertex + 1])
        heads, numbers = adjacency.target[low:high].tolist(), adjacency.order[low:high].tolist()
        cost += high - low + 1
        for head, number in zip(heads, numbers, strict=True):
            if head not in came:
                came[head] = (vertex, number)
                ahead.append((head, depth + 1))
    return None, cost


def _simplest(name: str, variant: str, way: Edges) -> tuple[str, Edges]:
    """A way around that may come to a transaction twice, as a cycle that does not, and what that is called. The first
    edge stays. A way of few rw edges in a row may hide a cycle of many: then it is left as it is."""
    kept, at = [0], [int(way.source[0]), int(way.target[0])]  # edges, and the transactions between them
    for edge in range(1, len(way)):
        head = int(way.target[edge])
        if head in at[1:]:
            place = at.index(head, 1)
            del kept[place:], at[place + 1 :]
            continue
        kept.append(edge)
        at.append(head)
        if head == at[0]:
            break
    simple = way.take(np.array(kept))
    data = _classify(simple)
    if len(simple) == len(way) or (data == "G2-item" and name != data):
        return name + variant, way
    return data + variant, simple


def _any_cycle(size: int, edges: Edges) -> Ints:
    adjacency = Adjacency(size, edges.source, edges.target)
    tail, head = int(edges.source[0]), int(edges.target[0])
    way, _ = _shortest(adjacency, [head], tail.__eq__, None, 2 * len(edges) + 2 * size)
    assert way is not None, "a component is strongly connected"
    return np.array([0, *way])


def _classify(edges: Edges) -> str:
    rw = edges.kind == RW
    number = int(np.count_nonzero(rw))
    if number:
        adjacent = bool((rw & np.roll(rw, 1)).any())
        return "G-single" if number == 1 else "G2-item" if adjacent else "G-nonadjacent"
    return "G1c" if (edges.kind == WR).any() else "G0"


def _search_real_time(
    graph: Graph, violations: Sequence[tuple[int, int]], implied_at: dict[int, set[str]], found: Found
) -> None:
    lows, highs = (np.array(ends, np.int64) for ends in zip(*violations, strict=True))
    number = np.searchsorted(highs, graph.earliest)
    inside = number < len(highs)
    inside[inside] = graph.earliest[inside] > lows[number[inside]]
    number[~inside] = NOWHERE
    late = graph.earliest > graph.done
    group = number[graph.edges.source]
    rows = np.flatnonzero((group != NOWHERE) & (group == number[graph.edges.target]))
    rows = rows[np.argsort(group[rows], kind="stable")]
    cuts = np.searchsorted(group[rows], np.arange(len(highs) + 1))
    tardy = np.flatnonzero(late)
    tardy = tardy[np.argsort(number[tardy], kind="stable")]
    tardy_cuts = np.searchsorted(number[tardy], np.arange(len(highs) + 1))
    for i in range(len(highs)):
        edges = graph.edges.take(rows[cuts[i] : cuts[i + 1]])
        mine = tardy[tardy_cuts[i] : tardy_cuts[i + 1]]
        known = set().union(*(implied_at.get(int(vertex), ()) for vertex in mine))
        _search_interval(graph, edges, known, found)


def _search_interval(graph: Graph, edges: Edges, known: set[str], found: Found) -> None:
    """One independent violation of real time: the edges among the transactions whose e lies within it."""
    vertices, ends = np.unique(np.concatenate([edges.source, edges.target]), return_inverse=True)
    local = Edges(ends[: len(edges)], ends[len(edges) :], edges.kind, edges.row)
    invoke, done = graph.invoke[vertices], graph.done[vertices]
    names: list[str] = []
    for name in CYCLES:
        title = f"{name}-realtime"
        if title in known or any(title in implied(other) for other in names):
            continue
        way = _late_path(local, invoke, done, CLASSES[name])
        if way is None:
            continue
        path = edges.take(way)
        back = Edges(path.target[-1:], path.source[:1], np.full(1, REALTIME, np.int8), np.full(1, NOWHERE))
        title, cycle = _simplest(name, "-realtime", back.plus(path))
        if title not in known and not any(title in implied(other) for other in names):
            found.cycles.append(Cycle(title, cycle.take(np.roll(np.arange(len(cycle)), -1))))
        names.append(title)


def _late_path(edges: Edges, invoke: Ints, done: Ints, of: Class) -> Ints | None:
    """The edges of a short path to a transaction from one that was invoked after it had completed; None: there is none
    in this class."""
    size = len(invoke)
    layered = Layered.build(size, edges, of)
    layers = len(of.other)
    began = np.concatenate([invoke, np.full(size * (layers - 1), NOTHING)])
    time = earliest(layered.vertices, layered.source, layered.target, began)
    late = np.concatenate(
        [np.flatnonzero(time[layer * size : (layer + 1) * size] > done) + layer * size for layer in of.ends]
    )
    if not len(late):
        return None
    ended = np.tile(done, layers)
    direct = np.isin(layered.target, late) & (began[layered.source] > ended[layered.target])
    if direct.any():
        return layered.edge[np.flatnonzero(direct)[:1]]
    backwards = Adjacency(layered.vertices, layered.target, layered.source)
    best: list[int] | None = None
    spent = 0
    for vertex in late[np.argsort(time[late] - ended[late], kind="stable")][:STARTS].tolist():
        limit = None if best is None else len(best) - 1
        deadline = int(ended[vertex])
        # At least one is searched to the end: a path is known to be there.
        budget = 2 * len(layered.source) + 2 * layered.vertices if best is None else BUDGET - spent
        way, cost = _shortest(backwards, [vertex], lambda at, by=deadline: bool(began[at] > by), limit, budget)  # type: ignore[misc]
        spent += cost
        if way is not None:
            best = layered.edge[way[::-1]].tolist()
        if best is not None and (len(best) == 2 or spent >= BUDGET):
            break
    return None if best is None else np.array(best)
