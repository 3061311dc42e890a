"""Puts on hosts what nodes need of this project: the agent, Python packages, and the target itself.

Below the install directory of a host each piece (pieces.py) has a folder that is named by a hash of what is in it: what
is there whole (on_host.py) is there, and is never changed. Nothing else of a host is touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..connection.sessions import HostRefused, Output, Session
from ..doctor import scripts
from ..hosts_file import Host
from .pieces import Piece

_ON_HOST: Final = Path(__file__).with_name("on_host.py")
_OLDEST_PYTHON: Final = (3, 11)
_SEND_S: Final = 600.0
_LOOK_S: Final = 30.0


@dataclass(frozen=True)
class Found:
    """Of a host: python (its version, "3.11") and executable (where that is), machine ("x86_64"), ssh_port (that sshd
    serves there), there (pieces that are installed, and whole), anything (is there any, whole or not)."""

    python: str
    executable: str
    machine: str
    ssh_port: int
    there: frozenset[str] = field(default_factory=frozenset)
    anything: bool = False


def look(session: Session, host: Host, *, thoroughly: bool = False) -> Found:
    """thoroughly: files are compared by their hashes, and not by their sizes alone. Blocks. Raises HostError."""
    command = [host.python, "-c", _ON_HOST.read_text(), "look", host.install_directory, "all" if thoroughly else ""]
    done = session.run(command, timeout_s=_SEND_S if thoroughly else _LOOK_S, what="a look what is installed")
    if done.status != 0:
        raise HostRefused(
            f"host {host.name}: there is no Python that runs as {host.python} ({done.why}): install python3, or name "
            "one by `python` in the hosts file"
        )
    seen: dict[str, Any] = json.loads(done.out)
    if tuple(seen["python"]) < _OLDEST_PYTHON:
        raise HostRefused(
            f"host {host.name}: its {host.python} is Python {_version(seen['python'])}, and {_version(_OLDEST_PYTHON)} "
            "or newer is needed: name another by `python` in the hosts file"
        )
    port = seen["ssh"][3] if seen["ssh"] else host.port or 22
    return Found(
        _version(seen["python"]), seen["executable"], seen["machine"], int(port), frozenset(seen["there"]),
        seen["anything"],
    )


def send(
    session: Session, host: Host, pieces: Sequence[Piece], found: Found,
    tell: Callable[[str], object] = lambda _: None,
) -> list[str]:  # fmt: skip
    """Those that are not there. Names of what was sent. Blocks. Raises HostError."""
    sent = []
    for piece in pieces:
        if piece.name in found.there:
            continue
        tell(f"sending {piece.name} to {host.name}")
        target = f"{host.install_directory}/{piece.name}"
        how = ["receive", target, piece.sha256, "compile" if piece.is_to_be_compiled_for(found.python) else ""]
        command = [host.python, "-c", _ON_HOST.read_text(), *how]
        with piece.archive.open("rb") as archive:
            done = session.run(
                command, input=archive, sudo=True, timeout_s=_SEND_S, what=f"the installation of {piece.name}"
            )
        if done.status != 0:
            raise HostRefused(
                f"host {host.name}: {piece.name} could not be put into {host.install_directory}: {done.why}"
            )
        sent.append(piece.name)
    return sent


def remove(session: Session, host: Host) -> str:
    """Every piece that was ever put there, and the directory if nothing else is in it. What became of that, as a clause
    that follows its name. Blocks. Raises HostError."""
    command = [host.python, "-c", _ON_HOST.read_text(), "remove", host.install_directory]
    done = session.run(command, sudo=True, timeout_s=_SEND_S)
    if done.status != 0:
        raise HostRefused(f"host {host.name}: {host.install_directory} could not be removed: {done.why}")
    told: dict[str, list[str]] = json.loads(done.out)
    if told["others"]:
        return f"stays, for others have something in it; {'ours was removed' if told['removed'] else 'nothing is ours'}"
    return "was removed" if told["removed"] else "is not there"


def ask_agent(session: Session, host: Host, arguments: Sequence[str], timeout_s: float) -> Output:
    """What the agent says to that command, installed or not: it is brought for that, and nothing of it stays. Blocks.
    Raises HostError."""
    command = [host.python, "-c", scripts.AGENT, f"{timeout_s:g}", *arguments]
    what = f"{arguments[0]} of the agent"
    return session.run(command, input=scripts.packed_agent(), sudo=True, timeout_s=timeout_s, what=what)


def agent_command(host: Host, agent: Piece) -> list[str]:
    """What is run as root; the agent's commands follow."""
    path = f"PYTHONPATH={host.install_directory}/{agent.name}"
    return ["env", path, "PYTHONDONTWRITEBYTECODE=1", host.python, "-m", "agent.host"]


def mounts(host: Host, package: Piece, places: Mapping[str, str]) -> dict[str, str]:
    """Of a package: by what a node's process sees, where it is on the host."""
    folder = f"{host.install_directory}/{package.name}"
    return {place: f"{folder}/{part}".rstrip("/") for part, place in places.items()}


def _version(parts: Sequence[int]) -> str:
    return ".".join(map(str, parts))
