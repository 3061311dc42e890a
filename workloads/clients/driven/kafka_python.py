"""kafka-python, a client in Python alone, with threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from harness.targets.security import Security
from workloads.clients.driven.driven import DrivenInPython
from workloads.clients.driven.kind import DELIVERY_S, WithPythonsNames, with_pythons_names
from workloads.clients.driven.outcomes import gave_up, not_enough_replicas, refused, too_large


class KafkaPythonGroups(WithPythonsNames):
    assignors: ClassVar = {name: name for name in ("range", "roundrobin", "cooperative-sticky")}


class KafkaPython(DrivenInPython):
    """kafka-python, in Python alone."""

    name = "kafka-python"
    summary: ClassVar = "kafka-python, in Python alone"
    package: ClassVar = "kafka-python"
    module: ClassVar = "kafka"
    driver: ClassVar = "kafka_python"
    bootstrap_setting: ClassVar = "bootstrap_servers"
    idempotence_setting: ClassVar = "enable_idempotence"
    idempotent_by_default: ClassVar = True
    delivery_setting: ClassVar = "delivery_timeout_ms"
    request_setting: ClassVar = "request_timeout_ms"
    transactions: ClassVar = True
    groups: ClassVar = KafkaPythonGroups("kafka-python")
    secures: ClassVar = True
    meanings: ClassVar = (
        refused("KafkaTimeoutError", "within max_block_ms it knew no such topic, or had no room"),
        refused("ValueError", "there is no such partition"),
        too_large("MessageSizeTooLargeError"),
        not_enough_replicas("NotEnoughReplicasError"),
        gave_up("KafkaTimeoutError"),
    )

    def defaults(self, role: str, bootstrap: str, acks: str) -> Mapping[str, str]:
        common = {"bootstrap_servers": bootstrap, "client_id": f"chaos-{role}"}
        if role == "producer":
            delivery = str(round(DELIVERY_S * 1000))
            # A request that may take longer than the whole delivery is refused.
            idempotence = {} if acks == "all" else {"enable_idempotence": "false"}
            times = {self.delivery_setting: delivery, "request_timeout_ms": "5000", "max_block_ms": delivery}
            return {**common, "acks": acks, **times, **idempotence}
        return {**common, "enable_auto_commit": "false", "auto_offset_reset": "none"}

    def secured(self, security: Security) -> Mapping[str, str]:
        return with_pythons_names(security)
