"""The metadata log and how much of it is known to be committed."""

from __future__ import annotations

import logging
from typing import Any

from ..network import Entity
from ..storage.log import Log
from ..trace import Trace, no_trace
from . import rpc, rules

logger = logging.getLogger(__name__)


class Replica:
    def __init__(self, log: Log, trace: Trace = no_trace) -> None:
        self.log = log
        self._trace = trace
        self.high_watermark = log.start_offset  # nothing more is known to be committed until a leader says so

    def append_as_leader(self, batch: bytes, epoch: int) -> None:
        """Raises OSError."""
        self.log.append_as_leader(batch, epoch)
        self._trace("metadata append", end=self.log.end_offset)

    def fetch(self, cluster_id: str, node_id: int, epoch: int, max_wait_ms: int, max_bytes: int) -> Entity:
        """The request for what follows this log's end, from the leader of `epoch`."""
        log = self.log
        return rpc.fetch(
            cluster_id, node_id, epoch, log.end_offset, log.last_epoch, self.high_watermark, max_wait_ms, max_bytes
        )

    def is_where(self, asked: Any) -> bool:
        """Does this log still end where it did when it was `asked` for more?"""
        return bool(asked.fetch_offset == self.log.end_offset and asked.last_fetched_epoch == self.log.last_epoch)

    def take(self, answer: Any) -> None:
        """What a leader answered to `fetch`: cut off what has diverged from its log, or append what it sent.

        Raises RecordError or NonContiguousAppend if the records cannot be right, and changes nothing then;
        InvariantViolation, OSError.
        """
        if answer.diverging_epoch.end_offset >= 0:
            diverging = int(answer.diverging_epoch.epoch), int(answer.diverging_epoch.end_offset)
            offset = rules.truncation_offset(self.log, diverging, self.high_watermark)
            logger.info("the metadata log is cut from %d to %d", self.log.end_offset, offset)
            self.log.truncate_to(offset)
            self._trace("metadata truncate", end=self.log.end_offset)
            return
        if answer.records:
            self.log.append_as_follower(bytes(answer.records))
            self._trace("metadata append", end=self.log.end_offset)
        self.high_watermark = max(self.high_watermark, min(int(answer.high_watermark), self.log.end_offset))
