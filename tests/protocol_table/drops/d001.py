"""Of 001, the design on ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text

_RULES: Final = "v2/rules.py"
_ELECTION: Final = "v2/partition/election.py"
_COMMIT: Final = "v2/partition/commit.py"
_MOVES: Final = "v2/partition/reassignments.py"
_QUEUE: Final = "v2/metadata/state_queue.py"
_ADMIN: Final = "v2/admin.py"
_STATE: Final = "v2/state_changes.py"

DROPS: Final[Mapping[str, Drop]] = {
    "001-claims-3": Text(_STATE, '        self._trace("state change received", where, **told)\n', ""),
    "001-startup-1": Text(
        "v2/server.py", "for topic, index in await self._assigned():", "for topic, index in list[tuple[str, int]]():"
    ),
    "001-election-1": Returns(_RULES, "may_lead", "broker in replicas and not is_deleted"),
    "001-election-2": Text(_ELECTION, "        if self._me != replicas[0]:\n", "        if self._me == replicas[0]:\n"),
    "001-election-3": Text(
        _ELECTION,
        "            return  # another was faster, or the partition is gone: whatever it is, its watch fires\n",
        "            pass\n",
    ),
    "001-election-4": Returns(_ELECTION, "Replicating._hear", "None"),
    "001-state-1": Returns(_RULES, "may_start", "True"),
    "001-state-2": Returns(_RULES, "may_close", "True"),
    "001-state-3": Returns(_QUEUE, "StateQueue._shrink", "None"),
    "001-state-4": Text(
        _QUEUE,
        "                raise FollowerStateChangeQueueFull(",
        "                FollowerStateChangeQueueFull(",
    ),
    "001-state-5": Text(_ADMIN, "for r in replicas if r in live and await", "for r in replicas if await"),
    "001-roles-1": Returns(_RULES, "start_following", "FollowerStart(end_offset, names_epoch=True)"),
    "001-roles-2": Returns(_RULES, "next_epoch", "isr_epoch"),
    "001-roles-3": Returns(_RULES, "watermark_on_election", "high_watermark"),
    "001-roles-4": Returns(_ELECTION, "Replicating._wait_for_followers", "None"),
    "001-roles-5": Returns(_RULES, "expected_isr_version", "known_version"),
    "001-topics-1": Returns(_ADMIN, "Admin._clean_failed_creation", "True"),
    "001-topics-2": Text(
        _ADMIN,
        "        if found is not None and found[0] != BEING_MADE:\n            raise",
        "        if False:\n            raise",
    ),
    "001-topics-3": Text(_MOVES, "        if not coming:\n", "        if False:\n"),
    "001-topics-4": Returns(_ADMIN, "Admin._add_partitions", "None"),
    "001-topics-5": Text(
        _ADMIN,
        "            except NodeExists:\n                if loop.time() >= until:\n",
        "            except NodeExists:\n                break\n                if loop.time() >= until:\n",
    ),
    "001-commit-1": Text(
        "v2/partition/replica.py",
        "        done = new_future() if acks == -1 else None\n",
        "        done = new_future()\n",
    ),
    "001-commit-2": Returns(_COMMIT, "Committing._too_slow", "None"),
    "001-commit-3": Returns(_RULES, "may_join_isr", "False"),
    "001-commit-4": Returns(_RULES, "gives_way_to_preferred", "False"),
    "001-commit-5": Text(
        _COMMIT,
        'interval = self._keep_in_sync / 2 if self._config["v2.idle.checks"] else None',
        "interval = self._keep_in_sync / 2",
    ),
    "001-commit-6": Text(
        _COMMIT,
        'interval = self._keep_in_sync / 2 if self._config["v2.idle.checks"] else None',
        "interval = None",
    ),
    "001-moves-1": Text(_MOVES, "            if replica not in assigned:\n", "            if False:\n"),
    "001-moves-2": Returns(_RULES, "may_complete_reassignment", "True"),
    "001-moves-3": Returns(_RULES, "has_reassignment_caught_up", "True"),
    "001-moves-4": Returns(_ADMIN, "Admin.cancel_reassignment", "None"),
}
