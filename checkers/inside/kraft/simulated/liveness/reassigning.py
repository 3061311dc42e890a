"""Liveness under load: a reassignment whose whole target is in the ISR is over soon (000, 2.3; description 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from checkers.inside.violation import Violated
from checkers.properties import REASSIGNMENT_COMPLETES
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration

#: Seconds, of virtual time: it ends with the very change that puts the last of its target into the ISR.
WITHIN_S: Final = 5.0
LOOK_EVERY_S: Final = 0.5


class Reassigning:
    """min_isr: of a partition."""

    def __init__(self, min_isr: Callable[[PartitionRegistration], int]) -> None:
        self._min_isr = min_isr
        self._since: dict[tuple[str, int, int], float] = {}
        self._next = 0.0

    def look(self, image: MetadataImage, now: float) -> None:
        """At what is committed. Raises Violated."""
        if now < self._next:
            return
        self._next = now + LOOK_EVERY_S
        before, self._since = self._since, {}
        for each in image.partitions():
            target = [replica for replica in each.replicas if replica not in each.removing]
            if not (each.adding or each.removing) or not set(target) <= set(each.isr):
                continue
            if len(target) < self._min_isr(each):
                continue
            key = each.topic, each.index, each.partition_epoch
            since = self._since[key] = before.get(key, now)
            if now - since > WITHIN_S:
                raise Violated(
                    REASSIGNMENT_COMPLETES,
                    f"{each.topic}-{each.index} still adds {list(each.adding)} and removes {list(each.removing)}, and "
                    f"all of {target} have been in the ISR {list(each.isr)} for {now - since:.1f} s",
                    f"{each.topic}-{each.index}",
                )
