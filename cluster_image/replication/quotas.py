"""Replication quotas (KIP-73; Apache Kafka's ReplicationQuotaManager): how fast throttled replicas are replicated.

One quota for what it sends as a leader, one for what it takes as a follower. Whom they hold back is for rules.py to say
(`is_throttled_on_leader`, `is_throttled_on_follower`): nobody that is in sync.

A quota is a balance of bytes that grows by its rate and shrinks by what is replicated; below zero it is exceeded. Kafka
measures the rate over eleven samples of a second, in which a move comes in bursts of seconds; a balance keeps the rate
over any time, and costs no timer.

Here: only what goes to replicas out of sync counts. Kafka counts those in sync, too, so that a move of partitions that
are written to is slower than its quota by what they get.
"""

from __future__ import annotations

import math
from typing import Final

from cluster_image.config import NO_LIMIT
from cluster_image.config.throttling import FOLLOWER, LEADER, Side, rate_of, read_replicas

from .replica import PartitionKey
from .served import Topics

#: One answer carries what the quota gives in so many seconds: it comes in small portions, and not at every byte.
PORTION_S: Final = 0.1
#: What a pause of up to so many seconds has left unused is made up for. After a longer one the balance is zero: a move
#: does not begin with a burst.
CREDIT_S: Final = 1.0
#: Bytes: where a balance that has just been paid back may lie after rounding.
_NOTHING: Final = -0.5


class ReplicationQuota:
    """image: the broker's own. Times in seconds."""

    def __init__(self, image: Topics, broker_id: int, side: Side) -> None:
        self._image = image
        self._me: Final = broker_id
        self._side: Final = side
        self._read_from: object = None  # the settings that the rate is of
        self._rate = NO_LIMIT
        self._balance = 0.0
        self._as_of = float("-inf")
        #: Bytes that have counted so far.
        self.recorded = 0

    @property
    def rate(self) -> int:
        """Bytes a second, NO_LIMIT: none. A new one begins with a balance of zero."""
        settings = self._image.broker_settings
        if settings is not self._read_from:
            self._read_from = settings
            rate = rate_of(settings, self._me, self._side)
            if rate != self._rate:
                self._rate, self._balance, self._as_of = rate, 0.0, float("-inf")
        return self._rate

    @property
    def limited(self) -> bool:
        return self.rate != NO_LIMIT

    def applies_to(self, key: PartitionKey) -> bool:
        """Is the replica of this partition, of this broker, throttled on this side?"""
        if not self.limited:
            return False
        topic = self._image.topics_by_id.get(key[0])
        text = topic.settings.get(self._side.replicas) if topic is not None else None
        return text is not None and read_replicas(text).has(key[1], self._me)

    def is_exceeded(self, now: float, pending: int = 0) -> bool:
        """pending: bytes that are about to be recorded."""
        return self.rate == 0 or self._balance_at(now) - pending < _NOTHING

    def portion(self, now: float, pending: int = 0) -> int:
        """Bytes that may be replicated at once while it is not exceeded: at least 1, for which there is a batch."""
        return max(1, int(max(self._balance_at(now) - pending, PORTION_S * self.rate)))

    def wait(self, now: float) -> float:
        """Seconds until it is not exceeded."""
        if self.rate == 0:
            return math.inf
        return max(0.0, -self._balance_at(now) / self.rate)

    def record(self, size: int, now: float) -> None:
        """So many bytes were replicated, whether it was exceeded or not."""
        if size:
            self._balance, self._as_of = self._balance_at(now) - size, now
            self.recorded += size

    def _balance_at(self, now: float) -> float:
        rate = self.rate
        if rate in (0, NO_LIMIT):
            return 0.0
        balance = self._balance + (now - self._as_of) * rate
        return balance if balance <= CREDIT_S * rate else 0.0


class ReplicationQuotas:
    """A broker's two."""

    def __init__(self, image: Topics, broker_id: int) -> None:
        self.leader: Final = ReplicationQuota(image, broker_id, LEADER)
        self.follower: Final = ReplicationQuota(image, broker_id, FOLLOWER)
