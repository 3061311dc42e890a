"""Reading what ZooKeeper has of partitions and brokers."""

from __future__ import annotations

from ..zookeeper import NoNode, Stat, Watcher, ZooKeeper
from . import paths
from .paths import Isr, Leader, Registered


async def read(zookeeper: ZooKeeper, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat] | None:
    """None: there is no such node. watch: is told if there is one, or it changes or goes."""
    while True:
        try:
            return await zookeeper.get(path, watch)
        except NoNode:
            if watch is None or await zookeeper.exists(path, watch) is None:
                return None
            # It has come meanwhile, and is watched twice: whoever hears of it looks again.


async def replicas_of(zookeeper: ZooKeeper, topic: str, partition: int) -> tuple[int, ...]:
    """Those that have one, or are about to: of a partition that is being made or moved, also those of the
    reassignment. (By 001 alone nothing could be made or moved: startReplica refuses whom /replicas does not name, and
    that is written when all have started.)"""
    coming = await reassigned_to(zookeeper, topic, partition)  # first: the other is written before this is deleted
    return _both(await assigned_to(zookeeper, topic, partition), coming)


async def replicas_to_start(zookeeper: ZooKeeper, topic: str, partition: int) -> tuple[int, ...]:
    """The same, for who starts up; of a partition that is about to be deleted nobody: what asks this broker to close it
    may be done already, and would not come again."""
    coming = await reassigned_to(zookeeper, topic, partition)
    return () if coming == () else _both(await assigned_to(zookeeper, topic, partition), coming)


def _both(assigned: tuple[int, ...] | None, coming: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*(assigned or ()), *(coming or ()))))


async def assigned_to(zookeeper: ZooKeeper, topic: str, partition: int) -> tuple[int, ...] | None:
    """AR; None: it is not made yet."""
    found = await read(zookeeper, paths.replicas(topic, partition))
    return None if found is None else paths.decode_ids(found[0])


async def reassigned_to(zookeeper: ZooKeeper, topic: str, partition: int) -> tuple[int, ...] | None:
    """RAR; None: there is no reassignment. Nothing in it: the partition is about to be deleted."""
    found = await read(zookeeper, paths.reassigned(topic, partition))
    return None if found is None else paths.decode_ids(found[0])


async def isr_of(zookeeper: ZooKeeper, topic: str, partition: int) -> Isr | None:
    found = await read(zookeeper, paths.isr(topic, partition))
    return None if found is None else Isr.decode(found[0])


async def leader_of(zookeeper: ZooKeeper, topic: str, partition: int) -> Leader | None:
    found = await read(zookeeper, paths.leader(topic, partition))
    return None if found is None else Leader.decode(found[0])


async def live_brokers(zookeeper: ZooKeeper, watch: Watcher | None = None) -> list[int]:
    return paths.numbers(await zookeeper.children(paths.IDS, watch))


async def registered(zookeeper: ZooKeeper, broker: int) -> Registered | None:
    found = await read(zookeeper, paths.broker(broker))
    return None if found is None else Registered.decode(found[0])


async def children(zookeeper: ZooKeeper, path: str, watch: Watcher | None = None) -> list[str]:
    """None of a node that is not there: then nothing is watched."""
    try:
        return list(await zookeeper.children(path, watch))
    except NoNode:
        return []
