"""Hosts to be reached over SSH: containers on a network of their own, with Debian's sshd, sudo and Python.

A set of them has a folder, with the user's key and hosts.toml. Whatever a killed test leaves is removed by the next set
that is made, by its label; sets of the command stay until `down`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import socket
import tarfile
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from docker.errors import NotFound

from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.agent_container import CAPABILITIES
from harness.runtimes.docker.subnet import create_network
from harness.runtimes.owner import is_alive, owner
from harness.runtimes.ssh.hosts_file import Hosts, read

from . import image

#: Which set a container or network is of.
LABEL: Final = "chaos.ssh-hosts"
_FOLDER_LABEL: Final = f"{LABEL}.folder"
_OWNER_LABEL: Final = f"{LABEL}.owner"  # the process it dies with; "": nobody's
_OF_A_MACHINE: Final = (
    "SETUID", "SETGID", "FOWNER", "FSETID", "AUDIT_WRITE", "MKNOD", "NET_BIND_SERVICE",
)  # fmt: skip
_FREEZERS: Final = Path("/sys/fs/cgroup/freezer")
_RACKS: Final = 3
_READY_S: Final = 30.0
_AT_ONCE: Final = 8


@dataclass(frozen=True)
class Kind:
    """How a host differs from a good one."""

    no_sudo: bool = False
    no_python: bool = False
    password: str = ""  # that its sudo asks for
    skew_s: int = 0  # that its CLOCK_MONOTONIC is ahead
    disk_bytes: int = 0  # of /var/lib/chaos; 0: what the machine has
    other_key: bool = False  # than hosts.toml has a fingerprint of

_LOOKS: Final = 5
_MARK: Final = "looked"


class SshHosts:
    """host-1, host-2, …, once it is entered."""

    def __init__(
        self, folder: Path, count: int = 3, kinds: Mapping[str, Kind] | None = None, *, keep: bool = False,
        mounts: Mapping[str, Path] | None = None,
    ) -> None:  # fmt: skip
        """kinds: by name, of those that are not good. keep: after this process, until down(). mounts: by where hosts
        have it, a folder of this machine, read-only."""
        self.folder = folder.absolute()
        self.file = self.folder / "hosts.toml"
        self.names = [f"host-{number}" for number in range(1, count + 1)]
        self.addresses: dict[str, str] = {}
        self._kinds = kinds or {}
        self._mounts = mounts or {}
        self._owner = "" if keep else owner()
        self._set = uuid.uuid4().hex[:8]
        self._api = engine.connect()

    @property
    def hosts(self) -> Hosts:
        return read(self.file)

    def __enter__(self) -> SshHosts:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        remove(self._api, dead=True)
        made = image.ensure(self._api)
        self.folder.mkdir(parents=True, exist_ok=True)
        private, public = _key_pair()
        key = self.folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(private)
        try:
            subnet = create_network(self._api, self._network, self._labels)
            self.addresses = {name: str(subnet[10 + number]) for number, name in enumerate(self.names)}
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                fingerprints = list(pool.map(lambda name: self._create(name, made, public), self.names))
                self._write(dict(zip(self.names, fingerprints, strict=True)))
                list(pool.map(self.wait_for, self.names))
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        remove(self._api, of_set=self._set)
        self._api.close()

    def container(self, name: str) -> str:
        return f"chaos-ssh-{self._set}-{name}"

    def execute(self, name: str, *command: str) -> tuple[int, str]:
        """As root, beside SSH: exit status and output."""
        asked = self._api.exec_create(self.container(name), list(command))["Id"]
        output = self._api.exec_start(asked).decode(errors="replace")
        return int(self._api.exec_inspect(asked)["ExitCode"]), output

    def look(self, name: str, script: str) -> str:
        """What a script of bash prints there, which changes nothing: Docker now and then loses the begin of what a
        command says, or all of it, where the machine has much to do; and it is asked again then."""
        mark = f"{_MARK}\n"
        for _ in range(_LOOKS):
            told = self.execute(name, "bash", "-c", f"echo {_MARK}; {{ {script}\n}} 2>/dev/null; echo {_MARK}")[1]
            if told.startswith(mark) and told.endswith(mark) and len(told) > len(mark):
                return told.removeprefix(mark).removesuffix(mark)
        raise RuntimeError(f"{name} does not say what it is asked: {script}")

    def inside(self, name: str, path: str) -> Path:
        """A file of it, as seen from here: a command each time is too much for whoever asks often. There is none of a
        host that does not run."""
        pid = self._api.inspect_container(self.container(name))["State"]["Pid"]
        return Path(f"/proc/{pid or 'none'}/root", path.lstrip("/"))

    def said(self, name: str) -> str:
        """By its start script and its sshd."""
        return str(self._api.logs(self.container(name)).decode(errors="replace"))

    def kill(self, name: str) -> None:
        """As if its plug was pulled."""
        self._api.kill(self.container(name))
        self._api.wait(self.container(name))

    def start(self, name: str) -> None:
        """It boots again, with its disk."""
        self._api.start(self.container(name))
        self.wait_for(name)

    def pause(self, name: str) -> None:
        """It is there and does not answer."""
        self._api.pause(self.container(name))

    def unpause(self, name: str) -> None:
        self._api.unpause(self.container(name))

    def wait_for(self, name: str) -> None:
        """Until its sshd answers."""
        deadline = time.monotonic() + _READY_S
        while True:
            with suppress(OSError), socket.create_connection((self.addresses[name], 22), timeout=1) as tried:
                tried.settimeout(5)
                if tried.recv(64).startswith(b"SSH-"):
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} does not answer: {self.said(name)[-500:]}")
            time.sleep(0.02)

    @property
    def _network(self) -> str:
        return f"chaos-ssh-{self._set}"

    @property
    def _labels(self) -> dict[str, str]:
        return {LABEL: self._set, _FOLDER_LABEL: str(self.folder), _OWNER_LABEL: self._owner}

    def _create(self, name: str, tag: str, public: str) -> str:
        """Its key's fingerprint, as hosts.toml is to have it."""
        kind = self._kinds.get(name, Kind())
        environment = {
            "AUTHORIZED_KEY": public, "NO_SUDO": "1" * kind.no_sudo, "NO_PYTHON": "1" * kind.no_python,
            "ASK_PASSWORD": kind.password, "SKEW": str(kind.skew_s) if kind.skew_s else "",
        }  # fmt: skip
        capabilities = [*CAPABILITIES, *_OF_A_MACHINE, *(["SYS_TIME"] if kind.skew_s else [])]
        host_config = self._api.create_host_config(
            cap_drop=["ALL"], cap_add=capabilities, init=True, pids_limit=4096,
            security_opt=["apparmor=unconfined", "label=disable", "seccomp=unconfined"],
            device_cgroup_rules=["b 7:* rmw", "c 10:237 rmw"],
            binds={str(source): {"bind": target, "mode": "ro"} for target, source in self._mounts.items()},
            tmpfs={"/var/lib/chaos": f"size={kind.disk_bytes}"} if kind.disk_bytes else None,
        )  # fmt: skip
        host_config["CgroupnsMode"] = "private"
        endpoint = self._api.create_endpoint_config(ipv4_address=self.addresses[name])
        container = self._api.create_container(
            tag, name=self.container(name), hostname=name, labels=self._labels, environment=environment,
            # What loop devices stand on is a file system of the machine's, and stays with the container; and where
            # programs are put, since to make a file on an overlay takes ten times as long.
            volumes=["/opt", *([] if kind.disk_bytes else ["/var/lib/chaos"])],
            host_config=host_config,
            networking_config=self._api.create_networking_config({self._network: endpoint}),
        )["Id"]  # fmt: skip
        private, fingerprint = _host_key()
        self._api.put_archive(container, "/etc/ssh", _tar("ssh_host_ed25519_key", private))
        self._api.start(container)
        return _host_key()[1] if kind.other_key else fingerprint

    def _write(self, fingerprints: Mapping[str, str]) -> None:
        lines = ["[defaults]", 'user = "admin"', f'key = "{self.folder / "key"}"', ""]
        for number, name in enumerate(self.names):
            lines += [
                f"[hosts.{name}]", f'address = "{self.addresses[name]}"', f'fingerprint = "{fingerprints[name]}"',
                f'rack = "rack-{number % _RACKS + 1}"', "",
            ]  # fmt: skip
        self.file.write_text("\n".join(lines))


