"""Shows an SSH server who we are: keys of files, of the SSH agent, and a password, in that order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import paramiko
from paramiko.ssh_exception import AuthenticationException, BadAuthenticationType, SSHException

_OF_SSH: Final = ("id_ed25519", "id_ecdsa", "id_rsa")
#: A server hangs up after six (MaxAuthTries).
_MOST_KEYS: Final = 5


class Refused(Exception):
    """Nothing that we have lets us in. The message is a clause about the user."""


class KeyUnusable(Exception):
    """The message is a sentence about the key, without its end."""


@dataclass(frozen=True)
class WhoWeAre:
    """Given to paramiko's client as its auth_strategy."""

    user: str
    keys: tuple[Path, ...]  # none: ssh's usual ones
    key_password: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    asks_agent: bool = True

    def authenticate(self, transport: paramiko.Transport) -> list[str]:
        """Raises Refused, KeyUnusable, SSHException."""
        allowed: list[str] = []
        shown = []
        for name, key in self._keys():
            shown.append(name)
            try:
                transport.auth_publickey(self.user, key)
            except BadAuthenticationType as error:
                allowed = list(error.allowed_types)
                break
            except AuthenticationException:
                _still_there(transport)
                continue
            if transport.is_authenticated():
                return []
        if self.password:
            shown.append("the password")
            try:
                transport.auth_password(self.user, self.password)
            except BadAuthenticationType as error:
                allowed = list(error.allowed_types)
            except AuthenticationException:
                _still_there(transport)
            if transport.is_authenticated():
                return []
        if allowed:
            raise Refused(f"lets user {self.user} in by {' or '.join(allowed)} only; give what that takes")
        if not shown:
            raise Refused(
                f"wants to know who user {self.user} is, and there is no key in ~/.ssh nor in an SSH agent: give key "
                "or password"
            )
        raise Refused(
            f"does not let user {self.user} in with {', '.join(shown)}: give another user, key or password, or add the "
            "key to its authorized_keys"
        )

    def _keys(self) -> Iterator[tuple[str, paramiko.PKey]]:
        """Those of files that are given must be usable; of the usual ones, those that are."""
        there = [path for path in self.keys if path.is_file()]
        problem: KeyUnusable | None = None
        for path in there:
            try:
                yield str(path), _load(path, self.key_password)
            except KeyUnusable as error:  # the agent may have it
                problem = problem or error
        if self.asks_agent:
            with suppress(SSHException, OSError):
                for key in paramiko.Agent().get_keys()[:_MOST_KEYS]:
                    yield "what the SSH agent has", key
        if problem is not None:
            raise problem
        if not there and not self.password:
            for path in (Path.home() / ".ssh" / name for name in _OF_SSH):
                if path.is_file():
                    with suppress(KeyUnusable):
                        yield str(path), _load(path, self.key_password)


def _still_there(transport: paramiko.Transport) -> None:
    """A lost connection looks like a refusal."""
    if not transport.is_active():
        raise SSHException("it hung up while we said who we are")


def _load(path: Path, password: str) -> paramiko.PKey:
    try:
        return paramiko.PKey.from_path(path)
    except TypeError:
        pass  # it has a password
    except Exception as error:  # paramiko and cryptography have no common class for what a file may be wrong with
        raise KeyUnusable(f"{path} is no private key that can be used ({_said(error)})") from None
    if not password:
        raise KeyUnusable(
            f"the key {path} has a password: give key_password = env:NAME or file:PATH, or add the key to an SSH agent"
        )
    try:
        secret: str = password.encode()  # type: ignore[assignment] # cryptography takes no text
        return paramiko.PKey.from_path(path, secret)
    except Exception:
        raise KeyUnusable(f"the key {path} has another password than key_password says") from None


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
