"""Makes one SSH connection: the way there, the host's key, who we are. What goes wrong is one sentence.

A host's key must be known: by hosts.toml's fingerprint alone where it has one, else from known_hosts (the file given,
or the user's and the system's). Nothing is ever added to those.
"""

from __future__ import annotations

import getpass
import logging
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import paramiko
from paramiko.ssh_exception import IncompatiblePeer, SSHException

from harness.errors import BadArguments, HarnessFailure
from harness.targets.security.given import secret_of

from ..hosts_file import Host
from . import ssh_config
from .who_we_are import KeyUnusable, Refused, WhoWeAre

# It logs what it raises, with the way that led there, and where nobody listens that is standard error.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

CONNECT_TIMEOUT_S: Final = 10.0
#: A connection is given up when the other end has confirmed nothing for so long.
SILENCE_S: Final = 20.0
_KEEPALIVE_S: Final = 5
_SYSTEM_KNOWN_HOSTS: Final = Path("/etc/ssh/ssh_known_hosts")
_TCP_USER_TIMEOUT: Final = 18
_MOST_JUMPS: Final = 8
#: By the name that a key has, what signatures with it are called. In the order of preference.
_ALGORITHMS: Final = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}


class HostError(HarnessFailure):
    """What keeps a host from being used. Says its name."""


class HostRefused(HostError):
    """Trying again makes it no better: a person has to do something."""


class HostUnreachable(HostError):
    """It may come back."""


@dataclass
class Connection:
    client: paramiko.SSHClient
    transport: paramiko.Transport
    user: str
    _under_it: list[Callable[[], object]] = field(default_factory=list)

    @property
    def is_alive(self) -> bool:
        return self.transport.is_active()

    def close(self) -> None:
        for close in (self.client.close, *reversed(self._under_it)):
            with suppress(Exception):
                close()


@dataclass(frozen=True)
class _Way:
    """To one machine, the host itself or a jump on the way to it."""

    title: str
    entry: ssh_config.Entry
    port: int
    user: str
    keys: tuple[Path, ...]
    key_password: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    fingerprint: str = ""
    known_hosts: Path | None = None
    only_these_keys: bool = False

    @property
    def place(self) -> str:
        return f"{self.entry.host_name}:{self.port}"


def connect(host: Host) -> Connection:
    """Raises HostRefused, HostUnreachable."""
    try:
        entry = ssh_config.look_up(host.address, host.port, host.user)
        key_password = secret_of(host.key_password, f"host {host.name}: key_password")
        password = secret_of(host.password, f"host {host.name}: password")
    except BadArguments as error:
        raise HostRefused(str(error)) from None
    keys = (host.key,) if host.key is not None else () if password else entry.keys
    way = _Way(
        f"host {host.name}", entry, host.port or entry.port or paramiko.config.SSH_PORT,
        host.user or entry.user or getpass.getuser(), keys, key_password, password, host.fingerprint,
        host.known_hosts, entry.only_these_keys or bool(password),
    )  # fmt: skip
    return _connect(way, 0)


def _connect(way: _Way, depth: int) -> Connection:
    """A host whose fingerprint is given may have several keys, and which of them it shows is for us to choose."""
    offered = _preferred(way)
    shown: paramiko.PKey | None = None
    while True:
        under_it: list[Callable[[], object]] = []
        try:
            return _log_in(way, _way_there(way, under_it, depth), under_it, offered)
        except _OtherKey as other:
            shown = shown or other.shown
            rest = [each for each in offered if each not in _ALGORITHMS.get(other.shown.get_name(), ())]
            _close_all(under_it)
            if not rest or len(rest) == len(offered):
                raise _changed(way, other.shown, way.fingerprint, "hosts.toml") from None
            offered = rest
        except IncompatiblePeer as error:
            _close_all(under_it)
            if shown is not None:
                raise _changed(way, shown, way.fingerprint, "hosts.toml") from None
            raise HostRefused(f"{way.title}: {way.place} speaks another SSH than we do ({_said(error)})") from None
        except BaseException:
            _close_all(under_it)
            raise


def _close_all(under_it: Sequence[Callable[[], object]]) -> None:
    for close in reversed(under_it):
        with suppress(Exception):
            close()


