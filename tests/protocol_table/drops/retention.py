"""Of retention, DeleteRecords and the log start offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text

_RULES: Final = "kraft/broker/rules.py"
_SHARED: Final = "replication/rules.py"
_PARTITION: Final = "kraft/broker/partition.py"
_LEADERSHIP: Final = "kraft/broker/leadership.py"
_REPLICA: Final = "replication/replica.py"
_RETENTION: Final = "replication/retention.py"
_LOG: Final = "storage/log.py"

DROPS: Final[Mapping[str, Drop]] = {
    "retention-1": Text(
        _SHARED, "return is_leader and end_offset <= high_watermark", "return end_offset <= high_watermark"
    ),
    "retention-2": Text(_SHARED, "return is_leader and end_offset <= high_watermark", "return is_leader"),
    "retention-3": Returns(_SHARED, "is_out_of_date", "False"),
    "retention-4": Text(
        _SHARED, "latest_timestamp is not None and latest_timestamp >= 0", "latest_timestamp is not None"
    ),
    "retention-5": Returns(_SHARED, "is_beyond_size", "False"),
    "retention-6": Returns(_RETENTION, "deletes", "True"),
    "retention-7": Returns(_REPLICA, "Replica._follow_log_start", "None"),
    "retention-8": Returns(_SHARED, "next_log_start_offset", "max(current, told)"),
    "retention-9": Returns(_SHARED, "next_log_start_offset", "min(told, high_watermark)"),
    "retention-10": Text(
        _PARTITION, "            self._follow_log_start(follower.deleted_below)\n", "            pass\n"
    ),
    "retention-32": Returns(_SHARED, "deleted_below", "followers_start"),
    "retention-31": Text(_PARTITION, "            self._follow_log_start(deleted_below)\n", "            pass\n"),
    "retention-11": Text(
        _PARTITION,
        "        if not self.log.start_offset <= offset <= self.log.end_offset:\n"
        "            raise Refused(ErrorCode.offset_out_of_range)\n"
        "        readable = ",
        "        readable = ",
    ),
    "retention-12": Returns(_PARTITION, "Partition.start_of_log", "0"),
    "retention-13": Returns(_REPLICA, "Replica.leader_starts_at", "None"),
    "retention-14": Returns(_RULES, "begins_elsewhere", "False"),
    "retention-15": Returns(_SHARED, "keeps_nothing", "False"),
    "retention-16": Returns(_LOG, "Log._begins_within", "False"),
    "retention-17": Text(
        _PARTITION,
        "        leadership = self._require_leadership()\n        if not deletes",
        "        leadership = self.leadership or Leadership(0, {})\n        if not deletes",
    ),
    "retention-18": Returns(_RULES, "may_delete_up_to", "True"),
    "retention-19": Text(
        _PARTITION,
        "        if not deletes(self._config):\n            raise Refused(ErrorCode.policy_violation)\n",
        "",
    ),
    "retention-20": Returns(_RULES, "low_watermark", "own_start"),
    "retention-21": Text(
        _LEADERSHIP, " for r, f in self.followers.items() if lives(r)]", " for f in self.followers.values()]"
    ),
    "retention-22": Returns("kraft/broker/handlers/delete_records.py", "_expire", "None"),
    "retention-23": Returns(_LEADERSHIP, "Leadership.refuse_deleting", "None"),
    "retention-24": Text(
        "storage/segments.py", "            if not gaps_allowed or number == count - 1:\n", "            if False:\n"
    ),
    "retention-25": Text("replication/log_manager.py", "            start_offset=noted,\n", ""),
    "retention-26": Returns("replication/log_manager.py", "LogManager._forget_start", "None"),
    "retention-27": Returns("storage/epoch_cache.py", "EpochCache.restore_before", "None"),
    "retention-28": Returns(_RETENTION, "interval", "LONGEST_INTERVAL_S"),
    "retention-29": Text(
        _REPLICA, "truncate_fully_and_start_at(offset, epoch_before)", "truncate_fully_and_start_at(offset)"
    ),
    "retention-30": Returns(_SHARED, "lacks_its_begin", "False"),
    "retention-33": Returns("replication/log_manager.py", "LogManager.note_starts", "None"),
}
