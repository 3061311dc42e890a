"""What becomes of requests of one kind, whoever stands between clients and brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal


@dataclass
class Rule:
    """api: Kafka's name of it. seconds: of a request that it applies to, how long it is held back, or after how long it
    is repeated: drawn from this range. share: of such requests, those that it applies to."""

    api: str
    action: Literal["delay", "repeat"]
    seconds: tuple[float, float]
    share: float
    random: Random
    met: int = 0  # requests of the API, meanwhile
    struck: int = 0
    held_s: float = 0.0
    after_hang_up: int = 0  # delivered when their client had hung up

    def draws(self) -> float | None:
        """For how long, of the next request of its API; None: it passes."""
        self.met += 1
        if self.random.random() >= self.share:
            return None
        self.struck += 1
        seconds = self.random.uniform(*self.seconds)
        self.held_s += seconds
        return seconds

    def evidence(self) -> Mapping[str, Any]:
        """See harness.cluster.Cluster.release_requests."""
        struck = {"delay": "delayed_requests", "repeat": "repeated_requests"}[self.action]
        return {
            "api": self.api, "requests": self.met, struck: self.struck, "held_ms": round(self.held_s * 1000),
            "delivered_after_hang_up": self.after_hang_up,
        }  # fmt: skip
