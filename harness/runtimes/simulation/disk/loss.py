"""Computes what a simulated disk lost. The evidence has the same form as the Docker agent's, whose comparison of
records it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

from cluster_image.storage.records import CorruptRecord, iter_batches
from harness.runtimes.agent.volume import loss as agent

Content = bytes | bytearray


class FileLoss(NamedTuple):
    """A file that is not what it was."""

    before: bytes
    after: bytes | None  # None: it is gone
    differs_at: int  # the first byte that differs, or the end of the shorter one


@dataclass(frozen=True)
class Loss:
    """files: by path, in order, those that were there and are gone or changed. A file that came back is none."""

    files: Mapping[str, FileLoss]

    @classmethod
    def between(cls, before: Mapping[str, Content], after: Mapping[str, Content]) -> Loss:
        """Of all files by path, before and after."""
        changed = {}
        for path, content in sorted(before.items()):
            survivor = after.get(path)
            if survivor is None:
                changed[path] = FileLoss(bytes(content), None, 0)
            elif survivor != content:
                changed[path] = FileLoss(bytes(content), bytes(survivor), _first_difference(content, survivor))
        return cls(changed)

    @property
    def unsynced_bytes(self) -> int:
        return self._lost["unsynced_bytes"]

    @property
    def unsynced_files(self) -> int:
        return self._lost["unsynced_files"]

    def evidence(self) -> dict[str, Any]:
        """unsynced_bytes, unsynced_files, unsynced_records, lost_by_partition, lost_offsets and
        unsynced_metadata_records, as of the Docker agent's cut_power: in a segment, whole batches count."""
        return dict(self._lost)

    @cached_property
    def _lost(self) -> dict[str, Any]:
        before = _Contents({path: file.before for path, file in self.files.items()})
        after = _Contents({path: file.after for path, file in self.files.items() if file.after is not None})
        # The files left out are those that did not change, which would add nothing.
        return agent.lost(cast(agent.Survey, before), cast(agent.Survey, after))


class _Contents:
    """The part of an agent's Survey that is compared."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.segments = {path: _segment(content) for path, content in files.items() if path.endswith(".log")}
        self.files = {path: content for path, content in files.items() if not path.endswith(".log")}


def _segment(content: bytes) -> agent.Segment:
    segment = agent.Segment(size=len(content))
    try:
        for start, end, _ in iter_batches(content):
            segment.add(end, content[start:end])
    except CorruptRecord:
        pass  # a torn tail
    return segment


def _first_difference(one: Content, other: Content) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
