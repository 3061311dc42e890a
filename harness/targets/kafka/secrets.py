"""TLS and SASL of the brokers' listener for clients: what the harness makes for one run, and how brokers are told.

Certificates, and passwords that nobody has given, are new for each run. They are in the folder that a node's container
has as SECRETS, and nowhere else: the properties, which are kept, refer to it.

| file | is |
| --- | --- |
| broker.pem | the private key and the certificate of a broker |
| ca.pem | the authority that vouches for brokers, and for clients |
| plain.jaas | of mechanism PLAIN: the one user and its password |
| format.arguments | of SCRAM, on controllers: the user, for `kafka-storage format` |
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.cluster import Node
from harness.errors import BadArguments
from harness.targets.kafka_api.blanking import blank
from harness.targets.kafka_api.properties import CONTROLLER_LISTENER, in_words
from harness.targets.security import Security, given, jaas, login_module
from harness.targets.target import SECRETS, ClusterPlan, Issued

#: The brokers' listener for clients, and the one that they have among themselves, which stays as it is without TLS.
CLIENTS: Final = "CLIENTS"
BROKERS: Final = "BROKERS"
BROKERS_PORT: Final = 9094
#: Of a user of SCRAM: as Kafka makes them (ScramMechanism).
_ITERATIONS: Final = 4096
_PLAIN_JAAS: Final = "plain.jaas"
#: Settings that say the same.
_OURS: Final = ("inter.broker.listener.name", "listener.security.protocol.map", "security.inter.broker.protocol")
_OURS_BEGIN: Final = ("config.providers", "listener.name.clients.", "sasl.", "ssl.")


def problems(plan: ClusterPlan) -> Iterable[str]:
    """Why a cluster that the harness makes cannot be secured so, a sentence each."""
    if not given.is_secured(plan.clients):
        return
    for name in ("ssl.ca", "ssl.certificate"):
        if name in plan.clients:
            yield f"--clients {name} is not possible here: the harness makes the certificates of each run; leave it out"
    username = plan.clients.get("sasl.username", "a")
    if not username.isascii() or not username.replace("-", "a").replace(".", "a").replace("_", "a").isalnum():
        yield "--clients sasl.username: a user that the harness makes has letters, digits, '.', '_' and '-' alone"
    for name in plan.settings:
        if name in _OURS or name.startswith(_OURS_BEGIN):
            yield f"--set {name} would contradict --clients, by which the harness sets it"


def issue(plan: ClusterPlan, nodes: Sequence[Node], folder: Path) -> Issued:
    """See Target.issue()."""
    clients = given.resolve(plan.clients)
    if clients.has_sasl and not clients.password:
        clients = replace(clients, username=f"chaos-{secrets.token_hex(4)}", password=secrets.token_urlsafe(24))
    if not clients.password.isascii():
        raise BadArguments("--clients sasl.password: of a user that the harness makes it must be ASCII")
    folders = {node.name: _made(folder / node.name) for node in nodes}
    traces: list[bytes] = []
    if clients.has_tls:
        clients = _certified(clients, nodes, folder, folders, given.wants_certificates(plan.clients))
    if clients.mechanism == "PLAIN":
        user = {f"user_{clients.username}": clients.password}
        for node in nodes:
            (folders[node.name] / _PLAIN_JAAS).write_text(jaas(login_module("PLAIN"), **user))
    elif clients.has_sasl:
        user_of_scram = ScramUser.of(clients)
        traces = user_of_scram.traces
        for node in nodes:
            if node.quorum_address is not None:
                (folders[node.name] / "format.arguments").write_text(user_of_scram.format_arguments)
    for made in folders.values():
        for file in made.iterdir():
            file.chmod(0o644)  # the node's user reads it: nobody else gets past the folder of all of them
    return Issued(clients, folders, lambda disk: blank(disk, traces))


def _made(folder: Path) -> Path:
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def _certified(
    clients: Security, nodes: Sequence[Node], folder: Path, folders: Mapping[str, Path], mutual: bool
) -> Security:
    from harness.targets.security.certificates import Authority

    authority = Authority("chaos")
    for node in nodes:
        if node.role == "broker":
            broker = authority.issue(node.name, [node.address[0], node.name])
            (folders[node.name] / "broker.pem").write_bytes(broker.key + broker.certificate)
            (folders[node.name] / "ca.pem").write_bytes(authority.certificate)
    (folder / "ca.pem").write_bytes(authority.certificate)
    clients = replace(clients, ca=folder / "ca.pem")
    if not mutual:
        return clients
    client = authority.issue("chaos-client")
    (folder / "client.pem").write_bytes(client.certificate)
    (folder / "client.key").touch(0o600)
    (folder / "client.key").write_bytes(client.key)
    return replace(clients, certificate=folder / "client.pem", key=folder / "client.key")


@dataclass(frozen=True)
class ScramUser:
    """As Kafka keeps one (RFC 5802, section 3)."""

    name: str
    mechanism: str
    salt: bytes
    salted: bytes

    @classmethod
    def of(cls, clients: Security, salt: bytes | None = None) -> ScramUser:
        salt = secrets.token_bytes(24) if salt is None else salt
        salted = hashlib.pbkdf2_hmac(_hash(clients.mechanism), clients.password.encode(), salt, _ITERATIONS)
        return cls(clients.username, clients.mechanism, salt, salted)

    def _keyed(self, what: bytes) -> bytes:
        return hmac.digest(self.salted, what, _hash(self.mechanism))

    @property
    def traces(self) -> list[bytes]:
        """What of it the metadata log has: its salt, StoredKey and ServerKey, each at least 24 bytes."""
        stored = hashlib.new(_hash(self.mechanism), self._keyed(b"Client Key")).digest()
        return [self.salt, stored, self._keyed(b"Server Key")]

    @property
    def format_arguments(self) -> str:
        """For an argument file of Java, whose words may stand in quotes."""
        salt, salted = (base64.b64encode(each).decode() for each in (self.salt, self.salted))
        return (
            f'--add-scram "{self.mechanism}=[name={self.name},salt=\\"{salt}\\",saltedpassword=\\"{salted}\\",'
            f'iterations={_ITERATIONS}]"\n'
        )


def _hash(mechanism: str) -> str:
    return mechanism.removeprefix("SCRAM-").replace("-", "").lower()


def addresses(node: Node, is_secured: bool) -> str:
    """As `listeners` has them."""
    found = []
    if node.role == "broker" and is_secured:
        found = [f"{CLIENTS}://{in_words(node.address)}", f"{BROKERS}://{in_words((node.address[0], BROKERS_PORT))}"]
    elif node.role == "broker":
        found = [f"PLAINTEXT://{in_words(node.address)}"]
    if (quorum := node.quorum_address) is not None:
        found.append(f"{CONTROLLER_LISTENER}://{in_words(quorum)}")
    return ",".join(found)


def listeners(plan: ClusterPlan) -> Mapping[str, str]:
    """Of a broker's properties, those by which clients reach it so, but for `listeners`."""
    clients = plan.clients
    protocol = given.protocol_of(clients)
    ours = f"listener.name.{CLIENTS.lower()}"
    found = {
        "listener.security.protocol.map": f"{CLIENTS}:{protocol},{BROKERS}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT",
        "inter.broker.listener.name": BROKERS,
    }
    if protocol.endswith("SSL"):
        found |= {
            f"{ours}.ssl.keystore.type": "PEM", f"{ours}.ssl.keystore.location": f"{SECRETS}/broker.pem",
            f"{ours}.ssl.client.auth": "none",
        }  # fmt: skip
        if given.wants_certificates(clients):
            found |= {
                f"{ours}.ssl.client.auth": "required", f"{ours}.ssl.truststore.type": "PEM",
                f"{ours}.ssl.truststore.location": f"{SECRETS}/ca.pem",
            }  # fmt: skip
    if (mechanism := clients.get("sasl.mechanism")) is not None:
        found[f"{ours}.sasl.enabled.mechanisms"] = mechanism
        own = f"{ours}.{mechanism.lower()}.sasl.jaas.config"
        if mechanism == "PLAIN":
            found |= {
                "config.providers": "secrets",
                "config.providers.secrets.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
                own: f"${{secrets:{SECRETS}:{_PLAIN_JAAS}}}",
            }  # fmt: skip
        else:
            found[own] = jaas(login_module(mechanism))
    return found
