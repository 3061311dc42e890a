"""What a plan says of the security of its clients, under Kafka's own names where it has them: `[clients]` of a file,
`--clients NAME=VALUE` of a command. A secret is only ever a reference: env:NAME, or file:PATH."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from harness.errors import BadArguments, did_you_mean
from harness.targets.security import MECHANISMS, PROTOCOLS, Security, has_sasl, has_tls
from spark_history.regular import require_regular

#: By name, which values are valid, or what is given.
NAMES: Final[Mapping[str, str]] = {
    "security.protocol": ", ".join(PROTOCOLS),
    "sasl.mechanism": ", ".join(MECHANISMS),
    "sasl.username": "a name",
    "sasl.password": "env:NAME or file:PATH",
    "ssl.ca": "a PEM file of certificates",
    "ssl.certificate": "a PEM file: the client's certificate",
    "ssl.key": "a PEM file: its private key",
    "ssl.key.password": "env:NAME or file:PATH",
    "ssl.client.auth": "required, none",
    "ssl.endpoint.identification.algorithm": "https, none",
}
SECRETS: Final = ("sasl.password", "ssl.key.password")
_FILES: Final = ("ssl.ca", "ssl.certificate", "ssl.key")
_CHOICES: Final = ("security.protocol", "sasl.mechanism", "ssl.client.auth", "ssl.endpoint.identification.algorithm")
#: Each is of use with the other alone.
_PAIRS: Final = (("sasl.username", "sasl.password"), ("ssl.certificate", "ssl.key"))


def protocol_of(given: Mapping[str, str]) -> str:
    return given.get("security.protocol", PROTOCOLS[0])


def is_secured(given: Mapping[str, str]) -> bool:
    return protocol_of(given) != PROTOCOLS[0]


def wants_certificates(given: Mapping[str, str]) -> bool:
    """Of clients (mutual TLS)."""
    return given.get("ssl.client.auth") == "required"


def parse(assignments: Iterable[str]) -> dict[str, str]:
    """`--clients` arguments, NAME=VALUE each. Raises BadArguments, which repeats no value: it may be a secret."""
    found: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or not name:
            raise BadArguments("--clients must have the form NAME=VALUE, e.g. security.protocol=SASL_SSL")
        if name in found:
            raise BadArguments(f"--clients {name} is given twice; give it once")
        found[name] = value
    return found


def written_out(given: Mapping[str, str]) -> str | None:
    """That a secret is given itself, as a clause."""
    for name in SECRETS:
        if name in given and not is_reference(given[name]):
            return (
                f"{name} must be env:NAME or file:PATH, which say where the secret is: plans and reports are kept, and "
                "it is not to be in them"
            )
    return None


def problems(given: Mapping[str, str]) -> Iterator[str]:
    """Why a plan cannot say so, a sentence each. What secrets refer to is looked up in resolve()."""
    for name, value in given.items():
        if name not in NAMES:
            there_are = ", ".join(NAMES)
            yield f"--clients has {name!r}, which is no setting of it{did_you_mean(name, NAMES)}; there are {there_are}"
        elif name in _CHOICES and value not in NAMES[name].split(", "):
            yield f"--clients {name}={value} is not possible; valid: {NAMES[name]}"
        elif name in SECRETS:
            continue
        elif not value:
            yield f"--clients {name} is empty; give {NAMES[name]}"
    if (problem := written_out(given)) is not None:
        yield f"--clients {problem}"
    protocol = protocol_of(given)
    for name in given:
        if name.startswith("sasl.") and not has_sasl(protocol):
            yield f"--clients {name} is of SASL, and security.protocol is {protocol}; give SASL_PLAINTEXT or SASL_SSL"
        if name.startswith("ssl.") and not has_tls(protocol):
            yield f"--clients {name} is of TLS, and security.protocol is {protocol}; give SSL or SASL_SSL"
    if has_sasl(protocol) and "sasl.mechanism" not in given:
        yield f"--clients security.protocol={protocol} needs sasl.mechanism too: {NAMES['sasl.mechanism']}"
    for one, other in _PAIRS:
        if (one in given) != (other in given):
            there, lacking = (one, other) if one in given else (other, one)
            yield f"--clients {there} needs {lacking} too"
    if "ssl.key.password" in given and "ssl.key" not in given:
        yield "--clients ssl.key.password needs ssl.key too"


def absolute(given: Mapping[str, str]) -> dict[str, str]:
    """With files that can be found from anywhere."""
    found = dict(given)
    for name, value in given.items():
        if name in _FILES and value:
            found[name] = str(Path(value).expanduser().absolute())
        elif name in SECRETS and value.startswith("file:") and value != "file:":
            found[name] = f"file:{Path(value.removeprefix('file:')).expanduser().absolute()}"
    return found


def resolve(given: Mapping[str, str]) -> Security:
    """With the secrets themselves. Raises BadArguments, which repeats none of them."""
    for problem in problems(given):
        raise BadArguments(problem)
    files: dict[str, Path | None] = {name: Path(given[name]) if name in given else None for name in _FILES}
    found = Security(
        protocol_of(given), given.get("sasl.mechanism", ""), given.get("sasl.username", ""),
        _secret("sasl.password", given), files["ssl.ca"], files["ssl.certificate"], files["ssl.key"],
        _secret("ssl.key.password", given), given.get("ssl.endpoint.identification.algorithm") != "none",
    )  # fmt: skip
    if found.has_tls:
        context(found)
    return found


def is_reference(secret: str) -> bool:
    """Rather than the secret itself."""
    return secret.startswith(("env:", "file:")) and bool(secret.partition(":")[2])


def secret_of(reference: str, what: str) -> str:
    """What is at env:NAME or file:PATH; "" for anything else. what: the beginning of a sentence about it. Raises
    BadArguments, which does not repeat it."""
    kind, _, where = reference.partition(":")
    if kind == "env":
        found = os.environ.get(where, "")
        if not found:
            raise BadArguments(f"{what}: the environment has no variable {where}, or an empty one")
    elif kind == "file":
        try:
            require_regular(Path(where))
            found = Path(where).read_text().removesuffix("\n").removesuffix("\r")
        except (OSError, ValueError) as error:
            raise BadArguments(f"{what}: {where} cannot be read ({_reason(error)})") from None
        if not found:
            raise BadArguments(f"{what}: {where} is empty")
    else:
        return ""
    if not found.isprintable():
        raise BadArguments(f"{what}: what {reference} holds is no password: it has control characters")
    return found


def _secret(name: str, given: Mapping[str, str]) -> str:
    return secret_of(given.get(name, ""), f"--clients {name}")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "it is no text"
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def context(security: Security) -> ssl.SSLContext:
    """For connections to brokers. Raises BadArguments if the files do not hold what they should."""
    try:
        found = ssl.create_default_context(cafile=security.ca)
    except (OSError, ValueError) as error:
        raise BadArguments(f"--clients ssl.ca: {security.ca} has no certificates in PEM ({_of_tls(error)})") from None
    found.check_hostname = security.checks_host
    if security.certificate is not None:
        try:
            # A key without a password that has one would be asked for at the terminal.
            found.load_cert_chain(security.certificate, security.key, password=lambda: security.key_password)
        except (OSError, ValueError) as error:
            raise BadArguments(
                f"--clients ssl.key: {security.key} is not the key of {security.certificate}, or its password is "
                f"another ({_of_tls(error)})"
            ) from None
    return found


def _of_tls(error: Any) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else _reason(error)
