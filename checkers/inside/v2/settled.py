"""What must become true of a simulated cluster of this generation once all faults are healed: every broker is what
ZooKeeper says that it is, and replicas' logs end alike.

Where leaders look at idle partitions, too (v2.idle.checks), nothing that waits for that is left: moves are over, every
ISR is full, preferred replicas lead. Where they do not, 001 leaves all of it as it is until something is produced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from checkers.inside.violation import Unmet
from checkers.properties import (
    ISR_EXPANDS,
    LEADER_ELECTED,
    REASSIGNMENT_COMPLETES,
    RECORDS_DELETED,
    REQUESTS_ANSWERED,
)
from cluster_image.v2.metadata import paths
from cluster_image.v2.metadata.paths import Isr, Leader
from cluster_image.v2.node import Node
from cluster_image.v2.partition.replica import Partition


class Tree(Protocol):
    """Of ZooKeeper's nodes, by path; None: there is no such node."""

    def node(self, path: str) -> Any | None: ...


@dataclass(frozen=True)
class Placed:
    """A partition as ZooKeeper has it. replicas: None while it is being made. coming: where it is being moved to; None:
    nowhere; nobody: it is to be deleted."""

    topic: str
    index: int
    replicas: tuple[int, ...] | None
    coming: tuple[int, ...] | None
    leader: Leader | None
    isr: Isr | None

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def lives(self) -> bool:
        return self.replicas is not None and self.coming != ()

    def may_have(self, broker: int) -> bool:
        return not self.lives or broker in (self.replicas or ()) or broker in (self.coming or ())


def unsettled(processes: Mapping[str, Any], terms: dict[str, int]) -> Unmet | None:
    """The first thing that does not hold yet. processes: by node, None if it does not run. terms: by partition the
    leader epoch that it was in when this was first asked, filled in here: only who has led since then can be told that
    it is to give way, or to end a move: where ZooKeeper takes longer than v2.preferred.replica.time.ms, 001 elects
    anybody, who gives way again, and so on."""
    for name, process in processes.items():
        if process is None:
            return Unmet(f"{name} does not run")
    brokers = {name: process for name, process in processes.items() if isinstance(process, Node)}
    for name, node in brokers.items():
        if not node.broker.ready:
            return Unmet(f"{name} is not registered")
    trees = [process.tree for process in processes.values() if getattr(process, "leads", False)]
    if len(trees) != 1:
        return Unmet(f"{len(trees)} of ZooKeeper's servers lead", LEADER_ELECTED)
    placed = list(placed_in(trees[0]))
    return next(left_over(brokers, placed), None) or next(
        (unmet for each in placed if each.lives for unmet in _unsettled(brokers, each, terms)), None
    )


def placed_in(tree: Tree) -> Iterator[Placed]:
    def data(path: str) -> bytes | None:
        found = tree.node(path)
        return None if found is None else bytes(found.data)

    def under(path: str) -> Sequence[str]:
        found = tree.node(path)
        return () if found is None else sorted(found.children)

    for topic in sorted({*under(paths.TOPICS), *under(paths.REASSIGNED)}):
        for index in paths.numbers(sorted({*under(paths.topic(topic)), *under(paths.reassigned_topic(topic))})):
            replicas, coming = data(paths.replicas(topic, index)), data(paths.reassigned(topic, index))
            leader, isr = data(paths.leader(topic, index)), data(paths.isr(topic, index))
            yield Placed(
                topic, index,
                None if replicas is None else paths.decode_ids(replicas),
                None if coming is None else paths.decode_ids(coming),
                None if leader is None else Leader.decode(leader),
                None if isr is None else Isr.decode(isr),
            )  # fmt: skip


def left_over(brokers: Mapping[str, Node], placed: Sequence[Placed]) -> Iterator[Unmet]:
    there = {(each.topic, each.index): each for each in placed}
    for name, node in brokers.items():
        for topic, index in node.broker.logs:
            if (topic, index) not in there or not there[topic, index].may_have(node.broker.id):
                yield Unmet(f"{name} keeps a log of {topic}-{index}, of which it is no replica", RECORDS_DELETED)


def _unsettled(brokers: Mapping[str, Node], placed: Placed, terms: dict[str, int]) -> Iterator[Unmet]:
    assert placed.replicas is not None
    replicas: dict[str, Partition] = {}
    for name, node in brokers.items():
        found = node.broker.replica(placed.topic, placed.index)
        if found is not None:
            replicas[name] = found
        elif node.broker.id in placed.replicas:
            yield Unmet(f"{name} has no replica of {placed}")
    if placed.leader is None:
        yield Unmet(f"{placed} has no leader", LEADER_ELECTED)
        return
    for name, partition in replicas.items():
        named = brokers[name].broker.id == placed.leader.broker
        if partition.is_leader and not named:
            yield Unmet(f"{name} leads {placed}, and broker {placed.leader.broker} is its leader")
        if named and not partition.is_leader:
            yield Unmet(f"{name} is the leader of {placed}, and does not lead it", LEADER_ELECTED)
        if (partition.leader, partition.leader_epoch) != placed.leader:
            yield Unmet(
                f"{name} takes broker {partition.leader} for the leader of {placed} in epoch {partition.leader_epoch}; "
                f"it is broker {placed.leader.broker} in {placed.leader.epoch}"
            )
    leading = next(((name, partition) for name, partition in replicas.items() if partition.is_leader), None)
    if leading is None:
        yield Unmet(f"{placed} has no leader", LEADER_ELECTED)
        return
    name, leader = leading
    if not leader.serves_clients:
        yield Unmet(f"{name} waits for the followers of {placed}", LEADER_ELECTED)
    if leader.leadership is not None and leader.leadership.queue:
        yield Unmet(f"{name} has not committed all that was produced to {placed}", REQUESTS_ANSWERED)
    if brokers[name].broker.looks_at_idle:
        yield from _undone(name, leader, placed, terms.setdefault(str(placed), leader.leader_epoch))
    end = leader.log.end_offset
    for other, partition in replicas.items():
        if (own := partition.log.end_offset) != end:
            yield Unmet(f"the log of {other} ends at {own}, and that of {name}, which leads {placed}, at {end}")


def _undone(name: str, leader: Partition, placed: Placed, first_epoch: int) -> Iterator[Unmet]:
    """Of what leaders of idle partitions do. name: of its broker. first_epoch: see unsettled()."""
    assert placed.replicas is not None
    if placed.coming is not None and leader.leader_epoch == first_epoch:
        yield Unmet(f"{placed} is still being moved to {list(placed.coming)}", REASSIGNMENT_COMPLETES)
    isr = () if placed.isr is None else placed.isr.brokers
    if set(isr) != set(placed.replicas):
        yield Unmet(f"the ISR of {placed} is {list(isr)} of {list(placed.replicas)}", ISR_EXPANDS)
    if set(isr) != set(leader.isr):
        yield Unmet(f"{name} takes {sorted(leader.isr)} for the ISR of {placed}; it is {list(isr)}", ISR_EXPANDS)
    if leader.leader_epoch == first_epoch and leader.leader != placed.replicas[0]:
        yield Unmet(f"{name} leads {placed}, whose preferred replica is on broker {placed.replicas[0]}")
