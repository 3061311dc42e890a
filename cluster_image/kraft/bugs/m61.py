"""M61: the metadata log is opened as if the node had shut down cleanly.

What a killed process has left in the page cache counts as durable, and what a power cut has left of the last records is
not checked.
"""

from __future__ import annotations

from . import Bug


def always() -> bool:
    return True


BUG = Bug(
    id="M61",
    title="a clean shutdown is assumed for the metadata log",
    source="a3930aa (#10363)",
    nemesis="kill,power-outage",
    properties=("FlushedOffset", "VoterEndOffset", "CommittedPrefix"),
    module="kraft.raft.rules",
    rule="is_known_to_be_whole",
    replacement=always,
)
