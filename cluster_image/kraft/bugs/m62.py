"""M62: what replaces a file is not synced before it is renamed.

A file system that keeps no order may make the new name durable first: after a power cut there is neither what stood in
the file before nor what was to replace it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import Bug

if TYPE_CHECKING:
    from cluster_image.storage.disk import File


def leave_it_to_the_file_system(file: File) -> None:
    """Which may write the content any time later."""


BUG = Bug(
    id="M62",
    title="what replaces a file is renamed before it is synced",
    source="KAFKA-12520 (0b6d6b1)",
    nemesis="power-outage,kill",
    properties=("QuorumState",),
    module="storage.disk",
    rule="make_content_durable",
    replacement=leave_it_to_the_file_system,
)