def _way_there(way: _Way, under_it: list[Callable[[], object]], depth: int) -> Any:
    """A socket, or what is like one. under_it: what has to be closed with it, in the order in which it was opened."""
    if way.entry.command:
        return _command(way, under_it)
    if way.entry.jumps:
        if depth + len(way.entry.jumps) > _MOST_JUMPS:
            raise HostRefused(f"{way.title}: ProxyJump leads over more than {_MOST_JUMPS} hosts, or in a circle")
        return _jump(way, under_it, depth)
    try:
        found = socket.create_connection((way.entry.host_name, way.port), timeout=CONNECT_TIMEOUT_S)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise HostUnreachable(f"{way.title}: the name {way.entry.host_name} cannot be looked up now") from None
        raise HostRefused(f"{way.title}: there is no host of the name {way.entry.host_name}") from None
    except TimeoutError:
        raise HostUnreachable(f"{way.title}: {way.place} does not answer within {CONNECT_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise HostUnreachable(f"{way.title}: nobody answers at {way.place} ({error.strerror or error})") from None
    under_it.append(found.close)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, round(SILENCE_S * 1000))
    return found


def _command(way: _Way, under_it: list[Callable[[], object]]) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = f"exec {way.entry.command}"
        process = subprocess.Popen(
            command, shell=True, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL
        )

    def end() -> None:
        process.kill()
        process.wait()

    under_it += [end, ours.close]
    return ours


def _jump(way: _Way, under_it: list[Callable[[], object]], depth: int) -> Any:
    """Over one host after the other. Only to the first one there may be a ProxyJump of its own."""
    stops = [_stop(way, jump, is_first=number == 0) for number, jump in enumerate(way.entry.jumps)]
    channel: Any = None
    for stop, onward in zip(stops, [*stops[1:], way], strict=True):
        name, port = onward.entry.host_name, onward.port
        if channel is None:
            connection = _connect(stop, depth + len(stops))
        else:
            connection = _log_in(stop, channel, [], _preferred(stop))
        under_it.append(connection.close)
        try:
            channel = connection.transport.open_channel(
                "direct-tcpip", (name, port), ("", 0), timeout=CONNECT_TIMEOUT_S
            )
        except (SSHException, OSError, EOFError) as error:
            raise HostUnreachable(f"{stop.title} cannot reach {name}:{port} ({_said(error)})") from None
    return channel


def _stop(way: _Way, jump: str, *, is_first: bool) -> _Way:
    user, _, place = jump.rpartition("@")
    address, port = place, ""
    if place.startswith("["):  # of IPv6
        address, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    elif place.count(":") == 1:
        address, _, port = place.partition(":")
    if not address or (port and not port.isdigit()):
        raise HostRefused(f"{way.title}: ProxyJump {jump!r} is not [user@]host[:port]")
    try:
        found = ssh_config.look_up(address, int(port) if port else None, user or None)
    except BadArguments as error:
        raise HostRefused(str(error)) from None
    if not is_first:
        found = ssh_config.Entry(
            found.host_name, found.port, found.user, found.keys, found.only_these_keys, (), "", found.known_hosts,
            found.alias,
        )  # fmt: skip
    return _Way(
        f"{way.title}, by way of {address}", found, int(port) if port else found.port or paramiko.config.SSH_PORT,
        user or found.user or getpass.getuser(), found.keys or way.keys, way.key_password,
        known_hosts=way.known_hosts, only_these_keys=found.only_these_keys,
    )  # fmt: skip


class _OtherKey(Exception):
    """The host shows a key other than that of its fingerprint."""

    def __init__(self, shown: paramiko.PKey) -> None:
        self.shown = shown


class _Strict(paramiko.MissingHostKeyPolicy):
    """Asked about every key, for the client itself knows none."""

    def __init__(self, way: _Way) -> None:
        self._way = way

    def missing_host_key(self, _: paramiko.SSHClient, __: str, key: paramiko.PKey) -> None:
        way = self._way
        if way.fingerprint:
            if key.fingerprint != way.fingerprint:
                raise _OtherKey(key)
            return
        known = _known_keys(way)
        if any(each == key for each in known):
            return
        if (same_kind := [each for each in known if each.get_name() == key.get_name()]) or known:
            raise _changed(way, key, ", ".join(each.fingerprint for each in same_kind or known), _files_named(way))
        raise HostRefused(
            f"{way.title}: the key of {way.place} is not known: {key.get_name()} {key.fingerprint}; if that is what "
            f"the host itself says (ssh-keygen -lf /etc/ssh/ssh_host_{_kind(key)}_key.pub), give it as fingerprint = "
            f'"{key.fingerprint}", or add the key to {_files_named(way)} by ssh-keyscan'
        )


