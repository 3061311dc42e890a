"""Dependencies between transactions, and where among millions of them a cycle can be.

Vertices are transactions. An edge of kind ww, wr or rw says that its source must come before its target in any serial
order (Adya, Weak Consistency, 1999); `process` and `realtime` say the same because of when both ran.

What can lie on a cycle is found in time near linear, without drawing one real-time edge. Let e(v), the earliest time at
which v can take effect, be the largest invocation among v and all from which a path of edges leads to v. Along an edge
e does not fall, so around a cycle it is constant:

    a cycle of the edges lies within the transactions of one e.

Transaction a precedes b in real time if a completed before b was invoked. Then

    there is a cycle with real-time edges, and none without, if and only if e(v) > complete(v) for some v that is ok:

the invocation that e(v) stands for, w, came after v completed, and a path leads from w to v. Conversely, if e(v) never
exceeds complete(v), e rises strictly along a real-time edge, so no cycle holds one. Any cycle with several real-time
edges has one with only one of them and some of its other edges: of its paths w1..v2, w2..v3, … between real-time edges
v1-w1, v2-w2, … some wi was invoked after v(i+1) completed, for else completions would rise all around.
Two such v lie in the same strongly connected component of the graph with all real-time edges if and only if a chain of
overlapping intervals from complete(v) to e(v) joins them, so each chain is one independent violation.

In a good history e rises along a few edges of concurrent transactions only. Where it must be carried along very long
paths, it is computed in topological order of the strongly connected components instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import networkx as nx
import numpy as np
import numpy.typing as npt

from spark_history.files import Bools, Ints

WW: Final = 0
WR: Final = 1
RW: Final = 2
PROCESS: Final = 3
REALTIME: Final = 4
KINDS: Final = ("ww", "wr", "rw", "process", "realtime")

Kinds = npt.NDArray[np.int8]
#: So many times the number of edges may be looked at before e is computed in topological order.
PATIENCE: Final = 20
ROUNDS: Final = 3000
TRIMS: Final = 300


@dataclass(frozen=True)
class Edges:
    """source[i] must precede target[i]. `row`: where what is known of an edge is found; -1: nowhere."""

    source: Ints
    target: Ints
    kind: Kinds
    row: Ints

    def __len__(self) -> int:
        return len(self.source)

    def take(self, which: Ints | Bools) -> Edges:
        return Edges(self.source[which], self.target[which], self.kind[which], self.row[which])

    def of(self, *kinds: int) -> Edges:
        return self.take(np.isin(self.kind, kinds))

    def plus(self, other: Edges) -> Edges:
        mine, others = vars(self).items(), vars(other)
        return Edges(**{name: np.concatenate([column, others[name]]) for name, column in mine})


_NONE: Final = np.empty(0, np.int64)
NO_EDGES: Final = Edges(_NONE, _NONE, _NONE.astype(np.int8), _NONE)


class Adjacency:
    """Edges by their sources."""

    def __init__(self, size: int, source: Ints, target: Ints) -> None:
        self.order = np.argsort(source, kind="stable")
        self.target = target[self.order]
        self.first = np.zeros(size + 1, np.int64)
        np.cumsum(np.bincount(source, minlength=size), out=self.first[1:])

    def from_(self, vertices: Ints) -> tuple[Ints, Ints]:
        """(source, target) of every edge out of `vertices`."""
        low = self.first[vertices]
        number = self.first[vertices + 1] - low
        starts = np.repeat(low - (np.cumsum(number) - number), number)
        return np.repeat(vertices, number), self.target[starts + np.arange(int(number.sum()))]


def earliest(size: int, source: Ints, target: Ints, invoke: Ints) -> Ints:
    """e of every vertex, see above."""
    found = invoke.copy()
    rising = np.flatnonzero(found[source] > found[target])
    if not len(rising):
        return found
    adjacency = Adjacency(size, source, target)
    looked_at, tails, heads = 0, source[rising], target[rising]
    for _ in range(ROUNDS):
        np.maximum.at(found, heads, found[tails])
        tails, heads = adjacency.from_(np.unique(heads))
        looked_at += len(tails)
        rises = found[tails] > found[heads]
        tails, heads = tails[rises], heads[rises]
        if not len(tails):
            return found
        if looked_at > PATIENCE * len(source):
            break
    return _in_topological_order(size, source, target, invoke)


def _in_topological_order(size: int, source: Ints, target: Ints, invoke: Ints) -> Ints:
    adjacency = Adjacency(size, source, target)
    first, heads = adjacency.first.tolist(), adjacency.target.tolist()
    found = invoke.tolist()
    for component in reversed(list(_tarjan(size, first, heads))):
        highest = max(found[vertex] for vertex in component)
        for vertex in component:
            found[vertex] = highest
        for vertex in component:
            for head in heads[first[vertex] : first[vertex + 1]]:
                if found[head] < highest:
                    found[head] = highest
    return np.array(found, np.int64)


def _tarjan(size: int, first: list[int], heads: list[int]) -> Iterator[list[int]]:
    """Strongly connected components, each after all that can be reached from it (Tarjan, 1972). On lists: networkx'
    dictionaries would not fit into memory for millions of vertices."""
    number, low = [0] * size, [0] * size
    on_stack = bytearray(size)
    ahead = first[:size]
    stack: list[int] = []
    counter = 0
    for root in range(size):
        if number[root]:
            continue
        counter += 1
        number[root] = low[root] = counter
        stack.append(root)
        on_stack[root] = 1
        path = [root]
        while path:
            vertex = path[-1]
            if ahead[vertex] < first[vertex + 1]:
                head = heads[ahead[vertex]]
                ahead[vertex] += 1
                if not number[head]:
                    counter += 1
                    number[head] = low[head] = counter
                    stack.append(head)
                    on_stack[head] = 1
                    path.append(head)
                elif on_stack[head]:
                    low[vertex] = min(low[vertex], number[head])
                continue
            path.pop()
            if path:
                low[path[-1]] = min(low[path[-1]], low[vertex])
            if low[vertex] == number[vertex]:
                component = []
                while True:
                    member = stack.pop()
                    on_stack[member] = 0
                    component.append(member)
                    if member == vertex:
                        break
                yield component


def trim(size: int, source: Ints, target: Ints) -> Bools:
    """Which edges may lie on a cycle: those left when vertices without edges in or out are taken away repeatedly."""
    left = np.zeros(len(source), bool)
    rows = np.arange(len(source))
    for _ in range(TRIMS):  # what longer chains leave, the components tell
        into, out = np.zeros(size, bool), np.zeros(size, bool)
        into[target[rows]], out[source[rows]] = True, True
        kept = into[source[rows]] & out[target[rows]]
        if kept.all():
            break
        rows = rows[kept]
    left[rows] = True
    return left


def components(size: int, source: Ints, target: Ints) -> list[Ints]:
    """The strongly connected components with more than one vertex or an edge from a vertex to itself, sorted."""
    if not len(source):
        return []
    vertices, ends = np.unique(np.concatenate([source, target]), return_inverse=True)
    source, target = ends[: len(source)], ends[len(source) :]
    kept = trim(len(vertices), source, target)
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_edges_from(zip(source[kept].tolist(), target[kept].tolist(), strict=True))
    found = []
    for component in nx.strongly_connected_components(graph):
        some = next(iter(component))
        if len(component) > 1 or graph.has_edge(some, some):
            found.append(vertices[np.sort(np.fromiter(component, np.int64, len(component)))])
    return sorted(found, key=lambda members: int(members[0]))


@dataclass(frozen=True)
class Graph:
    """Of n transactions, in the order of their invocations.

    invoke, done: monotonic ns; done is NEVER for those that are not ok. process: NOTHING where it is not known.
    """

    edges: Edges  # ww, wr and rw
    invoke: Ints
    done: Ints
    process: Ints
    ok: Bools

    @property
    def size(self) -> int:
        return len(self.invoke)

    @cached_property
    def earliest(self) -> Ints:
        return earliest(self.size, self.edges.source, self.edges.target, self.invoke)

    def components(self) -> list[Ints]:
        """Those of ww, wr and rw edges."""
        return self._within(self.edges, self.earliest)

    def process_components(self, process: Edges) -> list[Ints]:
        """Those of ww, wr, rw and process edges."""
        edges = self.edges.plus(process)
        return self._within(edges, earliest(self.size, edges.source, edges.target, self.invoke))

    def _within(self, edges: Edges, time: Ints) -> list[Ints]:
        inside = np.flatnonzero(time[edges.source] == time[edges.target])
        return components(self.size, edges.source[inside], edges.target[inside])

    def process_edges(self, nobody: int) -> Edges:
        """To each transaction from the last one of its process that is ok. nobody: the process that is not known.

        What came between, and did not complete, says nothing: a process may go on under the same number."""
        rows = np.flatnonzero(self.process != nobody)
        rows = rows[np.argsort(self.process[rows], kind="stable")]
        place = np.arange(len(rows))
        last = np.maximum.accumulate(np.where(self.ok[rows], place, -1)) if len(rows) else place
        last, after = last[:-1], rows[1:]
        before, after = rows[last[last >= 0]], after[last >= 0]
        follows = self.process[before] == self.process[after]
        follows &= self.done[before] < self.invoke[after]
        source, target = before[follows], after[follows]
        kinds = np.full(len(source), PROCESS, np.int8)
        return Edges(source, target, kinds, np.full(len(source), -1))

    def violations(self) -> list[tuple[int, int]]:
        """Intervals (low, high] of e in which real time is contradicted: an independent violation each."""
        late = np.flatnonzero(self.earliest > self.done)
        if not len(late):
            return []
        low, high = self.done[late], self.earliest[late]
        order = np.argsort(low, kind="stable")
        low, high = low[order], np.maximum.accumulate(high[order])
        starts = np.flatnonzero(np.concatenate(([True], low[1:] >= high[:-1])))
        ends = np.append(starts[1:], len(low)) - 1
        return [(int(low[start]), int(high[end])) for start, end in zip(starts, ends, strict=True)]
