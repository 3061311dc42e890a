"""What kinds of driven clients have in common, and what each says of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from harness.errors import BadArguments, HarnessFailure
from harness.plan.plan import Plan
from harness.targets.security import Security
from workloads.clients.client import Client
from workloads.clients.driven.outcomes import Meaning, Outcomes

#: After which a client gives a record up, where its settings do not say, in seconds: long enough for an election, and
#: short enough for a run of a minute. (Their own are two to five minutes.)
DELIVERY_S: Final = 15.0
#: Where this project's packages are.
_ROOT: Final = Path(__file__).resolve().parents[3]
_CHECK_S: Final = 30.0
#: That one after the other have time within a transaction.
_REQUESTS: Final = 5


@dataclass(frozen=True)
class GroupMembership:
    """Of a member. protocol: "classic" or "consumer" (KIP-848). assignor: "default", "range", "roundrobin",
    "cooperative-sticky" or "uniform". mode: of its commits, "sync", "async", or "auto", by itself. session_s: after
    which a member that is not heard of, or does not poll, is out, in seconds. instance: group.instance.id."""

    group: str
    protocol: str
    assignor: str
    mode: str
    session_s: float
    instance: str | None


class Groups(ABC):
    """Of a client that has consumer groups. assignors: of protocol classic, its names of them."""

    assignors: ClassVar[Mapping[str, str]]
    protocols: ClassVar[Sequence[str]] = ("classic",)
    modes: ClassVar[Sequence[str]] = ("sync", "async", "auto")

    def __init__(self, client: str) -> None:
        self._client = client

    def impossible(self, membership: GroupMembership) -> str | None:
        """A clause."""
        if membership.protocol not in self.protocols:
            return f"client {self._client} has no group protocol {membership.protocol}; it has {self.protocols[0]}"
        if membership.mode not in self.modes:
            return f"client {self._client} does not commit {membership.mode}; it does {' and '.join(self.modes)}"
        of_protocol = self.assignors if membership.protocol == "classic" else ("range", "uniform")
        if membership.assignor != "default" and membership.assignor not in of_protocol:
            return (
                f"client {self._client} has no assignor {membership.assignor} of protocol {membership.protocol}; "
                f"it has {', '.join(of_protocol)}"
            )
        return None

    @abstractmethod
    def settings(self, membership: GroupMembership) -> Mapping[str, str]:
        """Of its client, its own names."""


class WithKafkasNames(Groups):
    """Whose settings have Kafka's names."""

    protocols: ClassVar[Sequence[str]] = ("classic", "consumer")

    def settings(self, membership: GroupMembership) -> Mapping[str, str]:
        session = str(round(membership.session_s * 1000))
        settings = {
            "group.id": membership.group, "auto.offset.reset": "earliest", "max.poll.interval.ms": session,
            "enable.auto.commit": str(membership.mode == "auto").lower(), "auto.commit.interval.ms": "1000",
            "group.protocol": membership.protocol,
        }  # fmt: skip
        if membership.instance is not None:
            settings["group.instance.id"] = membership.instance
        if membership.protocol == "classic":
            settings |= {"session.timeout.ms": session, "heartbeat.interval.ms": str(round(int(session) / 4))}
            if membership.assignor != "default":
                settings["partition.assignment.strategy"] = self.assignors[membership.assignor]
        elif membership.assignor != "default":
            settings["group.remote.assignor"] = membership.assignor
        return settings


class WithPythonsNames(WithKafkasNames):
    """Whose settings have Kafka's names with _ for each dot. assignors: as the driver has them."""

    protocols: ClassVar = ("classic",)

    def settings(self, membership: GroupMembership) -> Mapping[str, str]:
        found = {name.replace(".", "_"): value for name, value in super().settings(membership).items()}
        del found["group_protocol"]
        return found


