"""librdkafka, the C library below most clients that are not in Java."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from harness.targets.security import Security
from workloads.clients.driven.driven import DrivenInPython
from workloads.clients.driven.kind import DELIVERY_S, WithKafkasNames
from workloads.clients.driven.outcomes import gave_up, not_enough_replicas, refused, too_large


class LibrdkafkaGroups(WithKafkasNames):
    assignors: ClassVar = {name: name for name in ("range", "roundrobin", "cooperative-sticky")}


class Librdkafka(DrivenInPython):
    """librdkafka, by confluent-kafka."""

    name = "librdkafka"
    summary: ClassVar = "librdkafka, by confluent-kafka"
    package: ClassVar = "confluent-kafka"
    module: ClassVar = "confluent_kafka"
    driver: ClassVar = "librdkafka"
    request_setting: ClassVar = "socket.timeout.ms"
    idempotent_by_default: ClassVar = False
    transactions: ClassVar = True
    groups: ClassVar = LibrdkafkaGroups("librdkafka")
    secures: ClassVar = True
    aliases: ClassVar = {
        "message.timeout.ms": "delivery.timeout.ms", "message.send.max.retries": "retries",
        "request.required.acks": "acks", "metadata.broker.list": "bootstrap.servers",
    }  # fmt: skip
    meanings: ClassVar = (
        refused("_QUEUE_FULL", "its queue has no room"),
        too_large("MSG_SIZE_TOO_LARGE"),
        not_enough_replicas("NOT_ENOUGH_REPLICAS"),
        gave_up("_MSG_TIMED_OUT"),
    )

    def defaults(self, role: str, bootstrap: str, acks: str) -> Mapping[str, str]:
        common = {"bootstrap.servers": bootstrap, "client.id": f"chaos-{role}"}
        if role == "producer":
            return {**common, "acks": acks, self.delivery_setting: str(round(DELIVERY_S * 1000))}
        # Without a group it has no consumer; nothing is committed, and where a log ends is no reason to skip.
        return {**common, "group.id": "chaos", "enable.auto.commit": "false", "auto.offset.reset": "error"}

    def secured(self, security: Security) -> Mapping[str, str]:
        found = {"security.protocol": security.protocol}
        if security.has_sasl:
            found |= {
                "sasl.mechanisms": security.mechanism, "sasl.username": security.username,
                "sasl.password": security.password,
            }  # fmt: skip
        if security.has_tls:
            # None given: it looks where systems keep them.
            found["ssl.ca.location"] = "probe" if security.ca is None else str(security.ca)
            found["ssl.endpoint.identification.algorithm"] = "https" if security.checks_host else "none"
        if security.certificate is not None:
            found |= {"ssl.certificate.location": str(security.certificate), "ssl.key.location": str(security.key)}
        if security.key_password:
            found["ssl.key.password"] = security.key_password
        return found
