"""What a device may do to a file that nobody writes any more: a bit that flips, an end that is missing.

The part that needs no privilege is used by the simulation as well.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from .loss import batches_in
from .tree import everything, open_beneath, regular_files

_SEGMENT = ".log"
_INDEXES = (".index", ".timeindex", ".txnindex")
_CHECKPOINTS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "leader-epoch-checkpoint")
_METADATA = "__cluster_metadata"

#: Of a record batch: where its length is, and what is spared. Nothing proves the leader epoch. The CRC itself tells
#: replicas apart for those who look on, and a flip in it is found out as one in what it covers.
_LENGTH: Final = struct.Struct(">8xi")
_LENGTH_STARTS_AFTER: Final = 12
_SPARED: Final = range(12, 21)
_BITS = 8
#: Of what was cut off, so many bytes are shown.
_SHOWN = 16


class Damage(NamedTuple):
    """At `position` there is `after` where `before` was; a file that was cut off ends there, and `after` is empty."""

    path: str
    inode: int
    position: int
    size: int  # of the file once it is damaged
    before: bytes
    after: bytes
    offset: int = -1  # of records: the first of the batch that was hit; -1: it is of no batch

    @property
    def is_of_records(self) -> bool:
        return self.path.endswith(_SEGMENT)

    def evidence(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"file": self.path, "position": self.position, "before": self.before[:_SHOWN].hex()}
        if self.is_of_records:
            partition = os.path.basename(os.path.dirname(self.path))
            shown["damaged_by_partition"] = {partition: len(self.after or self.before)}
            if self.offset >= 0:
                shown["damaged_from"] = {partition: self.offset}
        if self.after:
            return {**shown, "after": self.after.hex(), "damaged_bytes": len(self.after)}
        return {**shown, "truncated_bytes": len(self.before), "damaged_bytes": len(self.before)}


def candidates(paths: Iterable[str], what: str) -> list[str]:
    """Of all files of a volume, by path, those that may be damaged as `what`: a closed segment of a partition, that is
    any but its newest; an index of one; a checkpoint."""
    found = sorted(paths)
    if what == "checkpoint":
        return [path for path in found if os.path.basename(path) in _CHECKPOINTS and not path.startswith(_METADATA)]
    newest = {os.path.dirname(path): path for path in found if path.endswith(_SEGMENT)}
    suffixes = (_SEGMENT,) if what == "segment" else _INDEXES
    return [path for path in found if path.endswith(suffixes) and _is_closed(path, newest)]


def chosen(paths: Iterable[str], choice: Mapping[str, Any]) -> str | None:
    """Of the first kind in choice["what"] of which there is a file, the one at choice["which"], in [0, 1)."""
    known = list(paths)
    found = next(filter(None, (candidates(known, what) for what in choice["what"])), [])
    return found[int(choice["which"] * len(found))] if found else None


def is_candidate(path: str, paths: Iterable[str]) -> bool:
    """Still? A segment may have become the newest, and then its node writes it."""
    return any(path in candidates(list(paths), what) for what in ("segment", "index", "checkpoint"))


def plan(content: bytes, how: str, where: float, bit: float, path: str) -> tuple[int, bytes]:
    """(position, what is to be there from now on): no bytes are a file that ends there. where and bit: in [0, 1)."""
    position = int(where * len(content))
    if how == "truncate":
        return position, b""
    if path.endswith(_SEGMENT):
        position = _spare(content, position)
    return position, bytes([content[position] ^ (1 << int(bit * _BITS))])


def first_hit(path: str, content: bytes, position: int) -> int:
    """The offset at which the batch begins that holds this byte of a file; -1: no batch does."""
    if not path.endswith(_SEGMENT):
        return -1
    return next((first for end, first in batches_in(content) if position < end), -1)


def damage(
    root: Path, choice: Mapping[str, Any], kill: Callable[[], int], top: Callable[[str], bool] = everything,
    note: Callable[[Damage], None] = lambda _: None,
) -> tuple[Damage | None, int]:  # fmt: skip
    """Kills the node's process if there is something to damage, and damages it for good. (what, when it was killed).

    choice: see harness.cluster.Node.damage_file. top: see tree.walk(). note: is told of it just before."""
    if chosen(_filled(root, top), choice) is None:
        return None, 0
    killed_at = kill()
    path = chosen(_filled(root, top), choice)
    if path is None:
        return None, killed_at
    descriptor = open_beneath(root, path, os.O_RDWR)
    try:
        status = os.fstat(descriptor)
        content = os.pread(descriptor, status.st_size, 0)
        position, after = plan(content, choice["how"], choice["where"], choice["bit"], path)
        before = content[position : position + len(after)] if after else content[position:]
        size = status.st_size if after else position
        done = Damage(path, status.st_ino, position, size, before, after, first_hit(path, content, position))
        note(done)
        if after:
            os.pwrite(descriptor, after, position)
        else:
            os.ftruncate(descriptor, position)
        os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
        after = os.pread(descriptor, len(after), position)
    finally:
        os.close(descriptor)
    return done._replace(size=size, after=after), killed_at


def restore(root: Path, done: Damage, top: Callable[[str], bool] = everything) -> bool:
    """Puts back what was there, unless the node has changed the file meanwhile, or is about to. Safe to repeat."""
    if not is_candidate(done.path, _paths(root, top)):
        return False
    descriptor = open_beneath(root, done.path, os.O_RDWR)
    try:
        status = os.fstat(descriptor)
        found = os.pread(descriptor, len(done.after), done.position)
        if (status.st_ino, status.st_size, found) != (done.inode, done.size, done.after):
            return False
        at = done.position
        while at < done.position + len(done.before):
            at += os.pwrite(descriptor, done.before[at - done.position :], at)
        os.fsync(descriptor)
        return True
    finally:
        os.close(descriptor)


def nothing_to_damage(choice: Mapping[str, Any]) -> str:
    """Why, as a clause."""
    return {
        "segment": "no partition has a closed segment yet, for log.segment.bytes is more than was written",
        "index": "the node keeps no index files of closed segments",
        "checkpoint": "there is no checkpoint yet",
    }[choice["what"][-1]]


def _filled(root: Path, top: Callable[[str], bool]) -> list[str]:
    """Files that hold anything."""
    return [found.path for found in regular_files(root, top=top) if found.status.st_size]


def _is_closed(path: str, newest: dict[str, str]) -> bool:
    directory, name = os.path.split(path)
    last = newest.get(directory)
    base = name.partition(".")[0]
    return not path.startswith(_METADATA) and last is not None and base < os.path.basename(last).partition(".")[0]


def _spare(content: bytes, position: int) -> int:
    """`position`, or one soon after it that is not spared."""
    start = 0
    while start + _LENGTH.size <= position:
        (length,) = _LENGTH.unpack_from(content, start)
        end = start + _LENGTH_STARTS_AFTER + length
        if length <= 0 or end > position:
            break
        start = end
    return start + _SPARED.stop if position - start in _SPARED and start + _SPARED.stop < len(content) else position


def _paths(root: Path, top: Callable[[str], bool]) -> list[str]:
    return [found.path for found in regular_files(root, top=top)]
