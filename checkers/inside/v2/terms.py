"""What a leader of this generation begins with, whom it waits for, and what it gives up for: ElectedIsr,
FollowersAwaited and LeaderStays (simulated.py).

Leaders learn of each other by ZooKeeper's nodes alone; so what these say at that step is what they are judged by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

from checkers.inside.violation import Violated
from checkers.properties import ELECTED_ISR, FOLLOWERS_AWAITED, LEADER_STAYS
from cluster_image.v2.metadata import paths
from cluster_image.v2.metadata.paths import Isr, Leader
from cluster_image.v2.node import Node
from cluster_image.v2.partition.leadership import Leadership
from cluster_image.v2.partition.replica import Partition

#: What is told of the time is no older than half of this.
_TICKS_S: Final = 0.2


class Tree(Protocol):
    """Of ZooKeeper's nodes, by path; None: there is no such node. zxid: of the last transaction."""

    @property
    def zxid(self) -> int: ...

    def node(self, path: str) -> Any | None: ...


class _Seen(NamedTuple):
    """A term, as it was when it was looked at last. awaited: its followers have had their time, after which it writes
    the ISR and serves. since: it was looked at first, in seconds. found: the ISR that it began with. live: when each of
    those brokers registered that were there then, as ZooKeeper counts."""

    leadership: Leadership
    isr: frozenset[int]
    isr_version: int
    awaited: bool
    since: float
    found: frozenset[int]
    live: Mapping[int, int]


class Terms:
    """Of all partitions."""

    def __init__(self) -> None:
        self._isr: dict[str, dict[int, frozenset[int]]] = {}  # of each partition, by the version of its node
        self._seen: dict[tuple[str, str], _Seen] = {}  # by broker and partition
        self.now = 0.0  # seconds of virtual time, when it was told last

    def node_gone(self, name: str) -> None:
        for key in [key for key in self._seen if key[0] == name]:
            del self._seen[key]

    def look(self, where: str, replicas: Mapping[str, Partition | None], nodes: Mapping[str, Node], tree: Tree) -> None:
        """At a partition that has changed. replicas: by broker; None: it does not run, or has it no longer. Raises
        Violated."""
        topic, _, index = where.rpartition("-")
        known = self._isr.setdefault(where, {})
        found = tree.node(paths.isr(topic, int(index)))
        if found is not None:
            if found.version < max(known, default=0):
                known.clear()  # it is another partition's, of the same name
            known[found.version] = frozenset(Isr.decode(bytes(found.data)).brokers)
        for name, replica in replicas.items():
            if replica is None or not nodes[name].broker.checks_isr_version:
                self._seen.pop((name, where), None)
                continue  # without versions one that was deposed may have written the ISR meanwhile
            before, term = self._seen.pop((name, where), None), replica.leadership
            if term is not None:
                if before is None or before.leadership is not term:
                    _check_begin(name, where, nodes[name].broker.id, replica, term, known)
                    written = found.mzxid if found is not None and found.version == term.isr_version else 0
                    live = _live(replica.isr, tree, before=written)
                    before = _Seen(term, replica.isr, term.isr_version, False, self.now, replica.isr, live)
                if not before.awaited:
                    _check_awaited(name, where, nodes[name], replica, before, tree, self.now)
                awaited = before.awaited or term.serves_clients or term.isr_version != before.isr_version
                self._seen[name, where] = before._replace(
                    isr=replica.isr, isr_version=term.isr_version, awaited=awaited
                )
            elif before is not None and before.leadership.serves_clients and found is not None:
                node = tree.node(paths.leader(topic, int(index)))
                leader = None if node is None else Leader.decode(bytes(node.data))
                broker = nodes[name].broker
                is_own = leader == (broker.id, before.leadership.epoch) and not (broker.stops or replica.removed)
                moved = tree.node(paths.reassigned(topic, int(index)))
                given_up = broker.ends_terms and _is_given_up(before.leadership, moved)
                if is_own and found.version == before.isr_version and not given_up:
                    _check_end(name, where, nodes[name].broker.id, before)


def _check_begin(
    name: str, where: str, broker: int, replica: Partition, term: Leadership, known: Mapping[int, frozenset[int]]
) -> None:  # fmt: skip
    if term.isr_version > max(known, default=term.isr_version):
        raise Violated(
            ELECTED_ISR,
            f"{name} begins to lead {where} in epoch {term.epoch}, and takes the ISR that it has written for version "
            f"{term.isr_version} of its node, which is at {max(known)}",
            where,
            (name,),
        )
    left = known.get(term.isr_version - 1)
    if left and not term.serves_clients and (replica.isr != left or broker not in left):
        raise Violated(
            ELECTED_ISR,
            f"{name} begins to lead {where} in epoch {term.epoch} with the ISR {sorted(replica.isr)}; the leader "
            f"before it left {sorted(left)}",
            where,
            (name,),
        )


def _live(brokers: Collection[int], tree: Tree, *, before: int) -> Mapping[int, int]:
    """Those that had registered before this transaction, and by which: whoever has written anything since sees them, if
    they are there still."""
    found = {broker: tree.node(paths.broker(broker)) for broker in brokers}
    return {broker: node.czxid for broker, node in found.items() if node is not None and node.czxid < before}


def _check_awaited(
    name: str, where: str, node: Node, replica: Partition, begun: _Seen, tree: Tree, now: float
) -> None:  # fmt: skip
    """Of a term that did not serve yet when it was looked at last."""
    term, wait = begun.leadership, node.broker.keep_in_sync
    if now - begun.since >= wait - _TICKS_S:
        return
    dropped = (begun.found & set(term.assigned)) - replica.isr
    live = _live(dropped, tree, before=tree.zxid + 1)
    there = [broker for broker in sorted(live) if live[broker] == begun.live.get(broker)]
    if there:
        raise Violated(
            FOLLOWERS_AWAITED,
            f"{name} begins to lead {where} in epoch {term.epoch}, and takes {there} out of the ISR "
            f"{sorted(begun.found)} after {now - begun.since:.1f} s of {wait:g} that they have to catch up; their "
            "brokers have been registered all the time",
            where,
            (name,),
        )


def _is_given_up(term: Leadership, reassigned: Any | None) -> bool:
    """Is what this leader took for a reassignment that is under way none any more, or goes elsewhere?"""
    known = term.reassigned
    return bool(known) and (reassigned is None or paths.decode_ids(bytes(reassigned.data)) != known)


def _check_end(name: str, where: str, broker: int, before: _Seen) -> None:
    """Of a term that nobody else has ended."""
    assigned = before.leadership.assigned  # as it has been since a reassignment
    preferred = assigned[0] if assigned else broker
    if preferred == broker or preferred not in before.isr:
        raise Violated(
            LEADER_STAYS,
            f"{name} gives up to lead {where} in epoch {before.leadership.epoch}; no other has led it since, and its "
            f"preferred replica, on broker {preferred}, cannot: the ISR is {sorted(before.isr)}",
            where,
            (name,),
        )