def _kind(key: paramiko.PKey) -> str:
    return "rsa" if key.get_name() == "ssh-rsa" else "ecdsa" if key.get_name().startswith("ecdsa") else "ed25519"


def _changed(way: _Way, shown: paramiko.PKey, known: str, where: str) -> HostRefused:
    return HostRefused(
        f"{way.title}: the key of {way.place} has changed: it shows {shown.fingerprint}, and {where} has {known}; "
        "either the host was set up anew, and what is known of it has to be replaced, or somebody else answers in its "
        "place"
    )


def _preferred(way: _Way) -> list[str]:
    """Algorithms, those of keys that are known first."""
    known = {key.get_name() for key in ([] if way.fingerprint else _known_keys(way))}
    names = sorted(_ALGORITHMS, key=lambda name: name not in known)
    return [each for name in names for each in _ALGORITHMS[name]]


def _known_hosts_files(way: _Way) -> list[Path]:
    if way.known_hosts is not None:
        return [way.known_hosts]
    home = Path.home() / ".ssh"
    usual = (home / "known_hosts", home / "known_hosts2")
    return [*(usual if way.entry.known_hosts is None else way.entry.known_hosts), _SYSTEM_KNOWN_HOSTS]


def _files_named(way: _Way) -> str:
    return str(_known_hosts_files(way)[0])


def _known_keys(way: _Way) -> list[paramiko.PKey]:
    name = way.entry.alias or way.entry.host_name
    if way.port != paramiko.config.SSH_PORT and not way.entry.alias:
        name = f"[{name}]:{way.port}"
    found: list[paramiko.PKey] = []
    for file in _known_hosts_files(way):
        if not file.is_file():
            continue
        keys = paramiko.HostKeys()
        try:
            keys.load(str(file))
        except Exception as error:  # paramiko has no common class for what a line may be wrong with
            raise HostRefused(f"{way.title}: {file} cannot be understood ({_said(error)})") from None
        if (entries := keys.lookup(name)) is not None:
            found += list(entries.values())
    return found


def _log_in(way: _Way, there: Any, under_it: list[Callable[[], object]], offered: Sequence[str]) -> Connection:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(_Strict(way))

    def transport(sock: Any, **options: Any) -> paramiko.Transport:
        made = paramiko.Transport(sock, **options)
        ours = made.get_security_options()
        ours.key_types = [each for each in offered if each in ours.key_types]
        return made

    who: Any = WhoWeAre(way.user, way.keys, way.key_password, way.password, asks_agent=not way.only_these_keys)
    try:
        client.connect(
            way.entry.host_name, way.port, way.user, timeout=CONNECT_TIMEOUT_S, banner_timeout=CONNECT_TIMEOUT_S,
            auth_timeout=CONNECT_TIMEOUT_S, channel_timeout=CONNECT_TIMEOUT_S, sock=there, transport_factory=transport,
            auth_strategy=who, allow_agent=False, look_for_keys=False,
        )  # fmt: skip
        found = client.get_transport()
        assert found is not None
        found.set_keepalive(_KEEPALIVE_S)
        return Connection(client, found, way.user, under_it)
    except (HostError, _OtherKey, IncompatiblePeer):
        client.close()
        raise
    except Refused as error:
        client.close()
        raise HostRefused(f"{way.title}: {way.place} {error}") from None
    except KeyUnusable as error:
        client.close()
        raise HostRefused(f"{way.title}: {error}") from None
    except (SSHException, OSError, EOFError, ValueError) as error:
        client.close()
        raise _of_log_in(way, error) from None
    except BaseException:
        client.close()
        raise


def _of_log_in(way: _Way, error: Exception) -> HostUnreachable:
    if isinstance(error, EOFError | OSError) or "banner" in str(error).lower():
        return HostUnreachable(f"{way.title}: {way.place} answers, but not as an SSH server does ({_said(error)})")
    return HostUnreachable(f"{way.title}: no connection to {way.place} ({_said(error)})")


def _said(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
