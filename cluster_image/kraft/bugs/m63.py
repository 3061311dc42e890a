"""M63: a voter fetches from an offset below which its disk does not have everything yet.

The leader counts it there, and commits. When enough voters lose their power, what was committed is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from cluster_image.storage.log import Log


def flush_nothing(log: Log, is_voter: bool) -> None:
    """Only a full segment, and a clean shutdown, still do."""


BUG = Bug(
    id="M63",
    title="a voter fetches metadata before it has flushed what it says to have",
    source="KAFKA-10533 (a72f0c1), KAFKA-17332 (ee71156)",
    nemesis="power-outage,kill",
    properties=("VoterEndOffset", "CommittedPrefix"),
    module="kraft.raft.rules",
    rule="make_durable_before_fetch",
    replacement=flush_nothing,
)
