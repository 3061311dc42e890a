"""Records that the quorum writes for itself; listeners never see them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

_KEY: Final = struct.Struct(">hh")  # version, type
_HEAD: Final = struct.Struct(">hi")  # version, leader id
_VOTER: Final = struct.Struct(">ib")  # voter id, no tagged fields
_LEADER_CHANGE: Final = 2


def leader_change(leader: int, voters: Sequence[int], granting: Sequence[int]) -> tuple[bytes, bytes]:
    """Key and value of a LeaderChange record (Kafka's LeaderChangeMessage.json, version 0)."""
    value = _HEAD.pack(0, leader) + _ids(voters) + _ids(granting) + b"\0"
    return _KEY.pack(0, _LEADER_CHANGE), value


def _ids(voters: Sequence[int]) -> bytes:
    """A compact array; its length, plus one, is a varint of one byte."""
    assert len(voters) < 127
    return bytes([len(voters) + 1]) + b"".join(_VOTER.pack(voter, 0) for voter in voters)
