"""Part of QuorumAnswered: fetches of the metadata log and of its snapshots. Only the leader serves them, in its epoch
alone; and only who has all of its log, and knows how much of it is committed, waits for an answer.

Source: KIP-595; KIP-630.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from cluster_image.kraft.raft import rpc
from cluster_image.kraft.raft.leader import WaitingFetch
from cluster_image.kraft.raft.quorum import Quorum

from .judging import NONE, hold


def check_metadata_fetch(quorum: Quorum, request: Any, answer: Any) -> None:
    """answer: or WaitingFetch. A fetch changes neither who leads nor the epoch. Raises Wrong."""
    data = rpc.partition(request)
    if data is None:
        return
    asked = int(data.current_leader_epoch)
    waits = isinstance(answer, WaitingFetch)
    told = None if waits else rpc.partition(answer)
    error = NONE if waits else ErrorCode.unknown_topic_or_partition if told is None else told.error_code
    of_log = isinstance(request, rpc.FetchRequest)
    if quorum.leadership is None:
        due = ErrorCode.not_leader_or_follower
    elif asked != quorum.epoch:
        due = ErrorCode.fenced_leader_epoch if asked < quorum.epoch else ErrorCode.unknown_leader_epoch
    elif of_log:
        due = ErrorCode.offset_out_of_range if data.fetch_offset < 0 else NONE
    else:
        _check_chunk(quorum, data, told)
        return
    hold(error is due, f"a fetch in epoch {asked} is due {due.name}, and answered {error.name}")
    if due is NONE:
        _check_told(quorum, request, data, told)


def _check_told(quorum: Quorum, request: Any, data: Any, told: Any | None) -> None:
    """told: None if the fetch waits."""
    log, high_watermark = quorum.replica.log, quorum.replica.high_watermark
    theirs = int(data.fetch_offset), int(data.last_fetched_epoch)
    ours = log.end_offset, log.last_epoch
    knows_all = theirs == ours and int(data.high_watermark) >= high_watermark
    if told is None:
        hold(
            knows_all and request.min_bytes > 0,
            f"it lets wait whose log ends with (offset, epoch) {theirs}, and who knows of watermark "
            f"{data.high_watermark}; its own: {ours}, {high_watermark}",
        )
        return
    watermark = int(told.high_watermark)
    hold(watermark == high_watermark, f"its watermark is {high_watermark}, and it tells {watermark}")
    news = int(told.snapshot_id.end_offset) >= 0, int(told.diverging_epoch.end_offset) >= 0, bool(told.records)
    hold(sum(news) <= 1, "of a snapshot, of where logs part and of records it tells more than one at once")
    hold(not told.records or theirs[0] < ours[0], f"it gives records from {theirs[0]} on, and ends at {ours[0]}")
    hold(any(news) or theirs == ours, f"its log ends with {ours}, and it has nothing for whose ends with {theirs}")


def _check_chunk(quorum: Quorum, data: Any, told: Any | None) -> None:
    """Of a snapshot, asked for in the present epoch."""
    wanted = int(data.snapshot_id.end_offset), int(data.snapshot_id.epoch)
    kept = quorum.replica.snapshots
    error = ErrorCode.unknown_topic_or_partition if told is None else told.error_code
    if wanted not in (kept.earliest, kept.latest):
        hold(error is ErrorCode.snapshot_not_found, f"it has no snapshot {wanted}, and answers {error.name}")
        return
    hold(error in (NONE, ErrorCode.position_out_of_range), f"it has snapshot {wanted}, and answers {error.name}")
    if told is not None and error is NONE:
        size, many = int(told.size), len(told.unaligned_records)
        hold(
            many > 0 and told.position == data.position and 0 <= data.position <= size - many,
            f"asked for snapshot {wanted}, of {size} bytes, from {data.position} on, it gives {many} from "
            f"{told.position} on",
        )