def remove(api: docker.APIClient, *, of_set: str = "", folder: Path | None = None, dead: bool = False) -> Sequence[str]:
    """The sets that are meant, by name. dead: those whose process is no more. None of these: all."""
    gone: list[str] = []

    def is_meant(labels: Mapping[str, Any]) -> bool:
        if of_set:
            return bool(labels.get(LABEL) == of_set)
        if folder is not None:
            return bool(labels.get(_FOLDER_LABEL) == str(folder.absolute()))
        whose = labels.get(_OWNER_LABEL, "")
        return not dead or bool(whose and not is_alive(whose))

    containers = [each["Id"] for each in api.containers(all=True, filters={"label": LABEL}) if is_meant(each["Labels"])]
    networks = [each for each in api.networks(filters={"label": LABEL}) if is_meant(each["Labels"])]
    for container in containers:
        _thaw(container)
    for network in networks:
        with suppress(NotFound):
            cleanup.disconnect(api, network["Id"])
    cleanup.remove_containers(api, containers)
    for network in networks:
        with suppress(NotFound):
            cleanup.remove_network(api, network["Id"])
        gone.append(network["Labels"][LABEL])
    return gone


def _thaw(container: str) -> None:
    for name, _, _ in os.walk(_FREEZERS):  # which minds no other container that goes meanwhile
        cgroup = Path(name)
        if cgroup.parent.name == container and cgroup.name.startswith("chaos-"):
            with suppress(OSError):
                (cgroup / "freezer.state").write_text("THAWED")  # cgroup v1 lets nothing die that is frozen


def _key_pair() -> tuple[bytes, str]:
    """OpenSSH's private one, and the public one as a line."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public.decode()


def _host_key() -> tuple[bytes, str]:
    """And its fingerprint."""
    private, public = _key_pair()
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return private, f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _tar(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), 0o600
        tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
