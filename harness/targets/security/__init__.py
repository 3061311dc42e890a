"""TLS and SASL between a cluster and its clients, the table `[clients]` of a plan.

| module | what it is |
| --- | --- |
| this one | Security: what a client needs; each kind of client makes its own settings of it, in one method |
| `given.py` | the names that a plan has for it, and what they stand for: secrets are in the environment or in a file |
| `network.py` | connections of our own that go by it |
| `certificates.py` | an authority for one run, where the harness makes the cluster too |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Security:
    """How a client reaches brokers. It knows secrets, so it is made where it is used, and neither saved nor shown.

    protocol: as Kafka's security.protocol. mechanism, username, password: of SASL. ca, certificate, key: PEM files; ca
    None: the system's authorities; certificate and key None: the client has none. checks_host: must a broker's
    certificate name the address that it is reached by?"""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: str = field(default="", repr=False)
    checks_host: bool = True

    @property
    def has_tls(self) -> bool:
        return has_tls(self.protocol)

    @property
    def has_sasl(self) -> bool:
        return has_sasl(self.protocol)


#: Of a cluster that asks for nothing.
PLAINTEXT: Final = Security()


def has_tls(protocol: str) -> bool:
    return protocol.endswith("SSL")


def has_sasl(protocol: str) -> bool:
    return protocol.startswith("SASL_")


def jaas(module: str, **options: str) -> str:
    """A line of sasl.jaas.config. module: of org.apache.kafka.common.security."""
    words = [f"org.apache.kafka.common.security.{module} required"]
    for name, value in options.items():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        words.append(f'{name}="{quoted}"')
    return " ".join(words) + ";"


def login_module(mechanism: str) -> str:
    """Of Kafka, as jaas() takes it."""
    return "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
