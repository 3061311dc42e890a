"""What replication with KRaft controllers and ELR promises under a plan, and why not under others.

Source: 002, 5.1 and 5.3 (f = MinISR - 1); design, section 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SOURCE: Final = "Kafka's replication protocol: 002, 5.1 and 5.3"
BOUND: Final = "MinISR - 1"


def promise(plan: Mapping[str, Any]) -> dict[str, Any]:
    """plan: plan.json. Returns sentence, lossy_shutdowns, bound, source and exceptions, as
    harness.targets.target.Promise has them."""
    most = int(plan.get("min_insync_replicas") or 1) - 1
    allowed = "1 lossy unclean shutdown" if most == 1 else f"{most} lossy unclean shutdowns"
    return {
        "sentence": f"With acks=all acknowledged records survive {allowed} at a time (MinISR − 1)",
        "lossy_shutdowns": most,
        "bound": BOUND,
        "source": SOURCE,
        "exceptions": _exceptions(plan),
    }


def of_strategy(strategy: str, topic: str = "") -> str:
    """Why nothing is promised with this unclean.recovery.strategy, as a clause; "": it is."""
    if strategy.lower() == "balanced":
        return ""
    return (
        f"with unclean.recovery.strategy={strategy}{f' of {topic}' if topic else ''} acknowledged records "
        "may be lost whenever no eligible replica is available, lossy shutdown or not"
    )


def _exceptions(plan: Mapping[str, Any]) -> list[str]:
    found = []
    acks, settings = str(plan.get("acks", "all")), plan.get("settings") or {}
    if acks not in ("all", "-1"):
        found.append(f"with acks={acks} an acknowledged record may be lost with its leader alone")
    if why := of_strategy(str(settings.get("unclean.recovery.strategy", "balanced"))):
        found.append(why)
    if str(settings.get("eligible.leader.replicas.version", "1")) == "0":
        found.append(
            "without ELR (eligible.leader.replicas.version=0) the last replica of an ISR is elected with whatever it "
            "has left, so one lossy shutdown may lose acknowledged records"
        )
    return found
