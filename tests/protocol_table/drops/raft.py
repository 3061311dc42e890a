"""Of what 000 leaves to Raft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text

DROPS: Final[Mapping[str, Drop]] = {
    "raft-elections-1": Text("kraft/raft/rules.py", " and state.voted_for in (None, candidate)", ""),
    "raft-elections-2": Returns("kraft/raft/rules.py", "is_log_up_to_date", "True"),
    "raft-elections-3": Text(
        "kraft/raft/rules.py", "    return up_to_date and not hears_leader", "    return up_to_date"
    ),
    "raft-elections-4": Returns("kraft/raft/rules.py", "leadership_lapses_at", "float('inf')"),
    # It goes on where it was.
    "raft-elections-5": Text(
        "kraft/raft/quorum.py",
        """            self.role = Role.RESIGNED
            self._deadline = now + self._election_timeout()
""",
        """            self.role = Role.LEADER
            self._deadline = FOREVER
            self.leadership = Leadership(
                self.id, self.epoch, list(self.voters), [self.id], self.replica, now, self._wall_clock
            )
""",
    ),
    # What it has written is committed.
    "raft-elections-6": Returns("kraft/raft/rules.py", "majority_offset", "max(offsets)"),
    # It says that what it wrote is done, though another leads.
    "raft-elections-10": Text(
        "kraft/controller/server.py",
        """            if step.records:
                raise TimeoutError("deposed before the quorum had committed it") from None
            raise
""",
        """            pass
""",
    ),
    "raft-elections-7": Returns("kraft/raft/rules.py", "is_epoch_in_reach", "True"),
    "raft-elections-8": Text("kraft/raft/rules.py", "    store.write(new)\n", ""),
    "raft-elections-9": Text(
        "kraft/raft/rules.py",
        "kept = old.leader_id in (None, new.leader_id) and old.voted_for in (None, new.voted_for)",
        "kept = True",
    ),
    "raft-log-1": Returns("kraft/raft/rules.py", "next_high_watermark", "max(current, replicated)"),
    "raft-log-2": Returns("kraft/raft/rules.py", "own_acknowledged_offset", "log.end_offset"),
    "raft-log-3": Text(
        "kraft/raft/rules.py", "offset = min(log.end_offset_for_epoch(epoch)[1], end_offset)", "offset = log.end_offset"
    ),
    "raft-log-4": Returns("kraft/raft/rules.py", "make_durable_before_fetch", "None"),
    "raft-log-5": Returns("kraft/raft/rules.py", "make_durable_before_fetch", "None"),
    "raft-log-6": Text("kraft/raft/rules.py", "    if offset < high_watermark:\n", "    if offset < 0:\n"),
    "raft-log-7": Returns("kraft/raft/rules.py", "majority_offset", "max(offsets)"),
    "raft-snapshots-1": Returns("kraft/raft/rules.py", "snapshot_id", "(end - 1, log.epoch_before(end - 1))"),
    "raft-snapshots-2": Text(
        "kraft/metadata/snapshot.py", "for name, value in topic.settings.items():", "for name, value in ():"
    ),
    "raft-snapshots-3": Returns("kraft/raft/rules.py", "trimmed_start", "high_watermark"),
    "raft-snapshots-4": Returns("kraft/raft/rules.py", "needs_snapshot", "False"),
    "raft-snapshots-5": Returns("kraft/raft/rules.py", "may_install_snapshot", "True"),
    "raft-snapshots-6": Returns("kraft/raft/rules.py", "continues_snapshot", "True"),
    "raft-snapshots-7": Text("kraft/metadata/snapshot.py", "broker_epoch=i64(broker.epoch)", "broker_epoch=i64(0)"),
    # Written in place.
    "raft-snapshots-9": Text(
        "kraft/raft/snapshots.py",
        "self._disk.write_atomically(self._path(snapshot), content)",
        "self._disk.open(self._path(snapshot)).append(content)",
    ),
    "raft-snapshots-8": Returns("kraft/raft/rules.py", "trimmed_start", "earliest_snapshot_end"),
}
