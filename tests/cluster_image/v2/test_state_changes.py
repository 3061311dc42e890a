"""What a broker makes of requests to close a replica that waited while it was away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster_image.config import v2 as config
from cluster_image.v2 import rules
from cluster_image.v2.metadata import paths
from cluster_image.v2.metadata.state_queue import StateChange
from cluster_image.v2.state_changes import StateChangeListener
from cluster_image.v2.zookeeper import NoNode, Stat

PROPERTIES = "node.id=1\ncluster.id=c\nzookeeper.connect=h:1\nlisteners=h:2\nlog.dirs=/d\n"


class _ZooKeeper:
    def __init__(self, nodes: dict[str, bytes]) -> None:
        self._nodes = nodes

    async def get(self, path: str, watch: Any = None) -> tuple[bytes, Stat]:
        if path not in self._nodes:
            raise NoNode(path)
        return self._nodes[path], Stat(0, 0, 0, 0, 0, 0, 0)


class _Replicas:
    def __init__(self) -> None:
        self.closed = False

    def hosts(self, topic: str, partition: int) -> bool:
        return True

    async def close_replica(self, topic: str, partition: int) -> None:
        self.closed = True


@pytest.mark.parametrize("epoch", [rules.NO_EPOCH, 0])
@pytest.mark.parametrize(
    ("assigned", "mended", "closed"), [("1,2,3", "true", False), ("2,3,4", "true", True), ("1,2,3", "false", True)]
)
def test_what_was_asked_for_before_is_not_done_by_who_is_to_have_a_replica(
    assigned: str, mended: str, closed: bool, epoch: int
) -> None:
    """By an administrator, in an earlier attempt: a partition was made anew on the same brokers; one that had been away
    joined the ISR, closed its replica, and led with an empty log. Found by `chaos explore --target v2 --nemesis
    kill,membership,hw-truncation` (seed 52).

    By a leader that has moved the partition away from its own broker, and is followed by another before it has closed
    its replica: that is done. Found so as well (seed 414 of `--records-per-batch 4`)."""
    replicas, traced = _Replicas(), []
    zookeeper: Any = _ZooKeeper({paths.replicas("t", 0): assigned.encode(), paths.isr("t", 0): b"2,3;1"})
    listener = StateChangeListener(
        zookeeper, 1, None, replicas, config.parse(f"{PROPERTIES}v2.close.epochs={mended}"),  # type: ignore[arg-type]
        lambda event, where, **fields: traced.append((event, fields.get("done"), fields.get("assigned"))),
    )  # fmt: skip
    asyncio.run(listener._do(StateChange("close-replica", "t", 0, epoch, -1)))
    assert replicas.closed == closed
    assert traced[-1] == ("state change completed", int(closed), int("1" in assigned))
