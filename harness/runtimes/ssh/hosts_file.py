"""hosts.toml: the machines that nodes are to run on, and how they are reached.

rescue_after_s = 60            # how long a host waits for a silent harness before it undoes every fault by itself
[defaults]                     # of every host
user = "admin"
key = "~/.ssh/staging"
[hosts.a]                      # its name; address = "a" unless it says otherwise
rack = "rack-1"
[hosts."10.0.0.7"]             # a name with dots is quoted
fingerprint = "SHA256:…"
[service]                      # a cluster that is already there
unit = "kafka"
data_directory = "/var/lib/kafka"

Files are relative to the folder of hosts.toml. A secret is only ever a reference: env:NAME, or file:PATH.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from harness.errors import BadArguments, did_you_mean
from harness.plan.toml_file import read_toml
from harness.targets.security.given import is_reference

from .connection import ssh_config

Role = Literal["broker", "controller"]
ROLES: Final = ("broker", "controller")
_RESCUE_S: Final = (5.0, 3600.0)
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_UNIT: Final = re.compile(r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]*)?")
_FINGERPRINT: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
#: What a host has for itself alone.
_OWN: Final = ("address", "node_address", "node_id")


@dataclass(frozen=True)
class Host:
    name: str
    address: str  # as ssh takes it: a name, an address, or a Host of ~/.ssh/config
    node_address: str  # where its node is reached, by clients and by the other nodes
    port: int | None = None  # of SSH; None: what ~/.ssh/config says, or 22
    user: str | None = None  # None: what ~/.ssh/config says, or who runs the harness
    key: Path | None = None
    key_password: str = ""  # as the other secrets: env:NAME, file:PATH, or "": none
    password: str = ""
    fingerprint: str = ""  # "SHA256:…" of its key, which then is known by this alone
    known_hosts: Path | None = None
    rack: str = ""
    roles: frozenset[Role] = frozenset({"broker", "controller"})  # what a node on it may be
    data_directory: str = "/var/lib/chaos"
    install_directory: str = "/opt/chaos-hosts"
    device: str = ""  # of blocks, for the data; "": a loop volume in data_directory
    sudo: bool = True  # False: the user may do all that is needed
    sudo_password: str = ""
    python: str = "python3"
    node_id: int | None = None
    may_reboot: bool = False
    may_set_clock: bool = False
    may_destroy_data: bool = False


@dataclass(frozen=True)
class Service:
    """A cluster that is already there: each host runs one node of it."""

    data_directory: str
    controller_port: int
    unit: str = ""  # of systemd; or else
    start: tuple[str, ...] = ()  # these commands, word by word
    stop: tuple[str, ...] = ()
    pid_file: str = ""
    port: int = 9092


@dataclass(frozen=True)
class Hosts:
    hosts: tuple[Host, ...]
    service: Service | None
    rescue_after_s: float
    path: Path


def read(path: Path) -> Hosts:
    """Raises BadArguments, in a sentence that repeats no secret."""
    where = f"--hosts {path}"
    found = read_toml(path, where)
    _known(where, found, ("defaults", "hosts", "service", "rescue_after_s"))
    tables = found.get("hosts", {})
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise BadArguments(f"{where}: hosts must be tables, one for each host: [hosts.NAME]")
    if not tables:
        raise BadArguments(f"{where} has no host; add a table [hosts.NAME] for each")
    defaults = _defaults(where, found.get("defaults", {}), path.parent)
    hosts = tuple(_host(where, name, table, defaults, path.parent) for name, table in tables.items())
    for what, values in (
        ("address", [f"{each.address}{f', port {each.port}' if each.port else ''}" for each in hosts]),
        ("node_address", [each.node_address for each in hosts]),
        ("node_id", [each.node_id for each in hosts]),
    ):
        _different(where, what, hosts, values)
    service = _service(where, found["service"]) if "service" in found else None
    return Hosts(hosts, service, _rescue_after_s(where, found.get("rescue_after_s", 60.0)), path)


def _defaults(where: str, table: Any, folder: Path) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise BadArguments(f"{where}: defaults must be a table: [defaults]")
    for name in _OWN:
        if name in table:
            raise BadArguments(f"{where}: {name} is a host's own, and cannot be in [defaults]; give it in [hosts.NAME]")
    return _fields(f"{where}: [defaults]", table, _HOST, folder)


def _host(where: str, name: str, table: Mapping[str, Any], defaults: Mapping[str, Any], folder: Path) -> Host:
    title = f"{where}: [hosts.{name}]"
    if not _NAME.fullmatch(name):
        raise BadArguments(
            f"{where}: {name!r} cannot be a host's name, which has at most 63 letters, digits, '.', '-' and '_'"
        )
    for key, value in table.items():
        if key not in _HOST and isinstance(value, dict):
            raise BadArguments(f'{title} has a table {key!r} in it; a name with dots is quoted: [hosts."{name}.{key}"]')
    given = {**defaults, **_fields(title, table, _HOST, folder)}
    address = given.setdefault("address", name)
    there = ssh_config.look_up(address, given.get("port"), given.get("user"))
    given.setdefault("node_address", there.host_name)
    given.setdefault("rack", name)
    host = Host(name, **given)
    one, other = (PurePosixPath(each) for each in (host.data_directory, host.install_directory))
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise BadArguments(
            f"{title}: data_directory {one} and install_directory {other} must not lie in one another: what is "
            "installed can be removed, and data stays"
        )
    if host.key_password and host.key is None:
        raise BadArguments(f"{title}: key_password needs key too")
    if host.sudo_password and not host.sudo:
        raise BadArguments(f"{title}: sudo_password is of sudo, and sudo is false")
    if host.fingerprint and "fingerprint" in table and "known_hosts" in table:
        raise BadArguments(f"{title} has a fingerprint and known_hosts; give either")
    return host


def _service(where: str, table: Any) -> Service:
    title = f"{where}: [service]"
    if not isinstance(table, dict):
        raise BadArguments(f"{where}: service must be a table: [service]")
    given = _fields(title, table, _SERVICE, Path())
    if ("start" in given) != ("stop" in given):
        there, lacking = ("start", "stop") if "start" in given else ("stop", "start")
        raise BadArguments(f"{title}: {there} needs {lacking} too")
    if ("unit" in given) == ("start" in given):
        have = "both a unit and commands" if "unit" in given else "neither"
        raise BadArguments(f"{title} has {have}; give either unit, a systemd unit, or the commands start and stop")
    if "pid_file" in given and "unit" in given:
        raise BadArguments(f"{title}: pid_file goes with start and stop; systemd knows the process of its unit")
    if "data_directory" not in given:
        raise BadArguments(f"{title} needs data_directory: where its data is on each host")
    if "controller_port" not in given:
        raise BadArguments(f"{title} has no controller_port: where do the controllers serve the quorum?")
    service = Service(**given)
    if service.port == service.controller_port:
        raise BadArguments(f"{title}: port and controller_port are both {service.port}")
    return service


def _rescue_after_s(where: str, value: Any) -> float:
    least, most = _RESCUE_S
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadArguments(f"{where}: rescue_after_s must be a number of seconds from {least:g} to {most:g}")
    return float(value)


def _fields(title: str, table: Mapping[str, Any], valid: Mapping[str, _Parser], folder: Path) -> dict[str, Any]:
    _known(title, table, tuple(valid))
    found = {}
    for name, value in table.items():
        try:
            found[name] = valid[name](value, folder)
        except ValueError as error:
            raise BadArguments(f"{title}: {name} {error}") from None
    return found


def _known(title: str, table: Mapping[str, Any], valid: tuple[str, ...]) -> None:
    """Values are not repeated: a secret under a wrong name is one all the same."""
    for name in table:
        if name not in valid:
            raise BadArguments(
                f"{title} has {name!r}, which is no setting of it{did_you_mean(name, valid)}; there are "
                f"{', '.join(valid)}"
            )


def _different(where: str, what: str, hosts: tuple[Host, ...], values: list[Any]) -> None:
    first: dict[Any, str] = {}
    for host, value in zip(hosts, values, strict=True):
        if value is not None and (other := first.setdefault(value, host.name)) != host.name:
            raise BadArguments(f"{where}: hosts {other} and {host.name} have the same {what} {value}; each has its own")


# How a field is written: (value, folder of the file) -> as it is in Host. Each raises ValueError with the rest of a
# sentence that begins with the field's name.
_Parser = Callable[[Any, Path], Any]


def _text(value: Any, _: Path) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or value != value.strip():
        raise ValueError("must be a text in quotes")
    return value


def _word(value: Any, folder: Path) -> str:
    if " " in (text := _text(value, folder)) or text.startswith("-"):
        raise ValueError("must be one word, which does not begin with '-'")
    return text


def _yes_or_no(value: Any, _: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _port(value: Any, _: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise ValueError("must be a number from 1 to 65535")
    return value


def _node_id(value: Any, _: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ValueError("must be a number from 0 to 2147483647")
    return value


def _file(value: Any, folder: Path) -> Path:
    found = folder / Path(_text(value, folder)).expanduser()
    if not found.is_file():
        raise ValueError(f"must be a file of this machine, and {found} is none")
    return found.absolute()


def _folder_of_host(value: Any, folder: Path) -> str:
    """Of its own: what is put there is removed again."""
    path = PurePosixPath(_text(value, folder))
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 3:
        raise ValueError(
            f"must be an absolute path of the host at least two levels deep, such as /var/lib/chaos; {path} is not"
        )
    return str(path)


def _absolute(value: Any, folder: Path) -> str:
    if not (path := PurePosixPath(_text(value, folder))).is_absolute():
        raise ValueError("must be an absolute path of the host")
    return str(path)


def _device(value: Any, folder: Path) -> str:
    if value == "":
        return ""
    if not (path := _absolute(value, folder)).startswith("/dev/") or ".." in path.split("/"):
        raise ValueError("must be a device of the host, as /dev/vdb is")
    return path


def _secret(value: Any, folder: Path) -> str:
    if value == "":
        return ""
    if not isinstance(value, str) or not is_reference(value):
        raise ValueError("must be env:NAME or file:PATH, which say where the secret is: it is not to be in this file")
    kind, _, where = value.partition(":")
    return value if kind == "env" else f"file:{(folder / Path(where).expanduser()).absolute()}"


def _fingerprint(value: Any, folder: Path) -> str:
    if value == "":
        return ""
    if not isinstance(value, str) or not _FINGERPRINT.fullmatch(value.rstrip("=")):
        raise ValueError("must be one as `ssh-keygen -l` shows it: SHA256: and 43 characters")
    return value.rstrip("=")


def _roles(value: Any, _: Path) -> frozenset[str]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(each in ROLES for each in words):
        raise ValueError(f"must be a list of {' and '.join(ROLES)}")
    return frozenset(words)


def _unit(value: Any, folder: Path) -> str:
    if not _UNIT.fullmatch(text := _word(value, folder)):
        raise ValueError("must be the name of a systemd unit")
    return text if re.search(r"\.(service|scope)$", text) else f"{text}.service"


def _command(value: Any, folder: Path) -> tuple[str, ...]:
    """As a text, or word by word."""
    if isinstance(value, list) and value and all(isinstance(each, str) and each for each in value):
        return tuple(value)
    try:
        if words := tuple(shlex.split(_text(value, folder))):
            return words
    except ValueError:  # an open quote, too
        pass
    raise ValueError("must be a command: a text, or a list of its words")


_HOST: Final[Mapping[str, _Parser]] = {
    "address": _word, "node_address": _word, "port": _port, "user": _word, "key": _file, "key_password": _secret,
    "password": _secret, "fingerprint": _fingerprint, "known_hosts": _file, "rack": _text, "roles": _roles,
    "data_directory": _folder_of_host, "install_directory": _folder_of_host, "device": _device, "sudo": _yes_or_no,
    "sudo_password": _secret, "python": _word, "node_id": _node_id, "may_reboot": _yes_or_no,
    "may_set_clock": _yes_or_no, "may_destroy_data": _yes_or_no,
}  # fmt: skip
_SERVICE: Final[Mapping[str, _Parser]] = {
    "unit": _unit, "start": _command, "stop": _command, "pid_file": _absolute, "data_directory": _absolute,
    "port": _port, "controller_port": _port,
}  # fmt: skip
