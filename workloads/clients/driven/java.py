"""Kafka's own client, in Java."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from harness.errors import BadArguments
from harness.targets.jars import compiler, kafka
from harness.targets.security import Security, jaas, login_module
from workloads.clients.driven.driven import Driven
from workloads.clients.driven.kind import DELIVERY_S, WithKafkasNames
from workloads.clients.driven.outcomes import gave_up, not_enough_replicas, refused, too_large

_SOURCE: Final = Path(__file__).parents[1] / "drivers" / "java" / "ChaosDriver.java"
#: Whose client that is, where nobody says.
DEFAULT: Final = "4.2.0"
_FIRST: Final = (3, 7)
_HEAP: Final = "256m"


class JavaGroups(WithKafkasNames):
    assignors: ClassVar = {
        name: f"org.apache.kafka.clients.consumer.{kind}Assignor"
        for name, kind in (
            ("range", "Range"), ("roundrobin", "RoundRobin"), ("cooperative-sticky", "CooperativeSticky"),
        )
    }  # fmt: skip


class Java(Driven):
    """Kafka's own client, in Java, of any release from 3.7 on."""

    takes: ClassVar = "VERSION"
    example: ClassVar = ""
    summary: ClassVar = f"Kafka's own, in Java: of release {DEFAULT}, or of another by java:VERSION, from 3.7 on"
    idempotent_by_default: ClassVar = True
    transactions: ClassVar = True
    groups: ClassVar = JavaGroups("java")
    secures: ClassVar = True
    meanings: ClassVar = (
        refused("TimeoutException", "within max.block.ms it knew no such partition, or had no room"),
        refused("BufferExhaustedException", "within max.block.ms it had no room"),
        too_large("RecordTooLargeException"),
        not_enough_replicas("NotEnoughReplicasException"),
        gave_up("TimeoutException"),
    )

    def __init__(self, version: str = "") -> None:
        self.name = f"java:{version}" if version else "java"
        self._version = version or DEFAULT
        if not all(part.isdigit() for part in self._version.replace("-", ".").split(".")[:3]):
            raise BadArguments(f"--client {self.name}: {version!r} is no release of Kafka, such as {DEFAULT}")
        if tuple(map(int, self._version.replace("-", ".").split(".")[:2])) < _FIRST:
            raise BadArguments(f"--client {self.name}: the driver of Java's client works from release 3.7 on")

    def prepare(self, tell: Callable[[str], object]) -> None:
        compiler.compiled(_SOURCE, _libs(self._version, tell), self._version, tell)

    def command(self, python: str) -> Sequence[str]:
        libs = _libs(self._version)
        classes = compiler.compiled(_SOURCE, libs, self._version, lambda _: None)
        return [
            str(compiler.java()), f"-Xmx{_HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
            f"{classes}:{_SOURCE.parent}:{libs}/*", "ChaosDriver",
        ]  # fmt: skip

    def defaults(self, role: str, bootstrap: str, acks: str) -> Mapping[str, str]:
        common = {"bootstrap.servers": bootstrap, "client.id": f"chaos-{role}"}
        if role == "producer":
            delivery = str(round(DELIVERY_S * 1000))
            # A request that may take longer than the whole delivery is refused.
            times = {self.delivery_setting: delivery, "request.timeout.ms": "5000", "max.block.ms": delivery}
            return {**common, "acks": acks, **times}
        return {**common, "enable.auto.commit": "false", "auto.offset.reset": "none"}

    def secured(self, security: Security) -> Mapping[str, str]:
        found = {"security.protocol": security.protocol}
        if security.has_sasl:
            module = login_module(security.mechanism)
            found |= {
                "sasl.mechanism": security.mechanism,
                "sasl.jaas.config": jaas(module, username=security.username, password=security.password),
            }
        if security.has_tls:
            found["ssl.endpoint.identification.algorithm"] = "https" if security.checks_host else ""
        if security.ca is not None:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(security.ca)}
        if security.certificate is not None and security.key is not None:
            from harness.targets.security.certificates import readable_key

            # It takes no other form of key than PKCS #8, and not every cipher of one that has a password.
            found |= {
                "ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": security.certificate.read_text(),
                "ssl.keystore.key": readable_key(security.key.read_bytes(), security.key_password),
            }  # fmt: skip
        return found


#: By release, the folder of its jars. That they are whole is looked up once in a process, and not for each client.
_FOUND: Final[dict[str, Path]] = {}


def _libs(version: str, tell: Callable[[str], object] = lambda _: None) -> Path:
    """Raises RuntimeUnavailable."""
    if version not in _FOUND:
        found = kafka.cached(version) or kafka.fetch(version, tell)
        assert found.libs is not None
        _FOUND[version] = found.libs
    return _FOUND[version]
