"""The metadata log, its snapshots, and how much is known to be committed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster_image.network import Entity
from cluster_image.storage.log import Log
from cluster_image.storage.records import CorruptRecord, RecordError
from cluster_image.telemetry.trace import Trace, no_trace

from . import rpc, rules
from .snapshots import SnapshotId, SnapshotStore, decode, encode, start_anew, trim

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Download:
    """A leader's snapshot, on its way here."""

    snapshot: SnapshotId
    content: bytearray = field(default_factory=bytearray)


class Replica:
    def __init__(self, log: Log, snapshots: SnapshotStore, trace: Trace = no_trace) -> None:
        self.log = log
        self.snapshots = snapshots
        self.download: Download | None = None
        self._trace = trace
        # Nothing more is known to be committed until a leader says so.
        self.high_watermark = log.start_offset if snapshots.latest is None else snapshots.latest.end_offset

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
        """What a leader answered to `fetch`: cut off what has diverged from its log, append what it sent, or begin to
        download a snapshot.

        Raises RecordError or NonContiguousAppend if the records cannot be right, and changes nothing then;
        InvariantViolation, OSError.
        """
        if answer.snapshot_id.end_offset >= 0:
            self.download = Download(SnapshotId(int(answer.snapshot_id.end_offset), int(answer.snapshot_id.epoch)))
            return
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

    # -- snapshots --------------------------------------------------------------------------------------------

    def make_snapshot(self, end: int, records: Sequence[bytes], timestamp_ms: int) -> None:
        """Durably write what everything below `end`, which is committed, has come to, and trim the log. timestamp_ms:
        of the last of it. Raises InvariantViolation, OSError."""
        snapshot = SnapshotId(*rules.snapshot_id(self.log, end))
        self.snapshots.write(snapshot, encode(records, snapshot.epoch, timestamp_ms))
        trim(self.log, self.snapshots, self.high_watermark)
        self._trace("metadata snapshot", end=snapshot.end_offset, epoch=snapshot.epoch, start=self.log.start_offset)

    def fetch_snapshot(self, cluster_id: str, node_id: int, epoch: int, max_bytes: int) -> Entity:
        """The request for what the download lacks, from the leader of `epoch`."""
        assert self.download is not None
        return rpc.fetch_snapshot(
            cluster_id, node_id, epoch, self.download.snapshot, len(self.download.content), max_bytes
        )

    def take_chunk(self, asked: Any, answer: Any) -> None:
        """What a leader answered to `fetch_snapshot`. With the last chunk the snapshot replaces the log.

        Raises RecordError if the snapshot cannot be right: the download is over then; InvariantViolation, OSError."""
        download = self.download
        if download is None or not _is_next(download, asked):
            return  # of an earlier download
        try:
            if not _is_next(download, answer) or not answer.unaligned_records:
                raise CorruptRecord(f"not the next bytes of snapshot {download.snapshot}")
            download.content += answer.unaligned_records
            if len(download.content) < answer.size:
                return
            self.download = None
            self._install(download.snapshot, bytes(download.content))
        except RecordError:
            self.download = None
            raise

    def _install(self, snapshot: SnapshotId, content: bytes) -> None:
        decode(content)
        if not rules.may_install_snapshot(snapshot.end_offset, self.high_watermark):
            raise rules.InvariantViolation(f"{snapshot} would undo what is committed below {self.high_watermark}")
        logger.info("%s replaces the metadata log, which ended at %d", snapshot, self.log.end_offset)
        if snapshot != self.snapshots.latest:
            self.snapshots.write(snapshot, content)
        start_anew(self.log, self.snapshots)
        self.high_watermark = snapshot.end_offset
        self._trace("metadata snapshot", end=snapshot.end_offset, epoch=snapshot.epoch, start=self.log.start_offset)


def _is_next(download: Download, data: Any) -> bool:
    """Is a request or an answer about what this download lacks next?"""
    same = (data.snapshot_id.end_offset, data.snapshot_id.epoch) == download.snapshot
    return bool(same and data.position == len(download.content))
