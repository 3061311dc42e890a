"""aiokafka, a client in Python with asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from harness.targets.security import Security
from workloads.clients.driven.driven import DrivenInPython
from workloads.clients.driven.kind import DELIVERY_S, WithPythonsNames, with_pythons_names
from workloads.clients.driven.outcomes import Meaning, refused, too_large


class AiokafkaGroups(WithPythonsNames):
    """Each commit is waited for."""

    assignors: ClassVar = {name: name for name in ("range", "roundrobin")}
    modes: ClassVar = ("sync", "auto")


class Aiokafka(DrivenInPython):
    """aiokafka, in Python with asyncio."""

    name = "aiokafka"
    summary: ClassVar = "aiokafka, in Python with asyncio"
    package: ClassVar = "aiokafka"
    module: ClassVar = "aiokafka"
    driver: ClassVar = "aiokafka"
    bootstrap_setting: ClassVar = "bootstrap_servers"
    idempotence_setting: ClassVar = "enable_idempotence"
    idempotent_by_default: ClassVar = False
    delivery_setting: ClassVar = "request_timeout_ms"  # of a batch as a whole, all its attempts
    request_setting: ClassVar = delivery_setting
    transactions: ClassVar = True
    groups: ClassVar = AiokafkaGroups("aiokafka")
    secures: ClassVar = True
    meanings: ClassVar = (
        refused("UnknownTopicOrPartitionError", "there is no such topic"),
        refused("AssertionError", "there is no such partition"),
        too_large("MessageSizeTooLargeError"),
        Meaning("NotEnoughReplicasError", "always", "info", "it was sent again, and only the last attempt is told of"),
        Meaning("KafkaTimeoutError", "always", "info", "its time has passed; it may have been sent, and not answered"),
    )

    def defaults(self, role: str, bootstrap: str, acks: str) -> Mapping[str, str]:
        common = {"bootstrap_servers": bootstrap, "client_id": f"chaos-{role}"}
        if role == "producer":
            return {**common, "acks": acks, self.delivery_setting: str(round(DELIVERY_S * 1000))}
        return {**common, "enable_auto_commit": "false", "auto_offset_reset": "none"}

    def secured(self, security: Security) -> Mapping[str, str]:
        """Those of TLS are its driver's, which makes the SSLContext that it wants of them."""
        return with_pythons_names(security)
