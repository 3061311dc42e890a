"""The quorum-state file: what a replica must remember of elections through a crash.

One JSON object, Kafka's field names. Written whole and synced before anything that follows from it is said.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from cluster_image.storage.disk import Disk

FILE_NAME: Final = "quorum-state"


class ElectionState(NamedTuple):
    """The newest epoch seen, who leads it if that is known, and whom this replica voted for in it."""

    epoch: int = 0
    leader_id: int | None = None
    voted_for: int | None = None


class QuorumStateError(Exception):
    """The file is missing or damaged. The message is one sentence that names it."""


class QuorumStateStore:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{FILE_NAME}"

    def read(self) -> ElectionState | None:
        """None if this replica has never taken part. Raises QuorumStateError if the file is damaged, OSError."""
        if not self._disk.exists(self.path):
            return None
        state = state_in(self._disk.read(self.path))
        if state is None:
            raise QuorumStateError(f"{self.path} is damaged: votes cast by this replica are not known")
        return state

    def write(self, state: ElectionState) -> None:
        """Durable when it returns. Raises OSError."""
        fields = {
            "leaderId": -1 if state.leader_id is None else state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": -1 if state.voted_for is None else state.voted_for,
            "data_version": 0,
        }
        self._disk.write_atomically(self.path, json.dumps(fields).encode())


def state_in(content: bytes) -> ElectionState | None:
    """Of a QuorumStateStore's file; None: it is damaged."""
    try:
        fields = json.loads(content)
        epoch, leader, voted = (int(fields[name]) for name in ("leaderEpoch", "leaderId", "votedId"))
        if not 0 <= epoch < 1 << 31 or max(leader, voted) >= 1 << 31:
            raise ValueError(fields)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return ElectionState(epoch, _optional(leader), _optional(voted))


def _optional(node_id: int) -> int | None:
    return None if node_id < 0 else node_id
