"""Of 004, high watermark and leader epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text

_RULES: Final = "kraft/broker/rules.py"
_PARTITION: Final = "kraft/broker/partition.py"
_LEADERSHIP: Final = "kraft/broker/leadership.py"
_EPOCHS: Final = "storage/epoch_cache.py"
_LOG: Final = "storage/log.py"

#: As before KIP-101: the flaw of bug M01.
_BY_WATERMARK: Final = Returns(_RULES, "start_following", "FollowerStart(high_watermark, names_epoch=False)")
#: The bug changes nothing.
_NO_FLAW: Final = Returns(
    "kraft/bugs/m01.py", "truncate_to_high_watermark", "FollowerStart(end_offset, names_epoch=True)"
)

DROPS: Final[Mapping[str, Drop]] = {
    "004-hwm-1": Text(
        _PARTITION,
        "        if offset >= readable or max_bytes <= 0:\n"
        '            return b""\n'
        "        return self.log.read(offset, max_bytes, readable)\n",
        '        if max_bytes <= 0:\n            return b""\n        return self.log.read(offset, max_bytes)\n',
    ),
    "004-hwm-2": Text(
        "replication/replica.py", "max(min(leaders_watermark, self.log.end_offset),", "max(leaders_watermark,"
    ),
    "004-hwm-7": Text(
        "replication/replica.py",
        "            if self._high_watermark > self.log.end_offset:\n"
        "                self._set_high_watermark(self.log.end_offset)\n",
        "",
    ),
    "004-hwm-8": Text(
        "replication/replica.py",
        "self._set_high_watermark(min(max(checkpointed, self.log.start_offset), self.log.end_offset))",
        "self._set_high_watermark(checkpointed)",
    ),
    "004-hwm-3": Text(
        _PARTITION,
        "        self._minimum_or_isr_changed(leadership)\n",
        "        if not new_role:\n            self._minimum_or_isr_changed(leadership)\n",
    ),
    "004-hwm-4": Text(
        _PARTITION,
        "        self._minimum_or_isr_changed(leadership)\n",
        "        if new_role:\n            self._minimum_or_isr_changed(leadership)\n",
    ),
    "004-hwm-5": Text(
        _PARTITION,
        "        if acks != -1:\n"
        "            self._advance_high_watermark()\n"
        "            return Appended(base_offset, None)\n"
        "        done = new_future()\n"
        "        if end_offset <= self._high_watermark:\n"
        "            done.set_result(ErrorCode.none)\n"
        "        else:\n"
        "            leadership.wait(end_offset, done)\n"
        "            self._advance_high_watermark()\n",
        "        if acks != -1:\n"
        "            return Appended(base_offset, None)\n"
        "        done = new_future()\n"
        "        if end_offset <= self._high_watermark:\n"
        "            done.set_result(ErrorCode.none)\n"
        "        else:\n"
        "            leadership.wait(end_offset, done)\n",
    ),
    "004-hwm-6": Text(_PARTITION, "        if advanced:\n            self._advance_high_watermark()\n", ""),
    "004-leo-2": Text("replication/follower_state.py", "        self.end_offset = offset\n", ""),
    # What is sent counts as fetched: one phase.
    "004-epoch-1": Text(
        _PARTITION, "follower.fetched(broker_epoch, offset, end, ", "follower.fetched(broker_epoch, end, end, "
    ),
    "004-epoch-2": _BY_WATERMARK,
    "004-epoch-3": Text(
        _LOG,
        "patch_offset_and_epoch(placed, position, next_offset, leader_epoch)\n"
        "            headers.append(header.placed(next_offset, leader_epoch))",
        "patch_offset_and_epoch(placed, position, next_offset, 0)\n"
        "            headers.append(header.placed(next_offset, 0))",
    ),
    "004-epoch-4": Returns("storage/checkpoints.py", "LeaderEpochCheckpoint.write", "None"),
    "004-epoch-5": Returns("replication/rules.py", "truncation_offset", "0"),
    "004-epoch-6": Text(
        _EPOCHS, "entries[next_index].start_offset if next_index < len(entries) else log_end_offset", "log_end_offset"
    ),
    # The file is believed.
    "004-epoch-7": Text(
        _LOG,
        "                self._epochs.assign(last_epoch, header.base_offset)\n"
        "                if header.base_offset >= producers_from:\n"
        "                    self.producers.update(header)\n"
        "            damaged",
        "                if header.base_offset >= producers_from:\n"
        "                    self.producers.update(header)\n"
        "            for entry in self._epoch_checkpoint.read():\n"
        "                self._epochs.assign(*entry)\n"
        "            damaged",
    ),
    "004-loss-1": _NO_FLAW,
    "004-loss-2": _BY_WATERMARK,
    "004-divergence-1": _NO_FLAW,
    "004-divergence-2": Returns(_RULES, "has_diverged", "False"),
    # A batch is kept if it begins below the cut.
    "004-divergence-3": Text(
        "storage/segment.py",
        "keep = self._batches_below(offset)\n        if keep",
        "keep = bisect_left(self._offsets, offset - self.base_offset)\n        if keep",
    ),
    "004-unclean-1": Returns("kraft/controller/rules.py", "may_lead", "broker is not None and broker.active"),
    "004-unclean-2": Text(
        "kraft/controller/rules.py", "if strategy != BALANCED:", "if strategy not in (BALANCED, PROACTIVE):"
    ),
}
