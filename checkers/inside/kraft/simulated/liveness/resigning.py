"""Liveness of the metadata quorum: a leader that a majority of the voters does not follow gives up (check quorum; Raft
thesis, 6.2; KAFKA-15489). Others may have elected another by then, and whoever still reaches this one is led astray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from checkers.inside.violation import Violated
from checkers.properties import LEADER_RESIGNS
from cluster_image.kraft.node import Node
from cluster_image.kraft.raft.quorum import Quorum

from .lasting import Overdue

#: Seconds by which it may be late.
WITHIN_S: Final = 1.0
#: It has acted in each so long a time, or the time begins anew: a process that stands still cannot resign.
ACTS_EVERY_S: Final = 1.5
LOOK_EVERY_S: Final = 0.1


class Resigning:
    def __init__(self) -> None:
        self._overdue: Overdue[tuple[str, int]] = Overdue(LOOK_EVERY_S, ACTS_EVERY_S)  # by node and epoch

    def look(self, nodes: Mapping[str, Node], now: float) -> None:
        """At whoever leads, every LOOK_EVERY_S. Raises Violated."""
        if not self._overdue.is_time(now):
            return
        for name, node in nodes.items():
            quorum = node.raft.quorum
            if quorum is not None and quorum.leadership is not None:
                self._look_at(name, quorum, now)

    def _look_at(self, name: str, quorum: Quorum, now: float) -> None:
        assert quorum.leadership is not None
        timeout = quorum.config.fetch_timeout
        heard, acted = quorum.leadership.heard(), quorum.leadership.heard_of_anybody()
        needed = (len(heard) + 1) // 2  # besides itself, for a majority
        if not needed or acted - sorted(heard, reverse=True)[needed - 1] <= timeout:
            return
        seconds = self._overdue.seconds((name, quorum.epoch), acted, now)
        if seconds > WITHIN_S:
            raise Violated(
                LEADER_RESIGNS,
                f"{name} goes on leading the metadata quorum in epoch {quorum.epoch}: for {timeout:g} s, "
                f"and {seconds:.1f} s more, no majority of the voters has fetched from it",
                nodes=(name,),
            )
