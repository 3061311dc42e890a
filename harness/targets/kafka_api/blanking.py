"""Copies of nodes' disks without what would be a secret: keys of users, which the metadata log holds.

A record batch keeps its length, and gets the checksum that belongs to it, if it had the right one before: what is
damaged stays so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import unpack_from
from typing import Final

from google_crc32c import value as crc32c

#: The folder of the metadata log; what it began with, and snapshots, are checkpoints.
_METADATA: Final = "__cluster_metadata-"
#: Of a batch (Kafka's documentation, section Message Format): baseOffset and batchLength; up to where its checksum is,
#: and from where that counts.
_HEAD: Final = 12
_CRC: Final = 17
_COUNTED: Final = 21
_LEAST: Final = 61


def blank(disk: Path, secrets: Sequence[bytes]) -> None:
    """In every file below the folder that may hold metadata these bytes become zeros. Raises OSError."""
    if not secrets:
        return
    for path in disk.rglob("*"):
        may = path.parent.name.startswith(_METADATA) or ".checkpoint" in path.name
        if may and path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if any(each in content for each in secrets):
                path.write_bytes(blanked(content, secrets))


def blanked(content: bytes, secrets: Sequence[bytes]) -> bytes:
    """content: of a file, of record batches or not."""
    whole = {start: end for start, end in _batches(content) if _has_its_checksum(content[start:end])}
    for each in secrets:
        content = content.replace(each, bytes(len(each)))
    changed = bytearray(content)
    for start, end in whole.items():
        changed[start + _CRC : start + _COUNTED] = crc32c(bytes(changed[start + _COUNTED : end])).to_bytes(4)
    return bytes(changed)


def _batches(content: bytes) -> Iterator[tuple[int, int]]:
    """Where each begins and ends."""
    at = 0
    while at + _LEAST <= len(content):
        (length,) = unpack_from(">i", content, at + _HEAD - 4)
        end = at + _HEAD + length
        if length < _LEAST - _HEAD or end > len(content):
            return
        yield at, end
        at = end


def _has_its_checksum(batch: bytes) -> bool:
    return crc32c(batch[_COUNTED:]) == int.from_bytes(batch[_CRC:_COUNTED])