class Kind(Client):
    """A client of others, but for its access. Of its settings the names are its own."""

    runtimes: ClassVar = frozenset({"docker", "ssh"})
    #: The setting's names in this client.
    acks_setting: ClassVar[str] = "acks"
    bootstrap_setting: ClassVar[str] = "bootstrap.servers"
    retries_setting: ClassVar[str] = "retries"
    idempotence_setting: ClassVar[str] = "enable.idempotence"
    idempotent_by_default: ClassVar[bool]
    delivery_setting: ClassVar[str] = "delivery.timeout.ms"
    #: What a broker may take to answer one request.
    request_setting: ClassVar[str] = "request.timeout.ms"
    #: Other names that it has for settings, and those that are to be given.
    aliases: ClassVar[Mapping[str, str]] = {}
    #: What its errors mean, those that are known.
    meanings: ClassVar[Sequence[Meaning]]
    #: Its consumer groups; None: it has none here.
    groups: ClassVar[Groups | None] = None
    #: Does its driver carry out transactions?
    transactions: ClassVar[bool] = False

    @abstractmethod
    def command(self, python: str) -> Sequence[str]:
        """Of a process that drives it. python: this one's interpreter."""

    @abstractmethod
    def defaults(self, role: str, bootstrap: str, acks: str) -> Mapping[str, str]:
        """Its settings where the user says nothing, and those that only the harness knows. role: "producer" or
        "consumer"."""

    def transactional(self, identity: str, timeout_s: float) -> Mapping[str, str]:
        """Settings of a producer with that transactional.id. timeout_s: transaction.timeout.ms, in seconds, within
        which a record is to be delivered too, and a request be repeated more than once."""
        return {
            self.own_name("transactional_id"): identity,
            self.own_name("transaction_timeout_ms"): str(round(timeout_s * 1000)),
            self.request_setting: str(round(timeout_s * 1000 / _REQUESTS)),
            self.delivery_setting: str(round(min(timeout_s, DELIVERY_S) * 1000)),  # which may be the same
        }

    def secured(self, security: Security) -> Mapping[str, str]:
        """The same in its own settings: the one place where it is translated. Of a kind that says `secures`."""
        raise NotImplementedError(f"client {self.name} has neither TLS nor SASL")

    def own_name(self, name: str) -> str:
        """Of a setting, from Kafka's name of it, with _ for each dot."""
        return name if "_" in self.bootstrap_setting else name.replace("_", ".")

    def environment(self) -> Mapping[str, str]:
        """Beside the harness' own."""
        return {"PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))}

    def outcomes(self, acks: str, settings: Mapping[str, str]) -> Outcomes:
        return Outcomes(self.meanings, self.sends_once(acks, settings), acks)

    def sends_once(self, acks: str, settings: Mapping[str, str]) -> bool:
        return settings.get(self.retries_setting) == "0"

    def delivery_s(self, settings: Mapping[str, str]) -> float:
        given = settings.get(self.delivery_setting)
        return DELIVERY_S if given is None else float(given) / 1000

    def is_idempotent(self, acks: str, settings: Mapping[str, str]) -> bool:
        return self.promises_idempotence(acks, settings) or self.sends_once(acks, settings)

    def promises_idempotence(self, acks: str, settings: Mapping[str, str]) -> bool:
        default = "true" if self.idempotent_by_default and acks == "all" and not self.sends_once(acks, settings) else ""
        return settings.get(self.idempotence_setting, default).lower() == "true"

    def check_setting(self, name: str, value: str) -> None:
        if name == self.bootstrap_setting:
            raise BadArguments(f"--client-set {name} is not possible: the harness knows where the brokers are")
        if name.replace("_", ".").startswith(("security.", "sasl.", "ssl.", "enable.ssl.", "https.")):
            raise BadArguments(
                f"--client-set {name} is not possible: plans are kept, and secrets are not to be in them; use --clients"
            )
        if name in self.aliases:
            raise BadArguments(f"--client-set {name}: give it as {self.aliases[name]}, which is the same")
        if (problem := self._asked({name: value})) is not None:
            raise BadArguments(f"--client-set {problem}")

    def problems(self, plan: Plan) -> Sequence[str]:
        given = plan.client_settings.get(self.acks_setting)
        if given is not None and given.replace("-1", "all") != plan.acks:
            return [f"--client-set {self.acks_setting}={given} contradicts --acks {plan.acks}; use --acks {given}"]
        return []

    def unusable(self, error: str, says: str) -> HarnessFailure:
        """The client could not even be made."""
        return HarnessFailure(f"client {self.name} refuses to start: {error}: {says}")

    def _asked(self, settings: Mapping[str, str]) -> str | None:
        """What the client itself says is wrong with settings. Raises HarnessFailure."""
        self.prepare(lambda _: None)
        try:
            ran = subprocess.run(
                self.command(sys.executable), input=json.dumps({"do": "check", "settings": settings}) + "\n", text=True,
                capture_output=True, timeout=_CHECK_S, env={**os.environ, **self.environment()}, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise HarnessFailure(f"client {self.name} cannot be asked about its settings: {error}") from None
        problem: str | None = json.loads(ran.stdout.splitlines()[-1])["problem"]
        return problem


def with_pythons_names(security: Security) -> Mapping[str, str]:
    """Kind.secured() of clients in Python."""
    found = {"security_protocol": security.protocol}
    if security.has_sasl:
        found |= {
            "sasl_mechanism": security.mechanism, "sasl_plain_username": security.username,
            "sasl_plain_password": security.password,
        }  # fmt: skip
    if security.has_tls:
        found["ssl_check_hostname"] = str(security.checks_host).lower()
    if security.ca is not None:
        found["ssl_cafile"] = str(security.ca)
    if security.certificate is not None:
        found |= {"ssl_certfile": str(security.certificate), "ssl_keyfile": str(security.key)}
    if security.key_password:
        found["ssl_password"] = security.key_password
    return found
