"""The least movement, exactly: a balanced layout is improved until no exchange of replicas improves it further.

The layout is a flow: from each partition, by its racks, to the brokers that hold it, with costs that are convex. Such
a flow costs the least if and only if there is no circle of changes that costs less than nothing (Klein 1967, cancelling
of negative cycles). Brokers are the nodes here: an edge from a to b is the cheapest partition that b could hold in the
place of a. One further node stands for "one replica more or less": a circle through it changes two brokers' loads.

What counts, each before all that follow: replicas in racks as they should be, and none on brokers that are to hold
nothing; the squares of the brokers' loads, least where all are within one of each other; bytes moved.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple

from .layout import Layout, P

#: The node beside the brokers.
_OUTSIDE: Final = -1


class _Edge(NamedTuple, Generic[P]):
    """partition: None where a broker's load changes, from or to outside."""

    cost: int
    partition: P | None
    giver: int
    taker: int


class Exchange(Generic[P]):
    def __init__(self, layout: Layout[P]) -> None:
        self._layout = layout
        brokers = len(layout.held)
        replicas = sum(map(len, layout.holders.values()))
        # Of circles that cost the same the one with fewest edges, so that none passes a partition twice for nothing.
        self._byte = len(layout.held) + 2
        self._square = self._byte * (2 * brokers * sum(layout.weights.values()) + 1)
        self._excess = self._square * (2 * brokers * (2 * replicas + 1) + 1)

    def improve(self) -> None:
        """Until it is the best there is."""
        while circle := self._circle():
            carried_out = self._carry_out(circle)
            assert carried_out, "one of its parts costs less than nothing"

    def _edges(self) -> dict[int, dict[int, _Edge[P]]]:
        layout = self._layout
        edges: dict[int, dict[int, _Edge[P]]] = {broker: {} for broker in (*layout.held, _OUTSIDE)}
        for giver, partitions in layout.held.items():
            for partition in partitions:
                holders = layout.holders[partition]
                for taker in layout.brokers:
                    if taker not in holders:
                        cost = self._cost(partition, giver, taker)
                        known = edges[giver].get(taker)
                        if known is None or cost < known.cost:
                            edges[giver][taker] = _Edge(cost, partition, giver, taker)
            if giver in layout.racks.of:
                load = layout.load(giver)
                edges[giver][_OUTSIDE] = _Edge(self._square * (2 * load + 1) + 1, None, giver, _OUTSIDE)
                edges[_OUTSIDE][giver] = _Edge(-self._square * (2 * load - 1) + 1, None, _OUTSIDE, giver)
            else:
                edges[_OUTSIDE][giver] = _Edge(1, None, _OUTSIDE, giver)
        return edges

    def _cost(self, partition: P, giver: int, taker: int) -> int:
        layout = self._layout
        return (
            self._excess * layout.excess_by(partition, giver, taker)
            + self._byte * layout.bytes_by(partition, giver, taker)
            + 1
        )

    def _circle(self) -> list[_Edge[P]] | None:
        """A circle that costs less than nothing (Bellman-Ford). None: there is none."""
        edges = self._edges()
        costs = dict.fromkeys(edges, 0)
        came_by: dict[int, _Edge[P]] = {}
        last = None
        for _ in edges:
            last = None
            for start, out in edges.items():
                for end, edge in out.items():
                    if costs[start] + edge.cost < costs[end]:
                        costs[end] = costs[start] + edge.cost
                        came_by[end] = edge
                        last = end
            if last is None:
                return None
        assert last is not None
        for _ in edges:  # back until it is on the circle for certain
            last = came_by[last].giver
        circle = [came_by[last]]
        while circle[-1].giver != last:
            circle.append(came_by[circle[-1].giver])
        return circle[::-1]

    def _carry_out(self, circle: list[_Edge[P]]) -> bool:
        """Where a circle passes a partition twice, and its racks do not allow both, it is two circles, of which one
        costs less than nothing by itself. False: this one does not."""
        if self._tried(circle):
            return True
        for first, one in enumerate(circle):
            for second, other in enumerate(circle[first + 1 :], first + 1):
                if one.partition is not None and one.partition == other.partition:
                    outer = [*circle[:first], one._replace(taker=other.taker), *circle[second + 1 :]]
                    inner = [other._replace(taker=one.taker), *circle[first + 1 : second]]
                    if any(part[0].giver != part[0].taker and self._carry_out(part) for part in (outer, inner)):
                        return True
        return False

    def _tried(self, circle: list[_Edge[P]]) -> bool:
        """Does it cost less than nothing? If not, nothing is changed."""
        layout, cost = self._layout, 0
        moves = [edge for edge in circle if edge.partition is not None]
        for _, partition, giver, taker in moves:
            assert partition is not None
            cost += self._cost(partition, giver, taker) - 1
            layout.move(partition, giver, taker)
        cost += sum(edge.cost - 1 for edge in circle if edge.partition is None)
        if cost < 0:
            return True
        for _, partition, giver, taker in reversed(moves):
            assert partition is not None
            layout.move(partition, taker, giver)
        return False
