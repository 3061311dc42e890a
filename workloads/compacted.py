"""Workload `compacted`: as `append`, with keys, to a topic that keeps the last value of each (cleanup.policy=compact).

The key of a value is its remainder by KEYS, so that a checker knows it (checkers/log/scope.py, Options.keys). Segments
are closed after a few seconds, for only closed ones are compacted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from cluster_image.storage.records import build_batch
from workloads.append import AppendWorkload

KEYS: Final = 50
_SETTINGS: Final = {
    "cleanup.policy": "compact", "segment.ms": "4000", "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}  # fmt: skip


def _with_keys(values: Sequence[int], *, timestamp_ms: int) -> bytes:
    keys = [(value % KEYS).to_bytes(8) for value in values]
    return build_batch([value.to_bytes(8, signed=True) for value in values], timestamp_ms=timestamp_ms, keys=keys)


class CompactedWorkload(AppendWorkload):
    """As append, with keys, to a compacted topic: of each key the last acknowledged value must be kept."""

    log: ClassVar[Mapping[str, Any]] = {"cleanup.policy": "compact", "keys": KEYS}
    topic_settings: ClassVar[Mapping[str, str]] = _SETTINGS
    can_delete_records: ClassVar[bool] = False
    can_have_short_lived_topics: ClassVar[bool] = False
    takes_producers: ClassVar[bool] = False

    encode = staticmethod(_with_keys)
