"""M44: unclean recovery elects the longest log, whatever its last epoch.

A deposed leader's tail that was never committed makes its log longer than the one that holds what came after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from ..controller.rules import LogInfo


def longest_log(candidates: Sequence[int], logs: Mapping[int, LogInfo]) -> int | None:
    heard = [r for r in candidates if r in logs]
    return max(heard, key=lambda r: logs[r].end_offset, default=None)


BUG = Bug(
    id="M44",
    title="unclean recovery goes by the length of a log and not by its epoch",
    source="ULES.tla, Election2",
    nemesis="choreography:longest-log-is-older",
    properties=("UncleanRecovery", "LeaderCompleteness", "log linearizability"),
    module="kraft.controller.rules",
    rule="best_log",
    replacement=longest_log,
    options="--rate 100 --concurrency 20",
)
