"""Requests of one kind, between clients and brokers, are held back or repeated by a proxy that knows them apart.

A request that is held back past its client's patience is sent again on another connection, and arrives itself later
than what came after it: so a delayed EndTxn came to end the next transaction of its producer (KAFKA-17754, found by
Jepsen's analysis of Bufstream). Nobody's node is struck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final, Literal

from harness.cluster import Cluster, Evidence, Node
from nemesis import EVERYWHERE, Common, Draw, Layout, Nemesis, Situation, knob

APIS: Final = (
    "Produce", "Fetch", "ListOffsets", "Metadata", "FindCoordinator", "OffsetCommit", "OffsetFetch", "JoinGroup",
    "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "InitProducerId", "AddPartitionsToTxn",
    "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn",
)  # fmt: skip
#: What is drawn if nobody says which: what changes something.
_DRAWN: Final = ("Produce", "OffsetCommit", "AddPartitionsToTxn", "TxnOffsetCommit", "EndTxn")


@dataclass
class _Requests(Common):
    name = ""
    summary = ""
    runtimes = EVERYWHERE
    needs = frozenset({"proxy"})
    exclusive = False
    action: ClassVar[Literal["delay", "repeat"]] = "delay"
    api: str = knob("drawn", "drawn", *APIS, help="which requests, by Kafka's names of them")
    share: float = knob(0.3, 0.001, 1.0, help="of these, those that it strikes")

    def draw(self, random: Random) -> Draw:
        gap, duration = random.uniform(2.0, 5.0), random.uniform(4.0, 8.0)
        api, seed = random.choice(_DRAWN), random.randrange(2**31)
        least, most = self.seconds()
        choice = {
            "api": api if self.api == "drawn" else self.api, "share": self.share, "seed": seed, "least_s": least,
            "most_s": most,
        }  # fmt: skip
        return Draw(gap, duration, choice)

    def seconds(self) -> tuple[float, float]:
        raise NotImplementedError

    def impossible(self, layout: Layout) -> str | None:
        if layout.clients.get("security.protocol", "").endswith("SSL"):
            return "its proxy cannot read what TLS has encrypted"
        return None

    def check(self, choice: Mapping[str, Any], targets: Sequence[str]) -> None:
        if choice["least_s"] > choice["most_s"]:
            raise ValueError(f"its least_s is {choice['least_s']:g}, above its most_s, {choice['most_s']:g}")

    def choose(self, choice: Mapping[str, Any], situation: Situation) -> Sequence[Node]:
        return situation.cluster.brokers

    async def inject(self, cluster: Cluster, nodes: Sequence[Node], choice: Mapping[str, Any]) -> Evidence:
        seconds = choice["least_s"], choice["most_s"]
        return await cluster.hold_requests(
            self.name, choice["api"], self.action, seconds, choice["share"], Random(choice["seed"])
        )

    async def heal(self, cluster: Cluster, nodes: Sequence[Node]) -> Evidence:
        return await cluster.release_requests(self.name)

    def effective(self, evidence: Evidence) -> bool:
        return bool(evidence.get("delayed_requests", 0) or evidence.get("repeated_requests", 0))


@dataclass
class DelayRequests(_Requests):
    name = "requests:delay"
    summary = "requests of one kind arrive late, also when their client has given up and sent them again"
    least_s: float = knob(1.0, 0.001, 600.0, help="seconds that each is held back, at least")
    most_s: float = knob(8.0, 0.001, 600.0, help="and at most")

    def seconds(self) -> tuple[float, float]:
        return min(self.least_s, self.most_s), max(self.least_s, self.most_s)


@dataclass
class RepeatRequests(_Requests):
    name = "requests:repeat"
    summary = "requests of one kind arrive a second time, some time after"
    action: ClassVar[Literal["delay", "repeat"]] = "repeat"
    most_s: float = knob(2.0, 0.0, 600.0, help="seconds after which they do, at most")

    def seconds(self) -> tuple[float, float]:
        return 0.0, self.most_s


@dataclass
class Requests(DelayRequests):
    name = "requests"
    variants: ClassVar[Mapping[str, type[Nemesis]]] = {"delay": DelayRequests, "repeat": RepeatRequests}
