"""Of KIP-73, throttled replication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text

DROPS: Final[Mapping[str, Drop]] = {
    "throttle-1": Returns("replication/rules.py", "is_throttled_on_leader", "False"),
    "throttle-2": Returns("replication/rules.py", "is_throttled_on_leader", "exceeded"),
    # The ISR, and whom it is proposed with.
    "throttle-3": Returns("kraft/broker/leadership.py", "Leadership.awaits", "replica in self.maximal_isr"),
    "throttle-4": Text(
        "replication/fetch.py", "throttled = found.replica >= 0 and self._quota", "throttled = self._quota"
    ),
    "throttle-5": Text(
        "replication/fetch.py",
        "remaining = min(remaining, max(self._quota.wait(loop.time()), _SHORTEST_PAUSE_S))",
        "pass",
    ),
    "throttle-6": Returns("replication/rules.py", "is_throttled_on_follower", "False"),
    "throttle-7": Returns("replication/rules.py", "is_throttled_on_follower", "exceeded"),
    # Never again.
    "throttle-8": Text(
        "replication/fetcher.py", "until = now + min(quota.wait(now), _LONGEST_HOLD_S)", "until = now + 1e9"
    ),
    "throttle-9": Text(
        "replication/quotas.py",
        "return text is not None and read_replicas(text).has(key[1], self._me)",
        "return True",
    ),
    # Half of it.
    "throttle-10": Text(
        "replication/quotas.py", "self._balance_at(now) - size, now", "self._balance_at(now) - size / 2, now"
    ),
    "throttle-11": Text(
        "replication/fetch.py", "counts=throttled and found.replica not in partition.isr", "counts=throttled"
    ),
    "throttle-12": Text("config/throttling.py", 'for name in (str(broker), ""):', 'for name in ("", str(broker)):'),
    "throttle-13": Text(
        "kraft/metadata/snapshot.py", "for id_, settings in image.broker_settings.items():", "for id_, settings in ():"
    ),
    "throttle-14": Returns(
        "config/throttling.py", "broker_setting_of", "BROKER_SETTINGS.get(name, BROKER_SETTINGS[LEADER.rate])"
    ),
}
