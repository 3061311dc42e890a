"""M44: unclean recovery elects the longest log, whatever its last epoch.

A deposed leader's tail that was never committed makes its log longer than the one that holds what came after.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..controller.unclean_recovery import LogEnd
from ..metadata.image import PartitionRegistration
from . import Bug


def longest_log(partition: PartitionRegistration, ends: Mapping[int, LogEnd]) -> int | None:
    if not set(partition.last_known_elr) <= ends.keys():
        return None
    candidates = [r for r in partition.replicas if r in partition.last_known_elr]
    return max(candidates, key=lambda r: ends[r][1], default=None)


BUG = Bug(
    id="M44",
    title="unclean recovery goes by the length of a log and not by its epoch",
    source="ULES.tla, Election2",
    nemesis="power-outage-cluster,pause",
    properties=("LeaderCompleteness", "log linearizability"),
    module="controller.unclean_recovery",
    rule="best_log",
    replacement=longest_log,
)
