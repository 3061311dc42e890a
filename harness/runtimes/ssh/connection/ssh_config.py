"""What ~/.ssh/config says of a host, as ssh itself would take it.

HostName, Port, User, IdentityFile, IdentitiesOnly, ProxyJump, ProxyCommand, UserKnownHostsFile and HostKeyAlias are
looked at, and Include is followed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import paramiko

from harness.errors import BadArguments

_INCLUDE: Final = re.compile(r"\s*include[\s=]+(.+)", re.IGNORECASE)
_DEEPEST: Final = 16  # of files that include each other, as in ssh


@dataclass(frozen=True)
class Entry:
    host_name: str
    port: int | None = None
    user: str | None = None
    keys: tuple[Path, ...] = ()
    only_these_keys: bool = False
    jumps: tuple[str, ...] = ()  # [user@]host[:port] each, the first one is connected to
    command: str = ""  # whose standard input and output is the connection
    known_hosts: tuple[Path, ...] | None = None  # None: the usual ones
    alias: str = ""  # under which its key is known


def default_path() -> Path:
    return Path.home() / ".ssh" / "config"


def look_up(address: str, port: int | None = None, user: str | None = None) -> Entry:
    """address: as it would be given to ssh; port, user: and these with it, by -p and -l. Raises BadArguments if the
    file cannot be understood."""
    path = default_path()
    given = {"Port": port, "User": user}
    try:
        # What is said first holds: also for `Match user`, and for %p and %r.
        first = "".join(f'  {name} "{value}"\n' for name, value in given.items() if value is not None)
        text = "".join(["Host *\n", first, *_lines(path, 0)])
        found = paramiko.SSHConfig.from_text(text).lookup(address)
        port = int(found["port"]) if "port" in found else None
    except (OSError, ValueError, KeyError, ImportError, paramiko.SSHException) as error:
        raise BadArguments(f"{path} cannot be understood: {' '.join(str(error).split())}") from None
    files = found.get("userknownhostsfile")
    jumps = found.get("proxyjump", "none")
    return Entry(
        found["hostname"], port, found.get("user"),
        tuple(Path(each).expanduser() for each in found.get("identityfile", ()) if each.lower() != "none"),
        found.get("identitiesonly", "no").lower() == "yes",
        () if jumps.lower() == "none" else tuple(jump.strip() for jump in jumps.split(",")),
        found.get("proxycommand") or "",
        None if files is None else tuple(
            Path(each).expanduser() for each in shlex.split(files) if each.lower() != "none"
        ),
        found.get("hostkeyalias", ""),
    )  # fmt: skip


def _lines(path: Path, depth: int) -> Iterator[str]:
    """With what is included, in its place. Nothing if there is no such file."""
    if depth > _DEEPEST or not path.is_file():
        return
    for line in path.read_text().splitlines(keepends=True):
        if (included := _INCLUDE.fullmatch(line.rstrip())) is None:
            yield line if line.endswith("\n") else f"{line}\n"
            continue
        for pattern in shlex.split(included[1]):
            whole = default_path().parent / Path(pattern).expanduser()
            for each in sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor)))):
                yield from _lines(each, depth + 1)
